//! The record of one finished request: what `requests --json`, `/api/v1/requests` and `replay` print.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A complete answer.
    Ok,
    /// Status 4xx.
    #[serde(rename = "client_4xx")]
    Client4xx,
    /// Status 5xx.
    #[serde(rename = "server_5xx")]
    Server5xx,
    /// Status 408 or 504; or the client closed before any answer, after as long a silence as others did.
    Timeout,
    /// The client closed or reset before the end of the answer.
    ClientDisconnect,
    /// The server closed, died or gave the request up before the end of the answer; or the answer reached a largest
    /// length that its client had not set.
    Truncated,
    /// The model's own filter cut the answer, or the model refused.
    ContentFilter,
    /// A 2xx answer without any content.
    EmptyOutput,
    /// A 200 with an error object in the body, whoever closed behind it.
    InBandError,
    /// Not known: bytes were lost, or the agent came in the middle.
    Unknown,
}

/// How sure the stages are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// The steps of the request are known.
    Exact,
    /// The steps are the most likely ones.
    Estimated,
    /// Only bounds are known.
    Bounded,
}

/// How the arrival of a request is known. The order is from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrival {
    /// From the segments that carried it.
    Wire,
    /// At the latest at that time: it came in many segments while others were unread.
    Bounded,
    /// Not known: the time is that of the server's read.
    Read,
}

/// A warning attached to a request: something was guessed or is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flag {
    /// The connection is older than the agent.
    MidStream,
    /// Bytes of this request were not captured where they were needed.
    Gap,
    /// Which side is the server was inferred from the bytes.
    RoleGuessed,
    /// A negative interval was set to zero.
    ClockAdjusted,
    /// A body could not be read, since it is compressed: what it would tell is missing.
    Opaque,
    /// Which request to the server behind a proxy belongs to this one was inferred.
    NestedGuessed,
}

/// The record of one request. One flat JSON object a line; an absent field is not known, never zero.
///
/// Times are `CLOCK_MONOTONIC` nanoseconds, durations seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the names are the contract of the design's section 7, which explains each")]
pub struct RequestRecord {
    /// Wall clock at the first request byte, RFC 3339 with nanoseconds, UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ts: Option<String>,
    pub pid: u32,
    pub comm: String,
    pub service: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    pub protocol: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Without the query string.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_version: Option<String>,
    /// `openai.chat`, `openai.completions`, `openai.responses`, `openai.embeddings`, `anthropic.messages`,
    /// `ollama.chat`, `ollama.generate`, `ollama.embed`, `kserve.infer`, `kserve.generate`,
    /// `kserve.generate_stream`, `kserve.grpc`, `tgi.generate`, `tgi.generate_stream`, `sglang.generate`,
    /// `llamacpp.completion`, `llamacpp.infill`, `torchserve.predict`, `rerank`, `score`, or `http` for any other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streaming: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub t_accept_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub t_first_byte_in_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub t_last_byte_in_ns: Option<u64>,
    /// What the two times above are: when the bytes arrived, or when they were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrival: Option<Arrival>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub t_read_done_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub t_first_byte_out_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub t_first_token_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub t_last_byte_out_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub t_acked_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub t_close_ns: Option<u64>,
    pub bytes_in: u64,
    /// Of those, what came behind the head, framing included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_bytes_in: Option<u64>,
    pub bytes_out: u64,
    /// Content-bearing events of the answer that were seen; with the flag `gap` there may be more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// Where the counts came from: `usage`, `meta_info`, `timings`, `ollama`, `details`; `chunks` where the answer
    /// has none and times per token are times per content event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub e2e_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_s: Option<f64>,
    /// Smoothed round-trip time of the connection when the answer was acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub srtt_s: Option<f64>,
    /// Segments that were sent again for this answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tpot_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tbt_p50_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tbt_max_s: Option<f64>,
    /// Every gap between content events, for the histogram and percentiles; not part of the JSON. Empty where gaps
    /// are not token gaps (several choices interleave) or not known (an event may be missing).
    #[serde(skip)]
    pub tbt_gaps_s: Vec<f64>,
    /// Stage (`queue_s`, …) to seconds; they add up to `e2e_s`. `forward_s` stands in for `prefill_s` and
    /// `decode_s` only where those cannot be told apart.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub stages: BTreeMap<String, f64>,
    /// Stage to `[least, most]` seconds, for stages that are not exact.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub stage_bounds: BTreeMap<String, [f64; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<Confidence>,
    /// GPU steps assigned to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_size_mean: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_active_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alloc_wait_s: Option<f64>,
    /// Waits of the engine for mere copies during the forward.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy_wait_s: Option<f64>,
    /// Time during the forward in which the engine had no step in flight: the GPU waited for the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_gap_s: Option<f64>,
    /// Time after its first token in which the engine ran eight or more steps in a row without it: it was preempted, or put
    /// behind others. Absent where there was none, and where its steps are not known one by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sat_out_s: Option<f64>,
    /// Prompt tokens by the time of the prefill, where that is not bounded only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill_tokens_per_s: Option<f64>,
    /// Completion tokens after the first by the time of the decode, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decode_tokens_per_s: Option<f64>,
    /// Kernels loaded or compiled by its service while it went on, and the time in that, counted once; absent where there
    /// were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module_loads: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module_load_s: Option<f64>,
    /// The process whose steps these are, of several ranks the one that stands for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_pid: Option<u32>,
    /// NVML's numbers of the GPUs on which its service had steps while it went on, as far as that is certain.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<Flag>,
    /// After how long the clients of this service give up, from those that did after the same time, where this one's
    /// client did: then the outcome is `timeout`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_deadline_s: Option<f64>,
    /// How many those are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_deadline_samples: Option<u64>,
    /// Exchanges that belong to this request beside the client's own, where it went through a proxy or a front: the
    /// `inner_…` fields are of the last server in the chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inner_count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inner_service: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inner_pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inner_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub t_inner_first_byte_in_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub t_inner_read_done_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub t_inner_first_token_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub t_inner_last_byte_out_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    pub sampled: bool,
}
