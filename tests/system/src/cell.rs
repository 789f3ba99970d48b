//! One cell of the accuracy benchmark: a shape at a concurrency, streaming or not, in numbers.
//!
//! Beside each error stands the noise floor of the rig: the width between the two clock readings around the calls that
//! the truth is made of. Below it nobody can tell right from wrong.

mod promise;
mod timeline;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::accuracy::{Joined, Pair};
use crate::agent::{Record, Step};
use crate::statistics::quantile;
use crate::truth::Interval;
use timeline::Timeline;

/// Stages that are compared.
const STAGES: [&str; 5] = ["preprocess", "queue", "prefill", "decode", "postprocess"];
/// A time shorter than this has no meaningful relative error: it is divided by this instead.
const SHORTEST_S: f64 = 1e-3;
/// An exact stage that is further off is wrong.
const EXACT_S: f64 = 1e-3;
/// Observer and server read one clock, and arithmetic in seconds rounds.
const ROUNDING_S: f64 = 1e-7;

/// Errors of one stage, and what no observer could see.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[expect(
    missing_docs,
    reason = "the names of issue and output: error relative to the truth, or in milliseconds"
)]
pub struct StageErrors {
    pub told: usize,
    pub absent: usize,
    pub rel_p50: Option<f64>,
    pub abs_ms_p50: Option<f64>,
    pub rel_p95: Option<f64>,
    pub abs_ms_p95: Option<f64>,
    /// Difference of the percentiles of all requests, relative to the truth's.
    pub dist_rel_p50: Option<f64>,
    pub dist_rel_p95: Option<f64>,
    pub dist_rel_p99: Option<f64>,
    pub noise_ms_p50: Option<f64>,
    pub noise_ms_p95: Option<f64>,
}

/// A cell's numbers.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cell {
    /// Shape of the server.
    pub shape: String,
    /// Requests in flight.
    pub concurrency: u32,
    /// The clients asked for streams.
    pub streaming: bool,
    /// Requests the server finished.
    pub requests_true: usize,
    /// Of those, how many the agent did not report.
    pub missed: usize,
    /// Of those, how many it reported more than once.
    pub duplicated: usize,
    /// Records of the server without a counterpart in the truth.
    pub unmatched: usize,
    /// Error of the time to first token.
    pub ttft_err_ms_p99: Option<f64>,
    /// Error of end to end.
    pub e2e_err_ms_p99: Option<f64>,
    /// Error of a request's median and longest time between tokens.
    pub tbt_err_ms_p99: Option<f64>,
    /// Width of the truth of those three.
    pub noise_ms_p99: [Option<f64>; 3],
    /// Largest difference between the sum of a request's stages and its end-to-end time.
    pub stage_sum_err_us_max: f64,
    /// Stages below zero.
    pub negative: usize,
    /// By stage.
    pub stages: BTreeMap<&'static str, StageErrors>,
    /// Requests that the agent gave bounds for.
    pub bounds: usize,
    /// Share of them whose truth lies within all of their bounds.
    pub bounds_cover: Option<f64>,
    /// Median of the widest bound of a request.
    pub bounds_width_ms_p50: Option<f64>,
    /// Median of how much wider that is than the request's forward and one step; negative when narrower.
    pub bounds_over_ms_p50: Option<f64>,
    /// Exact requests with a stage more than a millisecond off.
    pub exact_wrong: usize,
    /// Steps of the engine that held requests.
    pub steps_true: usize,
    /// Share of them whose number of requests the agent told to within one.
    pub batch_within_1: Option<f64>,
    /// Requests by how sure the agent is; `none` where it says nothing.
    pub confidence: BTreeMap<String, usize>,
}

/// Compares; shape and load are for the caller to fill in.
pub fn compare(joined: &Joined, steps: &[Step]) -> Cell {
    let pairs = &joined.pairs;
    let timeline = Timeline::of(pairs.iter().map(|pair| &pair.truth));
    let mut cell = Cell {
        requests_true: pairs.len() + joined.missed.len(),
        missed: joined.missed.len(),
        duplicated: joined.duplicated.len(),
        unmatched: joined.unmatched,
        steps_true: timeline.len(),
        batch_within_1: timeline.batch_within_1(steps),
        exact_wrong: pairs.iter().filter(|pair| exact_wrong(pair, &timeline)).count(),
        ..Cell::default()
    };
    times(pairs, &mut cell);
    sums(pairs, &mut cell);
    cell.stages = STAGES.map(|stage| (stage, errors(pairs, stage, &timeline))).into();
    bounds(pairs, &timeline, &mut cell);
    for pair in pairs {
        let confidence = pair.record.confidence.clone().unwrap_or_else(|| "none".into());
        *cell.confidence.entry(confidence).or_default() += 1;
    }
    cell
}

