//! What is usual for a subject: an hour's distributions for each hour of the week, and a rolling one.
//!
//! The same hour of last week is the baseline where there is one with enough requests; else the last hours are. A time
//! with a finding does not become part of it, for an hour at most: what lasts longer is the new usual.

use std::collections::BTreeMap;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};

use super::{
    feature::{Feature, STAGES},
    window::{Bucket, Sketch},
};

/// Hours of the rolling baseline, the one that goes on among them.
const ROLLING: u64 = 24;
/// Hours in a week.
const WEEK: u64 = 7 * 24;
/// Requests that a baseline takes.
pub(super) const ENOUGH: u64 = 30;
const HOUR_NS: u64 = 3_600_000_000_000;
/// What is kept of an hour for a week, beside stages; the rest is kept for a day.
const FOR_A_WEEK: &[Feature] = &[
    Feature::E2e,
    Feature::Ttft,
    Feature::Tbt,
    Feature::TbtMax,
    Feature::Tpot,
    Feature::InputTokens,
    Feature::OutputTokens,
    Feature::BodyBytes,
    Feature::Step,
    Feature::BatchSize,
    Feature::InFlight,
];

/// Which time a baseline is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// The same hour of the week before.
    LastWeek,
    /// The last hours.
    Rolling,
}

/// What is usual for one subject.
#[derive(Clone, Debug, Default)]
pub(super) struct Baseline {
    /// The hour that goes on, since the Unix epoch.
    hour: u64,
    now: Bucket,
    /// Those before it.
    closed: BTreeMap<u64, Hour>,
    /// The rolling baseline up to this hour, and this hour a week ago.
    day: Bucket,
    last_week: Option<Bucket>,
    usual: Option<(Basis, Bucket)>,
}

/// An hour that is over: 100 bytes a number where a sketch in use takes a thousand.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Hour {
    requests: u64,
    /// Sketches in base64.
    numbers: BTreeMap<Feature, String>,
}

/// A subject's baseline in a file, by hour since the Unix epoch.
pub type Saved = BTreeMap<u64, Hour>;

impl Hour {
    fn of(bucket: &Bucket) -> Self {
        let number =
            |(feature, sketch): (Feature, &Sketch)| (feature, BASE64_STANDARD.encode(sketch.to_bytes()));
        Self { requests: bucket.requests, numbers: bucket.sketches().map(number).collect() }
    }

    /// What cannot be read of it is left out.
    fn open(&self) -> Bucket {
        let mut bucket = Bucket::of(self.requests);
        for (feature, text) in &self.numbers {
            let bytes = BASE64_STANDARD.decode(text).ok();
            if let Some(sketch) = bytes.and_then(|bytes| Sketch::from_bytes(&bytes)) {
                bucket.put(*feature, sketch);
            }
        }
        bucket
    }

    fn thin(&mut self) {
        let is_kept = |feature: &Feature| {
            FOR_A_WEEK.contains(feature) || STAGES.iter().any(|(stage, _)| stage == feature)
        };
        self.numbers.retain(|feature, _| is_kept(feature));
    }
}

impl Baseline {
    /// Takes what has left the window, at a time on the wall clock.
    pub(super) fn absorb(&mut self, bucket: &Bucket, wall_ns: u64) {
        self.turn(wall_ns / HOUR_NS);
        self.now.merge(bucket);
    }

    /// Works out anew what is usual.
    pub(super) fn refresh(&mut self, wall_ns: u64) {
        self.turn(wall_ns / HOUR_NS);
        self.usual = self.last_week.clone().map(|then| (Basis::LastWeek, then)).or_else(|| self.rolling());
    }

    fn rolling(&self) -> Option<(Basis, Bucket)> {
        let mut all = self.day.clone();
        all.merge(&self.now);
        (all.requests >= ENOUGH).then_some((Basis::Rolling, all))
    }

