//! What goes between the HTTP side and the engine: jobs one way, finished steps the other.

use serde::{Deserialize, Serialize};

use crate::clock::Stamp;

/// A request as the engine sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Job {
    /// Number of the request in this server.
    pub(crate) id: u64,
    /// Name of the model that was asked for.
    pub(crate) model: String,
    /// Prompt tokens.
    pub(crate) input_tokens: u32,
    /// Tokens to generate.
    pub(crate) output_tokens: u32,
    /// Seed of the token texts.
    pub(crate) seed: u64,
    /// Return of the read that brought the last request byte, ns: where the queue measure begins.
    pub(crate) read_ns: u64,
}

/// Set on the first step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Admission {
    /// When the request was taken from the queue, ns.
    pub(crate) sched_ns: u64,
    /// Time between its last read and this step's launch in which other steps ran, ns.
    pub(crate) queue_ns: u64,
}

/// What a step did for one of its requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Output {
    /// The request.
    pub(crate) id: u64,
    /// The token; none when the step did a part of a prompt only.
    pub(crate) text: Option<String>,
    /// Whether the request is complete.
    pub(crate) last: bool,
    /// Only in the request's first step.
    pub(crate) admission: Option<Admission>,
}

/// A step whose result is on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StepDone {
    /// Number of the step in this engine.
    pub(crate) index: u64,
    /// Around its first launch.
    pub(crate) launch: Stamp,
    /// Around the call whose return gave the result.
    pub(crate) result: Stamp,
    /// How many requests were in it.
    pub(crate) batch: u32,
    /// Those of them that this is told for.
    pub(crate) outputs: Vec<Output>,
    /// Device memory allocations of this engine that failed, so far.
    pub(crate) alloc_failures: u64,
}
