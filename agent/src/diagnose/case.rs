//! What a rule looks at: one subject lately, what is usual for it, and what goes on around it.

use super::{
    around::Around,
    baseline::Basis,
    feature::{Feature, STAGES, Unit},
    finding::{Evidence, Likelihood},
    window::{Bucket, Stats},
};
use crate::request::record::Outcome;

/// Samples that a comparison takes.
const ENOUGH: u64 = 5;
/// A mean this much higher has grown; less is enough for a finding that is open.
const GROWN: [f64; 2] = [1.5, 1.2];
/// Likewise a 95th percentile.
const TAIL_GROWN: [f64; 2] = [2.0, 1.4];
/// What is shorter is nobody's trouble, seconds.
const LEAST_S: f64 = 0.005;
/// Nor is what is a smaller part of a usual request.
const LEAST_PART: f64 = 0.1;

/// What speaks for a rule.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sign {
    /// One sentence.
    pub(super) summary: String,
    pub(super) evidence: Vec<Evidence>,
    pub(super) confidence: Likelihood,
    /// What it does to requests.
    pub(super) effect: Effect,
}

/// What a cause or a symptom does to requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Effect {
    /// Makes them this much longer on average, seconds.
    Seconds(f64),
    /// Concerns this share of them.
    Share(f64),
}

/// How a number has grown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Growth {
    pub(super) now: Stats,
    pub(super) usual: Stats,
}

impl Growth {
    /// Mean now over the usual one.
    pub(super) fn ratio(self) -> f64 {
        self.now.mean / self.usual.mean.max(1e-9)
    }
}

/// One subject at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case<'a> {
    pub(super) recent: &'a Bucket,
    pub(super) usual: Option<&'a Bucket>,
    pub(super) basis: Option<Basis>,
    pub(super) around: &'a Around,
    pub(super) now_ns: u64,
    /// The finding is open already: less keeps it so.
    pub(super) open: bool,
}

