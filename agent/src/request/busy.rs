//! A set of points in time, as disjoint intervals: how long was at least one of many things going on.

use std::collections::VecDeque;

/// One interval and the measure of everything before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    begin: u64,
    end: u64,
    /// Measure of the set before `begin`.
    before: u64,
}

/// Union of intervals, which arrive nearly in the order of their ends. Adding one and asking for a measure both
/// cost the logarithm of what is kept, and overlapping intervals collapse into one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Busy {
    spans: VecDeque<Span>,
}

impl Busy {
    /// Adds `[begin, end]`; an empty or reversed interval adds nothing.
    pub(crate) fn add(&mut self, begin: u64, end: u64) {
        if begin >= end {
            return;
        }
        let first = self.spans.partition_point(|s| s.end < begin);
        let after = self.spans.partition_point(|s| s.begin <= end);
        let mut span = Span { begin, end, before: 0 };
        if first < after {
            span.begin = begin.min(self.spans[first].begin);
            span.end = end.max(self.spans[after - 1].end);
            self.spans.drain(first..after);
        }
        self.spans.insert(first, span);
        self.recount(first);
    }

    /// Sets `before` again from `first` on: one span, except when an interval arrives out of order.
    fn recount(&mut self, first: usize) {
        let mut before = first
            .checked_sub(1)
            .map_or(0, |i| self.spans[i].before + (self.spans[i].end - self.spans[i].begin));
        for span in self.spans.range_mut(first..) {
            span.before = before;
            before += span.end - span.begin;
        }
    }

    /// Measure of the set within `[from, to]`.
    pub(crate) fn measure(&self, from: u64, to: u64) -> u64 {
        if from >= to { 0 } else { self.until(to) - self.until(from) }
    }

    /// Measure of the set before `t`, relative to the beginning of what is kept.
    fn until(&self, t: u64) -> u64 {
        let next = self.spans.partition_point(|s| s.begin < t);
        match next.checked_sub(1).map(|i| self.spans[i]) {
            Some(span) => span.before + (t.min(span.end) - span.begin),
            // What was pruned counts as before everything.
            None => self.spans.front().map_or(0, |s| s.before),
        }
    }

    /// How long, within `[from, to]`, both were going on.
    pub(crate) fn overlap(&self, other: &Self, from: u64, to: u64) -> u64 {
        let first = self.spans.partition_point(|s| s.end <= from);
        let own = self.spans.range(first..).take_while(|s| s.begin < to);
        own.map(|s| other.measure(s.begin.max(from), s.end.min(to))).sum()
    }

    /// Forgets intervals that ended before `t`.
    pub(crate) fn prune(&mut self, t: u64) {
        while self.spans.front().is_some_and(|s| s.end < t) {
            self.spans.pop_front();
        }
    }

    /// Drops the oldest interval; returns its end.
    pub(crate) fn drop_oldest(&mut self) -> Option<u64> {
        self.spans.pop_front().map(|s| s.end)
    }

    /// Intervals kept.
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }
}

/// Measure of the union of intervals sorted by their ends.
pub(crate) fn union(intervals: impl IntoIterator<Item = (u64, u64)>) -> u64 {
    let mut busy = Busy::default();
    let (mut lo, mut hi) = (u64::MAX, 0);
    for (begin, end) in intervals {
        busy.add(begin, end);
        lo = lo.min(begin);
        hi = hi.max(end);
    }
    busy.measure(lo, hi)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn union_of_intervals() {
        let cases: [(&[(u64, u64)], u64); 7] = [
            (&[], 0),
            (&[(5, 5), (7, 3)], 0),
            (&[(0, 10), (20, 30)], 20),
            (&[(0, 10), (5, 15)], 15),
            (&[(0, 10), (10, 15)], 15),
            (&[(0, 10), (20, 30), (5, 40)], 40),
            (&[(20, 30), (0, 10), (8, 22)], 30),
        ];
        for (intervals, want) in cases {
            assert_eq!(union(intervals.iter().copied()), want, "{intervals:?}");
        }
    }

    #[test]
    fn measure_clips_at_both_sides() {
        let mut busy = Busy::default();
        for (b, e) in [(0, 10), (20, 30), (40, 50)] {
            busy.add(b, e);
        }
        let cases =
            [(0, 50, 30), (5, 25, 10), (10, 20, 0), (12, 18, 0), (45, 100, 5), (30, 20, 0), (60, 70, 0)];
        for (from, to, want) in cases {
            assert_eq!(busy.measure(from, to), want, "[{from}, {to}]");
        }
    }

    #[test]
    fn overlap_is_the_measure_of_both() {
        let set = |intervals: &[(u64, u64)]| {
            let mut busy = Busy::default();
            for &(begin, end) in intervals {
                busy.add(begin, end);
            }
            busy
        };
        let (a, b) = (set(&[(0, 10), (20, 30), (40, 60)]), set(&[(5, 25), (45, 50), (58, 70)]));
        for (from, to, want) in [(0, 100, 17), (0, 20, 5), (8, 22, 4), (46, 47, 1), (26, 45, 0), (9, 9, 0)] {
            assert_eq!((a.overlap(&b, from, to), b.overlap(&a, from, to)), (want, want), "[{from}, {to}]");
        }
    }

    #[test]
    fn pruning_keeps_differences() {
        let mut busy = Busy::default();
        for i in 0..100 {
            busy.add(i * 10, i * 10 + 4);
        }
        busy.prune(500);
        assert_eq!(busy.len(), 50);
        assert_eq!(busy.measure(600, 700), 40);
        assert_eq!(busy.measure(495, 520), 8, "from before the first that is kept");
        assert_eq!(busy.drop_oldest(), Some(504));
    }

    /// Against the plain definition, point by point.
    #[test]
    fn same_as_counting_points() {
        let mut seed = 7_u64;
        let mut busy = Busy::default();
        let mut points = [false; 400];
        for i in 0..60_u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let begin = i * 5 + (seed >> 60);
            let end = begin + (seed >> 33) % 12;
            busy.add(begin, end);
            for (at, point) in (0_u64..).zip(&mut points) {
                *point |= (begin..end).contains(&at);
            }
            let from = (seed >> 20) % 200;
            let want = (0_u64..).zip(points).filter(|(at, p)| *p && (from..390).contains(at)).count();
            assert_eq!(busy.measure(from, 390), want as u64);
        }
    }
}
