//! What discovery changes: the kernel's scope and listening ports, and the observations for the pipeline.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::mpsc::{SyncSender, TrySendError},
    time::{Duration, Instant},
};

use aya::maps::{Array, HashMap, MapData, MapError, PerCpuArray};
use rustix::time::{ClockId, clock_gettime};
use wire::{
    counter::Counter,
    names::{SCOPE_CUDA, SCOPE_SOCKETS, listen_key, port_of},
};

use super::{
    super::status::ServiceStatus,
    group::{Assigned, Facts, Service},
    scan::Scanner,
};
use crate::decode::{Observation, ProcessSeen};

/// Observations that wait for the pipeline; more are dropped, oldest first, and counted.
const MAX_WAITING: usize = 16_384;
/// When to offer waiting observations again.
const RETRY: Duration = Duration::from_millis(20);

/// The kernel maps that discovery owns.
pub struct KernelMaps {
    /// Process to `SCOPE_*` bits.
    pub scope: HashMap<MapData, u32, u32>,
    /// [`listen_key`] to an ignored value.
    pub listen: HashMap<MapData, u64, u32>,
    /// Bit of each port in `listen`.
    pub ports: Array<MapData, u64>,
    /// The kernel side's counters.
    pub counters: PerCpuArray<MapData, u64>,
}

impl KernelMaps {
    /// Makes segments of a port ones of interest.
    fn add_port(&mut self, port: u16) -> Result<(), MapError> {
        let (word, bit) = (u32::from(port) / 64, port % 64);
        let before = self.ports.get(&word, 0)?;
        self.ports.set(word, before | 1 << bit, 0)
    }
}

/// What has been told so far, and to whom.
pub(super) struct Output {
    maps: KernelMaps,
    sender: SyncSender<Vec<u8>>,
    waiting: VecDeque<Vec<u8>>,
    dropped: u64,
    /// Last word on each process.
    told: BTreeMap<u32, ProcessSeen>,
    assigned: Assigned,
    services: Vec<ServiceStatus>,
    listening: BTreeSet<u64>,
    /// A service, a port or a process of one is new since [`Output::take_news`].
    has_news: bool,
    /// Ports that the kernel had and nobody listened on, at the previous look.
    suspects: BTreeSet<u64>,
}

impl Output {
    /// Nothing told yet.
    pub(super) fn new(maps: KernelMaps, sender: SyncSender<Vec<u8>>) -> Self {
        Self {
            maps,
            sender,
            waiting: VecDeque::new(),
            dropped: 0,
            told: BTreeMap::new(),
            assigned: Assigned::new(),
            services: Vec::new(),
            listening: BTreeSet::new(),
            has_news: false,
            suspects: BTreeSet::new(),
        }
    }

    /// Which process belongs to which service, as told.
    pub(super) fn assigned(&self) -> &Assigned {
        &self.assigned
    }

    /// Services, as told.
    pub(super) fn services(&self) -> Vec<ServiceStatus> {
        self.services.clone()
    }

    /// What the kernel side has noted of a watched process, as `SCOPE_*`; 0 when it is not watched.
    pub(super) fn noted(&self, pid: u32) -> u32 {
        self.maps.scope.get(&pid, 0).unwrap_or(0)
    }

