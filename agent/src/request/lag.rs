//! How long results take from the host to the socket, and how often a running request sits a step out, as learned per
//! service.
//!
//! A histogram over roughly logarithmic classes, turned into a cost: minus the logarithm of the density at a lag.
//! Until something is learned the cost grows with the lag, so the latest possible step is the likeliest.

/// Classes; four an octave from 8 µs up, the last is open.
const CLASSES: usize = 72;
/// Unit of the finest classes, as a power of two: 8.192 µs.
const UNIT: u32 = 13;
/// Samples kept in mind: beyond, all counts are halved, so a service may change its ways.
const MEMORY: f32 = 8192.0;
/// Samples that the prior is worth.
const PRIOR_WEIGHT: f32 = 8.0;
/// Mean of the prior, ns.
const PRIOR_MEAN: f32 = 2e6;
/// Samples before the distribution may be used against a request.
const ENOUGH: f32 = 512.0;
/// A mean cost above the usual one by this much (nats) is not plausible any more.
const IMPLAUSIBLE: f32 = 4.0;

/// Gaps between events that the prior is worth, and steps passed over in them: an engine that gives each running
/// request a token in each step passes over none, one that runs prefills by themselves does now and then.
const PRIOR_GAPS: [f32; 2] = [200.0, 4.0];

/// The lag distribution of one service.
#[derive(Clone, Debug)]
pub(crate) struct Lags {
    counts: [f32; CLASSES],
    total: f32,
    cost: [f32; CLASSES],
    /// Mean cost of what was learned: the entropy.
    usual: f32,
    /// Gaps between consecutive events of a request, and steps passed over in them.
    gaps: [f32; 2],
}

impl Default for Lags {
    fn default() -> Self {
        let mut lags =
            Self { counts: [0.0; CLASSES], total: 0.0, cost: [0.0; CLASSES], usual: 0.0, gaps: PRIOR_GAPS };
        lags.settle();
        lags
    }
}

impl Lags {
    /// Cost of one lag, nats.
    pub(crate) fn cost(&self, lag_ns: u64) -> f32 {
        self.cost[class(lag_ns)]
    }

    /// Learns from one request; `weight` is what one of its lags counts.
    pub(crate) fn learn(&mut self, lags_ns: impl IntoIterator<Item = u64>, weight: f32) {
        for lag in lags_ns {
            self.counts[class(lag)] += weight;
            self.total += weight;
        }
        if self.total > MEMORY {
            self.counts.iter_mut().for_each(|c| *c /= 2.0);
            self.total /= 2.0;
        }
        self.settle();
    }

    /// Cost of one step passed over, nats.
    pub(crate) fn skip(&self) -> f32 {
        let [gaps, passed] = self.gaps;
        ((gaps + passed) / passed).ln()
    }

    /// Learns from the steps of one request's events (as indices, increasing) how many were passed over.
    pub(crate) fn learn_gaps(&mut self, steps: &[usize]) {
        let [first, .., last] = steps else { return };
        let gaps = steps.len() - 1;
        self.gaps[0] += gaps as f32;
        self.gaps[1] += (last - first - gaps) as f32;
        if self.gaps[0] > MEMORY {
            self.gaps = self.gaps.map(|n| n / 2.0);
        }
        self.gaps[1] = self.gaps[1].max(PRIOR_GAPS[1]);
    }

