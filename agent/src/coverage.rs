//! [3] Whose work on a GPU is seen, and whose is not.
//!
//! A process of which no CUDA call comes is idle, or it calls the driver in a way that nobody watches. NVML tells which:
//! if a device works and the process is the only one that computes on it, the work is its own; if several are there and
//! no call came of any, it is one of theirs. Where a device does not say whether it works, as instances of a divided one
//! do not, memory that a process takes without a call tells.

mod rare;

use std::collections::BTreeMap;

pub use rare::{RareCall, RareCalls, RareKind};
use wire::cuda::TALLY_PROCESS_END;

use crate::{
    decode::{DeviceProcess, DeviceUsage, DeviceUse, Event, NvmlSeen, Observation, ProcessSeen},
    health::Health,
};

/// Processes that are kept.
const MAX_PROCESSES: usize = 4096;
/// Devices on which the memory of one process is compared.
const MAX_TOLD: usize = 64;
/// How long NVML must show work of a process of which there never was a call until it counts as blind.
const BLIND_NS: u64 = 5_000_000_000;
/// The same where there were calls: one step can take a while, and is seen at its end.
const QUIET_NS: u64 = 600_000_000_000;

/// What is known of every process that may use a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    processes: BTreeMap<u32, Process>,
}

/// What is known of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    start_ticks: u64,
    /// Start of the process that had its number before, of which more word may come.
    before_ticks: u64,
    ended: bool,
    /// Its name, as far as anybody told.
    pub comm: Option<String>,
    /// It maps a driver that is probed, since it was first seen then.
    watched_ns: Option<u64>,
    /// Its memory by device, as NVML told last.
    told: BTreeMap<String, Told>,
    /// When the last work of it was seen.
    pub last_ns: Option<u64>,
    /// What NVML shows of its work.
    busy: Option<Busy>,
    /// Calls that are rare and take long.
    pub rare: RareCalls,
}

/// What NVML told of a process's memory on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    bytes: u64,
    /// It grew while no call of the process had ever been seen.
    grew_unseen: bool,
}

/// Why work on a device is taken for a process's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// The device works, and nobody else is on it.
    Alone,
    /// The device works, and no call came of any of so many processes on it.
    OneOf(usize),
    /// Its memory grew.
    Grew,
}

/// Work that NVML shows.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Busy {
    device: String,
    because: Because,
    since_ns: u64,
    /// Until when the last word on it counts.
    until_ns: u64,
}

impl Coverage {
    /// Takes what an event tells of it.
    pub fn observe(&mut self, event: &Event<'_>, health: &mut Health) {
        match event {
            Event::Step(counted) => {
                self.worked(counted.step.header.tgid, counted.step.header.time_ns, health);
            }
            // At its end there may be nobody left who works.
            Event::Tally(tally) if tally.why != TALLY_PROCESS_END => {
                self.worked(tally.header.tgid, tally.header.time_ns, health);
            }
            Event::Memory(memory) => self.worked(memory.header.tgid, memory.header.time_ns, health),
            Event::Rare(rare) => {
                self.worked(rare.header.tgid, rare.header.time_ns, health);
                if let Some(process) = self.processes.get_mut(&rare.header.tgid) {
                    process.rare.add(rare);
                }
            }
            Event::Exit(record) => self.ended(record.header.tgid),
            Event::Exec(record) => {
                if let Some(process) = self.processes.get_mut(&record.header.tgid) {
                    let Process { start_ticks, before_ticks, .. } = *process;
                    *process = Process { start_ticks, before_ticks, ..Process::default() };
                }
            }
            Event::Observation(at, observation) => self.observation(at.time_ns, observation, health),
            _ => {}
        }
    }

