//! Throughput and latency by concurrency.
//!
//! Moments of like concurrency are one point: within a fifth of each other, but each whole number up to five is by itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::timeline::{Settled, Slot};
use crate::diagnose::window::{Sketch, Stats};

/// Points to each doubling of concurrency.
const STEPS: f64 = 4.0;
/// The least and the greatest concurrency that has a point of its own, in those steps.
const RANGE: [f64; 2] = [-8.0, 56.0];
/// Time that a point needs to be told, seconds.
const LEAST_S: f64 = 1.0;

/// What was measured at one concurrency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Requests in flight, on average.
    pub concurrency: f64,
    /// Time in which that many were, seconds.
    pub seconds: f64,
    /// Requests a second, each counted in parts over its life.
    pub requests_per_s: f64,
    /// Likewise output tokens; 0 where none are told.
    pub output_tokens_per_s: f64,
    /// Times of requests that had so many beside them on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub e2e_s: Option<Stats>,
    /// Likewise their times to first token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft_s: Option<Stats>,
    /// Their mean tokens of input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<f64>,
    /// Likewise of output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<f64>,
}

/// Samples and their sum.
#[derive(Clone, Copy, Debug, Default)]
struct Mean(u64, f64);

impl Mean {
    fn add(&mut self, value: Option<u64>) {
        if let Some(value) = value {
            *self = Self(self.0 + 1, self.1 + value as f64);
        }
    }

    fn merge(&mut self, other: Self) {
        *self = Self(self.0 + other.0, self.1 + other.1);
    }

    fn get(self) -> Option<f64> {
        (self.0 > 0).then(|| self.1 / self.0 as f64)
    }
}

/// Sums of one point.
#[derive(Clone, Debug, Default)]
struct Level {
    slots: u64,
    concurrency: f64,
    requests: f64,
    output: f64,
    done: u64,
    e2e: Sketch,
    ttft: Sketch,
    input_tokens: Mean,
    output_tokens: Mean,
}

/// The points of some time.
#[derive(Clone, Debug, Default)]
pub(super) struct Curve(BTreeMap<i8, Level>);

/// Where a concurrency belongs.
#[expect(clippy::cast_possible_truncation, reason = "clamped to what fits")]
fn level(concurrency: f64) -> i8 {
    let [least, most] = RANGE;
    (concurrency.max(1e-3).log2() * STEPS).round().clamp(least, most) as i8
}

impl Curve {
    pub(super) fn add(&mut self, settled: Settled) {
        match settled {
            Settled::Slot(slot) => self.slot(slot),
            Settled::Request(done) => {
                let level = self.0.entry(level(done.concurrency)).or_default();
                level.done += 1;
                level.e2e.extend(done.e2e_s);
                level.ttft.extend(done.ttft_s);
                level.input_tokens.add(done.input_tokens);
                level.output_tokens.add(done.output_tokens);
            }
        }
    }

    fn slot(&mut self, slot: Slot) {
        let concurrency = slot.concurrency();
        let level = self.0.entry(level(concurrency)).or_default();
        level.slots += 1;
        level.concurrency += concurrency;
        level.requests += slot.requests;
        level.output += slot.output_tokens;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (number, theirs) in &other.0 {
            let own = self.0.entry(*number).or_default();
            own.slots += theirs.slots;
            own.concurrency += theirs.concurrency;
            own.requests += theirs.requests;
            own.output += theirs.output;
            own.done += theirs.done;
            own.e2e.merge(&theirs.e2e);
            own.ttft.merge(&theirs.ttft);
            own.input_tokens.merge(theirs.input_tokens);
            own.output_tokens.merge(theirs.output_tokens);
        }
    }

    /// Requests behind it.
    pub(super) fn requests(&self) -> u64 {
        self.0.values().map(|level| level.done).sum()
    }

    /// Time in which any were in flight.
    pub(super) fn seconds(&self) -> f64 {
        self.0.values().map(|level| level.slots as f64 * Slot::seconds()).sum()
    }

    /// The points that were there for long enough, the lowest concurrency first.
    pub(super) fn points(&self) -> Vec<Point> {
        self.0.values().map(Level::point).filter(|point| point.seconds >= LEAST_S).collect()
    }
}

impl Level {
    fn point(&self) -> Point {
        let slots = self.slots.max(1) as f64;
        let seconds = self.slots as f64 * Slot::seconds();
        let rate = |sum: f64| sum / (slots * Slot::seconds());
        Point {
            concurrency: self.concurrency / slots,
            seconds,
            requests_per_s: rate(self.requests),
            output_tokens_per_s: rate(self.output),
            e2e_s: self.e2e.stats(),
            ttft_s: self.ttft.stats(),
            input_tokens: self.input_tokens.get(),
            output_tokens: self.output_tokens.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_concurrency_is_one_point() {
        let own: Vec<i8> = (1..=5).map(|n| level(f64::from(n))).collect();
        assert!(own.windows(2).all(|pair| pair[0] < pair[1]), "{own:?}");
        assert_eq!(level(100.0), level(104.0));
        assert_ne!(level(100.0), level(125.0));
        // What is no number of requests has a place all the same.
        assert_eq!((level(0.0), level(f64::MAX), level(f64::NAN)), (-8, 56, -8));
    }
}
