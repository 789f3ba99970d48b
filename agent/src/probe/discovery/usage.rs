//! What the processes of services use: CPU time, which only grows, and memory.

use std::collections::BTreeMap;

use crate::{
    decode::ServiceUse,
    probe::status::{ServiceStatus, Usage},
    source::procfs::{ProcFs, Stat},
};

/// Names of services whose totals are kept.
const NAMES_KEPT: usize = 4096;

/// Totals by name of service.
#[derive(Debug, Default)]
pub(super) struct Usages {
    /// CPU time of processes when they were last looked at, clock ticks; by pid and start time.
    last: BTreeMap<(u32, u64), u64>,
    /// CPU time by name, clock ticks.
    cpu: BTreeMap<String, u64>,
    memory: BTreeMap<String, u64>,
}

/// Keys of the auxiliary vector, as in linux/auxvec.h.
const PAGE_SIZE: u64 = 6;
const CLOCK_TICKS: u64 = 17;

/// Clock ticks of a second and bytes of a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Units {
    pub(super) ticks: u64,
    pub(super) page: u64,
}

impl Units {
    /// Those of this machine.
    pub(super) fn of_host() -> Self {
        let vector = std::fs::read("/proc/self/auxv").unwrap_or_default();
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
        let entries: Vec<(u64, u64)> =
            vector.chunks_exact(16).map(|e| (word(&e[..8]), word(&e[8..]))).collect();
        let of = |key| entries.iter().find(|entry| entry.0 == key).map(|entry| entry.1);
        Self { ticks: of(CLOCK_TICKS).unwrap_or(100), page: of(PAGE_SIZE).unwrap_or(4096) }
    }

    /// Milliseconds in so many ticks.
    fn ms(self, ticks: u64) -> u64 {
        ticks * 1000 / self.ticks.max(1)
    }
}

impl Usages {
    /// Takes one look at all processes; `service` names the service of each.
    pub(super) fn look<'a>(
        &mut self,
        stats: impl Iterator<Item = &'a Stat>,
        service: impl Fn(&Stat) -> Option<&'a str>,
    ) {
        self.memory.clear();
        let mut seen = BTreeMap::new();
        for stat in stats {
            let Some(name) = service(stat) else { continue };
            let key = (stat.pid, stat.start_ticks);
            let before = self.last.get(&key).copied().unwrap_or(0);
            seen.insert(key, stat.cpu_ticks);
            if self.cpu.len() >= NAMES_KEPT && !self.cpu.contains_key(name) {
                continue;
            }
            *self.cpu.entry(name.to_owned()).or_default() += stat.cpu_ticks.saturating_sub(before);
            *self.memory.entry(name.to_owned()).or_default() += stat.rss_pages;
        }
        self.last = seen;
    }

    /// What the services with a GPU have used, for the pipeline. A service is in one control group; that of its first
    /// process on a GPU tells of it.
    pub(super) fn told(&self, services: &[ServiceStatus], procfs: &ProcFs, units: Units) -> Vec<ServiceUse> {
        let mut told = BTreeMap::new();
        for service in services {
            let Some(pid) = service.gpu_pids.first() else { continue };
            let Some(ticks) = self.cpu.get(&service.name) else { continue };
            // One that has ended has no group any more.
            let periods = procfs.cpu_periods(*pid).ok().flatten().map(|of| [of.all, of.throttled]);
            let cpu_ms = units.ms(*ticks);
            told.insert(&*service.name, ServiceUse { service: service.name.clone(), cpu_ms, periods });
        }
        told.into_values().collect()
    }

    /// What is used, by name.
    pub(super) fn view(&self, units: Units) -> BTreeMap<String, Usage> {
        let usage = |(name, ticks): (&String, &u64)| {
            let memory_bytes = self.memory.get(name).map(|pages| pages * units.page);
            (name.clone(), Usage { cpu_ms: units.ms(*ticks), memory_bytes })
        };
        self.cpu.iter().map(usage).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(pid: u32, start_ticks: u64, cpu_ticks: u64) -> Stat {
        Stat {
            pid,
            comm: String::new(),
            ppid: 1,
            pgrp: 1,
            session: 1,
            threads: 1,
            cpu_ticks,
            rss_pages: 10,
            start_ticks,
            vsize: 1,
        }
    }

    #[test]
    fn the_host_says_its_units() {
        let units = Units::of_host();
        assert!(units.ticks >= 100 && units.page >= 4096 && units.page.is_power_of_two(), "{units:?}");
    }

    #[test]
    fn time_of_processes_that_left_stays() {
        let mut usages = Usages::default();
        let mut look = |stats: &[Stat]| {
            usages.look(stats.iter(), |stat| (stat.pid < 9).then_some("s"));
            let view = usages.view(Units { ticks: 100, page: 4096 });
            view.get("s").map(|usage| (usage.cpu_ms, usage.memory_bytes))
        };
        assert_eq!(look(&[stat(9, 1, 500)]), None, "of no service");
        assert_eq!(look(&[stat(1, 1, 100), stat(2, 1, 50)]), Some((1500, Some(2 * 40_960))));
        assert_eq!(look(&[stat(1, 1, 120), stat(2, 1, 50)]), Some((1700, Some(2 * 40_960))));
        assert_eq!(look(&[stat(2, 1, 60)]), Some((1800, Some(40_960))), "the other one has ended");
        assert_eq!(look(&[stat(2, 7, 10)]), Some((1900, Some(40_960))), "its number is another one's");
        assert_eq!(look(&[]), Some((1900, None)));
    }
}