impl Case<'_> {
    /// A number lately; `None` where there is none, or too few.
    pub(super) fn now(&self, feature: Feature) -> Option<Stats> {
        self.recent.stats(feature).filter(|stats| stats.count >= ENOUGH)
    }

    /// What it usually is.
    pub(super) fn usually(&self, feature: Feature) -> Option<Stats> {
        self.usual?.stats(feature).filter(|stats| stats.count >= ENOUGH)
    }

    /// Both, where both are known.
    pub(super) fn both(&self, feature: Feature) -> Option<Growth> {
        Some(Growth { now: self.now(feature)?, usual: self.usually(feature)? })
    }

    /// A time that has grown enough to be noticed, by its mean or by its tail.
    pub(super) fn grown(&self, feature: Feature) -> Option<Growth> {
        let both = self.both(feature)?;
        let least = self.least_s();
        let by = usize::from(self.open);
        let mean = both.ratio() >= GROWN[by] && both.now.mean - both.usual.mean >= least;
        let tail =
            both.now.p95 >= both.usual.p95 * TAIL_GROWN[by] && both.now.p95 - both.usual.p95 >= 2.0 * least;
        (mean || tail).then_some(both)
    }

    /// A number that is no time and has grown by a factor.
    pub(super) fn risen(&self, feature: Feature, factor: f64) -> Option<Growth> {
        let factor = if self.open { 1.0 + (factor - 1.0) * 0.6 } else { factor };
        self.both(feature).filter(|both| both.usual.mean > 0.0 && both.ratio() >= factor)
    }

    /// The least that counts, seconds.
    pub(super) fn least_s(&self) -> f64 {
        let part = self.usually(Feature::E2e).map_or(0.0, |usual| usual.mean * LEAST_PART);
        let least = LEAST_S.max(part);
        if self.open { least / 2.0 } else { least }
    }

    /// What a time has gained on average, seconds: at least 0. A stage that is new has gained all of it.
    pub(super) fn added_s(&self, feature: Feature) -> f64 {
        let (Some(now), Some(all)) = (self.recent.stats(feature), self.now(Feature::E2e)) else { return 0.0 };
        let usual = self.usual.and_then(|usual| {
            let (stats, all) = (usual.stats(feature)?, usual.stats(Feature::E2e)?);
            Some(stats.mean * stats.count as f64 / all.count.max(1) as f64)
        });
        // Over all requests, those without the stage among them.
        (now.mean * now.count as f64 / all.count.max(1) as f64 - usual.unwrap_or(0.0)).max(0.0)
    }

    /// What requests take longer than usual on average, seconds.
    pub(super) fn added_e2e_s(&self) -> f64 {
        self.both(Feature::E2e).map_or(0.0, |both| (both.now.mean - both.usual.mean).max(0.0))
    }

    /// What there is to explain, seconds: the time that requests take longer, or that they stand still longer in one
    /// piece, if that is more: where requests have become shorter as well, the mean alone hides it.
    pub(super) fn gained_s(&self) -> f64 {
        self.added_e2e_s().max(self.added_s(Feature::TbtMax))
    }

    /// What several times have gained together.
    pub(super) fn added_all_s(&self, features: &[Feature]) -> f64 {
        features.iter().map(|feature| self.added_s(*feature)).sum()
    }

    /// The stage that has gained the most.
    pub(super) fn moved(&self) -> Option<(Feature, f64)> {
        let gains = STAGES.iter().map(|(stage, _)| (*stage, self.added_s(*stage)));
        gains.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, gain)| *gain > 0.0)
    }

    /// Requests with this outcome, lately and usually, as shares.
    pub(super) fn share(&self, is: impl Fn(Outcome) -> bool) -> (f64, Option<f64>) {
        let of = |bucket: &Bucket| {
            let n: u64 = bucket.outcomes.iter().filter(|(outcome, _)| is(**outcome)).map(|(_, n)| n).sum();
            n as f64 / bucket.requests.max(1) as f64
        };
        (of(self.recent), self.usual.map(of))
    }

    /// Requests with this outcome lately.
    pub(super) fn count(&self, is: impl Fn(Outcome) -> bool) -> u64 {
        self.recent.outcomes.iter().filter(|(outcome, _)| is(**outcome)).map(|(_, n)| n).sum()
    }

    /// Requests a second lately.
    pub(super) fn rate(&self) -> f64 {
        let seconds = self.now_ns.saturating_sub(self.recent.begin_ns) as f64 / 1e9;
        self.recent.requests as f64 / seconds.max(1.0)
    }

    /// What the evidence lacks.
    pub(super) fn incomplete(&self) -> Vec<String> {
        let mut lacks = Vec::new();
        let (lost, of) = self.around.lost;
        if lost > 0 {
            let percent = lost as f64 / of.max(1) as f64 * 100.0;
            lacks.push(format!("{percent:.1} % of all records of the last half minute were lost"));
        }
        if self.recent.flawed > 0 {
            let (flawed, all) = (self.recent.flawed, self.recent.requests);
            lacks.push(format!(
                "{flawed} of {all} requests carry a flag: something of them was missed or guessed"
            ));
        }
        if self.usual.is_none() {
            lacks.push("it is not known yet what is usual".into());
        }
        lacks.extend(self.around.unseen.iter().cloned());
        lacks
    }

    /// Evidence: the mean of a number beside the usual one.
    pub(super) fn mean(&self, feature: Feature) -> Option<Evidence> {
        self.evidence(feature, "mean", |stats| stats.mean)
    }

    /// Evidence: its 95th percentile.
    pub(super) fn p95(&self, feature: Feature) -> Option<Evidence> {
        self.evidence(feature, "p95", |stats| stats.p95)
    }

    fn evidence(&self, feature: Feature, which: &str, of: fn(Stats) -> f64) -> Option<Evidence> {
        let value = of(self.recent.stats(feature)?);
        let usual = self.usual.and_then(|usual| usual.stats(feature)).map(of);
        Some(Evidence { what: format!("{}, {which}", feature.text()), value, usual, unit: feature.unit() })
    }
}

/// Evidence without a usual value.
pub(super) fn fact(what: impl Into<String>, value: f64, unit: Unit) -> Evidence {
    Evidence { what: what.into(), value, usual: None, unit }
}

/// Seconds for a sentence.
pub(super) fn time(seconds: f64) -> String {
    match seconds {
        s if s >= 10.0 => format!("{s:.0} s"),
        s if s >= 1.0 => format!("{s:.1} s"),
        s if s >= 0.01 => format!("{:.0} ms", s * 1e3),
        s => format!("{:.1} ms", s * 1e3),
    }
}

/// Bytes for a sentence.
pub(super) fn size(bytes: u64) -> String {
    let gib = bytes as f64 / f64::from(1 << 30);
    if gib >= 1.0 { format!("{gib:.1} GiB") } else { format!("{:.0} MiB", gib * 1024.0) }
}
