//! `run` and `record`: the daemon.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::pin,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::sync_channel,
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::Context as _;
use tokio::{
    net::TcpListener,
    runtime::Runtime,
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
    task::JoinHandle as Task,
};

use super::{
    Outcome, Scope,
    failure::{Failure, chain},
    live::{Core, Live, Probes},
    recorder::{Recorder, cannot_create},
    setup,
};
use crate::{
    config::Config,
    decode::Observation,
    export::{Export, http, snapshot::RecordingState},
    pipeline::{self, Pipeline},
    probe,
    source::{
        nvml::{Control, Nvml},
        ring::RingSource,
    },
};

/// Observations that may wait for the live loop.
const OBSERVATIONS: usize = 1024;
/// How long followers get to take their last lines.
const GRACE: Duration = Duration::from_secs(2);

/// What a daemon run is asked to do.
struct Plan {
    config: Config,
    /// Serve the HTTP API.
    serve: bool,
    record: Option<PathBuf>,
    stop_after: Option<Duration>,
}

pub(super) fn run(scope: &Scope, listen: Option<SocketAddr>, record: Option<PathBuf>) -> Outcome {
    let config = setup::config(scope, listen)?;
    daemon(&Plan { config, serve: true, record, stop_after: None })?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn record(
    file: PathBuf,
    seconds: Option<u64>,
    scope: &Scope,
    listen: Option<SocketAddr>,
) -> Outcome {
    let config = setup::config(scope, listen)?;
    let stop_after = seconds.map(Duration::from_secs);
    let core = daemon(&Plan { config, serve: listen.is_some(), record: Some(file), stop_after })?;
    match core.recorder.state() {
        state if state.state == RecordingState::Failed => {
            Err(Failure::failed(anyhow::anyhow!(state.reason.unwrap_or_default())))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Everything that can fail cheaply comes first, attaching last.
fn daemon(plan: &Plan) -> Result<Core, Failure> {
    setup::logging(plan.config.log_level);
    let runtime = runtime()?;
    let listener = if plan.serve { Some(runtime.block_on(http::bind(plan.config.listen))?) } else { None };
    let recorder = recorder(plan.record.as_deref(), &plan.config)?;
    let export = Export::new(plan.config.keep_requests, &setup::metrics(&plan.config));
    let pipeline = Pipeline::new(pipeline::Settings {}).with_versions(&plan.config.version_rules);
    let core =
        Core::new(pipeline, recorder, Arc::clone(&export)).with_state(plan.config.state_file.as_deref());
    let stop = Arc::new(AtomicBool::new(false));
    let (ended, loop_ended) = oneshot::channel();
    let (sender, observations) = sync_channel(OBSERVATIONS);
    let mut signals = Signals::install(&runtime)?;
    let server = Server::start(&runtime, listener, &export);
    let nvml = setup::nvml(&plan.config).map(|nvml| Nvml::start(nvml, sender.clone())).transpose()?;
    let control = nvml.as_ref().map(Nvml::control);
    let (session, ring) = probe::Session::start(&setup::probes(&plan.config), sender)?;
    let live = Live::new(ring, Probes::new(session, nvml), observations, core, plan.config.poll_interval);
    let live = spawn(live, Arc::clone(&stop), ended)?;
    announce(plan, server.as_ref());
    runtime.block_on(signals.wait(plan.stop_after, loop_ended, control.as_ref()));
    stop.store(true, Ordering::Relaxed);
    let core = live.join().map_err(|_| Failure::failed(anyhow::anyhow!("the live loop has panicked")));
    // Also where the live loop has failed: followers must not wait for ever.
    export.store.close();
    export.steps.close();
    if let Some(server) = server {
        runtime.block_on(server.finish());
    }
    runtime.shutdown_timeout(Duration::ZERO);
    let mut core = core?
        .map_err(|error| Failure::failed(anyhow::Error::new(error).context("cannot read the ring buffer")))?;
    std::mem::take(&mut core.keeper).finish(|| core.pipeline.diagnosis().save());
    farewell(&core);
    Ok(core)
}

fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("http")
        .enable_all()
        .build()
        .context("cannot start the threads of the HTTP API")
        .map_err(Failure::unavailable)
}

fn recorder(path: Option<&Path>, config: &Config) -> Result<Recorder, Failure> {
    path.map_or(Ok(Recorder::default()), |path| {
        Recorder::create(path.into(), config.recording_max_bytes)
            .map_err(|error| Failure::unavailable(cannot_create(path, error)))
    })
}

/// Starts the thread that owns what is attached: when it ends, everything is detached.
fn spawn(
    live: Live<RingSource, Probes>,
    stop: Arc<AtomicBool>,
    ended: oneshot::Sender<()>,
) -> Result<JoinHandle<io::Result<Core>>, Failure> {
    let start = Observation::Start {
        agent: env!("CARGO_PKG_VERSION").into(),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        rows: probe::table::row_names(),
    };
    let body = move || {
        let core = live.run(&start, &stop);
        drop(ended);
        core
    };
    std::thread::Builder::new()
        .name("live".into())
        .spawn(body)
        .context("cannot start the thread of the live loop")
        .map_err(Failure::unavailable)
}

/// The signals that end a run, and those that close and open NVML. Installed before anything is attached, so that none
/// comes too early.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    release: Signal,
    resume: Signal,
}

impl Signals {
    fn install(runtime: &Runtime) -> Result<Self, Failure> {
        let _context = runtime.enter();
        let install = |kind| signal(kind).context("cannot wait for signals").map_err(Failure::unavailable);
        Ok(Self {
            terminate: install(SignalKind::terminate())?,
            interrupt: install(SignalKind::interrupt())?,
            release: install(SignalKind::user_defined1())?,
            resume: install(SignalKind::user_defined2())?,
        })
    }

    /// Until a signal, the time that was asked for, or the end of the live loop by itself.
    async fn wait(
        &mut self,
        stop_after: Option<Duration>,
        mut loop_ended: oneshot::Receiver<()>,
        nvml: Option<&Control>,
    ) {
        let mut time_is_up = pin!(sleep(stop_after));
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return tracing::info!("SIGTERM: finishing"),
                _ = self.interrupt.recv() => return tracing::info!("SIGINT: finishing"),
                () = &mut time_is_up => return,
                _ = &mut loop_ended => return,
                _ = self.release.recv() => command(nvml, Control::release),
                _ = self.resume.recv() => command(nvml, Control::resume),
            }
        }
    }
}

