//! Which GPU processes of a service run each step together, as the ranks of one tensor-parallel engine do.
//!
//! Ranks begin and end each step at about the same time, always; engines that share the requests of a service (replicas),
//! or hold different models, do so by chance. Each step is compared, once, with the steps of every other process at that
//! time, when the next one of its process is told: by then the others' have been told too.

use std::collections::BTreeMap;

use super::{
    service::Process,
    step::{StepInfo, StepLog},
};

/// Pairs of processes that are compared; a service has at most 64 processes, all of which may be ranks.
const PAIRS_KEPT: usize = 2048;
/// Steps compared before anything is said.
const ENOUGH: f64 = 8.0;
/// Share of steps in company from which two processes are ranks. Two replicas under the same load, whose steps begin and
/// end within a sixth of a step of each other by chance, come to a third; each prompt shifts one against the other.
const SHARE: f64 = 0.8;
/// With so many compared, older ones count half: an engine may be restarted with another layout.
const WINDOW: f64 = 256.0;
/// Ranks begin and end a step within this part of its own time: from the end of the one before it, where two are in
/// flight. Within a part of its whole length, which is twice that, the steps of any two busy engines would be.
const TOLERANCE: u64 = 6;
/// However short the step is, a scheduler may keep a rank for this long, ns.
const LEAST_TOLERANCE_NS: u64 = 300_000;

/// How often the steps of two processes were in company.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    together: f64,
    seen: f64,
}

impl Pair {
    fn count(&mut self, together: bool) {
        if self.seen >= WINDOW {
            *self = Self { together: self.together / 2.0, seen: self.seen / 2.0 };
        }
        self.together += f64::from(u8::from(together));
        self.seen += 1.0;
    }

    fn are_ranks(self) -> bool {
        self.seen >= ENOUGH && self.together >= SHARE * self.seen
    }
}

/// What is known of the processes of a service.
#[derive(Debug, Default)]
pub(crate) struct Ranks {
    /// By process ids, the lower one first.
    pairs: BTreeMap<(u32, u32), Pair>,
}

impl Ranks {
    /// A step of `pid` is about to be told: the one before it is compared. False when there was no room for a pair.
    pub(crate) fn told(&mut self, pid: u32, processes: &BTreeMap<u32, Process>) -> bool {
        let log = processes.get(&pid).map(|process| &process.log);
        let last = |log: &StepLog, back| Some(log.get(log.len().checked_sub(back)?));
        let before = log.and_then(|log| last(log, 1));
        let since = log.and_then(|log| last(log, 2)).map_or(0, |step| step.end);
        let Some(step) = before.filter(|_| processes.len() > 1) else { return true };
        let mut room = true;
        for (&other, process) in processes.iter().filter(|(other, _)| **other != pid) {
            let key = (pid.min(other), pid.max(other));
            if !self.pairs.contains_key(&key) && self.pairs.len() >= PAIRS_KEPT {
                self.pairs.retain(|(a, b), _| processes.contains_key(a) && processes.contains_key(b));
                room &= self.pairs.len() < PAIRS_KEPT;
            }
            if room {
                self.pairs.entry(key).or_default().count(in_company(step, since, process));
            }
        }
        room
    }

    /// The two run each step together.
    pub(crate) fn are_ranks(&self, a: u32, b: u32) -> bool {
        self.pairs.get(&(a.min(b), a.max(b))).is_some_and(|pair| pair.are_ranks())
    }

    /// Of processes that were active, one for each engine: of ranks the first that brings results back, else the first.
    pub(crate) fn engines(&self, active: &[(u32, bool)]) -> Vec<u32> {
        let mut engines: Vec<Vec<(u32, bool)>> = Vec::new();
        for &one in active {
            let is_rank =
                |engine: &&mut Vec<(u32, bool)>| engine.iter().any(|it| self.are_ranks(it.0, one.0));
            match engines.iter_mut().find(is_rank) {
                Some(engine) => engine.push(one),
                None => engines.push(vec![one]),
            }
        }
        let front =
            |engine: &Vec<(u32, bool)>| engine.iter().copied().min_by_key(|(pid, returns)| (!returns, *pid));
        engines.iter().filter_map(front).map(|(pid, _)| pid).collect()
    }
}

