//! What is found: a cause or a symptom with its numbers, how sure it is, and where to look next.

use serde::{Deserialize, Serialize};

use super::{baseline::Basis, changes::Change, feature::Unit};
use crate::request::record::Outcome;

/// Whether it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It does.
    Active,
    /// It is over.
    Closed,
}

/// How much speaks for it. The order is from little to much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Likelihood {
    /// It fits; so do others.
    Low,
    /// The numbers say so, by way of something that was inferred.
    Medium,
    /// It was seen.
    High,
}

/// What a rule finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Why something is slow or fails.
    Cause,
    /// What is slow or fails, of which the cause may be another finding.
    Symptom,
    /// What keeps the agent from seeing.
    Blindness,
}

/// One number that speaks for a finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// What was measured, in words.
    pub what: String,
    /// How much it is now.
    pub value: f64,
    /// How much it usually is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usual: Option<f64>,
    /// What both are measured in.
    pub unit: Unit,
}

/// A request to look at: its record is in `/api/v1/requests` while it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SlowRequest {
    /// When it came, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ts: Option<String>,
    /// Its id, where there is one on the wire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// How long it took.
    pub e2e_s: f64,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Number of it in this run, from 1.
    pub id: u64,
    /// Name of the rule.
    pub rule: String,
    /// What the rule finds.
    pub kind: Kind,
    /// Its service; absent where it is of the whole node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Its model; absent where it is of the whole service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_name: Option<String>,
    /// Whether it goes on.
    pub state: State,
    /// One sentence with the numbers that matter.
    pub summary: String,
    /// The numbers.
    pub evidence: Vec<Evidence>,
    /// How much speaks for it.
    pub confidence: Likelihood,
    /// What the evidence lacks, in sentences; empty where nothing is known to be missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incomplete: Vec<String>,
    /// Seconds of a request that it explains, on average; absent where it is not about time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explains_s: Option<f64>,
    /// What share that is of what requests take longer than usual, or stand still longer in one piece if that is more, 0
    /// to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explains_ratio: Option<f64>,
    /// What it is compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
    /// What to look at next.
    pub next: String,
    /// What changed before it, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// Slow requests of that time, the slowest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<SlowRequest>,
    /// When it began to hold, ns since the Unix epoch; 0 where the wall clock was not known.
    pub opened_ns: u64,
    /// When it last held.
    pub last_ns: u64,
    /// When it was closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_ns: Option<u64>,
    /// By what findings are ordered: what it explains, how sure it is, and whether it is a cause.
    pub score: f64,
}