    /// The processes.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Process)> {
        self.processes.iter().filter(|(_, process)| !process.ended).map(|(&pid, process)| (pid, process))
    }

    /// One of them.
    pub fn get(&self, pid: u32) -> Option<&Process> {
        self.processes.get(&pid).filter(|process| !process.ended)
    }

    /// /proc tells of its end as well, unless it was too short for that.
    fn ended(&mut self, pid: u32) {
        match self.processes.get_mut(&pid) {
            Some(process) if process.start_ticks != 0 => {
                *process = Process {
                    start_ticks: process.start_ticks,
                    last_ns: process.last_ns,
                    ended: true,
                    ..Process::default()
                };
            }
            _ => drop(self.processes.remove(&pid)),
        }
    }

    fn observation(&mut self, at_ns: u64, observation: &Observation, health: &mut Health) {
        match observation {
            Observation::Process(seen) if seen.cuda => self.seen(at_ns, seen, health),
            Observation::ProcessGone { pid, start_ticks } => {
                let is_it = |process: &Process| match process.start_ticks {
                    0 => *start_ticks != process.before_ticks,
                    own => *start_ticks == own,
                };
                if self.processes.get(pid).is_some_and(is_it) {
                    self.processes.remove(pid);
                }
            }
            Observation::Nvml(NvmlSeen::Usage(usage)) => self.used(at_ns, usage, health),
            _ => {}
        }
    }

    fn entry(&mut self, pid: u32, health: &mut Health) -> Option<&mut Process> {
        if self.processes.len() >= MAX_PROCESSES && !self.processes.contains_key(&pid) {
            health.limit("coverage");
            // One of which only calls were seen may be gone unseen.
            let strays = self.processes.iter().filter(|(_, process)| process.watched_ns.is_none());
            let oldest = strays.min_by_key(|(_, process)| process.last_ns).map(|(pid, _)| *pid)?;
            self.processes.remove(&oldest);
        }
        let process = self.processes.entry(pid).or_default();
        if process.ended {
            *process = Process { before_ticks: process.start_ticks, ..Process::default() };
        }
        Some(process)
    }

    fn worked(&mut self, pid: u32, at_ns: u64, health: &mut Health) {
        if let Some(process) = self.entry(pid, health) {
            process.last_ns = process.last_ns.max(Some(at_ns));
        }
    }

    fn seen(&mut self, at_ns: u64, seen: &ProcessSeen, health: &mut Health) {
        let is_over = |one: &Process| one.ended && one.start_ticks == seen.start_ticks;
        if self.processes.get(&seen.pid).is_some_and(is_over) {
            return;
        }
        let Some(process) = self.entry(seen.pid, health) else { return };
        if process.start_ticks != 0 && process.start_ticks != seen.start_ticks {
            *process = Process::default();
        }
        process.start_ticks = seen.start_ticks;
        process.comm = Some(seen.comm.clone());
        process.watched_ns.get_or_insert(at_ns);
    }

    fn used(&mut self, at_ns: u64, usage: &DeviceUsage, health: &mut Health) {
        self.grown(at_ns, usage, health);
        let (workers, because) = self.workers(at_ns, usage);
        let pids: Vec<u32> = workers.iter().map(|one| one.pid).collect();
        self.rest(&usage.uuid, &pids);
        for one in workers {
            self.works(at_ns, one, usage, because, health);
        }
    }

    /// Whose work it may be that NVML shows, and why.
    fn workers<'a>(&self, at_ns: u64, usage: &'a DeviceUsage) -> (Vec<&'a DeviceProcess>, Because) {
        let mut there: Vec<&DeviceProcess> = usage.processes.iter().flatten().collect();
        if usage.utilization_percent.is_none() {
            there.retain(|one| self.grew_unseen(one.pid, &usage.uuid));
            return (there, Because::Grew);
        }
        let computes = |one: &&DeviceProcess| one.does == DeviceUse::Compute;
        let mut computing: Vec<&DeviceProcess> = there.iter().copied().filter(computes).collect();
        computing.sort_unstable_by_key(|one| one.pid);
        computing.dedup_by_key(|one| one.pid);
        // Who draws works as well.
        let draws = there.iter().any(|one| computing.iter().all(|other| other.pid != one.pid));
        let is_at_work = |one: &&DeviceProcess| {
            let last_ns = self.processes.get(&one.pid).and_then(|process| process.last_ns);
            last_ns.is_some_and(|last_ns| last_ns.saturating_add(QUIET_NS) > at_ns)
        };
        let others_explain = computing.len() > 1 && computing.iter().any(is_at_work);
        if usage.utilization_percent == Some(0) || draws || others_explain {
            computing.clear();
        }
        let because = if computing.len() > 1 { Because::OneOf(computing.len()) } else { Because::Alone };
        (computing, because)
    }

    /// Notes how much each process has on a device that does not say whether it works.
    fn grown(&mut self, at_ns: u64, usage: &DeviceUsage, health: &mut Health) {
        let is_silent = usage.utilization_percent.is_none();
        let there = usage.processes.iter().flatten().filter(|_| is_silent);
        for (pid, process) in &mut self.processes {
            if !there.clone().any(|one| one.pid == *pid) {
                process.told.remove(&usage.uuid);
            }
        }
        for one in there {
            let process = one.used_memory.and_then(|bytes| Some((bytes, self.entry(one.pid, health)?)));
            if let Some((bytes, process)) = process {
                process.told(&usage.uuid, bytes, at_ns);
            }
        }
    }

    fn grew_unseen(&self, pid: u32, device: &str) -> bool {
        let told = self.processes.get(&pid).and_then(|process| process.told.get(device));
        told.is_some_and(|told| told.grew_unseen)
    }

    fn works(
        &mut self,
        at_ns: u64,
        one: &DeviceProcess,
        usage: &DeviceUsage,
        because: Because,
        health: &mut Health,
    ) {
        let Some(process) = self.entry(one.pid, health) else { return };
        if process.comm.is_none() {
            process.comm.clone_from(&one.comm);
        }
        let before = process.busy.as_ref().filter(|busy| at_ns <= busy.until_ns).map(|busy| busy.since_ns);
        process.busy = Some(Busy {
            device: usage.uuid.clone(),
            because,
            since_ns: before.unwrap_or(at_ns),
            until_ns: at_ns.saturating_add(usage.valid_ms.saturating_mul(1_000_000)),
        });
    }

    /// Nobody but these is known to work on the device.
    fn rest(&mut self, device: &str, but: &[u32]) {
        for (pid, process) in &mut self.processes {
            let is_there = process.busy.as_ref().is_some_and(|busy| busy.device == device);
            if is_there && !but.contains(pid) {
                process.busy = None;
            }
        }
        self.processes.retain(|_, process| {
            let is_known = process.watched_ns.is_some() || process.ended || process.last_ns.is_some();
            is_known || process.busy.is_some() || !process.told.is_empty()
        });
    }
}