    /// Observations lost because nobody took them.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Makes kernel and pipeline agree with these services; `true` if anything changed.
    pub(super) fn apply(&mut self, facts: &[Facts], services: &[Service], scanner: &Scanner) -> bool {
        let wanted = members(facts, services, scanner);
        let listening: BTreeSet<u64> =
            wanted.values().flat_map(|seen| &seen.ports).map(|at| listen_key(at.netns, at.port)).collect();
        let changes = changes(&self.told, &wanted);
        let changed = !changes.gone.is_empty() || !changes.new.is_empty();
        for seen in changes.gone {
            self.emit(&Observation::ProcessGone { pid: seen.pid, start_ticks: seen.start_ticks });
            // The kernel side removes a process that exits itself. Another one may have its number by now, and be watched.
            if scanner.procfs().stat(seen.pid).is_err() {
                let _absent = self.maps.scope.remove(&seen.pid);
            }
        }
        // The pipeline first: it should know a process before its records come.
        for seen in &changes.new {
            self.emit(&Observation::Process(seen.clone()));
        }
        self.flush();
        let is_new = |service: &Service| self.services.iter().all(|known| known.service != service.key);
        // One that was started by a watched process is watched from its beginning.
        let is_watched = |seen: &ProcessSeen| self.noted(seen.pid) & SCOPE_SOCKETS != 0;
        self.has_news |= !listening.is_subset(&self.listening)
            || services.iter().any(is_new)
            || !changes.new.iter().all(is_watched);
        self.listen_on(listening);
        for seen in &changes.new {
            self.watch(seen.pid);
            // It may have ended before that, where nobody could see the end of a watched process.
            let now = scanner.procfs().stat(seen.pid).ok();
            if now.is_none_or(|now| now.start_ticks != seen.start_ticks) {
                let _absent = self.maps.scope.remove(&seen.pid);
                self.emit(&Observation::ProcessGone { pid: seen.pid, start_ticks: seen.start_ticks });
            }
        }
        if changed {
            self.assigned =
                wanted.values().map(|seen| ((seen.pid, seen.start_ticks), seen.service.clone())).collect();
            self.services = services.iter().map(|service| service_status(service, &wanted)).collect();
            self.told = wanted;
        }
        changed
    }

    /// Whether a service, a port that one listens on, or a process of one has come since this was asked for the last time:
    /// there may be connections that are older than its being watched.
    pub(super) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    fn watch(&mut self, pid: u32) {
        // What the kernel side has noted there stays.
        let noted = self.maps.scope.get(&pid, 0).unwrap_or(0);
        if let Err(error) = self.maps.scope.insert(pid, noted | SCOPE_SOCKETS | SCOPE_CUDA, 0) {
            tracing::warn!(pid, %error, "process cannot be watched: the map of watched processes is full?");
        }
    }

    fn listen_on(&mut self, listening: BTreeSet<u64>) {
        for key in listening.difference(&self.listening) {
            // First, so that every connection that is followed from its birth is timed from it too.
            let added = self.maps.add_port(port_of(*key));
            if let Err(error) = added.and_then(|()| self.maps.listen.insert(key, 1, 0)) {
                tracing::warn!(%error, "port cannot be watched: the map of listening ports is full?");
            }
        }
        self.listening = listening;
    }

    /// Removes what is left in the kernel's maps of processes and ports that are gone. What the kernel added itself
    /// after the look began is not touched: a port must be unknown twice, a process really gone.
    pub(super) fn reconcile(&mut self, scanner: &Scanner) {
        let stale: Vec<u32> =
            self.maps.scope.keys().flatten().filter(|pid| !scanner.is_alive(*pid)).collect();
        for pid in stale {
            if scanner.procfs().stat(pid).is_err() {
                let _absent = self.maps.scope.remove(&pid);
            }
        }
        let unknown: BTreeSet<u64> =
            self.maps.listen.keys().flatten().filter(|key| !self.listening.contains(key)).collect();
        for key in unknown.intersection(&self.suspects) {
            let _absent = self.maps.listen.remove(key);
        }
        self.suspects = unknown;
    }

    /// Tells the kernel side's counters.
    pub(super) fn counters(&mut self) {
        let sum = |slot: u32| {
            let values = self.maps.counters.get(&slot, 0).ok()?;
            Some(values.iter().sum::<u64>())
        };
        let counters = (0u32..)
            .zip(Counter::ALL)
            .filter_map(|(slot, counter)| Some((counter.name().to_owned(), sum(slot)?)))
            .collect();
        self.emit(&Observation::KernelCounters { counters });
    }

    /// Queues an observation; [`Self::flush`] hands it over.
    pub(super) fn emit(&mut self, observation: &Observation) {
        if self.waiting.len() >= MAX_WAITING {
            self.waiting.pop_front();
            self.dropped += 1;
        }
        self.waiting.push_back(observation.to_record(monotonic_ns()));
    }

