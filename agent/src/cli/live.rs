//! The live loop: the one thread that owns the source, the links of TLS, the pipeline and the recording.
//!
//! The order of records is the order of the recording, and with it of a replay: a record is processed (and masked),
//! then written, and only then is the next one looked at. An observation that was sent before a kernel record was
//! made is taken before it, so that a process is known by the time its bytes come.

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::Receiver,
    },
    time::Duration,
};

use wire::socket::SockId;
use zerocopy::FromBytes as _;

use super::{recorder::Recorder, state::Keeper};
use crate::{
    decode::{Observation, meaningful},
    export::{Export, findings::Diagnosed, process, snapshot::Snapshot},
    health::NvmlHealth,
    pipeline::{Output, Pipeline},
    probe,
    source::{nvml::Nvml, ring::RingSource},
    tls::{Links, Taken},
};

/// Time between two clock observations.
const TICK_NS: u64 = 100_000_000;
/// A clock observation waits for the ring to be empty, but not longer than this.
const OVERDUE_NS: u64 = 1_000_000_000;
/// Clock observations between two looks at the probes' state, once they are ready.
const TICKS_PER_SECOND: u64 = 10;
/// Records taken before the clock and the stop flag are looked at again.
const MAX_DRAIN: usize = 4096;
/// Rounds at the end, in which what the kernel still holds is taken.
const LAST_ROUNDS: usize = 64;

/// Where kernel records come from.
pub(super) trait Ring {
    /// Waits for `timeout`, or until it is asked to hurry.
    fn wait(&mut self, timeout: Duration) -> io::Result<()>;
    /// Gives at most `max` records to `take`; how many there were.
    fn drain(&mut self, max: usize, take: &mut dyn FnMut(&[u8])) -> usize;
}

/// What attached the probes, and discovers.
pub(super) trait Host {
    /// Shows every record to discovery, which may learn from it where to look.
    fn observe(&self, record: &[u8]);
    /// Captures long calls on this socket whole from now on.
    fn want_whole(&mut self, socket: SockId);
    /// How it stands.
    fn status(&self) -> probe::Status;
    /// How the thread that asks NVML fares; empty where there is none.
    fn nvml(&self) -> NvmlHealth;
}

impl Ring for RingSource {
    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        Self::wait(self, timeout)
    }

    fn drain(&mut self, max: usize, take: &mut dyn FnMut(&[u8])) -> usize {
        Self::drain(self, max, take)
    }
}

/// The probes of this host: dropped, everything is detached.
#[derive(Debug)]
pub(super) struct Probes {
    session: probe::Session,
    hints: probe::Hints,
    nvml: Option<Nvml>,
}

impl Probes {
    pub(super) fn new(session: probe::Session, nvml: Option<Nvml>) -> Self {
        Self { hints: session.hints(), session, nvml }
    }
}

impl Host for Probes {
    fn observe(&self, record: &[u8]) {
        self.hints.observe(record);
    }

    fn want_whole(&mut self, socket: SockId) {
        self.session.want_whole(socket);
    }

    fn status(&self) -> probe::Status {
        self.session.status()
    }

    fn nvml(&self) -> NvmlHealth {
        self.nvml.as_ref().map(Nvml::health).unwrap_or_default()
    }
}

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
struct Now {
    monotonic_ns: u64,
    wall_ns: u64,
}

impl Now {
    fn read() -> Self {
        Self { monotonic_ns: process::monotonic_ns(), wall_ns: process::wall_ns() }
    }
}

/// The loop.
#[derive(Debug)]
pub(super) struct Live<R, H> {
    pub(super) ring: R,
    pub(super) host: H,
    pub(super) observations: Receiver<Vec<u8>>,
    pub(super) core: Core,
    /// Between two looks at the ring.
    pub(super) poll_interval: Duration,
    /// Clock observations so far.
    pub(super) ticks: u64,
    /// When the next one is due.
    pub(super) next_tick_ns: u64,
    /// State of the probes when it was last looked at.
    pub(super) status: probe::Status,
    /// How NVML fared then.
    pub(super) nvml: NvmlHealth,
    /// Records that the kernel side had to drop, as far as it was said.
    pub(super) lost: u64,
    /// What was found at the last look.
    pub(super) diagnosed: Arc<Diagnosed>,
}

