//! The discovery thread: finds GPU processes and their services, attaches to their driver, keeps the kernel's scope
//! in step, and tells the pipeline what it sees.
//!
//! A full look at `/proc` comes at the scan interval, stretched where it would cost more than a hundredth of a core;
//! hints from the ring buffer bring the processes concerned forward.

mod engines;
mod gpus;
pub mod group;
mod hints;
mod libraries;
mod links;
mod output;
mod scan;
mod usage;
mod ways;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender},
    },
    time::{Duration, Instant},
};

pub use hints::{Hint, Hints};
use hints::{Pending, Wake};
pub use output::KernelMaps;
pub use ways::WayMaps;

use rustix::time::{ClockId, clock_gettime};

use self::{
    engines::Engines,
    gpus::GpuProcesses,
    group::{Facts, Wanted},
    libraries::Libraries,
    links::Links,
    output::Output,
    scan::Scanner,
    usage::{Units, Usages},
    ways::Ways,
};
use super::{
    attach::Attacher,
    status::{ScanStatus, Status},
    targets::Kind,
};
use crate::{decode::Observation, source::procfs::ProcFs};

/// A full look may take this share of one core.
const MAX_SHARE: u32 = 100;
/// However dear a look is, the next comes after this time.
const MAX_INTERVAL: Duration = Duration::from_secs(10);
/// How often the kernel side's counters are read.
const COUNTERS_EVERY: Duration = Duration::from_secs(1);

/// What discovery works with.
pub struct Parts {
    /// Where processes are looked for.
    pub procfs: ProcFs,
    /// Loaded programs.
    pub attacher: Attacher,
    /// Maps that discovery writes and reads.
    pub maps: KernelMaps,
    /// Maps of the ways that CUDA calls take.
    pub ways: WayMaps,
    /// Where observations go.
    pub observations: SyncSender<Vec<u8>>,
    /// What the operator asked for.
    pub wanted: Wanted,
    /// TLS libraries are attached to.
    pub tls: bool,
    /// Least time between full looks.
    pub interval: Duration,
    /// Shown to the outside.
    pub status: Arc<Mutex<Status>>,
    /// Set when the thread is to end.
    pub stopped: Arc<AtomicBool>,
    /// For the count of dropped hints.
    pub hints: Hints,
}

/// State of the thread.
pub struct Discovery {
    scanner: Scanner,
    drivers: Libraries,
    /// Where a driver cannot be had.
    runtimes: Libraries,
    ways: Ways,
    /// `None` where they are not wanted.
    tls: Option<Libraries>,
    attacher: Attacher,
    output: Output,
    gpus: GpuProcesses,
    /// There may be older connections that were not looked for, and when they may be at the earliest.
    older_due: bool,
    older_after: Option<Instant>,
    engines: Engines,
    usages: Usages,
    units: Units,
    links: Links,
    wanted: Wanted,
    interval: Duration,
    status: Arc<Mutex<Status>>,
    stopped: Arc<AtomicBool>,
    hints: Hints,
    scan: ScanStatus,
}

impl Discovery {
    /// Nothing looked at yet.
    pub fn new(parts: Parts) -> Self {
        Self {
            scanner: Scanner::new(parts.procfs),
            drivers: Libraries::new(Kind::Cuda),
            runtimes: Libraries::new(Kind::Runtime),
            ways: Ways::new(parts.ways),
            tls: parts.tls.then(|| Libraries::new(Kind::Tls)),
            attacher: parts.attacher,
            output: Output::new(parts.maps, parts.observations),
            gpus: GpuProcesses::default(),
            older_due: false,
            older_after: None,
            engines: Engines::default(),
            usages: Usages::default(),
            units: Units::of_host(),
            links: Links::default(),
            wanted: parts.wanted,
            interval: parts.interval,
            status: parts.status,
            stopped: parts.stopped,
            hints: parts.hints,
            scan: ScanStatus::default(),
        }
    }

    /// Works until told to stop; then the programs and probes go with it.
    pub fn run(mut self, receiver: &Receiver<Hint>) {
        let mut pending = Pending::default();
        let mut next_scan = Instant::now();
        let mut next_counters = Instant::now() + COUNTERS_EVERY;
        while !self.stopped.load(Ordering::Acquire) {
            let now = Instant::now();
            if now >= next_scan {
                next_scan = self.full_pass(now);
            }
            let due = pending.take(now);
            if !due.is_empty() {
                self.scanner.some(&due, &self.wanted);
                self.apply(now);
                let found = pending.take_resolved(&due);
                if !found.is_empty() {
                    self.ways.resolved(&found, &self.scanner, &self.drivers, &mut self.attacher);
                }
            }
            if now >= next_counters {
                self.attacher.tally();
                self.output.counters();
                next_counters = now + COUNTERS_EVERY;
            }
            let retry = self.output.flush();
            let deadline = next_scan.min(next_counters).min(retry.unwrap_or(next_scan));
            if pending.wait(receiver, deadline) == Wake::Stop {
                break;
            }
        }
    }