fn times(pairs: &[Pair], cell: &mut Cell) {
    let ttft = |pair: &Pair| Some((pair.ttft()?, pair.record.ttft_s?));
    let e2e = |pair: &Pair| Some((pair.e2e()?, pair.record.e2e_s?));
    let tbt: Vec<_> = pairs.iter().flat_map(gaps).collect();
    let all = [pairs.iter().filter_map(ttft).collect(), pairs.iter().filter_map(e2e).collect(), tbt];
    let p99 = |values: Vec<f64>| quantile(&values, 0.99).map(|seconds| seconds * 1e3);
    let error =
        |both: &Vec<(Interval, f64)>| p99(both.iter().map(|(truth, seen)| truth.distance(*seen)).collect());
    [cell.ttft_err_ms_p99, cell.e2e_err_ms_p99, cell.tbt_err_ms_p99] = all.each_ref().map(error);
    cell.noise_ms_p99 = all.map(|both| p99(both.iter().map(|(truth, _)| truth.width()).collect()));
}

/// Median and longest time between tokens: of the least and of the most that each gap can have been.
fn gaps(pair: &Pair) -> Vec<(Interval, f64)> {
    let gaps = pair.truth.tbt();
    let sorted = |side: fn(&Interval) -> f64| {
        let mut all: Vec<f64> = gaps.iter().map(side).collect();
        all.sort_by(f64::total_cmp);
        all
    };
    let (lows, highs) = (sorted(|gap| gap.low), sorted(|gap| gap.high));
    let at = |i: Option<usize>| Some(Interval { low: *lows.get(i?)?, high: *highs.get(i?)? });
    let last = gaps.len().checked_sub(1);
    let both = [(at(last.map(|i| i / 2)), pair.record.tbt_p50_s), (at(last), pair.record.tbt_max_s)];
    both.into_iter().filter_map(|(truth, seen)| Some((truth?, seen?))).collect()
}

fn sums(pairs: &[Pair], cell: &mut Cell) {
    for record in pairs.iter().map(|pair| &pair.record) {
        let sum: f64 = record.stages.values().sum();
        let off = record.e2e_s.map_or(0.0, |e2e| (sum - e2e).abs() * 1e6);
        cell.stage_sum_err_us_max = cell.stage_sum_err_us_max.max(off);
        cell.negative += record.stages.values().filter(|seconds| **seconds < 0.0).count();
    }
}

fn errors(pairs: &[Pair], stage: &'static str, timeline: &Timeline) -> StageErrors {
    let truth: Vec<f64> = pairs.iter().filter_map(|pair| pair.truth.stage(stage)).collect();
    let seen: Vec<f64> = pairs.iter().filter_map(|pair| pair.record.stage(stage)).collect();
    let both = pairs.iter().filter_map(|pair| Some((pair.truth.stage(stage)?, pair.record.stage(stage)?)));
    let (absolute, relative): (Vec<f64>, Vec<f64>) = both
        .map(|(truth, seen)| (seen - truth).abs())
        .zip(pairs.iter().filter_map(|pair| pair.record.stage(stage).and(pair.truth.stage(stage))))
        .map(|(error, truth)| (error * 1e3, error / truth.max(SHORTEST_S)))
        .unzip();
    let width = |pair: &Pair| Some(timeline.stage(&pair.truth, stage)?.width() * 1e3);
    let noise: Vec<f64> = pairs.iter().filter_map(width).collect();
    let distribution = |q| {
        let (truth, seen) = (quantile(&truth, q)?, quantile(&seen, q)?);
        Some((seen - truth).abs() / truth.max(SHORTEST_S))
    };
    StageErrors {
        told: seen.len(),
        absent: truth.len().saturating_sub(relative.len()),
        rel_p50: quantile(&relative, 0.5),
        abs_ms_p50: quantile(&absolute, 0.5),
        rel_p95: quantile(&relative, 0.95),
        abs_ms_p95: quantile(&absolute, 0.95),
        dist_rel_p50: distribution(0.5),
        dist_rel_p95: distribution(0.95),
        dist_rel_p99: distribution(0.99),
        noise_ms_p50: quantile(&noise, 0.5),
        noise_ms_p95: quantile(&noise, 0.95),
    }
}

/// It says `exact`, and a stage is further off than clocks can explain.
fn exact_wrong(pair: &Pair, timeline: &Timeline) -> bool {
    let off = |stage: &str| {
        let seen = pair.record.stage(stage);
        timeline
            .stage(&pair.truth, stage)
            .zip(seen)
            .is_some_and(|(truth, seen)| truth.distance(seen) > EXACT_S)
    };
    pair.record.confidence.as_deref() == Some("exact")
        && [&STAGES[..], &["forward"]].concat().into_iter().any(off)
}

fn bounds(pairs: &[Pair], timeline: &Timeline, cell: &mut Cell) {
    let bounded: Vec<&Pair> = pairs.iter().filter(|pair| !pair.record.stage_bounds.is_empty()).collect();
    let covered = bounded.iter().filter(|pair| within(pair, timeline)).count();
    cell.bounds = bounded.len();
    cell.bounds_cover = (!bounded.is_empty()).then(|| covered as f64 / bounded.len() as f64);
    let widths: Vec<f64> = bounded.iter().map(|pair| width(&pair.record) * 1e3).collect();
    let over = |pair: &&Pair| {
        let forward = timeline.stage(&pair.truth, "forward")?.middle();
        Some((width(&pair.record) - forward - timeline.usual_step_s()) * 1e3)
    };
    cell.bounds_width_ms_p50 = quantile(&widths, 0.5);
    cell.bounds_over_ms_p50 = quantile(&bounded.iter().filter_map(over).collect::<Vec<_>>(), 0.5);
}

