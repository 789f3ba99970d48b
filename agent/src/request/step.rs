//! The steps of one GPU process, in the order in which their results reached the host.
//!
//! A step is an interval `[begin, end]`: first launch of its work, and the return of the marker that proved it
//! finished. Steps overlap when an engine launches the next one before it has waited for the last: that is normal.
//! Only markers that found launches or graph launches are steps here; a wait for mere copies is GPU activity, but no
//! token came of it.

use std::collections::VecDeque;

use wire::cuda;

use super::busy::Busy;

/// Steps kept per process; 48 bytes each. At 5 ms a step this is the last 160 s under load, less when every
/// request is younger.
pub(crate) const STEPS_KEPT: usize = 32_768;
/// Steps older than the oldest live request by less than this are kept: records of different CPUs may arrive a
/// little out of order.
const SLACK_NS: u64 = 1_000_000_000;

/// One result-bearing step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepInfo {
    /// First launch of its work, ns.
    pub(crate) begin: u64,
    /// Result on the host, ns.
    pub(crate) end: u64,
    /// Thread that waited for the result.
    pub(crate) tid: u32,
    /// Requests whose final assignment holds it.
    pub(crate) members: u32,
    /// Of those, how many got their first content from it.
    pub(crate) firsts: u32,
    /// Of those, how many are placed in it by bounds alone.
    pub(crate) likely: u32,
    /// Requests that may have been in it besides.
    pub(crate) doubtful: u32,
    /// `begin` is not known to the call.
    pub(crate) bounded: bool,
}

impl StepInfo {
    /// The step behind a marker; `None` when the marker found no launch.
    pub(crate) fn new(step: &cuda::Step) -> Option<Self> {
        if step.work.launches == 0 && step.work.graphs == 0 {
            return None;
        }
        let end = step.header.time_ns;
        let unknown = step.first_ns == 0 || step.first_ns > end;
        // The wait begins after the last launch, so its entry is the latest that the begin can be.
        let begin = if unknown { step.enter_ns.min(end) } else { step.first_ns };
        let bounded = unknown || step.flags & cuda::STEP_FIRST_BOUNDED != 0;
        Some(Self { begin, end, tid: step.header.tid, bounded, ..Self::default() })
    }

    /// From first launch to result.
    pub(crate) fn seconds(self) -> f64 {
        self.end.saturating_sub(self.begin) as f64 / 1e9
    }
}

/// The steps of one process, oldest first, sorted by `end`.
#[derive(Debug, Default)]
pub(crate) struct StepLog {
    steps: VecDeque<StepInfo>,
    busy: Busy,
    /// End of the newest step that was dropped for lack of room: the log is complete after it.
    lost_until: u64,
    /// Some marker brought bytes back to the host: in a tensor-parallel engine, the sign of the output rank.
    pub(crate) returns_data: bool,
}

impl StepLog {
    /// Adds a step; the oldest one where it had to go for it.
    pub(crate) fn push(&mut self, step: StepInfo) -> Option<StepInfo> {
        let at = match self.steps.back() {
            Some(last) if last.end > step.end => self.steps.partition_point(|s| s.end <= step.end),
            _ => self.steps.len(),
        };
        self.steps.insert(at, step);
        self.busy.add(step.begin, step.end);
        if self.steps.len() <= STEPS_KEPT {
            return None;
        }
        let old = self.steps.pop_front()?;
        self.lost_until = self.lost_until.max(old.end);
        self.busy.prune(old.end);
        Some(old)
    }

    /// Forgets steps that no request read at or after `floor` can need, and gives each to `over`.
    pub(crate) fn prune(&mut self, floor: u64, over: &mut impl FnMut(StepInfo)) {
        let floor = floor.saturating_sub(SLACK_NS);
        while let Some(step) = self.steps.pop_front_if(|s| s.end < floor) {
            over(step);
        }
        self.busy.prune(floor);
        if self.steps.capacity() > 1024 && self.steps.len() < self.steps.capacity() / 8 {
            self.steps.shrink_to(self.steps.len() * 2);
        }
    }

    /// Every step that ended after `t` is here.
    pub(crate) fn complete_since(&self, t: u64) -> bool {
        self.lost_until <= t
    }

    /// Number of steps kept.
    pub(crate) fn len(&self) -> usize {
        self.steps.len()
    }

    /// The step at an index, oldest first.
    pub(crate) fn get(&self, i: usize) -> StepInfo {
        self.steps[i]
    }

    /// The steps at `range`, oldest first.
    pub(crate) fn range(&self, range: std::ops::Range<usize>) -> impl DoubleEndedIterator<Item = &StepInfo> {
        self.steps.range(range)
    }

    /// Number of steps that had ended by `t`: the index after the last of them.
    pub(crate) fn ended_by(&self, t: u64) -> usize {
        self.steps.partition_point(|s| s.end <= t)
    }

    /// Index of the first step that can have held a request read at `t`: the first, by end, that began after it.
    pub(crate) fn begun_after(&self, t: u64) -> usize {
        let from = self.ended_by(t);
        from + self.steps.range(from..).take_while(|s| s.begin < t).count()
    }