    /// Looks at everything and says when to do so again.
    fn full_pass(&mut self, now: Instant) -> Instant {
        let before = cpu_time();
        if let Err(error) = self.scanner.full(&self.wanted) {
            tracing::warn!(%error, "processes cannot be listed; nothing new is found until they can");
        }
        // Attaching is slow and rare; only the looking counts against the share.
        let cost = cpu_time().saturating_sub(before);
        self.apply(now);
        self.output.reconcile(&self.scanner);
        let users: Vec<u32> =
            self.output.services().iter().flat_map(|service| service.gpu_pids.iter().copied()).collect();
        for observation in self.gpus.look(&self.scanner, &users, now) {
            self.output.emit(&observation);
        }
        self.look_at_services(now);
        if self.scan.passes == 0 {
            self.say_what_is_absent();
        }
        self.scan.passes += 1;
        self.scan.last_pass_cpu_us = u64::try_from(cost.as_micros()).unwrap_or(u64::MAX);
        self.publish();
        now + self.interval.max((cost * MAX_SHARE).min(MAX_INTERVAL))
    }

    /// What services are and what they use.
    fn look_at_services(&mut self, now: Instant) {
        let services = self.output.services();
        self.engines.look(&self.scanner, &services, now);
        let names: BTreeMap<u32, &str> = services
            .iter()
            .flat_map(|service| service.pids.iter().map(|pid| (*pid, service.name.as_str())))
            .collect();
        self.usages.look(self.scanner.stats(), |stat| names.get(&stat.pid).copied());
        for used in self.usages.told(&services, self.scanner.procfs(), self.units) {
            self.output.emit(&Observation::ServiceUse(used));
        }
    }

    /// Someone who asked for a process or port by a wrong number would wait for ever.
    fn say_what_is_absent(&self) {
        for pid in self.wanted.pids.iter().filter(|pid| !self.scanner.is_alive(**pid)) {
            tracing::warn!("there is no process {pid}: nothing is watched for --pid {pid}");
        }
        let services = self.output.services();
        let open = |port: &u16| services.iter().any(|service| service.ports.contains(port));
        for port in self.wanted.ports.iter().filter(|port| !open(port)) {
            tracing::warn!("no process listens on port {port} now: it is watched as soon as one does");
        }
    }

    /// Brings everything in line with what is known now.
    fn apply(&mut self, now: Instant) {
        self.drivers.identify(&self.scanner, |_| true, now);
        self.ways.find_fallbacks(&self.scanner, &self.drivers, now);
        let (ways, drivers, output) = (&self.ways, &self.drivers, &self.output);
        let mut facts = self.scanner.facts(|pid, mapped| ways.uses_gpu(pid, mapped, drivers, output));
        let is_engine = |one: &&Facts| one.gpu && one.ports.is_empty();
        self.links.look(&self.scanner, facts.iter().filter(is_engine).map(|one| one.pid).collect(), now);
        self.scanner.attend(self.links.fronts());
        for one in &mut facts {
            one.linked = self.links.of(one.pid);
        }
        let services = group::services(&facts, &self.wanted, self.output.assigned());
        // Attached before they are watched: the first step of a process is then whole, or not seen at all.
        let watched: BTreeSet<u32> =
            services.iter().flat_map(|service| service.pids.iter().copied()).collect();
        self.drivers.attach(&self.scanner, &watched, &mut self.attacher, now);
        self.ways.nest(&self.scanner, &self.attacher);
        let fallback = self.ways.fallback();
        self.runtimes.identify(&self.scanner, |pid| fallback.contains(&pid), now);
        self.runtimes.attach(&self.scanner, fallback, &mut self.attacher, now);
        if let Some(tls) = &mut self.tls {
            tls.identify(&self.scanner, |pid| watched.contains(&pid), now);
            tls.attach(&self.scanner, &watched, &mut self.attacher, now);
        }
        let is_changed = self.output.apply(&facts, &services, &self.scanner);
        self.find_older(now);
        if is_changed {
            self.publish();
        }
    }

    /// Looks for older connections of services that are new, as often as its share allows: it goes over all open files
    /// of the host.
    fn find_older(&mut self, now: Instant) {
        self.older_due |= self.output.take_news();
        if self.older_due && self.older_after.is_none_or(|after| now >= after) {
            let before = cpu_time();
            self.attacher.find_older();
            let cost = cpu_time().saturating_sub(before);
            tracing::debug!(?cost, "older connections were looked for");
            self.older_due = false;
            self.older_after = Some(now + cost * MAX_SHARE);
        }
    }

    fn publish(&mut self) {
        self.scan.processes = self.scanner.len();
        self.scan.hints_dropped = self.hints.dropped();
        self.scan.observations_dropped = self.output.dropped();
        let mut probes = self.attacher.verdicts();
        probes.extend(self.drivers.failures());
        probes.extend(self.runtimes.failures());
        probes.extend(self.tls.iter().flat_map(Libraries::failures));
        let reach = self.ways.reach(&self.scanner, &self.drivers, &self.attacher, &self.output);
        self.scan.inner_places = self.attacher.inner_places();
        self.scan.inner_refused = self.ways.refused();
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.probes = probes;
        status.services = self.output.services();
        self.engines.name(&mut status.services);
        status.usage = self.usages.view(self.units);
        status.reach = reach;
        status.scan = self.scan.clone();
        status.judge_readiness();
    }
}

/// Processor time of this thread: on a busy machine a look takes long without costing much.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}
