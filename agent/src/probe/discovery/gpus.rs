//! Processes that use a GPU, looked at more closely: which devices they may see, and signs of what they are for.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::scan::Scanner;
use crate::{
    decode::{GpuProcessSeen, Observation, Sign},
    source::procfs::Stat,
};

/// Time between two looks at a process: its memory map is long, and little of this changes.
const EVERY: Duration = Duration::from_secs(10);

/// What was told of them.
#[derive(Debug, Default)]
pub(super) struct GpuProcesses {
    told: BTreeMap<u32, Told>,
}

#[derive(Debug)]
struct Told {
    seen: GpuProcessSeen,
    looked: Instant,
}

impl GpuProcesses {
    /// Looks at those that are new or due; what there is to tell.
    pub(super) fn look(&mut self, scanner: &Scanner, pids: &[u32], now: Instant) -> Vec<Observation> {
        self.told.retain(|pid, _| pids.contains(pid));
        let is_due = |pid: &&u32| self.told.get(*pid).is_none_or(|told| now >= told.looked + EVERY);
        let due: Vec<u32> = pids.iter().filter(is_due).copied().collect();
        if due.is_empty() {
            return Vec::new();
        }
        let all: Vec<Stat> = scanner.stats().cloned().collect();
        let stats = all.iter().filter(|stat| due.contains(&stat.pid));
        let seen = stats.filter_map(|stat| scanner.procfs().gpu_process(stat, &all));
        seen.filter_map(|seen| self.news(seen, now)).collect()
    }

    /// What was not told yet. A checkpoint is being written for a moment only: what was seen once stays.
    fn news(&mut self, mut seen: GpuProcessSeen, now: Instant) -> Option<Observation> {
        let before = self.told.get(&seen.pid).filter(|told| told.seen.start_ticks == seen.start_ticks);
        let checkpoints = before.iter().flat_map(|told| &told.seen.signs);
        let checkpoints = checkpoints.filter(|sign| matches!(sign, Sign::Checkpoint { .. })).cloned();
        seen.signs.extend(checkpoints.collect::<Vec<_>>());
        seen.signs.sort_unstable();
        seen.signs.dedup();
        let is_news = before.is_none_or(|told| told.seen != seen);
        self.told.insert(seen.pid, Told { seen: seen.clone(), looked: now });
        is_news.then_some(Observation::GpuProcess(seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_news_is_told_and_a_checkpoint_is_remembered() {
        let mut gpus = GpuProcesses::default();
        let now = Instant::now();
        let checkpoint = Sign::Checkpoint { ending: "pt".into() };
        let seen = |start_ticks, signs: &[Sign]| GpuProcessSeen {
            pid: 1,
            start_ticks,
            signs: signs.to_vec(),
            ..GpuProcessSeen::default()
        };
        assert!(gpus.news(seen(1, &[]), now).is_some());
        assert!(gpus.news(seen(1, &[]), now).is_none());
        assert!(gpus.news(seen(1, std::slice::from_ref(&checkpoint)), now).is_some());
        assert!(gpus.news(seen(1, &[]), now).is_none(), "it is still one that writes checkpoints");
        let Some(Observation::GpuProcess(other)) = gpus.news(seen(2, &[]), now) else {
            panic!("another process")
        };
        assert_eq!(other.signs, []);
    }
}
