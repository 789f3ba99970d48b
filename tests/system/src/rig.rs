//! The rig's side: a model server on a simulated GPU, and load.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::process::Process;
use crate::truth::{self, Truth};
use crate::{host, wait};

/// How a model server is built inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One process and thread does everything; one request runs at a time.
    Single,
    /// A front process and an engine process with continuous batching.
    Split,
    /// The same with a process between them that makes text of tokens.
    Chain,
    /// A router that batches, and a process per GPU that it calls for each step.
    Sharded,
    /// A proxy, and a server behind it on loopback.
    Proxied,
    /// A front and an engine that talk through shared memory.
    Shm,
}

impl Shape {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Single, Self::Split, Self::Chain, Self::Sharded, Self::Proxied, Self::Shm];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Split => "split",
            Self::Chain => "chain",
            Self::Sharded => "sharded",
            Self::Proxied => "proxied",
            Self::Shm => "shm",
        }
    }
}

/// How to start a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Its kind.
    pub shape: Shape,
    /// More arguments.
    pub extra: Vec<String>,
    /// The driver to load; `None` is the one that was built.
    pub libcuda: Option<PathBuf>,
    /// The file of the simulated devices, where others have them too; `None` is one of its own.
    pub devices: Option<PathBuf>,
    /// Where to listen; 0 takes a free port.
    pub port: u16,
    /// More of the environment.
    pub environment: Vec<(&'static str, String)>,
}

impl ServerOptions {
    /// A server with default speed.
    pub fn new(shape: Shape) -> Self {
        Self { shape, extra: Vec::new(), libcuda: None, devices: None, port: 0, environment: Vec::new() }
    }

    /// With one more option, `--name value`.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Display) -> Self {
        self.extra.extend([format!("--{name}"), value.to_string()]);
        self
    }
}

/// A running model server.
#[derive(Debug)]
pub struct Server {
    /// The process (in shape `split` the front).
    pub process: Process,
    /// Where it listens on loopback.
    pub port: u16,
    truth: PathBuf,
    cuda_truth: PathBuf,
    devices: PathBuf,
    _own_devices: Option<SharedMemory>,
}

/// How long a server may take to listen or to end.
const SERVER_LIMIT: Duration = Duration::from_secs(30);

impl Server {
    /// Starts one with its files in `dir` and waits until it listens.
    pub fn start(options: &ServerOptions, dir: &Path) -> Result<Self> {
        let port_file = dir.join("port");
        // A file of an earlier server in the same folder would give its port.
        let _ = fs::remove_file(&port_file);
        let (truth, cuda_truth) = (dir.join("truth.jsonl"), dir.join("cuda.json"));
        let own_devices = options.devices.is_none().then(SharedMemory::new);
        let devices = own_devices.as_ref().map(|own| &own.path).or(options.devices.as_ref());
        let devices = devices.context("either its own or others")?.clone();
        let mut command = Command::new(host::binary("modelserver")?);
        command
            .args(["--shape", options.shape.name(), "--port", &options.port.to_string(), "--port-file"])
            .arg(&port_file)
            .arg("--truth")
            .arg(&truth)
            .arg("--libcuda")
            .arg(options.libcuda.clone().map_or_else(host::libcuda, Ok)?)
            .args(&options.extra)
            .env("FAKECUDA_SHM", &devices)
            .env("FAKECUDA_TRUTH", &cuda_truth)
            .envs(options.environment.iter().map(|(name, value)| (name, value)));
        let mut process = Process::start("modelserver", command, dir)?;
        let port = wait::until("the model server to listen", SERVER_LIMIT, || {
            process.check_alive()?;
            let text = fs::read_to_string(&port_file).unwrap_or_default();
            Ok(text.trim().parse().ok())
        })?;
        Ok(Self { process, port, truth, cuda_truth, devices, _own_devices: own_devices })
    }

    /// Lets it finish what it does and end.
    pub fn stop(&mut self) -> Result<()> {
        self.process.stop(SERVER_LIMIT)
    }

    /// What it knows about the requests that are over.
    pub fn truth(&self) -> Result<Vec<Truth>> {
        truth::read(&self.truth)
    }

    /// The file of that.
    pub fn truth_path(&self) -> &Path {
        &self.truth
    }