    /// Only a thousandth of what was learned takes longer, ns; `None` while little was.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number of at most minutes"
    )]
    pub(crate) fn longest(&self) -> Option<u64> {
        self.quantile(0.999).map(|i| floor_ns(i + 1) as u64)
    }

    /// Only a hundredth of what was learned takes less, ns; 0 while little was.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number of at most minutes"
    )]
    pub(crate) fn shortest(&self) -> u64 {
        self.quantile(0.01).map_or(0, |i| floor_ns(i) as u64)
    }

    /// The class that has this quantile.
    fn quantile(&self, q: f32) -> Option<usize> {
        if self.total < ENOUGH {
            return None;
        }
        let mut left = q * self.total;
        let mut passed = |count: &f32| {
            left -= count;
            left > 0.0
        };
        Some(self.counts.iter().take_while(|count| passed(count)).count().min(CLASSES - 1))
    }

    /// Whether an assignment with this mean cost fits what was learned; yes while little was.
    pub(crate) fn plausible(&self, mean_cost: f32) -> bool {
        self.total < ENOUGH || mean_cost < self.usual + IMPLAUSIBLE
    }

    /// Makes the costs from the counts.
    fn settle(&mut self) {
        let whole = self.total + PRIOR_WEIGHT;
        let mut usual = 0.0;
        for i in 0..CLASSES {
            let side = |j: Option<usize>| j.and_then(|j| self.counts.get(j)).copied().unwrap_or_default();
            let smooth = (side(i.checked_sub(1)) + 2.0 * self.counts[i] + side(Some(i + 1))) / 4.0;
            let density = (smooth + PRIOR_WEIGHT * prior(i)) / (whole * width(i));
            self.cost[i] = -density.ln();
            usual += self.counts[i] * self.cost[i];
        }
        self.usual = if self.total > 0.0 { usual / self.total } else { 0.0 };
    }
}

/// Class of a lag.
fn class(lag_ns: u64) -> usize {
    let v = (lag_ns >> UNIT) + 4;
    let top = v.ilog2();
    let i = u64::from(top - 2) * 4 + ((v >> (top - 2)) & 3);
    usize::try_from(i).unwrap_or(usize::MAX).min(CLASSES - 1)
}

/// Width of a class in units of the finest.
fn width(i: usize) -> f32 {
    (1_u64 << (i / 4)) as f32
}

/// Least lag of a class, ns.
fn floor_ns(i: usize) -> f32 {
    (((4 + i % 4) << (i / 4)) - 4) as f32 * (1_u64 << UNIT) as f32
}

/// Mass of the prior in a class: mostly an exponential, with a tail that never vanishes.
fn prior(i: usize) -> f32 {
    let survival = |i: usize| if i >= CLASSES { 0.0 } else { (-floor_ns(i) / PRIOR_MEAN).exp() };
    0.9 * (survival(i) - survival(i + 1)) + 0.1 / CLASSES as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn classes_are_contiguous() {
        let mut last = 0;
        for lag in (0..4_000 * MS).step_by(4096) {
            let c = class(lag);
            assert!(c == last || c == last + 1, "{lag} ns: {last} then {c}");
            assert!(c == CLASSES - 1 || floor_ns(c) <= lag as f32 + 256.0, "{lag}");
            last = c;
        }
        assert_eq!(class(u64::MAX), CLASSES - 1);
        let mass: f32 = (0..CLASSES).map(prior).sum();
        assert!((mass - 1.0).abs() < 1e-3, "{mass}");
    }

    #[test]
    fn ignorance_prefers_short_lags() {
        let lags = Lags::default();
        let costs: Vec<_> = [0, MS, 4 * MS, 20 * MS, 200 * MS].map(|l| lags.cost(l)).to_vec();
        assert!(costs.is_sorted(), "{costs:?}");
        assert!(lags.plausible(1e9), "nothing learned, nothing implausible");
        assert_eq!((lags.shortest(), lags.longest()), (0, None));
    }

    #[test]
    fn learns_and_forgets() {
        let mut lags = Lags::default();
        lags.learn((0..2000).map(|i| 3 * MS + i * 500), 1.0);
        assert!(lags.cost(3 * MS + MS / 2) < lags.cost(MS / 2));
        assert!(lags.plausible(lags.cost(3 * MS + MS / 2)));
        let (shortest, longest) = (lags.shortest(), lags.longest().unwrap());
        assert!((2 * MS..=3 * MS).contains(&shortest), "{shortest}");
        assert!((4 * MS - MS / 10..=5 * MS).contains(&longest), "{longest}");
        assert!(!lags.plausible(lags.cost(300 * MS)));
        for _ in 0..20 {
            lags.learn((0..2000).map(|i| MS / 2 + i * 50), 1.0);
        }
        assert!(lags.cost(MS / 2) < lags.cost(3 * MS + MS / 2));
        assert!(lags.total <= MEMORY);
    }
}
