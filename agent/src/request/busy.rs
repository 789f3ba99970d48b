//! A set of points in time, as disjoint intervals: how long was at least one of many things going on.

use std::collections::VecDeque;

/// One interval, and the measure of those before it in its chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    begin: u64,
    end: u64,
    before: u64,
}

/// Intervals next to each other; never none.
#[derive(Clone, Debug, Default)]
struct Chunk {
    spans: VecDeque<Span>,
    /// Measure of all chunks before.
    before: u64,
}

/// Intervals of a chunk at most: where so many are kept that it matters, there are about as many chunks.
const CHUNK: usize = 256;

impl Chunk {
    fn begin(&self) -> u64 {
        self.spans.front().map_or(0, |span| span.begin)
    }

    fn end(&self) -> u64 {
        self.spans.back().map_or(0, |span| span.end)
    }

    /// Measure before its first interval; some of the chunk may be dropped.
    fn until_begin(&self) -> u64 {
        self.before + self.spans.front().map_or(0, |span| span.before)
    }

    /// Measure of all that is, or was, in it.
    fn measure(&self) -> u64 {
        self.spans.back().map_or(0, Span::until)
    }

    /// Sets `before` again from `first` on.
    fn recount(&mut self, first: usize) {
        let mut before = first.checked_sub(1).map_or(0, |last| self.spans[last].until());
        for span in self.spans.range_mut(first..) {
            span.before = before;
            before = span.until();
        }
    }
}

impl Span {
    /// Measure of those up to it.
    fn until(&self) -> u64 {
        self.before + (self.end - self.begin)
    }
}

/// Union of intervals, which arrive nearly in the order of their ends. Asking for a measure costs the logarithm of what is
/// kept, adding one that is late the root of it, and overlapping intervals collapse into one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Busy {
    chunks: VecDeque<Chunk>,
    len: usize,
}

impl Busy {
    /// Adds `[begin, end]`; an empty or reversed interval adds nothing.
    pub(crate) fn add(&mut self, begin: u64, end: u64) {
        if begin >= end {
            return;
        }
        let mut span = Span { begin, end, before: 0 };
        let lowest = self.absorb(&mut span);
        let at = self.insert(span);
        self.split(at);
        self.recount(at.min(lowest));
    }

    /// The first chunk that reaches up to `t`.
    fn reaching(&self, t: u64) -> usize {
        self.chunks.partition_point(|chunk| chunk.end() < t)
    }

    /// Takes out what overlaps or touches `span`, which grows by it; the first chunk that lost something.
    fn absorb(&mut self, span: &mut Span) -> usize {
        let mut lowest = usize::MAX;
        loop {
            let at = self.reaching(span.begin);
            let Some(chunk) = self.chunks.get_mut(at) else { return lowest };
            let first = chunk.spans.partition_point(|one| one.end < span.begin);
            let after = chunk.spans.partition_point(|one| one.begin <= span.end);
            if first >= after {
                return lowest;
            }
            span.begin = span.begin.min(chunk.spans[first].begin);
            span.end = span.end.max(chunk.spans[after - 1].end);
            chunk.spans.drain(first..after);
            chunk.recount(first);
            if chunk.spans.is_empty() {
                self.chunks.remove(at);
            }
            self.len -= after - first;
            lowest = lowest.min(at);
        }
    }

    /// Puts in an interval that touches no other; the chunk that it is in then.
    fn insert(&mut self, span: Span) -> usize {
        let at = self.reaching(span.begin);
        let is_between = self.chunks.get(at).is_none_or(|chunk| span.end < chunk.begin());
        // Between two chunks it is the last of the one before.
        let at = if is_between { at.saturating_sub(1) } else { at };
        if self.chunks.is_empty() {
            self.chunks.push_back(Chunk::default());
        }
        let chunk = &mut self.chunks[at];
        let place = chunk.spans.partition_point(|one| one.begin < span.begin);
        chunk.spans.insert(place, span);
        chunk.recount(place);
        self.len += 1;
        at
    }

    /// Makes two of a chunk that is too long. At the end the new one begins empty but for the last: what comes next is
    /// behind it, most likely.
    fn split(&mut self, at: usize) {
        let is_last = at + 1 == self.chunks.len();
        let chunk = &mut self.chunks[at];
        if chunk.spans.len() <= CHUNK {
            return;
        }
        let cut = if is_last { CHUNK } else { CHUNK / 2 };
        let mut rest = Chunk { spans: chunk.spans.split_off(cut), before: 0 };
        rest.recount(0);
        self.chunks.insert(at + 1, rest);
    }