/// Some step of the process began and ended when this one did, the one before which ended at `since`.
fn in_company(step: StepInfo, since: u64, process: &Process) -> bool {
    let own = step.end.saturating_sub(step.begin.max(since));
    let tolerance = (own / TOLERANCE).max(LEAST_TOLERANCE_NS);
    let log = &process.log;
    let from = log.ended_by(step.end.saturating_sub(tolerance + 1));
    let to = log.ended_by(step.end.saturating_add(tolerance));
    log.range(from..to).any(|other| other.begin.abs_diff(step.begin) <= tolerance)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Tells the steps of processes 1, 2, … in the order of their ends.
    fn ranks(processes: &[Vec<(u64, u64)>]) -> (Ranks, BTreeMap<u32, Process>) {
        let mut steps: Vec<(u64, u64, u32)> = (1..)
            .zip(processes)
            .flat_map(|(pid, steps)| steps.iter().map(move |(begin, end)| (*end, *begin, pid)))
            .collect();
        steps.sort_unstable();
        let (mut ranks, mut table) = (Ranks::default(), BTreeMap::<u32, Process>::new());
        for (end, begin, pid) in steps {
            ranks.told(pid, &table);
            let process = table.entry(pid).or_default();
            let info = StepInfo { begin, end, tid: pid, ..StepInfo::default() };
            process.log.push(info);
        }
        (ranks, table)
    }

    /// `count` steps, the first of which begins at `from`; each third is longer.
    fn engine(from: u64, count: u64, jitter: u64) -> Vec<(u64, u64)> {
        let mut at = from;
        let step = |i: u64| {
            let begin = at + (i * 7919 % 5) * jitter / 5;
            let end = at + if i.is_multiple_of(3) { 20 * MS } else { 8 * MS };
            at = end + MS / 10;
            (begin, end + (i * 104_729 % 5) * jitter / 5)
        };
        (0..count).map(step).collect()
    }

    /// Steps of 8 ms each, launched while the one before runs.
    fn in_flight(from: u64) -> Vec<(u64, u64)> {
        (0..40).map(|i| (from + i * 8 * MS, from + (i + 2) * 8 * MS)).collect()
    }

    #[test]
    fn ranks_are_told_from_replicas() {
        let alone: Vec<_> = engine(0, 20, 0);
        let cases = [
            ("ranks, with jitter", vec![engine(0, 40, MS), engine(MS / 5, 40, MS / 2)], true),
            ("too few steps", vec![engine(0, 3, 0), engine(0, 3, 0)], false),
            ("replicas out of phase", vec![engine(0, 40, 0), engine(4 * MS, 40, 0)], false),
            (
                "other lengths",
                vec![engine(0, 40, 0), (0..90).map(|i| (i * 6 * MS, i * 6 * MS + 5 * MS)).collect()],
                false,
            ),
            ("replicas with two in flight", vec![in_flight(0), in_flight(3 * MS)], false),
            ("ranks with two in flight", vec![in_flight(0), in_flight(MS / 3)], true),
            ("one after the other", vec![alone.clone(), engine(1_000 * MS, 20, 0)], false),
        ];
        for (name, processes, want) in cases {
            assert_eq!(ranks(&processes).0.are_ranks(1, 2), want, "{name}");
        }
    }

    #[test]
    fn each_engine_has_one_front() {
        let processes = [engine(0, 40, 0), engine(0, 40, 0), engine(4 * MS, 40, 0)];
        let (ranks, _) = ranks(&processes);
        assert_eq!(ranks.engines(&[(1, true), (2, true), (3, true)]), [1, 3]);
        assert_eq!(
            ranks.engines(&[(1, false), (2, true), (3, true)]),
            [2, 3],
            "the output rank stands for both"
        );
        assert_eq!(ranks.engines(&[(2, false)]), [2]);
        assert!(ranks.engines(&[]).is_empty());
    }

    #[test]
    fn pairs_are_bounded() {
        let mut ranks = Ranks::default();
        let mut table = BTreeMap::<u32, Process>::new();
        for pid in 0..70 {
            table.entry(pid).or_default().log.push(StepInfo { begin: 1, end: 2, ..StepInfo::default() });
        }
        let room: Vec<bool> = (0..70).map(|pid| ranks.told(pid, &table)).collect();
        assert!(room[0] && !room[69]);
        assert_eq!(ranks.pairs.len(), PAIRS_KEPT);
    }
}
