//! The line that is written for a request.

use serde::Serialize;
use serde_json::Value;

/// How a request ended, in the agent's words where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// A complete answer.
    Ok,
    /// Status 4xx.
    #[serde(rename = "client_4xx")]
    Client4xx,
    /// Status 5xx.
    #[serde(rename = "server_5xx")]
    Server5xx,
    /// Status 408 or 504, or no end within `--timeout`.
    Timeout,
    /// This client went away on purpose.
    ClientDisconnect,
    /// The server closed before the end.
    Truncated,
    /// The model's own filter cut the answer.
    ContentFilter,
    /// A 2xx answer without content.
    EmptyOutput,
    /// A 200 with an error object.
    InBandError,
    /// No connection, or it broke before any answer.
    ConnectionFailed,
    /// Not an HTTP response.
    ProtocolError,
}

/// What the client saw of one request. Times are `CLOCK_MONOTONIC` ns.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Record {
    /// Value of the header `x-request-id`.
    pub request_id: String,
    /// Client.
    pub worker: u16,
    /// Requests that the connection had carried before this one.
    pub on_connection: u32,
    /// Path asked for.
    pub path: &'static str,
    /// A stream was asked for.
    pub streaming: bool,
    /// The client read slowly.
    pub slow: bool,
    /// Words of the prompt, without the secret.
    pub input_tokens: u32,
    /// `max_tokens`.
    pub max_tokens: u32,
    /// When an open loop wanted it to start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub t_due: Option<u64>,
    /// Right before the request's first byte was written; absent when there was no connection.
    pub t_send: Option<u64>,
    /// Right after the write of the request's last byte. The first byte arrived between this and `t_send`, since what
    /// is sent to a server on this machine arrives within the call.
    pub t_sent: Option<u64>,
    /// Return of the read that gave the first byte.
    pub t_first_byte: Option<u64>,
    /// Return of the read that completed the first content-bearing event; absent unless the answer is a stream.
    pub t_first_token: Option<u64>,
    /// Return of the last read that gave bytes.
    pub t_last_byte: Option<u64>,
    /// Status code.
    pub status: Option<u16>,
    /// How it ended.
    pub outcome: Outcome,
    /// Content-bearing events.
    pub chunks: u32,
    /// Why the model stopped.
    pub finish_reason: Option<String>,
    /// The `usage` object.
    pub usage: Option<Value>,
    /// Times it was sent again because the server had closed an idle connection.
    pub retries: u32,
    /// What went wrong, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Record {
    /// From sending to the last byte, ns.
    pub(crate) fn e2e_ns(&self) -> Option<u64> {
        Some(self.t_last_byte? - self.t_send?)
    }

    /// From sending to the first content, ns.
    pub(crate) fn ttft_ns(&self) -> Option<u64> {
        Some(self.t_first_token? - self.t_send?)
    }
}