    /// Sets `before` of the chunks again from `first` on: one or two, except when an interval arrives late.
    fn recount(&mut self, first: usize) {
        let last = first.checked_sub(1).map(|last| &self.chunks[last]);
        let mut before = last.map_or(self.chunks[first].before, |chunk| chunk.before + chunk.measure());
        for chunk in self.chunks.range_mut(first..) {
            chunk.before = before;
            before += chunk.measure();
        }
    }

    /// Measure of the set within `[from, to]`.
    pub(crate) fn measure(&self, from: u64, to: u64) -> u64 {
        if from >= to { 0 } else { self.until(to) - self.until(from) }
    }

    /// Measure of the set before `t`, relative to the beginning of what is kept.
    fn until(&self, t: u64) -> u64 {
        let next = self.chunks.partition_point(|chunk| chunk.begin() < t);
        // What was dropped counts as before everything.
        let Some(chunk) = next.checked_sub(1).map(|i| &self.chunks[i]) else {
            return self.chunks.front().map_or(0, Chunk::until_begin);
        };
        let next = chunk.spans.partition_point(|span| span.begin < t);
        let span = &chunk.spans[next - 1];
        chunk.before + span.before + (t.min(span.end) - span.begin)
    }

    /// How long, within `[from, to]`, both were going on.
    pub(crate) fn overlap(&self, other: &Self, from: u64, to: u64) -> u64 {
        let first = self.chunks.partition_point(|chunk| chunk.end() <= from);
        let spans = self.chunks.range(first..).flat_map(|chunk| &chunk.spans);
        let own = spans.skip_while(|span| span.end <= from).take_while(|span| span.begin < to);
        own.map(|span| other.measure(span.begin.max(from), span.end.min(to))).sum()
    }

    /// Forgets intervals that ended before `t`.
    pub(crate) fn prune(&mut self, t: u64) {
        while self.chunks.front().and_then(|chunk| chunk.spans.front()).is_some_and(|span| span.end < t) {
            self.drop_oldest();
        }
    }

    /// Drops the oldest interval; returns its end.
    pub(crate) fn drop_oldest(&mut self) -> Option<u64> {
        let chunk = self.chunks.front_mut()?;
        let oldest = chunk.spans.pop_front()?;
        // Those behind it keep their distance from the beginning of all that ever was.
        self.len -= 1;
        if chunk.spans.is_empty() {
            self.chunks.pop_front();
        }
        Some(oldest.end)
    }

    /// Intervals kept.
    pub(crate) fn len(&self) -> usize {
        self.len
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

    /// Late ones, and as many as fill several chunks.
    #[test]
    fn the_order_does_not_matter() {
        let n = 5 * CHUNK as u64;
        let spans: Vec<(u64, u64)> = (0..n).map(|i| (i * 10, i * 10 + 1 + i % 7)).collect();
        let of = |order: &mut dyn Iterator<Item = u64>| {
            let mut busy = Busy::default();
            order.map(|i| spans[usize::try_from(i).unwrap()]).for_each(|(begin, end)| busy.add(begin, end));
            busy
        };
        let sorted = of(&mut (0..n));
        let shuffled = of(&mut (0..n).map(|i| i * 769 % n));
        let reversed = of(&mut (0..n).rev());
        for (from, to) in [(0, u64::MAX), (3, 9_999), (2_555, 7_777), (10 * n - 5, 10 * n)] {
            let want: u64 = spans.iter().map(|(b, e)| e.min(&to).saturating_sub(*b.max(&from))).sum();
            assert_eq!([&sorted, &shuffled, &reversed].map(|busy| busy.measure(from, to)), [want; 3]);
            assert_eq!(sorted.overlap(&shuffled, from, to), want);
        }
        let mut one = shuffled;
        one.prune(7_000);
        one.add(5_000, 6_000);
        assert_eq!(one.measure(5_500, 7_010), 500 + sorted.measure(7_000, 7_010));
        one.add(0, 20 * n);
        assert_eq!((one.len(), one.measure(0, u64::MAX)), (1, 20 * n));
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