    /// How long, within `[from, to]`, at least one step was going on.
    pub(crate) fn busy_ns(&self, from: u64, to: u64) -> u64 {
        self.busy.measure(from, to)
    }

    /// Counts one more request in the steps at these indices, whose first content came from the one at `first` among
    /// them; `likely` where bounds alone say so.
    pub(crate) fn join(&mut self, own: &[usize], first: Option<usize>, likely: bool) {
        for (n, &i) in own.iter().enumerate() {
            if let Some(step) = self.steps.get_mut(i) {
                step.members += 1;
                step.firsts += u32::from(first == Some(n));
                step.likely += u32::from(likely);
            }
        }
    }

    /// One more request may have been in any step of `[from, to]`.
    pub(crate) fn doubt(&mut self, from: u64, to: u64) {
        let range = self.begun_after(from)..self.ended_by(to);
        if !range.is_empty() {
            self.steps.range_mut(range).for_each(|step| step.doubtful += 1);
        }
    }

    /// Result of the last step, 0 when there was none.
    pub(crate) fn last_end(&self) -> u64 {
        self.steps.back().map_or(0, |s| s.end)
    }
}

#[cfg(test)]
mod tests {
    use wire::{Header, Kind};

    use super::*;

    /// A marker record with one launch.
    fn marker(pid: u32, tid: u32, begin: u64, end: u64) -> cuda::Step {
        let len = 0;
        let header = Header { abi: wire::ABI, kind: Kind::Step as u16, len, time_ns: end, tgid: pid, tid };
        let work = cuda::Work { launches: 1, copies: 1, d2h_bytes: 4, ..cuda::Work::default() };
        cuda::Step {
            header,
            work,
            enter_ns: end.saturating_sub(1),
            first_ns: begin,
            last_ns: begin,
            stream: 1,
            event: 0,
            graph: 0,
            row: 0,
            flags: 0,
            result: 0,
            context: 0,
        }
    }

    fn info(begin: u64, end: u64) -> StepInfo {
        StepInfo { begin, end, tid: 1, ..StepInfo::default() }
    }

    #[test]
    fn what_is_a_step() {
        let plain = marker(1, 2, 100, 200);
        let mut copy = plain;
        copy.work.launches = 0;
        let mut graph = copy;
        graph.work.graphs = 1;
        let mut unknown = plain;
        unknown.first_ns = 0;
        let mut late = plain;
        late.flags = cuda::STEP_FIRST_BOUNDED;
        let cases = [
            ("launches", plain, Some((100, false))),
            ("only copies", copy, None),
            ("a graph", graph, Some((100, false))),
            ("begin unknown", unknown, Some((199, true))),
            ("begin bounded", late, Some((100, true))),
        ];
        for (name, step, want) in cases {
            assert_eq!(StepInfo::new(&step).map(|s| (s.begin, s.bounded)), want, "{name}");
        }
    }

    #[test]
    fn sorted_by_end_even_when_records_are_not() {
        let mut log = StepLog::default();
        for (b, e) in [(0, 10), (5, 30), (12, 20), (25, 40)] {
            log.push(info(b, e));
        }
        let ends: Vec<_> = log.range(0..4).map(|s| s.end).collect();
        assert_eq!(ends, [10, 20, 30, 40]);
        assert_eq!((log.ended_by(9), log.ended_by(20), log.ended_by(99)), (0, 2, 4));
        assert_eq!(log.busy_ns(0, 40), 40);
    }

    #[test]
    fn a_step_in_flight_at_the_read_is_not_a_candidate() {
        let mut log = StepLog::default();
        for (b, e) in [(0, 10), (5, 20), (15, 30), (25, 40)] {
            log.push(info(b, e));
        }
        for (t, want) in [(0, 0), (1, 1), (6, 2), (10, 2), (15, 2), (16, 3), (26, 4), (99, 4)] {
            assert_eq!(log.begun_after(t), want, "read at {t}");
        }
    }

    #[test]
    fn bounded_and_honest_about_it() {
        let mut log = StepLog::default();
        let evicted = (0..STEPS_KEPT as u64 + 10).filter_map(|i| log.push(info(i * 10, i * 10 + 5))).count();
        assert_eq!((evicted, log.len()), (10, STEPS_KEPT));
        assert!(!log.complete_since(94));
        assert!(log.complete_since(95));
    }

    #[test]
    fn prune_keeps_what_a_live_request_can_need() {
        let second = 1_000_000_000;
        let mut log = StepLog::default();
        for i in 0..10 {
            log.push(info(i * second, i * second + 5));
        }
        let mut over = Vec::new();
        log.prune(5 * second, &mut |step| over.push(step.begin));
        assert_eq!(over, [0, second, 2 * second, 3 * second]);
        assert_eq!(log.get(0).begin, 4 * second);
        assert!(log.complete_since(0), "pruning is not a loss");
    }
}
