//! The agent's own counters: written by every stage, read by `export` only.
//!
//! seen = decoded + failed(reason); nothing is dropped without a count and a reason.

use std::collections::BTreeMap;

/// Counts of one pipeline. Plain numbers: the pipeline is the only writer, and a copy is handed to exporters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Records taken from the source.
    pub seen: u64,
    /// Records that became an event.
    pub decoded: u64,
    /// Records that did not, by [`crate::decode::DecodeError::reason`].
    pub failed: BTreeMap<&'static str, u64>,
    /// Events that were understood and deliberately not used, by reason (a closed set).
    pub ignored: BTreeMap<&'static str, u64>,
    /// The kernel side's counters, totals since load, by name.
    pub kernel: BTreeMap<String, u64>,
}

impl Health {
    /// Counts one unused event.
    pub fn ignore(&mut self, reason: &'static str) {
        *self.ignored.entry(reason).or_default() += 1;
    }

    /// Counts one record that failed to decode.
    pub fn fail(&mut self, reason: &'static str) {
        *self.failed.entry(reason).or_default() += 1;
    }
}
