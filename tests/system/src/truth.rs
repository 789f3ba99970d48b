//! What the model server knows about each request: one JSON line per request that is over.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::rig::ClientView;

/// The server's own clock (`CLOCK_MONOTONIC`, ns) before and after a call: the true moment lies between.
pub type Stamp = [u64; 2];

/// One request as it was.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(
    missing_docs,
    reason = "the names are those of the server's stamps, which its `truth` module explains"
)]
pub struct Truth {
    pub request_id: Option<String>,
    pub streaming: bool,
    pub outcome: String,
    /// First request byte arrived: the client's own times around sending it, see [`with_arrivals`].
    pub t_arrived_ns: Option<Stamp>,
    pub t_first_read_ns: Option<Stamp>,
    pub t_last_read_ns: Option<Stamp>,
    pub t_first_token_write_ns: Option<Stamp>,
    pub t_first_launch_ns: Option<Stamp>,
    pub t_first_result_ns: Option<Stamp>,
    pub t_last_result_ns: Option<Stamp>,
    pub t_last_write_ns: Option<Stamp>,
    pub content_write_ns: Vec<Stamp>,
    pub output_tokens: u64,
    /// Requests in each of its steps.
    pub batch_sizes: Vec<u32>,
    pub step_launch_ns: Vec<Stamp>,
    pub step_result_ns: Vec<Stamp>,
    pub preprocess_s: Option<f64>,
    pub queue_s: Option<f64>,
    pub prefill_s: Option<f64>,
    pub decode_s: Option<f64>,
    pub postprocess_s: Option<f64>,
    pub write_blocked_s: Option<f64>,
    pub e2e_s: Option<f64>,
}

/// A duration that is known up to the width of its two stamps, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// At least.
    pub low: f64,
    /// At most.
    pub high: f64,
}

impl Interval {
    /// The time from `start` to `end`.
    pub fn between(start: Stamp, end: Stamp) -> Self {
        let seconds = |from: u64, to: u64| (to as f64 - from as f64) / 1e9;
        Self { low: seconds(start[1], end[0]), high: seconds(start[0], end[1]) }
    }

    /// How far `value` is outside; 0 inside.
    pub fn distance(self, value: f64) -> f64 {
        (self.low - value).max(value - self.high).max(0.0)
    }

    /// What the truth itself cannot tell apart.
    pub fn width(self) -> f64 {
        self.high - self.low
    }

    /// Its middle.
    pub fn middle(self) -> f64 {
        f64::midpoint(self.low, self.high)
    }
}

impl Truth {
    /// When the request began: at its arrival, or where that is not observed, when it was read.
    pub fn begin(&self, observes_arrival: bool) -> Option<Stamp> {
        if observes_arrival { self.t_arrived_ns } else { self.t_first_read_ns }
    }

    /// Time from there to the first token.
    pub fn ttft(&self, begin: Stamp) -> Option<Interval> {
        Some(Interval::between(begin, self.t_first_token_write_ns?))
    }

    /// From there to the end.
    pub fn e2e(&self, begin: Stamp) -> Option<Interval> {
        Some(Interval::between(begin, self.t_last_write_ns?))
    }

    /// From the arrival to the read of the last byte, for a request that came at once.
    pub fn accept_wait(&self) -> Option<Interval> {
        Some(Interval::between(self.t_arrived_ns?, self.t_last_read_ns?))
    }

    /// Times between tokens.
    pub fn tbt(&self) -> Vec<Interval> {
        self.content_write_ns.windows(2).map(|pair| Interval::between(pair[0], pair[1])).collect()
    }

    /// A stage's seconds, by its short name.
    pub fn stage(&self, name: &str) -> Option<f64> {
        match name {
            "preprocess" => self.preprocess_s,
            "queue" => self.queue_s,
            "prefill" => self.prefill_s,
            "decode" => self.decode_s,
            "postprocess" => self.postprocess_s,
            _ => None,
        }
    }
}

/// Adds what only clients know: when the requests arrived. That cannot be after the server had read the first byte.
#[must_use]
pub fn with_arrivals(mut truths: Vec<Truth>, clients: &[ClientView]) -> Vec<Truth> {
    let sent: HashMap<&str, Stamp> = clients
        .iter()
        .filter_map(|client| Some((client.request_id.as_str(), [client.t_send?, client.t_sent?])))
        .collect();
    for truth in &mut truths {
        let stamp = truth.request_id.as_deref().and_then(|id| sent.get(id));
        let read = truth.t_first_read_ns.map_or(u64::MAX, |[_, after]| after);
        truth.t_arrived_ns = stamp.map(|[before, after]| [*before, (*after).min(read)]);
    }
    truths
}

/// Reads the server's file. A line that is not whole yet is left out.
pub fn read(path: &Path) -> Result<Vec<Truth>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(|line| serde_json::from_str(line).with_context(|| format!("not a line of truth: {line}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_to_an_interval() {
        let interval = Interval::between([1_000, 2_000], [10_000, 12_000]);
        for (value, expected) in [(8e-6, 0.0), (11e-6, 0.0), (7e-6, 1e-6), (13e-6, 2e-6)] {
            assert!((interval.distance(value) - expected).abs() < 1e-12, "{value}");
        }
        assert!((interval.width() - 3e-6).abs() < 1e-12);
    }

    #[test]
    fn an_unfinished_line_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("truth");
        fs::write(&path, "{\"request_id\":\"a\",\"shape\":\"single\",\"new_field\":1}\n{\"request_id\":\"b")
            .unwrap();
        let truths = read(&path).unwrap();
        assert_eq!(truths.len(), 1);
        assert_eq!(truths[0].request_id.as_deref(), Some("a"));
    }
}