    /// What the simulated driver counted; written when the process that used it has ended.
    pub fn cuda_truth(&self) -> Result<CudaTruth> {
        let text = fs::read_to_string(&self.cuda_truth)
            .with_context(|| format!("cannot read {}", self.cuda_truth.display()))?;
        serde_json::from_str(&text).context("the simulated driver's counts have an unexpected form")
    }

    /// The file in which the simulated devices live.
    pub fn shared_memory(&self) -> &Path {
        &self.devices
    }
}

/// The simulated driver's counts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "calls, by name")]
pub struct CudaTruth {
    pub launches: u64,
    pub graph_launches: u64,
    pub allocs: u64,
    pub frees: u64,
}

/// The simulated devices' file. Removed with its owner.
#[derive(Debug)]
pub struct SharedMemory {
    /// Where it is, once somebody has made it.
    pub path: PathBuf,
}

impl Default for SharedMemory {
    fn default() -> Self {
        Self::new()
    }
}

impl SharedMemory {
    /// One that nobody else has.
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        remove_leftovers();
        Self { path: format!("{SHARED_MEMORY}{}-{number}", std::process::id()).into() }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

const SHARED_MEMORY: &str = "/dev/shm/stagelens-rig-";

/// Files of runs that were killed before they could remove them.
fn remove_leftovers() {
    let Ok(entries) = fs::read_dir("/dev/shm") else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let owner = path
            .to_str()
            .and_then(|path| path.strip_prefix(SHARED_MEMORY))
            .and_then(|rest| rest.split('-').next());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_file(&path);
        }
    }
}

/// What load to make.
#[derive(Clone, Debug)]
pub struct Load {
    /// Requests in flight.
    pub concurrency: u32,
    arguments: Vec<String>,
}

impl Load {
    /// `concurrency` clients, each sending the next request when it has its answer, for `seconds`.
    pub fn for_seconds(concurrency: u32, seconds: f64) -> Self {
        Self { concurrency, arguments: vec!["--seconds".into(), seconds.to_string()] }
    }

    /// `count` requests.
    pub fn requests(concurrency: u32, count: u32) -> Self {
        Self { concurrency, arguments: vec!["--requests".into(), count.to_string()] }
    }

    /// Prompts and answers of many lengths, so that requests overlap in many ways.
    #[must_use]
    pub fn varied(self) -> Self {
        self.with("input-tokens", "16-256").with("output-tokens", "8-48")
    }

    /// With one more option, `--name value`.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Display) -> Self {
        self.arguments.extend([format!("--{name}"), value.to_string()]);
        self
    }

    /// Starts it against a port; what the clients saw goes to `<dir>/client.jsonl`.
    pub fn start(&self, port: u16, dir: &Path) -> Result<Running> {
        let seen = dir.join("client.jsonl");
        let mut command = Command::new(host::binary("loadgen")?);
        command
            .args(["--port", &port.to_string(), "--concurrency", &self.concurrency.to_string()])
            .args(&self.arguments)
            .arg("--out")
            .arg(&seen);
        Ok(Running { process: Process::start("loadgen", command, dir)?, seen })
    }
}

/// Load in progress.
#[derive(Debug)]
pub struct Running {
    /// The load generator.
    pub process: Process,
    seen: PathBuf,
}

/// What a client saw of one request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the load generator's names")]
pub struct ClientView {
    pub request_id: String,
    pub t_send: Option<u64>,
    pub t_sent: Option<u64>,
    pub t_first_token: Option<u64>,
    pub t_last_byte: Option<u64>,
    pub slow: bool,
    pub status: Option<u16>,
    pub outcome: String,
}

impl Running {
    /// Waits until all clients are done.
    pub fn finish(&mut self, limit: Duration) -> Result<Vec<ClientView>> {
        let status = self.process.wait(limit)?;
        anyhow::ensure!(status.success(), "loadgen ended with {status}: {}", self.process.log());
        self.seen()
    }

    /// What the clients saw so far.
    pub fn seen(&self) -> Result<Vec<ClientView>> {
        clients(&self.seen)
    }
}

/// What clients wrote to a file; none when there is no file. A line that is not whole yet is left out.
pub fn clients(path: &Path) -> Result<Vec<ClientView>> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole
        .map(|line| serde_json::from_str(line).with_context(|| format!("not a client's line: {line}")))
        .collect()
}