fn command(nvml: Option<&Control>, send: fn(&Control)) {
    if let Some(nvml) = nvml {
        send(nvml);
    } else {
        tracing::info!("NVML is off: there is nothing to release or to resume");
    }
}

async fn sleep(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}

/// The HTTP server while it runs.
struct Server {
    address: Option<SocketAddr>,
    stop: oneshot::Sender<()>,
    task: Task<Result<(), http::HttpError>>,
}

impl Server {
    fn start(runtime: &Runtime, listener: Option<TcpListener>, export: &Arc<Export>) -> Option<Self> {
        let listener = listener?;
        let address = listener.local_addr().ok();
        let (stop, stopped) = oneshot::channel::<()>();
        let until = async {
            let _ = stopped.await;
        };
        let task = runtime.spawn(http::serve(listener, Arc::clone(export), until));
        Some(Self { address, stop, task })
    }

    /// Lets the answers that run end, for as long as [`GRACE`].
    async fn finish(self) {
        let _ = self.stop.send(());
        match tokio::time::timeout(GRACE, self.task).await {
            Ok(Ok(Err(error))) => tracing::error!("{}", chain(&anyhow::Error::new(error))),
            Err(_) => tracing::warn!("a client was too slow to take its last lines"),
            _ => {}
        }
    }
}

/// The one line at the start.
fn announce(plan: &Plan, server: Option<&Server>) {
    let listen = server.and_then(|server| server.address).map(|address| address.to_string());
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        listen = listen.as_deref().unwrap_or("off"),
        pids = ?plan.config.pids,
        ports = ?plan.config.ports,
        record = ?plan.record,
        "stagelens has started"
    );
}

fn farewell(core: &Core) {
    let (health, recording) = (core.pipeline.health(), core.recorder.state());
    tracing::info!(
        requests = core.export.store.before_newest(0),
        records = health.seen,
        failed = health.failed.values().sum::<u64>(),
        recorded = recording.records,
        recording_bytes = recording.bytes,
        "stagelens has finished"
    );
}
