//! The server's own counters, for `/metrics`.

use crate::truth::Outcome;

/// Counts since the start.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Accepted connections.
    pub(super) connections: u64,
    /// Failed accepts.
    pub(super) accept_errors: u64,
    /// Steps whose result reached the event loop.
    pub(super) steps: u64,
    /// Scripted stalls of the event loop.
    pub(super) stalls: u64,
    /// Events that carried more than one token.
    pub(super) merged: u64,
    /// Requests refused because the queue was full.
    pub(super) refused: u64,
    /// Probes answered (`/health`, `/metrics`, `/v1/models`).
    pub(super) probes: u64,
    /// Device memory allocations that failed.
    pub(super) alloc_failures: u64,
    /// Truth lines that could not be written.
    pub(super) truth_errors: u64,
    ok: u64,
    client_4xx: u64,
    server_5xx: u64,
    client_disconnect: u64,
    in_band_error: u64,
    truncated: u64,
}

impl Counters {
    /// Counts the end of a request.
    pub(super) fn ended(&mut self, outcome: Outcome) {
        *match outcome {
            Outcome::Ok => &mut self.ok,
            Outcome::Client4xx => &mut self.client_4xx,
            Outcome::Server5xx => &mut self.server_5xx,
            Outcome::ClientDisconnect => &mut self.client_disconnect,
            Outcome::InBandError => &mut self.in_band_error,
            Outcome::Truncated => &mut self.truncated,
        } += 1;
    }

    /// Prometheus text.
    pub(super) fn text(&self, in_engine: usize, open: usize, blocked: usize) -> String {
        let rows = [
            ("connections_total", self.connections),
            ("accept_errors_total", self.accept_errors),
            ("steps_total", self.steps),
            ("stalls_total", self.stalls),
            ("merged_events_total", self.merged),
            ("refused_total", self.refused),
            ("probes_total", self.probes),
            ("alloc_failures_total", self.alloc_failures),
            ("truth_errors_total", self.truth_errors),
            ("requests_total{outcome=\"ok\"}", self.ok),
            ("requests_total{outcome=\"client_4xx\"}", self.client_4xx),
            ("requests_total{outcome=\"server_5xx\"}", self.server_5xx),
            ("requests_total{outcome=\"client_disconnect\"}", self.client_disconnect),
            ("requests_total{outcome=\"in_band_error\"}", self.in_band_error),
            ("requests_total{outcome=\"truncated\"}", self.truncated),
            ("requests_in_engine", in_engine as u64),
            ("connections_open", open as u64),
            ("connections_blocked", blocked as u64),
        ];
        let line = |(name, value): &(&str, u64)| format!("modelserver_{name} {value}\n");
        rows.iter().map(line).collect::<Vec<_>>().concat()
    }
}
