//! The engine's steps as the truth of all requests together tells them.

use std::collections::BTreeMap;

use crate::agent::Step;
use crate::statistics::quantile;
use crate::truth::{Interval, Stamp, Truth};

/// How far outside the server's two readings a probe's time may lie: between a call's entry and its probe, and between
/// its return and the next reading, a thread may be kept waiting by others.
const NEAR_NS: u64 = 300_000;

/// A result is there when the call that waits for it returns, which is this long before the reading behind the call at
/// most, unless the thread is kept waiting. The reading before the call says nothing of it.
const RETURN_NS: u64 = 20_000;

/// When a result was there.
fn result(stamp: Stamp) -> Stamp {
    [stamp[0].max(stamp[1].saturating_sub(RETURN_NS)), stamp[1]]
}

/// One step.
#[derive(Clone, Copy, Debug)]
struct True {
    launch: Stamp,
    result: Stamp,
    batch: u32,
}

/// All steps that held a request, by result.
#[derive(Debug)]
pub(super) struct Timeline {
    steps: Vec<True>,
}

impl Timeline {
    /// From the requests' own steps; a step that several were in is one.
    pub(super) fn of<'a>(truths: impl Iterator<Item = &'a Truth>) -> Self {
        let mut steps = BTreeMap::new();
        for truth in truths {
            let times = truth.step_launch_ns.iter().zip(&truth.step_result_ns);
            for ((launch, result), batch) in times.zip(&truth.batch_sizes) {
                steps.insert((self::result(*result), *launch), *batch);
            }
        }
        let steps = steps.into_iter().map(|((result, launch), batch)| True { launch, result, batch });
        Self { steps: steps.collect() }
    }

    /// Number of steps.
    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }

    /// Median length of a step, seconds; 0 without any.
    pub(super) fn usual_step_s(&self) -> f64 {
        let lengths = self.steps.iter().map(|step| Interval::between(step.launch, step.result).middle());
        quantile(&lengths.collect::<Vec<_>>(), 0.5).unwrap_or_default()
    }

    /// Share of the steps whose number of requests is told to within one; a step that is not told is wrong.
    pub(super) fn batch_within_1(&self, told: &[Step]) -> Option<f64> {
        let mut told: Vec<&Step> = told.iter().collect();
        told.sort_by_key(|step| step.t_end_ns);
        let right = |step: &&True| {
            let from = told.partition_point(|t| t.t_end_ns + NEAR_NS < step.result[0]);
            let near = told[from..].iter().take_while(|t| t.t_end_ns <= step.result[1] + NEAR_NS);
            let nearest = near.min_by_key(|t| t.t_end_ns.abs_diff(step.result[1]));
            nearest.and_then(|t| t.batch).is_some_and(|batch| batch.abs_diff(step.batch) <= 1)
        };
        let count = self.steps.iter().filter(right).count();
        (!self.steps.is_empty()).then(|| count as f64 / self.steps.len() as f64)
    }

    /// A stage of a request, as far as the server's readings tell.
    pub(super) fn stage(&self, truth: &Truth, stage: &str) -> Option<Interval> {
        let (read, launch) = (truth.t_last_read_ns?, truth.t_first_launch_ns?);
        let [first, last] = [truth.t_first_result_ns, truth.t_last_result_ns].map(|stamp| stamp.map(result));
        match stage {
            "preprocess" => {
                let (wait, queue) = (Interval::between(read, launch), self.queue(truth, read, launch)?);
                let low = (wait.low - queue.high).max(0.0);
                Some(Interval { low, high: wait.high - queue.low })
            }
            "queue" => self.queue(truth, read, launch),
            "prefill" => Some(Interval::between(launch, first?)),
            "decode" => Some(Interval::between(first?, last?)),
            "forward" => Some(Interval::between(launch, last?)),
            "postprocess" => Some(Interval::between(last?, truth.t_last_write_ns?)),
            _ => None,
        }
    }

    /// The server's own measure of the queue, give or take what its readings of all those steps leave open.
    fn queue(&self, truth: &Truth, read: Stamp, launch: Stamp) -> Option<Interval> {
        let value = truth.queue_s?;
        let least = self.busy(|s| (s.launch[1], s.result[0]), read[1], launch[0]);
        let most = self.busy(|s| (s.launch[0], s.result[1]), read[0], launch[1]);
        let open = most.saturating_sub(least) as f64 / 1e9;
        Some(Interval { low: (value - open).max(0.0), high: value + open })
    }

    /// Time within `[from, to]` in which steps ran, ns.
    fn busy(&self, span: impl Fn(&True) -> (u64, u64), from: u64, to: u64) -> u64 {
        let first = self.steps.partition_point(|step| step.result[1] <= from);
        let (mut covered, mut total) = (from, 0);
        for step in self.steps[first..].iter().take_while(|step| step.result[0] < to + 10_000_000_000) {
            let (begin, end) = span(step);
            let (begin, end) = (begin.max(covered), end.min(to));
            if begin < end {
                total += end - begin;
                covered = end;
            }
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::super::truth;
    use super::*;

    const MS: u64 = 1_000_000;

    fn timeline() -> Timeline {
        let all = [
            truth("a", 100, &[[101, 111], [111, 121], [121, 131]]),
            truth("b", 100, &[[111, 121], [121, 131]]),
        ];
        Timeline::of(all.iter())
    }

    #[test]
    fn steps_of_several_requests_are_one() {
        assert_eq!(timeline().len(), 3);
        assert!((timeline().usual_step_s() - 0.010).abs() < 1e-9);
        assert_eq!(timeline().busy(|s| (s.launch[0], s.result[0]), 105 * MS, 115 * MS), 10 * MS);
    }

    #[test]
    fn batches_are_compared_step_by_step() {
        let step = |end: u64, batch| Step { t_end_ns: end * MS, batch: Some(batch), ..Step::default() };
        let unknown = Step { t_end_ns: 131 * MS, ..Step::default() };
        let cases = [
            (vec![step(111, 1), step(121, 2), step(131, 1)], 1.0),
            (vec![step(111, 3), step(121, 2), step(131, 1)], 2.0 / 3.0),
            (vec![step(111, 1), step(125, 1), unknown], 1.0 / 3.0),
        ];
        for (told, want) in cases {
            let share = timeline().batch_within_1(&told).unwrap();
            assert!((share - want).abs() < 1e-9, "{told:?}: {share}");
        }
    }
}