    /// Turns to another hour. A wall clock that was set back opens an hour again.
    fn turn(&mut self, hour: u64) {
        if hour == self.hour {
            return;
        }
        let over = std::mem::take(&mut self.now);
        if over.requests > 0 {
            self.closed.insert(self.hour, Hour::of(&over));
        }
        self.hour = hour;
        self.now = self.closed.remove(&hour).map(|same| same.open()).unwrap_or_default();
        self.closed.retain(|at, _| at + WEEK >= hour && *at <= hour);
        self.day = Bucket::default();
        let day = (hour + 1).saturating_sub(ROLLING);
        self.closed.range_mut(..day).for_each(|(_, old)| old.thin());
        for of in self.closed.range(day..).map(|(_, of)| of.open()) {
            self.day.merge(&of);
        }
        let then = hour.checked_sub(WEEK).and_then(|then| self.closed.get(&then));
        self.last_week = then.filter(|then| then.requests >= ENOUGH).map(Hour::open);
    }

    /// Which time is compared with; `None` while too little is known.
    pub(super) fn basis(&self) -> Option<Basis> {
        self.usual.as_ref().map(|(basis, _)| *basis)
    }

    /// What is usual.
    pub(super) fn usual(&self) -> Option<&Bucket> {
        self.usual.as_ref().map(|(_, bucket)| bucket)
    }

    /// For a file.
    pub(super) fn save(&self) -> Saved {
        let mut saved = self.closed.clone();
        if self.now.requests > 0 {
            saved.insert(self.hour, Hour::of(&self.now));
        }
        saved
    }

    /// From a file.
    pub(super) fn load(saved: Saved) -> Self {
        Self { closed: saved, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(requests: u64, e2e: f64) -> Bucket {
        let mut bucket = Bucket::of(requests);
        (0..requests).for_each(|_| bucket.add(Feature::E2e, e2e));
        bucket
    }

    fn p50(baseline: &mut Baseline, hour: u64) -> Option<(Basis, f64)> {
        baseline.refresh(hour * HOUR_NS + 5);
        baseline
            .basis()
            .zip(baseline.usual().and_then(|usual| usual.stats(Feature::E2e)).map(|stats| stats.p50.round()))
    }

    #[test]
    fn last_week_comes_before_the_last_hours_and_little_is_nothing() {
        let now = 500_000;
        let mut baseline = Baseline::default();
        assert_eq!(p50(&mut baseline, now), None);
        baseline.absorb(&bucket(ENOUGH, 20.0), (now - 168) * HOUR_NS);
        baseline.absorb(&bucket(1, 10.0), (now - 1) * HOUR_NS);
        assert_eq!(p50(&mut baseline, now - 1), None);
        baseline.absorb(&bucket(ENOUGH - 1, 10.0), now * HOUR_NS);
        assert_eq!(p50(&mut baseline, now), Some((Basis::LastWeek, 20.0)));
        assert_eq!(p50(&mut baseline, now + 1), Some((Basis::Rolling, 10.0)), "the week is over");
        assert_eq!(p50(&mut baseline, now), Some((Basis::Rolling, 10.0)), "the clock was set back");
        assert_eq!(p50(&mut baseline, now + 25), None);
    }

    #[test]
    fn it_comes_back_from_a_file_as_it_was() {
        let mut baseline = Baseline::default();
        baseline.absorb(&bucket(ENOUGH, 20.0), 5 * HOUR_NS);
        let json = serde_json::to_string(&baseline.save()).unwrap();
        let mut back = Baseline::load(serde_json::from_str(&json).unwrap());
        assert_eq!(back.save(), baseline.save());
        assert_eq!(p50(&mut back, 5), Some((Basis::Rolling, 20.0)));
        assert_eq!(p50(&mut back, 6), Some((Basis::Rolling, 20.0)));
        assert_eq!(p50(&mut back, 5 + 168), Some((Basis::LastWeek, 20.0)));
        assert_eq!(p50(&mut back, 5 + 169), None);
    }
}
