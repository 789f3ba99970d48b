//! What one more request in a step costs.
//!
//! Steps in which requests only decode are taken by their number of requests; a line through their times tells what a step
//! costs and what each request adds. Of a step that was launched while another went on, only the time since that one's
//! result counts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::request::{StepRecord, told::StepKind};

/// Largest batch that is told apart.
const MAX_BATCH: u32 = 1024;
/// Processes of a service whose last step is remembered.
const MAX_PROCESSES: usize = 64;
/// Steps that a size of batch needs.
const STEPS: u64 = 20;
/// Sizes of batch that are needed.
const SIZES: usize = 3;
/// A batch beyond this many times the largest seen is not suggested.
const BEYOND: f64 = 2.0;
/// Part of the throughput of an endless batch that a suggested one gives.
const PART: f64 = 0.8;

/// What a request in a step costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Batching {
    /// Decode steps behind it.
    pub steps: u64,
    /// The smallest batch seen often enough, and the largest.
    pub seen: [u32; 2],
    /// Time of a step, whoever is in it, seconds.
    pub fixed_s: f64,
    /// What each request adds, seconds.
    pub per_request_s: f64,
    /// Share of the variance of step times between sizes that the line explains.
    pub r2: f64,
    /// The largest batch whose steps keep the asked-for time between tokens; without one, the batch that gives four
    /// fifths of the throughput of an endless one. Absent where that is more than twice what was seen, and where no batch
    /// keeps it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggested_batch: Option<u32>,
}

/// Decode steps by their number of requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    /// Steps, and their times summed.
    by_batch: BTreeMap<u32, (u64, f64)>,
    /// Result of the last step, by process.
    last: BTreeMap<u32, u64>,
}

impl Steps {
    pub(super) fn add(&mut self, step: &StepRecord) {
        let before = self.last.get(&step.pid).copied().unwrap_or(0);
        if self.last.len() >= MAX_PROCESSES && before == 0 {
            self.last.pop_first();
        }
        self.last.insert(step.pid, step.t_end_ns);
        let batch = step.batch.filter(|n| (1..=MAX_BATCH).contains(n) && step.kind == Some(StepKind::Decode));
        let Some(batch) = batch.filter(|_| !step.begin_bounded) else { return };
        let took = step.t_end_ns.saturating_sub(step.t_begin_ns.max(before));
        let sum = self.by_batch.entry(batch).or_default();
        *sum = (sum.0 + 1, sum.1 + took as f64 / 1e9);
    }

    /// The line through them; `None` where too few sizes of batch were seen.
    pub(super) fn cost(&self, tbt_slo_s: Option<f64>) -> Option<Batching> {
        let enough = self.by_batch.iter().filter(|(_, (steps, _))| *steps >= STEPS);
        let sizes: Vec<(u32, u64, f64)> =
            enough.map(|(batch, (steps, sum))| (*batch, *steps, *sum)).collect();
        let seen = [sizes.first()?.0, sizes.last()?.0];
        if sizes.len() < SIZES || seen[1] < seen[0] * 2 {
            return None;
        }
        let of = |(batch, steps, sum): &(u32, u64, f64)| {
            let steps = *steps as f64;
            (f64::from(*batch), sum / steps, steps)
        };
        let [fixed_s, per_request_s, r2] = line(&sizes.iter().map(of).collect::<Vec<_>>());
        let steps = sizes.iter().map(|(_, steps, _)| steps).sum();
        let wanted = limit(fixed_s, per_request_s, tbt_slo_s)
            .filter(|n| (1.0..=f64::from(seen[1]) * BEYOND).contains(n));
        let suggested_batch = wanted.map(whole);
        Some(Batching { steps, seen, fixed_s, per_request_s, r2, suggested_batch })
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits")]
fn whole(n: f64) -> u32 {
    n.clamp(1.0, f64::from(u32::MAX)) as u32
}

/// The batch that is enough; `None` where a request costs nothing that can be seen.
fn limit(fixed_s: f64, per_request_s: f64, tbt_slo_s: Option<f64>) -> Option<f64> {
    // A hundredth of a step is within what steps vary.
    if per_request_s * 100.0 <= fixed_s || per_request_s <= 0.0 {
        return None;
    }
    Some(match tbt_slo_s {
        Some(slo) => ((slo - fixed_s) / per_request_s).floor(),
        // n / (fixed + n each) = PART / each.
        None => (PART / (1.0 - PART) * fixed_s.max(0.0) / per_request_s).round(),
    })
}

/// Weighted least squares: at 0, for each, and the share of variance explained.
fn line(points: &[(f64, f64, f64)]) -> [f64; 3] {
    let all: f64 = points.iter().map(|p| p.2).sum();
    let mean = |of: fn(&(f64, f64, f64)) -> f64| points.iter().map(|p| of(p) * p.2).sum::<f64>() / all;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|p| of(p.0 - x, p.1 - y) * p.2).sum::<f64>();
    let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
    let each = xy / xx.max(1e-12);
    [y - each * x, each, if yy > 0.0 { xy * xy / (xx * yy) } else { 1.0 }]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two steps in flight, each taking 8 ms and 0.5 ms for each request.
    fn steps(batches: &[u32]) -> Steps {
        let mut steps = Steps::default();
        let mut end = 1_000_000_000;
        for batch in batches.iter().cycle().take(batches.len() * 30) {
            let begin = end - 1_000_000;
            end += 8_000_000 + 500_000 * u64::from(*batch);
            steps.add(&StepRecord {
                service: "svc".into(),
                pid: 7,
                t_begin_ns: begin,
                t_end_ns: end,
                begin_bounded: false,
                kind: Some(StepKind::Decode),
                batch: Some(*batch),
                confidence: None,
            });
        }
        steps
    }

    #[test]
    fn a_step_and_each_request_in_it_have_a_price() {
        let cost = steps(&[1, 4, 8, 16, 40]).cost(None).unwrap();
        assert!(
            (cost.fixed_s - 0.008).abs() < 1e-4 && (cost.per_request_s - 0.0005).abs() < 1e-5,
            "{cost:?}"
        );
        assert!(cost.r2 > 0.99 && cost.seen == [1, 40]);
        // 64 x 0.5 ms is four times 8 ms.
        assert_eq!(cost.suggested_batch, Some(64));
        assert_eq!(steps(&[1, 4, 8, 16, 40]).cost(Some(0.0202)).unwrap().suggested_batch, Some(24));
    }

    #[test]
    fn no_batch_is_suggested_where_none_keeps_the_limit() {
        assert_eq!(steps(&[1, 4, 8, 16, 40]).cost(Some(0.005)).unwrap().suggested_batch, None);
    }

    #[test]
    fn what_was_not_seen_is_not_told() {
        assert_eq!(steps(&[1, 2]).cost(None), None, "two sizes");
        assert_eq!(steps(&[8, 9, 10]).cost(None), None, "too alike");
        assert_eq!(steps(&[1, 2, 4]).cost(None).unwrap().suggested_batch, None, "far beyond what was seen");
    }
}
