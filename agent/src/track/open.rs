//! One exchange that is not over, and how it ends.

use super::{ContentEvent, Exchange, ExchangeId, MAX_CONTENT, api, api::Api, body::Body, http1::head};
use crate::{
    decode::Stamp,
    request::record::{Arrival, Flag, Outcome},
};

/// Why an exchange is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The response's last byte was written.
    Complete,
    /// The client closed or reset the connection.
    ClientGone,
    /// The server closed the connection or died.
    ServerGone,
    /// It went out of sight.
    OutOfSight,
}

/// An exchange that is not over.
#[derive(Debug)]
pub(super) struct Open {
    pub exchange: Box<Exchange>,
    pub id: ExchangeId,
    api: Api,
    /// Its request's head was understood.
    pub has_head: bool,
    /// Its request was read to the end.
    pub request_done: bool,
    /// Later stages know of it.
    pub announced: bool,
    /// Bytes of calls whose records were lost: in these the answer may have ended, and another one to a request that
    /// was lost as well may have begun.
    lost_bytes: u64,
    /// Content events before the first of them.
    sure_content: usize,
}

impl Open {
    /// An exchange of which nothing is known yet.
    pub(super) fn new(exchange: Exchange, id: ExchangeId) -> Self {
        let exchange = Box::new(exchange);
        Self {
            exchange,
            id,
            api: Api::Http,
            has_head: false,
            request_done: false,
            announced: false,
            lost_bytes: 0,
            sure_content: 0,
        }
    }

    /// Adds a warning.
    pub(super) fn flag(&mut self, flag: Flag) {
        if !self.exchange.flags.contains(&flag) {
            self.exchange.flags.push(flag);
        }
    }

    fn flagged(&self, flag: Flag) -> bool {
        self.exchange.flags.contains(&flag)
    }

    /// The request's head was read.
    pub(super) fn request_head(&mut self, request: head::Request) {
        self.has_head = true;
        self.api = Api::of(&request.method, &request.path);
        let exchange = &mut *self.exchange;
        request.protocol.clone_into(&mut exchange.protocol);
        exchange.probe = api::is_probe(&request.method, &request.path);
        exchange.api = Some(self.api.name().to_owned());
        exchange.method = Some(request.method);
        exchange.path = Some(request.path);
        exchange.request_id = request.headers.request_id;
        exchange.trace_id = request.headers.trace_id;
    }

    /// What the request's body told.
    pub(super) fn request_body(&mut self, body: &Body) {
        let Some(facts) = body.facts() else { return };
        let exchange = &mut *self.exchange;
        exchange.model.clone_from(&facts.model);
        if exchange.streaming.is_none() {
            exchange.streaming = facts.stream;
        }
        exchange.max_tokens = facts.max_tokens;
        exchange.include_usage = facts.include_usage;
    }

    /// The request's last byte was read.
    pub(super) fn request_read(&mut self, at: Stamp, (arrived_ns, source): (u64, Arrival)) {
        self.request_done = true;
        let exchange = &mut *self.exchange;
        let (arrived_ns, source) = match (exchange.arrival, source) {
            // Without the beginning, the end would make a stage that nobody can read.
            (None | Some(Arrival::Read), _) => (at.time_ns, Arrival::Read),
            (Some(_), Arrival::Read) => (at.time_ns, Arrival::Bounded),
            (Some(first), source) => (arrived_ns, first.max(source)),
        };
        exchange.last_byte_in_ns = Some(arrived_ns.max(exchange.first_byte_in_ns.unwrap_or_default()));
        exchange.arrival = Some(source);
        exchange.read_done_ns = Some(at.time_ns);
        exchange.reader_tid = at.tid;
    }

    /// The final response's head was written; its first byte at `begun_ns`.
    pub(super) fn response_head(&mut self, response: &head::Response, begun_ns: Option<u64>) {
        let exchange = &mut *self.exchange;
        exchange.status = Some(response.status);
        exchange.first_byte_out_ns = begun_ns;
        match response.headers.content {
            head::Content::Events | head::Content::JsonLines => exchange.streaming = Some(true),
            head::Content::Other => exchange.streaming = Some(false),
            head::Content::Unknown | head::Content::Opaque => {}
        }
        if exchange.request_id.is_none() {
            exchange.request_id.clone_from(&response.headers.request_id);
        }
    }