impl<R: Ring, H: Host> Live<R, H> {
    pub(super) fn new(ring: R, host: H, observations: Receiver<Vec<u8>>, core: Core, poll: Duration) -> Self {
        let (status, nvml) = (host.status(), host.nvml());
        Self {
            ring,
            host,
            observations,
            core,
            poll_interval: poll,
            ticks: 0,
            next_tick_ns: 0,
            status,
            nvml,
            lost: 0,
            diagnosed: Arc::default(),
        }
    }

    /// Runs until `stop`; what is provisional then becomes final.
    pub(super) fn run(mut self, start: &Observation, stop: &AtomicBool) -> io::Result<Core> {
        self.core.observe(start, process::monotonic_ns());
        let mut empty = true;
        while !stop.load(Ordering::Relaxed) {
            if empty {
                self.ring.wait(self.poll_interval)?;
            }
            empty = self.round();
        }
        // The programs are still attached and may go on filling the ring: take what is there, not what comes.
        for _ in 0..LAST_ROUNDS {
            if self.round() {
                break;
            }
        }
        self.core.observe(&Observation::End, process::monotonic_ns());
        self.core.recorder.flush();
        self.publish(process::monotonic_ns());
        // Detaching, which comes next, can take seconds: nobody needs to wait for it.
        self.core.export.store.close();
        self.core.export.steps.close();
        tracing::debug!("the last request is out; detaching");
        Ok(self.core)
    }

    /// Takes what is there; whether the ring is empty.
    fn round(&mut self) -> bool {
        // Read before draining: every record older than this has been taken when the clock observation is.
        let now = Now::read();
        let taken = self.drain(now.monotonic_ns);
        take_observations(&self.observations, &mut self.core);
        let empty = taken < MAX_DRAIN;
        let overdue = now.monotonic_ns >= self.next_tick_ns + OVERDUE_NS;
        if now.monotonic_ns >= self.next_tick_ns && (empty || overdue) {
            self.tick(now);
        }
        empty
    }

    fn drain(&mut self, now_ns: u64) -> usize {
        let Self { ring, host, observations, core, .. } = self;
        ring.drain(MAX_DRAIN, &mut |record| {
            take_observations(observations, core);
            let made_ns = time_ns(record).unwrap_or(now_ns);
            core.lag_ns = core.lag_ns.max(now_ns.saturating_sub(made_ns));
            core.take(record);
            core.wanted.drain(..).for_each(|socket| host.want_whole(socket));
            host.observe(record);
        })
    }

    fn tick(&mut self, now: Now) {
        self.core.observe(&Observation::Clock { wall_ns: now.wall_ns }, now.monotonic_ns);
        self.next_tick_ns = now.monotonic_ns + TICK_NS;
        self.ticks += 1;
        // What `kill -9` can cost a recording is what came since.
        self.core.recorder.flush();
        let Core { pipeline, keeper, .. } = &mut self.core;
        keeper.keep(now.monotonic_ns, || pipeline.diagnosis().save());
        if self.ticks.is_multiple_of(TICKS_PER_SECOND) || !self.status.ready {
            self.status = self.host.status();
            self.nvml = self.host.nvml();
            self.say_what_was_lost();
        }
        self.publish(now.monotonic_ns);
    }

    /// Requests are missing then, and whoever looks for them should not have to know which metric to ask.
    fn say_what_was_lost(&mut self) {
        let counters = &self.core.pipeline.health().kernel;
        let lost = counters.iter().filter(|(name, _)| name.starts_with("drop_")).map(|(_, n)| n).sum();
        if lost > self.lost {
            let records = lost - self.lost;
            tracing::warn!(records, "the ring buffer was full and records were lost: see ring.size_bytes");
        }
        self.lost = lost;
    }