/// The truth of each stage may lie within its bounds.
fn within(pair: &Pair, timeline: &Timeline) -> bool {
    pair.record.stage_bounds.iter().all(|(stage, [low, high])| {
        let truth = timeline.stage(&pair.truth, stage.trim_end_matches("_s"));
        truth.is_none_or(|truth| truth.high >= low - ROUNDING_S && truth.low <= high + ROUNDING_S)
    })
}

/// The widest of a request's bounds, seconds.
fn width(record: &Record) -> f64 {
    record.stage_bounds.values().map(|[low, high]| high - low).fold(0.0, f64::max)
}

/// A truth whose times are all known.
#[cfg(test)]
fn truth(id: &str, read_ms: u64, steps: &[[u64; 2]]) -> crate::truth::Truth {
    let at = |ms: u64| [ms * 1_000_000, ms * 1_000_000 + 10_000];
    let seconds = |from: u64, to: u64| Some((to - from) as f64 / 1e3);
    let (first, last) = (steps[0], steps[steps.len() - 1]);
    crate::truth::Truth {
        request_id: Some(id.into()),
        streaming: true,
        outcome: "ok".into(),
        t_first_read_ns: Some(at(read_ms)),
        t_last_read_ns: Some(at(read_ms)),
        t_first_launch_ns: Some(at(first[0])),
        t_first_result_ns: Some(at(first[1])),
        t_last_result_ns: Some(at(last[1])),
        t_first_token_write_ns: Some(at(first[1] + 1)),
        t_last_write_ns: Some(at(last[1] + 1)),
        content_write_ns: steps.iter().map(|step| at(step[1] + 1)).collect(),
        batch_sizes: vec![1; steps.len()],
        step_launch_ns: steps.iter().map(|step| at(step[0])).collect(),
        step_result_ns: steps.iter().map(|step| at(step[1])).collect(),
        preprocess_s: seconds(read_ms, first[0]),
        queue_s: Some(0.0),
        prefill_s: seconds(first[0], first[1]),
        decode_s: seconds(first[1], last[1]),
        postprocess_s: Some(0.001),
        ..crate::truth::Truth::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accuracy::join;

    fn record(confidence: &str, queue: f64, bounds: [f64; 2]) -> Record {
        let stages = [("queue_s", queue), ("prefill_s", 0.010), ("decode_s", 0.020), ("preprocess_s", 0.001)];
        Record {
            request_id: Some("a".into()),
            confidence: Some(confidence.into()),
            e2e_s: Some(stages.iter().map(|stage| stage.1).sum()),
            stages: stages.map(|(name, seconds)| (name.to_owned(), seconds)).into(),
            stage_bounds: [("queue_s".to_owned(), bounds)].into(),
            ..Record::default()
        }
    }

    fn cell(record: Record) -> Cell {
        let steps = [[101, 111], [111, 121], [121, 131]];
        compare(&join(&[truth("a", 100, &steps)], &[record]), &[])
    }

    #[test]
    fn errors_are_against_the_truth_and_beside_the_noise() {
        let cell = cell(record("estimated", 0.002, [0.0, 0.003]));
        let queue = cell.stages["queue"];
        assert_eq!((queue.told, queue.absent), (1, 0));
        assert!(
            (queue.abs_ms_p50.unwrap() - 2.0).abs() < 1e-9 && (queue.rel_p50.unwrap() - 2.0).abs() < 1e-9
        );
        assert!(cell.stages["prefill"].abs_ms_p50.unwrap() < 1e-9);
        assert!((cell.stages["prefill"].noise_ms_p50.unwrap() - 0.02).abs() < 1e-9);
        assert_eq!((cell.stages["postprocess"].told, cell.stages["postprocess"].absent), (0, 1));
        assert_eq!((cell.bounds, cell.bounds_cover), (1, Some(1.0)));
        assert!((cell.bounds_over_ms_p50.unwrap() - (3.0 - 30.0 - 10.0)).abs() < 0.1, "{cell:?}");
        assert_eq!(
            (cell.steps_true, cell.batch_within_1),
            (3, Some(0.0)),
            "steps that are not told are wrong"
        );
    }

    #[test]
    fn exact_is_wrong_when_a_millisecond_off_and_bounds_when_they_do_not_hold() {
        for (queue, wrong) in [(0.0009, 0), (0.0015, 1)] {
            assert_eq!(cell(record("exact", queue, [0.0, 1.0])).exact_wrong, wrong, "{queue}");
        }
        assert_eq!(cell(record("estimated", 0.5, [0.0, 1.0])).exact_wrong, 0);
        assert_eq!(cell(record("bounded", 0.5, [0.002, 1.0])).bounds_cover, Some(0.0));
    }
}
