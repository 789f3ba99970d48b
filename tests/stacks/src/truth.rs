//! What a peer says about a request: one JSON line each.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use system::truth::Stamp;

/// One request as it was.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the names are those of the agent's record, or of the rig's truth")]
pub struct Truth {
    pub request_id: Option<String>,
    pub method: String,
    pub path: String,
    pub model: Option<String>,
    pub status: u16,
    pub outcome: String,
    pub streaming: bool,
    pub t_first_token_write_ns: Option<Stamp>,
    pub t_last_write_ns: Option<Stamp>,
    pub content_write_ns: Vec<Stamp>,
    pub bytes_out: u64,
    pub said: Option<Said>,
}

/// What an answer said of itself, from the peer that wrote it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the names are those of the agent's record")]
pub struct Said {
    pub api: String,
    pub model_version: Option<String>,
    pub finish_reason: Option<String>,
    pub input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    pub tokens_source: Option<String>,
}

/// Reads a peer's file. A line that is not whole yet is left out; without a file there was no request.
pub fn read(path: &Path) -> Result<Vec<Truth>> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(|line| serde_json::from_str(line).with_context(|| format!("not a line of truth: {line}")))
        .collect()
}
