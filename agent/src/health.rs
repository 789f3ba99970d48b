//! The agent's own counters: written by every stage, read by `export` only.
//!
//! seen = decoded + failed(reason); nothing is dropped without a count and a reason.

mod nvml;

use std::collections::BTreeMap;

pub use nvml::{CallHealth, HangingCall, NvmlHealth};

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
    /// What a full table of the core forgot or refused, by table (a closed set).
    pub limits: BTreeMap<&'static str, u64>,
    /// Exchanges that ended, by how their steps are known (`exact`, `estimated`, `bounded`, `without_stages`), and
    /// `probe` for those that are no requests, `nested` for those that are a part of one; `without_outer` counts,
    /// besides, those that a watched process sent and that belong to none, and `clock_adjusted` those with a negative interval.
    pub requests: BTreeMap<&'static str, u64>,
    /// The kernel side's counters, totals since load, by name.
    pub kernel: BTreeMap<String, u64>,
}

impl Health {
    /// Counts one unused event.
    pub fn ignore(&mut self, reason: &'static str) {
        *self.ignored.entry(reason).or_default() += 1;
    }

    /// Counts something that a full table forgot or refused.
    pub fn limit(&mut self, table: &'static str) {
        self.limit_by(table, 1);
    }

    /// Counts `n` of them.
    pub fn limit_by(&mut self, table: &'static str, n: u64) {
        if n > 0 {
            *self.limits.entry(table).or_default() += n;
        }
    }

    /// Counts one exchange that ended.
    pub fn count(&mut self, how: &'static str) {
        *self.requests.entry(how).or_default() += 1;
    }

    /// Counts one record that failed to decode.
    pub fn fail(&mut self, reason: &'static str) {
        *self.failed.entry(reason).or_default() += 1;
    }
}