    fn publish(&mut self, now_ns: u64) {
        let core = &mut self.core;
        let diagnosis = core.pipeline.diagnosis();
        if diagnosis.looks() != self.diagnosed.looks {
            self.diagnosed = Arc::new(Diagnosed::of(diagnosis));
        }
        let mut health = core.pipeline.health().clone();
        core.export.capacity.pass(now_ns, &mut health);
        core.export.snapshot.publish(Snapshot {
            taken_ns: now_ns,
            health,
            probes: self.status.clone(),
            nvml: self.nvml.clone(),
            devices: core.pipeline.devices().clone(),
            memory: core.pipeline.memory(),
            occupancy: core.pipeline.occupancy().clone(),
            coverage: core.pipeline.coverage().clone(),
            diagnosed: Arc::clone(&self.diagnosed),
            in_flight: core.pipeline.in_flight(),
            waiting: core.pipeline.waiting(),
            tls: core.pipeline.tls(),
            older: core.pipeline.older(),
            traffic: core.pipeline.traffic(),
            lag_ns: std::mem::take(&mut core.lag_ns),
            recording: core.recorder.state(),
        });
    }
}

fn take_observations(observations: &Receiver<Vec<u8>>, core: &mut Core) {
    while let Ok(record) = observations.try_recv() {
        core.take(&record);
    }
}

/// Pipeline, recording and export: what a record goes through, in this order.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) pipeline: Pipeline,
    pub(super) recorder: Recorder,
    pub(super) export: Arc<Export>,
    links: Links,
    /// What goes on in the place of a record.
    replaced: Vec<Vec<u8>>,
    buffer: Vec<u8>,
    outputs: Vec<Output>,
    /// What the last record asked for.
    wanted: Vec<SockId>,
    lag_ns: u64,
    pub(super) keeper: Keeper,
}

impl Core {
    pub(super) fn new(pipeline: Pipeline, recorder: Recorder, export: Arc<Export>) -> Self {
        Self {
            pipeline,
            recorder,
            export,
            links: Links::default(),
            replaced: Vec::new(),
            buffer: Vec::new(),
            outputs: Vec::new(),
            wanted: Vec::new(),
            lag_ns: 0,
            keeper: Keeper::default(),
        }
    }

    /// With a file that keeps what is usual over a restart.
    pub(super) fn with_state(mut self, path: Option<&Path>) -> Self {
        let (keeper, state) = Keeper::open(path);
        if state.is_some_and(|state| !self.pipeline.restore(state)) {
            keeper.refuse();
        }
        self.keeper = keeper;
        self
    }

    /// Takes one record through, or what comes in its place.
    fn take(&mut self, record: &[u8]) {
        let mut replaced = std::mem::take(&mut self.replaced);
        let taken = self.links.take(record, &mut replaced);
        for mut record in replaced.drain(..) {
            self.process(&mut record);
        }
        self.replaced = replaced;
        if taken == Taken::Pass {
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.clear();
            buffer.extend_from_slice(&record[..meaningful(record)]);
            self.process(&mut buffer);
            self.buffer = buffer;
        }
    }

    fn process(&mut self, record: &mut [u8]) {
        self.pipeline.process(record, &mut self.outputs);
        self.recorder.write(record);
        for output in self.outputs.drain(..) {
            self.export.take(&output);
            // What a socket of TLS carries is of no use: its plaintext is captured elsewhere.
            if let Output::WantWhole(socket) = output
                && !self.links.speak_tls(socket)
            {
                self.wanted.push(socket);
            }
        }
    }

    fn observe(&mut self, observation: &Observation, time_ns: u64) {
        self.take(&observation.to_record(time_ns));
    }
}

/// When a record was made; `None` when it has no header, which the pipeline counts.
fn time_ns(record: &[u8]) -> Option<u64> {
    wire::Header::read_from_prefix(record).ok().map(|(header, _)| header.time_ns)
}

#[cfg(test)]
mod tests;
