//! Times of like steps, alone and in company.

use std::collections::BTreeMap;

use sketches_ddsketch::{Config, DDSketch};
use wire::cuda::Work;

/// Values after which a sketch makes room for the next; the one before is kept, so that a median is of the last
/// 2,000 to 4,000.
const KEEP: usize = 2_000;
/// Relative error of a median.
const ERROR: f64 = 0.005;
/// Bins of a sketch: enough for a factor of 10^8 between its values at that error.
const BINS: u32 = 2048;
/// Companies that are told apart of one class.
const MAX_COMPANIES: usize = 4;

/// What makes steps comparable: as many launches, the same graph, as much copied each way. Numbers count alike within
/// a factor of about 1.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Class {
    launches: u32,
    graphs: u32,
    graph: u64,
    to_device: u32,
    to_host: u32,
}

impl Class {
    /// The class of a step; `None` for one without launches, of which a wait can be of any length.
    pub(super) fn of(work: &Work, graph: u64) -> Option<Self> {
        (work.launches > 0 || work.graphs > 0).then(|| Self {
            launches: half_octave(work.launches),
            graphs: half_octave(work.graphs),
            graph,
            to_device: half_octave(work.h2d_bytes),
            to_host: half_octave(work.d2h_bytes),
        })
    }
}

/// Twice the logarithm, rounded down: 0, 1 -> 1, 2 -> 3, 3 -> 4, 4 and 5 -> 5, 6 and 7 -> 6, …
fn half_octave(n: u64) -> u32 {
    let Some(octave) = n.checked_ilog2() else { return 0 };
    let upper = octave > 0 && n >> (octave - 1) & 1 == 1;
    1 + 2 * octave + u32::from(upper)
}

/// Times of one kind.
#[derive(Clone)]
pub(super) struct Samples {
    current: DDSketch,
    before: Option<DDSketch>,
}

impl std::fmt::Debug for Samples {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Samples").field("count", &self.count()).field("median", &self.median()).finish()
    }
}

impl Default for Samples {
    fn default() -> Self {
        Self { current: fresh(), before: None }
    }
}

fn fresh() -> DDSketch {
    DDSketch::new(Config::new(ERROR, BINS, 1e-9))
}

impl Samples {
    pub(super) fn add(&mut self, seconds: f64) {
        if self.current.count() >= KEEP {
            self.before = Some(std::mem::replace(&mut self.current, fresh()));
        }
        self.current.add(seconds);
    }

    pub(super) fn count(&self) -> u64 {
        (self.current.count() + self.before.as_ref().map_or(0, DDSketch::count)) as u64
    }

    /// Their median; `None` when there are none.
    pub(super) fn median(&self) -> Option<f64> {
        let mut all = self.current.clone();
        if let Some(before) = &self.before {
            // Both have the same configuration.
            let _ = all.merge(before);
        }
        all.quantile(0.5).ok().flatten()
    }
}

/// Times of the steps of a class.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    /// Of those during which no other process had work on the device.
    pub(super) solo: Samples,
    /// Of the others, by a process that had.
    pub(super) with: BTreeMap<u32, Samples>,
    /// End of the last of them, ns.
    pub(super) last_ns: u64,
}

impl Times {
    /// Adds one in company; false when there is no room for another company.
    pub(super) fn add_with(&mut self, other: u32, seconds: f64) -> bool {
        if self.with.len() >= MAX_COMPANIES && !self.with.contains_key(&other) {
            return false;
        }
        self.with.entry(other).or_default().add(seconds);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_numbers_are_alike() {
        let numbers: Vec<_> = [0, 1, 2, 3, 4, 5, 6, 8, 1000, 1023, 1024].map(half_octave).into();
        assert_eq!(numbers, [0, 1, 3, 4, 5, 5, 6, 7, 20, 20, 21]);
        let work = |launches, d2h_bytes| Work { launches, d2h_bytes, ..Work::default() };
        assert_eq!(Class::of(&work(0, 5), 0), None);
        assert_eq!(Class::of(&work(100, 4), 0), Class::of(&work(120, 4), 0));
        assert_ne!(Class::of(&work(100, 4), 0), Class::of(&work(200, 4), 0));
        assert_ne!(Class::of(&work(100, 4), 0), Class::of(&work(100, 4), 7));
    }

    #[test]
    fn a_median_is_of_the_last_ones() {
        let mut samples = Samples::default();
        assert_eq!(samples.median(), None);
        for _ in 0..3 * KEEP {
            samples.add(0.001);
        }
        for _ in 0..2 * KEEP {
            samples.add(0.004);
        }
        assert_eq!(samples.count(), 2 * KEEP as u64);
        let median = samples.median().unwrap();
        assert!((median / 0.004 - 1.0).abs() < 2.0 * ERROR, "{median}");
    }
}
