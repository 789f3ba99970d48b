//! How many requests wait for the engine at this moment.
//!
//! Of a request in flight that has written nothing yet it cannot be seen whether it waits or its first step runs. On
//! average it can: by Little's law as many are in their first steps as requests come to them in a second, times the
//! seconds that those take. Both are taken from the last [`KEPT`] requests that are over. The rest of the silent ones
//! wait.

use std::collections::VecDeque;

use super::record::Confidence;

/// Requests that the average is of.
const KEPT: usize = 64;

/// One request that is over.
#[derive(Clone, Copy, Debug)]
struct Past {
    /// Its end, ns.
    end: u64,
    /// From its first launch to its first write, ns: how long it was silent while the engine worked for it.
    silent: u64,
    confidence: Confidence,
}

/// The last requests of a service.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flow(VecDeque<Past>);

/// Requests that wait for the engine of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// How many.
    pub requests: u64,
    /// How sure that is: `exact` where none can wait, `bounded` where it is the most that can.
    pub confidence: Confidence,
}

impl Waiting {
    /// Nobody waits.
    pub const NONE: Self = Self { requests: 0, confidence: Confidence::Exact };
}

impl Flow {
    /// A request is over that was silent for that long after its first launch.
    pub(crate) fn over(&mut self, end: u64, silent: u64, confidence: Confidence) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(Past { end, silent, confidence });
    }

    /// Of `silent` requests in flight that have written nothing, how many wait.
    pub(crate) fn waiting(&self, silent: u64) -> Waiting {
        if silent == 0 {
            return Waiting::NONE;
        }
        let span = self.0.front().zip(self.0.back()).map_or(0, |(a, b)| b.end.saturating_sub(a.end));
        if span == 0 {
            return Waiting { requests: silent, confidence: Confidence::Bounded };
        }
        let engaged: u64 = self.0.iter().skip(1).map(|past| past.silent).sum();
        let usual = engaged.saturating_add(span / 2) / span;
        let least = self.0.iter().map(|past| past.confidence).max().unwrap_or(Confidence::Bounded);
        Waiting { requests: silent.saturating_sub(usual), confidence: least.max(Confidence::Estimated) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A request ends every 10 ms, and each was silent for `silent` ms after its first launch.
    fn flow(silent: u64, confidence: Confidence) -> Flow {
        let mut flow = Flow::default();
        (0..2 * KEPT as u64).for_each(|i| flow.over(i * 10 * MS, silent * MS, confidence));
        flow
    }

    #[test]
    fn those_that_are_in_their_first_steps_do_not_wait() {
        use Confidence::{Bounded, Estimated, Exact};
        let cases = [
            ("none is silent", flow(40, Estimated), 0, 0, Exact),
            ("nothing known", Flow::default(), 5, 5, Bounded),
            ("a short prefill", flow(2, Estimated), 5, 5, Estimated),
            ("four at a time are in prefill", flow(40, Exact), 10, 6, Estimated),
            ("fewer than usual", flow(40, Estimated), 3, 0, Estimated),
            ("whole answers", flow(200, Bounded), 50, 30, Bounded),
        ];
        for (name, flow, silent, requests, confidence) in cases {
            assert_eq!(flow.waiting(silent), Waiting { requests, confidence }, "{name}");
        }
        assert_eq!(flow(1, Exact).0.len(), KEPT);
    }
}
