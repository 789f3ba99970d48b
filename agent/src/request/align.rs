//! Aligning the whole sequence of a request's events with an increasing sequence of steps (see `assign`, case 3).
//!
//! Event `i` came from step `s(i)`; `s` increases, and a step ends before its event. Among all such sequences the
//! cheapest is taken: each event costs minus the log-density of its lag, and each step passed over between two events
//! costs something as well ([`Lags::skip`]). It is Viterbi's algorithm over a band of [`BAND`] candidate steps per event, so the work is
//! events x BAND^2 / 2 and does not depend on how long a request waited or how many steps there are.

use super::{lag::Lags, step::StepLog};

/// Candidate steps per event, counted back from the latest one that leaves a step for each later event.
const BAND: usize = 16;
/// The most that one gap costs, nats: a preempted request misses any number of steps.
const SKIP_MOST: f32 = 12.0;

/// A sequence of steps and what it cost.
#[derive(Debug)]
pub(crate) struct Path {
    /// Step of each event, as an index of the log; increasing.
    pub(crate) own: Vec<usize>,
    /// Mean cost of the lags.
    pub(crate) mean_cost: f32,
}

/// Working memory of [`align`], kept between calls.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Latest candidate of each event.
    high: Vec<usize>,
    /// Best predecessor (band offset) of each event's candidates.
    from: Vec<[u8; BAND]>,
}

/// What is aligned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Problem<'a> {
    /// The engine's steps.
    pub(crate) log: &'a StepLog,
    /// First step that can hold the request.
    pub(crate) low: usize,
    /// Times of the events, sorted.
    pub(crate) times: &'a [u64],
    /// Costs.
    pub(crate) lags: &'a Lags,
    /// Some events hold several tokens, so passing over steps is no surprise.
    pub(crate) coalesced: bool,
}

/// The cheapest sequence, or `None` when there is none: fewer steps than events, or an event before its step.
pub(crate) fn align(problem: Problem<'_>, scratch: &mut Scratch) -> Option<Path> {
    highs(problem, &mut scratch.high)?;
    let costs = forward(problem, scratch);
    let best = (0..BAND).min_by(|a, b| costs[*a].total_cmp(&costs[*b]))?;
    if !costs[best].is_finite() {
        return None;
    }
    Some(trace_back(problem, scratch, best))
}

/// For each event the latest step that ended before it and leaves one for every later event.
fn highs(problem: Problem<'_>, high: &mut Vec<usize>) -> Option<()> {
    high.clear();
    high.extend(problem.times.iter().map(|t| problem.log.ended_by(*t)));
    // From "number of steps ended" to "index of the last of them", less the room that later events need.
    let mut after = usize::MAX;
    for h in high.iter_mut().rev() {
        after = (*h).min(after).checked_sub(1)?;
        *h = after;
    }
    (*high.first()? >= problem.low).then_some(())
}

/// Fills in the predecessors and returns the costs of the last event's candidates.
fn forward(problem: Problem<'_>, scratch: &mut Scratch) -> [f32; BAND] {
    let skip = problem.lags.skip() / if problem.coalesced { 4.0 } else { 1.0 };
    scratch.from.clear();
    let mut costs = [f32::INFINITY; BAND];
    for (i, &time) in problem.times.iter().enumerate() {
        let high = scratch.high[i];
        let mut next = [f32::INFINITY; BAND];
        let mut from = [0_u8; BAND];
        for k in 0..BAND.min(high + 1 - (problem.low + i)) {
            let before = match i.checked_sub(1) {
                None => Some((0, 0.0)),
                Some(p) => cheapest_before(&costs, scratch.high[p], high - k, skip),
            };
            if let Some((offset, cost)) = before {
                from[k] = offset;
                next[k] = cost + problem.lags.cost(time - problem.log.get(high - k).end);
            }
        }
        costs = next;
        scratch.from.push(from);
    }
    costs
}

/// The cheapest candidate of the previous event that lies before `step`.
fn cheapest_before(costs: &[f32; BAND], high: usize, step: usize, skip: f32) -> Option<(u8, f32)> {
    let first = (high + 1).saturating_sub(step);
    let mut best = None;
    let mut best_cost = f32::INFINITY;
    for (offset, cost) in (0_u8..).zip(costs).take(high + 1).skip(first) {
        let passed = step - (high - usize::from(offset)) - 1;
        let cost = cost + (passed as f32 * skip).min(SKIP_MOST);
        if cost < best_cost {
            best_cost = cost;
            best = Some((offset, cost));
        }
    }
    best
}

