//! How an exchange ended, from its status, its body and who closed.

use super::{Ending, Grpc, Open};
use crate::{
    request::record::{Flag, Outcome},
    track::{
        body::Body,
        json::{is_context, is_filter, is_length},
    },
};

impl Open {
    /// Outcome of a whole gRPC call that HTTP thinks well of, by its status' place among those of HTTP.
    fn grpc_outcome(&self, body: &Body) -> Outcome {
        match self.grpc {
            Grpc::Missing if self.flagged(Flag::Gap) => Outcome::Unknown,
            Grpc::Missing => Outcome::Truncated,
            Grpc::Unknown => Outcome::Unknown,
            Grpc::No | Grpc::Status(0) => self.success(body),
            // DEADLINE_EXCEEDED.
            Grpc::Status(4) => Outcome::Timeout,
            // UNKNOWN, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS, and what no standard names.
            Grpc::Status(2 | 12..=15 | 17..) => Outcome::Server5xx,
            Grpc::Status(_) => Outcome::Client4xx,
        }
    }

    pub(super) fn outcome(&self, ending: Ending, body: &Body) -> Outcome {
        match ending {
            // With the end marker out, what happens to the connection is no longer the answer's matter.
            _ if body.done() => self.answered(body),
            // An error is the last that a stream says, and many clients leave on it.
            _ if body.is_stream() && has_failed(body) => self.answered(body),
            Ending::Complete => self.answered(body),
            Ending::Unread => match self.answered(body) {
                Outcome::Ok => Outcome::Unknown,
                other => other,
            },
            Ending::ClientGone | Ending::ServerGone if self.is_overdue() => Outcome::Timeout,
            Ending::ClientGone => Outcome::ClientDisconnect,
            Ending::ServerGone => Outcome::Truncated,
            Ending::OutOfSight => match self.exchange.status {
                Some(status) if status >= 400 => self.answered(body),
                _ if body.facts().is_some_and(|f| f.finish_reason().is_some() || f.error) => {
                    self.answered(body)
                }
                _ => Outcome::Unknown,
            },
        }
    }

    /// It was given up when the client's own time limit was over: to a tenth, since the limit runs where the client is,
    /// and is rounded.
    fn is_overdue(&self) -> bool {
        let exchange = &self.exchange;
        let lasted =
            exchange.close_ns.zip(exchange.first_byte_in_ns).map(|(end, begin)| end.saturating_sub(begin));
        lasted.zip(exchange.timeout_ns).is_some_and(|(lasted, limit)| lasted >= limit - limit / 10)
    }

    /// Outcome of a whole answer.
    fn answered(&self, body: &Body) -> Outcome {
        match self.exchange.status {
            Some(408 | 504) => Outcome::Timeout,
            Some(400..=499) => Outcome::Client4xx,
            Some(500..) => Outcome::Server5xx,
            Some(200..=299) => self.grpc_outcome(body),
            Some(_) => Outcome::Ok,
            // The agent came in the middle: only the body can tell.
            None if body.done() || body.facts().is_some_and(|f| f.finish_reason().is_some() || f.error) => {
                self.success(body)
            }
            None => Outcome::Unknown,
        }
    }

    /// Outcome of a 2xx answer.
    fn success(&self, body: &Body) -> Outcome {
        let Some(facts) = body.facts() else { return Outcome::Ok };
        match facts.finish_reason() {
            _ if facts.error => return Outcome::InBandError,
            Some("error") => return Outcome::InBandError,
            Some(reason) if is_filter(reason) => return Outcome::ContentFilter,
            // The engine gave the request up, and the client did not.
            Some("abort") => return Outcome::Truncated,
            // Nothing was asked for but the model itself.
            Some("load" | "unload") => return Outcome::Ok,
            _ => {}
        }
        let finished = facts.finish_reason().is_some();
        if self.exchange.status.is_none() || !body.readable() {
            return Outcome::Ok;
        }
        let gap = self.flagged(Flag::Gap);
        if self.api.marks_end && body.is_stream() && !body.done() && !finished {
            return if gap { Outcome::Unknown } else { Outcome::Truncated };
        }
        let counted = gap && facts.output_tokens().is_some_and(|n| n > 0);
        if !self.api.generates || facts.has_content() || counted {
            return if facts.finish_reason().is_some_and(|reason| self.cuts(reason)) {
                Outcome::Truncated
            } else {
                Outcome::Ok
            };
        }
        match (gap, finished) {
            (false, _) => Outcome::EmptyOutput,
            (true, true) => Outcome::Ok,
            (true, false) => Outcome::Unknown,
        }
    }

    /// The answer reached a largest length that its client is known not to have asked for.
    fn cuts(&self, reason: &str) -> bool {
        is_context(reason) || (is_length(reason) && self.names_no_limit)
    }
}

/// The answer says itself that it failed.
fn has_failed(body: &Body) -> bool {
    body.facts().is_some_and(|facts| facts.error || facts.finish_reason() == Some("error"))
}