    /// Hands over what the pipeline takes; says when to try again if it does not take all.
    pub(super) fn flush(&mut self) -> Option<Instant> {
        while let Some(record) = self.waiting.pop_front() {
            match self.sender.try_send(record) {
                Ok(()) => {}
                Err(TrySendError::Full(record)) => {
                    self.waiting.push_front(record);
                    return Some(Instant::now() + RETRY);
                }
                // Nobody will ever listen again: the session is about to end.
                Err(TrySendError::Disconnected(_)) => self.dropped += 1,
            }
        }
        None
    }
}

fn members(facts: &[Facts], services: &[Service], scanner: &Scanner) -> BTreeMap<u32, ProcessSeen> {
    let by_pid: BTreeMap<u32, &Facts> = facts.iter().map(|facts| (facts.pid, facts)).collect();
    let mut members = BTreeMap::new();
    for service in services {
        for one in service.pids.iter().filter_map(|pid| by_pid.get(pid)) {
            let seen = ProcessSeen {
                pid: one.pid,
                start_ticks: one.start_ticks,
                comm: one.comm.clone(),
                service: service.key.clone(),
                service_name: service.name.clone(),
                container: scanner.container(one.pid).map(str::to_owned),
                cuda: one.gpu,
                ports: one.ports.clone(),
            };
            members.insert(one.pid, seen);
        }
    }
    members
}

fn service_status(service: &Service, members: &BTreeMap<u32, ProcessSeen>) -> ServiceStatus {
    let own = || service.pids.iter().filter_map(|pid| members.get(pid));
    let ports: BTreeSet<u16> = own().flat_map(|seen| &seen.ports).map(|port| port.port).collect();
    ServiceStatus {
        service: service.key.clone(),
        name: service.name.clone(),
        container: own().find_map(|seen| seen.container.clone()),
        pids: service.pids.clone(),
        gpu_pids: own().filter(|seen| seen.cuda).map(|seen| seen.pid).collect(),
        ports: ports.into_iter().collect(),
        ..ServiceStatus::default()
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Changes {
    /// Ended, or replaced by another process of the same number.
    gone: Vec<ProcessSeen>,
    /// New, or known differently.
    new: Vec<ProcessSeen>,
}

fn changes(told: &BTreeMap<u32, ProcessSeen>, wanted: &BTreeMap<u32, ProcessSeen>) -> Changes {
    let is_same =
        |a: &ProcessSeen, b: Option<&ProcessSeen>| b.is_some_and(|b| a.start_ticks == b.start_ticks);
    let gone = told.values().filter(|seen| !is_same(seen, wanted.get(&seen.pid))).cloned().collect();
    let new = wanted.values().filter(|seen| told.get(&seen.pid) != Some(seen)).cloned().collect();
    Changes { gone, new }
}

/// `CLOCK_MONOTONIC`, the clock of the kernel side's records.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pid: u32, start_ticks: u64, comm: &str) -> (u32, ProcessSeen) {
        let seen = ProcessSeen {
            pid,
            start_ticks,
            comm: comm.to_owned(),
            service: "s".to_owned(),
            service_name: "n".to_owned(),
            container: None,
            cuda: true,
            ports: Vec::new(),
        };
        (pid, seen)
    }

    #[test]
    fn only_news_is_told() {
        let before = BTreeMap::from([
            seen(1, 10, "same"),
            seen(2, 20, "renamed"),
            seen(3, 30, "ended"),
            seen(4, 40, "reused"),
        ]);
        let after = BTreeMap::from([
            seen(1, 10, "same"),
            seen(2, 20, "now"),
            seen(4, 41, "reused"),
            seen(5, 50, "new"),
        ]);
        let changes = changes(&before, &after);
        let pids =
            |list: &[ProcessSeen]| list.iter().map(|seen| (seen.pid, seen.start_ticks)).collect::<Vec<_>>();
        assert_eq!(pids(&changes.gone), [(3, 30), (4, 40)]);
        assert_eq!(pids(&changes.new), [(2, 20), (4, 41), (5, 50)]);
    }
}
