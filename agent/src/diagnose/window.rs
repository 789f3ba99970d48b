//! Distributions of numbers over time: buckets of five seconds, of which the newest make the window that is looked at.
//!
//! A number is kept as a sketch (`DDSketch`, 2 % relative error), so that buckets can be merged and any percentile read.
//! Its sum, and so the mean, is exact: means of stages add up, percentiles do not.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use sketches_ddsketch::{Config, DDSketch};

use super::feature::{Feature, of_request};
use crate::request::{RequestRecord, record::Outcome};

/// Length of a bucket.
pub(super) const BUCKET_NS: u64 = 5_000_000_000;
/// Buckets of the window.
pub(super) const RECENT: usize = 6;
/// Buckets that are kept: where there is little traffic the window reaches back so far.
const KEPT: usize = 24;
/// Requests that the window should have.
const ENOUGH: u64 = 10;
/// Relative error of a percentile.
const ALPHA: f64 = 0.02;
/// Bins that a sketch may grow to, and below, its least value: those of a sketch that was read from bytes, since only
/// those of one configuration can be merged.
const MAX_BINS: u32 = 2048;
/// What is smaller counts as zero: no number here is, in its unit.
const LEAST: f64 = 1e-9;

/// What is known of one number over some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Samples.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// The distribution of one number.
#[derive(Clone)]
pub(super) struct Sketch(DDSketch);

impl std::fmt::Debug for Sketch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.stats())
    }
}

impl Default for Sketch {
    fn default() -> Self {
        Self(DDSketch::new(Config::new(ALPHA, MAX_BINS, LEAST)))
    }
}

impl Sketch {
    pub(super) fn add(&mut self, value: f64) {
        if value.is_finite() {
            self.0.add(value);
        }
    }

    pub(super) fn extend(&mut self, values: impl IntoIterator<Item = f64>) {
        for value in values {
            self.add(value);
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        // It fails for two configurations only, and there is one.
        let _ = self.0.merge(&other.0);
    }

    pub(super) fn count(&self) -> u64 {
        self.0.count() as u64
    }

    pub(super) fn stats(&self) -> Option<Stats> {
        let count = self.count();
        let quantile = |q| self.0.quantile(q).ok().flatten();
        let (p50, p95, p99) = (quantile(0.5)?, quantile(0.95)?, quantile(0.99)?);
        Some(Stats { count, mean: self.0.sum()? / count.max(1) as f64, p50, p95, p99 })
    }

    /// For a file.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        self.0.to_java_bytes()
    }

    /// From a file; `None` where the bytes are no sketch of this kind.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut own = Self::default();
        // Fails where the two have another precision.
        own.0.merge(&DDSketch::from_java_bytes(bytes).ok()?).ok()?;
        own.0.sum().is_none_or(f64::is_finite).then_some(own)
    }
}

/// Numbers of some time, and how requests ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Bucket {
    pub(super) begin_ns: u64,
    pub(super) requests: u64,
    /// Requests with a flag that says that bytes were missed.
    pub(super) flawed: u64,
    pub(super) outcomes: BTreeMap<Outcome, u64>,
    features: BTreeMap<Feature, Sketch>,
}

impl Bucket {
    /// One with so many requests, and no numbers yet.
    pub(super) fn of(requests: u64) -> Self {
        Self { requests, ..Self::default() }
    }

    pub(super) fn add(&mut self, feature: Feature, value: f64) {
        self.features.entry(feature).or_default().add(value);
    }

    fn request(&mut self, record: &RequestRecord) {
        self.requests += 1;
        self.flawed += u64::from(!record.flags.is_empty());
        if let Some(outcome) = record.outcome {
            *self.outcomes.entry(outcome).or_default() += 1;
        }
        of_request(record, |feature, value| self.add(feature, value));
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.flawed += other.flawed;
        for (outcome, n) in &other.outcomes {
            *self.outcomes.entry(*outcome).or_default() += n;
        }
        for (feature, sketch) in &other.features {
            self.features.entry(*feature).or_default().merge(sketch);
        }
    }

    pub(super) fn stats(&self, feature: Feature) -> Option<Stats> {
        self.features.get(&feature)?.stats()
    }

    pub(super) fn sketches(&self) -> impl Iterator<Item = (Feature, &Sketch)> {
        self.features.iter().map(|(feature, sketch)| (*feature, sketch))
    }

    pub(super) fn put(&mut self, feature: Feature, sketch: Sketch) {
        self.features.insert(feature, sketch);
    }
}

/// The newest buckets of one subject.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    /// Oldest first.
    buckets: VecDeque<Bucket>,
}