fn trace_back(problem: Problem<'_>, scratch: &Scratch, best: usize) -> Path {
    let mut own = vec![0; problem.times.len()];
    let mut offset = best;
    let mut total = 0.0;
    for i in (0..own.len()).rev() {
        let step = scratch.high[i] - offset;
        own[i] = step;
        total += problem.lags.cost(problem.times[i] - problem.log.get(step).end);
        offset = usize::from(scratch.from[i][offset]);
    }
    Path { mean_cost: total / own.len() as f32, own }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::step::StepInfo;

    const MS: u64 = 1_000_000;

    fn log(ends: impl IntoIterator<Item = u64>) -> StepLog {
        let mut log = StepLog::default();
        for end in ends {
            log.push(StepInfo { begin: end.saturating_sub(4 * MS), end, tid: 1, ..StepInfo::default() });
        }
        log
    }

    fn own(log: &StepLog, low: usize, times: &[u64]) -> Option<Vec<usize>> {
        let problem = Problem { log, low, times, lags: &Lags::default(), coalesced: false };
        align(problem, &mut Scratch::default()).map(|p| p.own)
    }

    /// Name, first possible step, times of the events in ms, their steps.
    type Case<'a> = (&'a str, usize, &'a [u64], Option<Vec<usize>>);

    #[test]
    fn sequences() {
        // Steps end at 5, 10, 15, … ms.
        let log = log((1..=40).map(|i| i * 5 * MS));
        let cases: [Case<'_>; 8] = [
            ("one event", 0, &[11], Some(vec![1])),
            ("latest start by the tightest event", 0, &[18, 23, 26, 31], Some(vec![2, 3, 4, 5])),
            ("a slow event does not slip past its successor", 0, &[11, 19, 21], Some(vec![1, 2, 3])),
            ("all written late at once", 0, &[40, 40, 40, 40], Some(vec![4, 5, 6, 7])),
            ("not before the request was read", 3, &[16, 21], None),
            ("more events than steps", 0, &[6, 7, 8], None),
            ("a pause of preemption", 0, &[11, 16, 101, 106], Some(vec![1, 2, 19, 20])),
            ("before any step", 0, &[1], None),
        ];
        for (name, low, times, want) in cases {
            let times: Vec<_> = times.iter().map(|t| t * MS).collect();
            assert_eq!(own(&log, low, &times), want, "{name}");
        }
    }

    /// One long lag among short ones: the latest step before each event would put two events on one step.
    #[test]
    fn whole_sequence_beats_latest_before_each() {
        let log = log((1..=20).map(|i| i * 2 * MS));
        let lags = [500_000, 3_800_000, 700_000, 2_900_000, 600_000];
        let times: Vec<_> = (0..5).map(|i| log.get(6 + i).end + lags[i]).collect();
        assert_eq!(own(&log, 0, &times), Some(vec![6, 7, 8, 9, 10]));
    }

    /// When every lag is longer than a step, only the learned distribution can tell.
    #[test]
    fn learned_lags_break_the_tie() {
        let log = log((1..=40).map(|i| i * 2 * MS));
        let times: Vec<_> = (0..5).map(|i| log.get(6 + i).end + 3 * MS).collect();
        let mut lags = Lags::default();
        lags.learn((0..400).map(|i| 3 * MS + i * 500), 1.0);
        let problem = Problem { log: &log, low: 0, times: &times, lags: &lags, coalesced: false };
        let path = align(problem, &mut Scratch::default()).map(|p| p.own);
        assert_eq!(path, Some(vec![6, 7, 8, 9, 10]));
        assert_eq!(own(&log, 0, &times), Some(vec![7, 8, 9, 10, 11]), "unlearned");
    }

    #[test]
    fn a_prefill_by_itself_is_passed_over() {
        // Decode steps of 4 ms, and a prefill of 30 ms for somebody else after the third.
        let log = log([4, 8, 12, 42, 46, 50, 54].map(|e| e * MS));
        let times: Vec<_> = [8, 12, 46, 50, 54].iter().map(|e| e * MS + MS / 2).collect();
        assert_eq!(own(&log, 0, &times), Some(vec![1, 2, 4, 5, 6]));
    }
}
