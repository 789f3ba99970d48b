//! [3] Whose work on a GPU is seen, and whose is not.
//!
//! A process of which no CUDA call comes is idle, or it calls the driver in a way that nobody watches. NVML tells which:
//! if a device works and the process is the only one that computes on it, the work is its own.

mod rare;

use std::collections::BTreeMap;

pub use rare::{RareCall, RareCalls, RareKind};
use wire::cuda::TALLY_PROCESS_END;

use crate::{
    decode::{DeviceUsage, DeviceUse, Event, NvmlSeen, Observation, ProcessSeen},
    health::Health,
};

/// Processes that are kept.
const MAX_PROCESSES: usize = 4096;
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
    /// It maps a driver that is probed.
    is_watched: bool,
    /// When the last work of it was seen.
    pub last_ns: Option<u64>,
    /// What NVML shows of its work.
    busy: Option<Busy>,
    /// Calls that are rare and take long.
    pub rare: RareCalls,
}

/// Work that NVML shows.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Busy {
    device: String,
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
            Observation::Process(seen) if seen.cuda => self.seen(seen, health),
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
            let strays = self.processes.iter().filter(|(_, process)| !process.is_watched);
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

    fn seen(&mut self, seen: &ProcessSeen, health: &mut Health) {
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
        process.is_watched = true;
    }

    /// Only of a process that is alone on a device is it known that the work is its own; who draws there works as well.
    fn used(&mut self, at_ns: u64, usage: &DeviceUsage, health: &mut Health) {
        let works = usage.utilization_percent.is_some_and(|percent| percent > 0);
        let mut there = usage.processes.iter().flatten();
        let first = there.clone().find(|one| one.does == DeviceUse::Compute);
        let alone = first.filter(|one| works && there.all(|other| other.pid == one.pid));
        self.rest(&usage.uuid, alone.map(|one| one.pid));
        let Some(one) = alone else { return };
        let Some(process) = self.entry(one.pid, health) else { return };
        if process.comm.is_none() {
            process.comm.clone_from(&one.comm);
        }
        let before = process.busy.as_ref().filter(|busy| at_ns <= busy.until_ns).map(|busy| busy.since_ns);
        process.busy = Some(Busy {
            device: usage.uuid.clone(),
            since_ns: before.unwrap_or(at_ns),
            until_ns: at_ns.saturating_add(usage.valid_ms.saturating_mul(1_000_000)),
        });
    }

    /// Nobody but one is known to work on the device.
    fn rest(&mut self, device: &str, but: Option<u32>) {
        for (pid, process) in &mut self.processes {
            let is_there = process.busy.as_ref().is_some_and(|busy| busy.device == device);
            if is_there && Some(*pid) != but {
                process.busy = None;
            }
        }
        self.processes.retain(|_, process| {
            process.is_watched || process.ended || process.busy.is_some() || process.last_ns.is_some()
        });
    }
}

impl Process {
    /// Since when NVML shows work of it that nothing was seen of, if for so long that there must be calls; and on which
    /// device.
    pub fn blind_since(&self, now_ns: u64) -> Option<(u64, &str)> {
        let busy = self.busy.as_ref().filter(|busy| now_ns <= busy.until_ns)?;
        let since_ns = busy.since_ns.max(self.last_ns.unwrap_or(0));
        let limit = if self.last_ns.is_some() { QUIET_NS } else { BLIND_NS };
        (now_ns.saturating_sub(since_ns) >= limit).then_some((since_ns, &*busy.device))
    }
}

#[cfg(test)]
mod tests;
