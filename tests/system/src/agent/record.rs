//! What the agent prints of requests and steps.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;

/// A finished request, as the agent prints it. Fields that no test reads are left out.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the names of the request record")]
pub struct Record {
    pub pid: u32,
    pub service: String,
    pub local_port: Option<u16>,
    pub protocol: String,
    pub method: Option<String>,
    pub path: Option<String>,
    pub model: Option<String>,
    pub model_version: Option<String>,
    pub api: Option<String>,
    pub streaming: Option<bool>,
    pub status: Option<u16>,
    pub outcome: Option<String>,
    pub finish_reason: Option<String>,
    pub t_first_byte_in_ns: Option<u64>,
    pub t_first_token_ns: Option<u64>,
    pub t_last_byte_out_ns: Option<u64>,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub chunks: Option<u64>,
    pub input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    pub tokens_source: Option<String>,
    pub arrival: Option<String>,
    pub t_acked_ns: Option<u64>,
    pub t_close_ns: Option<u64>,
    pub e2e_s: Option<f64>,
    pub delivery_s: Option<f64>,
    pub srtt_s: Option<f64>,
    pub retransmits: Option<u32>,
    pub ttft_s: Option<f64>,
    pub tpot_s: Option<f64>,
    pub tbt_p50_s: Option<f64>,
    pub tbt_max_s: Option<f64>,
    pub stages: BTreeMap<String, f64>,
    pub confidence: Option<String>,
    pub steps: Option<u64>,
    pub batch_size_mean: Option<f64>,
    pub flags: Vec<String>,
    pub request_id: Option<String>,
    pub client_deadline_s: Option<f64>,
    pub client_deadline_samples: Option<u64>,
    pub inner_count: Option<u64>,
    pub inner_service: Option<String>,
    pub inner_pid: Option<u32>,
    pub inner_port: Option<u16>,
    pub t_inner_first_byte_in_ns: Option<u64>,
    pub t_inner_read_done_ns: Option<u64>,
    pub t_inner_first_token_ns: Option<u64>,
    pub t_inner_last_byte_out_ns: Option<u64>,
    pub stage_bounds: BTreeMap<String, [f64; 2]>,
}

impl Record {
    /// Reads one line of `requests --json` or `replay`.
    pub fn parse(line: &str) -> Result<Self> {
        serde_json::from_str(line).with_context(|| format!("not a request record: {line}"))
    }

    /// Its times begin at the arrival, not at the read.
    pub fn observes_arrival(&self) -> bool {
        matches!(self.arrival.as_deref(), Some("wire" | "bounded"))
    }

    /// A stage's seconds, by its short name.
    pub fn stage(&self, name: &str) -> Option<f64> {
        self.stages.get(&format!("{name}_s")).copied()
    }
}

/// A step, as `replay --steps` prints it.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the names of the step record")]
pub struct Step {
    pub pid: u32,
    pub t_begin_ns: u64,
    pub t_end_ns: u64,
    pub batch: Option<u32>,
}