impl Window {
    /// Takes a request that is over.
    pub(super) fn request(&mut self, record: &RequestRecord, now_ns: u64) {
        self.newest(now_ns).request(record);
    }

    /// Takes a number.
    pub(super) fn add(&mut self, feature: Feature, value: f64, now_ns: u64) {
        self.newest(now_ns).add(feature, value);
    }

    fn newest(&mut self, now_ns: u64) -> &mut Bucket {
        let begin_ns = now_ns - now_ns % BUCKET_NS;
        if self.buckets.back().is_none_or(|bucket| bucket.begin_ns < begin_ns) {
            self.buckets.push_back(Bucket { begin_ns, ..Bucket::default() });
        }
        let last = self.buckets.len() - 1;
        &mut self.buckets[last]
    }

    /// Lets time go on, and gives what has left the shortest window to `left`, once.
    pub(super) fn pass(&mut self, from_ns: u64, now_ns: u64, mut left: impl FnMut(&Bucket)) {
        let edge = |at: u64| (at - at % BUCKET_NS).saturating_sub(RECENT as u64 * BUCKET_NS);
        let (before, after) = (edge(from_ns), edge(now_ns));
        for bucket in self.buckets.iter().filter(|bucket| (before..after).contains(&bucket.begin_ns)) {
            left(bucket);
        }
        let oldest = now_ns.saturating_sub(KEPT as u64 * BUCKET_NS);
        while self.buckets.front().is_some_and(|bucket| bucket.begin_ns < oldest) {
            self.buckets.pop_front();
        }
    }

    /// The newest [`RECENT`] buckets, or more where they have few requests.
    pub(super) fn recent(&self, now_ns: u64) -> Bucket {
        let begin = (now_ns - now_ns % BUCKET_NS).saturating_sub((RECENT as u64 - 1) * BUCKET_NS);
        let mut all = Bucket { begin_ns: begin.min(now_ns), ..Bucket::default() };
        for bucket in self.buckets.iter().rev() {
            if bucket.begin_ns < begin && all.requests >= ENOUGH {
                break;
            }
            all.merge(bucket);
            all.begin_ns = all.begin_ns.min(bucket.begin_ns);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn request(e2e: f64) -> RequestRecord {
        RequestRecord { e2e_s: Some(e2e), outcome: Some(Outcome::Ok), ..RequestRecord::default() }
    }

    #[test]
    fn percentiles_within_two_percent_and_exact_means() {
        let mut sketch = Sketch::default();
        (1..=1000).for_each(|n| sketch.add(f64::from(n) / 1000.0));
        let stats = sketch.stats().unwrap();
        assert!((stats.mean - 0.5005).abs() < 1e-9);
        for (got, want) in [(stats.p50, 0.5), (stats.p95, 0.95), (stats.p99, 0.99)] {
            assert!((got / want - 1.0).abs() < 0.025, "{got} {want}");
        }
        sketch.add(f64::NAN);
        assert_eq!(sketch.count(), 1000);
    }

    #[test]
    fn zeros_count() {
        let mut sketch = Sketch::default();
        (0..10).for_each(|_| sketch.add(0.0));
        sketch.add(1.0);
        let stats = sketch.stats().unwrap();
        assert_eq!((stats.count, stats.p50), (11, 0.0));
    }

    #[test]
    fn a_sketch_comes_back_from_a_file() {
        let mut sketch = Sketch::default();
        for value in [0.0, 0.5, 1.0, 1e6] {
            sketch.add(value);
        }
        let back = Sketch::from_bytes(&sketch.to_bytes()).unwrap();
        assert_eq!(format!("{back:?}"), format!("{sketch:?}"));
        assert!(Sketch::from_bytes(b"nonsense").is_none());
    }

    #[test]
    fn the_window_is_as_long_as_it_takes_to_have_enough_requests() {
        let mut window = Window::default();
        for second in 0..100 {
            window.request(&request(1.0), second * S);
        }
        assert_eq!(window.recent(100 * S).requests, 25, "25 s of one a second, and the bucket that begins");
        let mut quiet = Window::default();
        for at in (0..100).step_by(10) {
            quiet.request(&request(1.0), at * S);
        }
        assert_eq!(quiet.recent(100 * S).requests, 10);
    }

    #[test]
    fn each_bucket_leaves_once() {
        let mut window = Window::default();
        let mut left = 0;
        for second in 0..100 {
            window.request(&request(1.0), second * S);
            window.pass(second * S, (second + 1) * S, |bucket| left += bucket.requests);
        }
        assert_eq!(left, 70, "all but those of the last six buckets");
        window.pass(100 * S, 400 * S, |bucket| left += bucket.requests);
        assert_eq!(left, 100);
        assert!(window.buckets.is_empty());
    }
}