    /// A content-bearing event was written.
    pub(super) fn content(&mut self, event: ContentEvent) {
        // The first one that was seen is the first only if nothing before it was missed.
        let first = self.exchange.content_total == 0
            && self.exchange.first_byte_out_ns.is_some()
            && !self.flagged(Flag::Gap);
        let exchange = &mut *self.exchange;
        if first {
            exchange.first_token_ns = Some(event.time_ns);
        }
        exchange.content_total += 1;
        if exchange.content.len() < MAX_CONTENT {
            exchange.content.push(event);
        }
    }

    /// Records of calls that wrote so many bytes of the answer, or of what came after it, were lost.
    pub(super) fn lost_calls(&mut self, len: u64) {
        if self.lost_bytes == 0 {
            self.sure_content = self.exchange.content.len();
        }
        self.lost_bytes += len;
    }

    /// One of them was not lost but late: two threads wrote, and their records came in the other order.
    pub(super) fn late_call(&mut self, len: u64) {
        self.lost_bytes = self.lost_bytes.saturating_sub(len);
    }

    /// What was seen behind lost calls is somebody's, but not surely this one's: times and counts would be invented.
    fn forget_unsure(&mut self) {
        if self.lost_bytes == 0 {
            return;
        }
        let exchange = &mut *self.exchange;
        exchange.content.truncate(self.sure_content);
        exchange.last_byte_out_ns = None;
        exchange.finish_reason = None;
        exchange.input_tokens = None;
        exchange.output_tokens = None;
        if exchange.status.is_none_or(|status| status < 400) {
            exchange.outcome = Some(Outcome::Unknown);
        }
    }

    /// Closes the books. `body` is the response's, as far as it came.
    pub(super) fn finish(mut self, ending: Ending, body: &Body) -> Box<Exchange> {
        if self.api.is_openai() && body.ends_lost() {
            self.flag(Flag::Gap);
        }
        let outcome = self.outcome(ending, body);
        let exchange = &mut *self.exchange;
        exchange.id = Some(self.id);
        exchange.outcome = Some(outcome);
        if let Some(facts) = body.facts() {
            if facts.model.is_some() {
                exchange.model.clone_from(&facts.model);
            }
            exchange.finish_reason.clone_from(&facts.finish_reason);
            exchange.input_tokens = facts.input_tokens;
            exchange.output_tokens = facts.output_tokens;
            exchange.interleaved = facts.interleaved;
        }
        exchange.flags.sort_unstable();
        self.forget_unsure();
        self.exchange
    }

    fn outcome(&self, ending: Ending, body: &Body) -> Outcome {
        match ending {
            // With the end marker out, what happens to the connection is no longer the answer's matter.
            _ if body.done() => self.answered(body),
            Ending::Complete => self.answered(body),
            Ending::ClientGone => Outcome::ClientDisconnect,
            Ending::ServerGone => Outcome::Truncated,
            Ending::OutOfSight => match self.exchange.status {
                Some(status) if status >= 400 => self.answered(body),
                _ if body.facts().is_some_and(|f| f.finish_reason.is_some() || f.error) => {
                    self.answered(body)
                }
                _ => Outcome::Unknown,
            },
        }
    }

    /// Outcome of a whole answer.
    fn answered(&self, body: &Body) -> Outcome {
        match self.exchange.status {
            Some(408 | 504) => Outcome::Timeout,
            Some(400..=499) => Outcome::Client4xx,
            Some(500..) => Outcome::Server5xx,
            Some(200..=299) => self.success(body),
            Some(_) => Outcome::Ok,
            // The agent came in the middle: only the body can tell.
            None if body.done() || body.facts().is_some_and(|f| f.finish_reason.is_some() || f.error) => {
                self.success(body)
            }
            None => Outcome::Unknown,
        }
    }

    /// Outcome of a 2xx answer.
    fn success(&self, body: &Body) -> Outcome {
        let Some(facts) = body.facts() else { return Outcome::Ok };
        let finished = facts.finish_reason.is_some();
        if facts.error {
            return Outcome::InBandError;
        }
        if facts.finish_reason.as_deref() == Some("content_filter") {
            return Outcome::ContentFilter;
        }
        let known = self.exchange.status.is_some() && body.readable();
        if !self.api.is_openai() || !known {
            return Outcome::Ok;
        }
        let gap = self.flagged(Flag::Gap);
        if matches!(body, Body::Events(_)) && !body.done() && !finished {
            return if gap { Outcome::Unknown } else { Outcome::Truncated };
        }
        if facts.any_content || facts.output_tokens.is_some_and(|n| n > 0) && gap {
            return Outcome::Ok;
        }
        match (gap, finished) {
            (false, _) => Outcome::EmptyOutput,
            (true, true) => Outcome::Ok,
            (true, false) => Outcome::Unknown,
        }
    }
}