impl Process {
    /// NVML tells how much it has on a device.
    fn told(&mut self, device: &str, bytes: u64, at_ns: u64) {
        if self.told.len() >= MAX_TOLD && !self.told.contains_key(device) {
            return;
        }
        // What it took before its driver was attached to says nothing.
        let is_late = self.watched_ns.is_none_or(|since| at_ns > since.saturating_add(BLIND_NS));
        let told = self.told.entry(device.to_owned()).or_insert(Told { bytes, grew_unseen: false });
        told.grew_unseen |= bytes > told.bytes && is_late;
        told.grew_unseen &= self.last_ns.is_none();
        told.bytes = bytes;
    }

    /// Since when NVML shows work of it that nothing was seen of, if for so long that there must be calls; and on which
    /// device, and why it is taken for its own.
    pub fn blind_since(&self, now_ns: u64) -> Option<(u64, &str, Because)> {
        let busy = self.busy.as_ref().filter(|busy| now_ns <= busy.until_ns)?;
        let since_ns = busy.since_ns.max(self.last_ns.unwrap_or(0));
        let limit = if self.last_ns.is_some() { QUIET_NS } else { BLIND_NS };
        (now_ns.saturating_sub(since_ns) >= limit).then_some((since_ns, &*busy.device, busy.because))
    }
}

#[cfg(test)]
mod tests;
