//! One exchange that is not over, and how it ends.

mod outcome;

use super::{
    ContentEvent, Exchange, ExchangeId, MAX_CONTENT,
    api::{self, Api},
    body::Body,
    http1::{Side, head},
    json::{Facts, Grammar},
    memory,
};
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
    /// The response's last byte was written, but its client had ended its side by then, and nothing tells whether it
    /// still read.
    Unread,
    /// It went out of sight.
    OutOfSight,
}

/// What is known of a gRPC call's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grpc {
    /// It is no gRPC call.
    No,
    /// The call ended without one, so far.
    Missing,
    /// The trailers were there, but not all of what they say is known.
    Unknown,
    Status(u32),
}

/// Whether an answer may turn out to be a single message, which is no event.
#[derive(Clone, Copy, Debug)]
enum Single {
    No,
    /// It may; the first message is held back.
    Maybe(Option<ContentEvent>),
}

/// An exchange that is not over.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not a state in disguise")]
pub(super) struct Open {
    pub exchange: Box<Exchange>,
    pub id: ExchangeId,
    api: &'static Api,
    /// Its request's head was understood.
    pub has_head: bool,
    /// Its request was read to the end.
    pub request_done: bool,
    /// Later stages know of it.
    pub announced: bool,
    single: Single,
    grpc: Grpc,
    /// Bytes of calls whose records were lost: in these the answer may have ended, and another one to a request that
    /// was lost as well may have begun.
    lost_bytes: u64,
    /// Content events before the first of them.
    sure_content: usize,
    /// So many times of its content are kept.
    most_content: usize,
    /// Content may be missing before the first that is seen.
    first_unsure: bool,
    /// The first content event lies around bytes that were left out of a call that ended then: it is known only if the
    /// event was over with that call.
    spans_ns: Option<u64>,
    /// The request was read, and has no largest length of the answer.
    names_no_limit: bool,
}

impl Open {
    /// An exchange of which nothing is known yet.
    pub(super) fn new(exchange: Exchange, id: ExchangeId) -> Self {
        let exchange = Box::new(exchange);
        Self {
            exchange,
            id,
            api: Api::other(),
            has_head: false,
            request_done: false,
            announced: false,
            single: Single::No,
            grpc: Grpc::No,
            lost_bytes: 0,
            sure_content: 0,
            most_content: MAX_CONTENT,
            first_unsure: false,
            spans_ns: None,
            names_no_limit: false,
        }
    }

    /// Adds a warning.
    pub(super) fn flag(&mut self, flag: Flag) {
        self.first_unsure |= flag == Flag::Gap;
        self.warn(flag);
    }

    /// Bytes of its events are missing: of calls of which nothing is known, or left out of one that ended `at`.
    /// `in_content`: the event around them has new content. Whatever else is missing comes behind it.
    pub(super) fn miss_events(&mut self, at: Option<Stamp>, in_content: bool) {
        let within = at.filter(|_| in_content).map(|at| at.time_ns);
        if self.exchange.content_total == 0 {
            let is_same = self.spans_ns.is_none() || self.spans_ns == within;
            self.first_unsure |= within.is_none() || !is_same;
            self.spans_ns = within;
        }
        (self.exchange.content_missed, self.exchange.end_missed) = (true, true);
        self.warn(Flag::Gap);
    }

    fn warn(&mut self, flag: Flag) {
        if !self.exchange.flags.contains(&flag) {
            self.exchange.flags.push(flag);
        }
    }

    fn flagged(&self, flag: Flag) -> bool {
        self.exchange.flags.contains(&flag)
    }

    /// What can be read in its bodies.
    pub(super) fn grammar(&self) -> Grammar {
        self.api.grammar
    }

    /// The request's head was read; the reader of its body.
    pub(super) fn request_head(&mut self, request: head::Request) -> Body {
        self.has_head = true;
        let exchange = &mut *self.exchange;
        request.protocol.clone_into(&mut exchange.protocol);
        exchange.method.clone_from(&request.method);
        let grammar = match request.path {
            Some(path) => self.request_line(request.method.unwrap_or_default(), path),
            None => self.api.grammar,
        };
        let body = Body::new(&request.headers, grammar.request(), Side::Request);
        if request.headers.content == head::Content::Opaque {
            self.flag(Flag::Opaque);
        }
        let exchange = &mut *self.exchange;
        exchange.request_id = request.headers.request_id;
        exchange.trace_id = request.headers.trace_id;
        exchange.timeout_ns = request.headers.timeout_ns;
        body
    }

    /// What method and path tell; what can be read in the bodies.
    pub(super) fn request_line(&mut self, method: String, path: String) -> Grammar {
        let (api, target) = Api::of(&method, &path);
        self.api = api;
        let exchange = &mut *self.exchange;
        exchange.probe = api::is_probe(&method, &path);
        exchange.api = Some(api.name.to_owned());
        exchange.model = target.model;
        exchange.model_version = target.version;
        exchange.method = Some(method);
        exchange.path = Some(path);
        api.grammar
    }

    /// What the request's body told.
    pub(super) fn request_body(&mut self, body: &Body) {
        let Some(facts) = body.facts() else { return };
        self.resolve(facts);
        let exchange = &mut *self.exchange;
        if facts.model.is_some() {
            exchange.model.clone_from(&facts.model);
        }
        if exchange.streaming.is_none() {
            exchange.streaming = if body.whole() { self.api.streams(facts.stream) } else { facts.stream };
        }
        exchange.max_tokens = facts.max_tokens;
        self.names_no_limit = body.whole() && facts.max_tokens.is_none();
        exchange.include_usage = facts.include_usage;
    }

    /// Members of a body may tell whose path it is.
    fn resolve(&mut self, facts: &Facts) {
        let api = self.api.resolved(facts.engine);
        if api.name != self.api.name {
            self.exchange.api = Some(api.name.to_owned());
        }
        self.api = api;
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

    /// The final response's head was written; its first byte at `begun_ns`. The reader of its body.
    pub(super) fn response_head(&mut self, response: &head::Response, begun_ns: Option<u64>) -> Body {
        let exchange = &mut *self.exchange;
        exchange.status = Some(response.status);
        exchange.first_byte_out_ns = begun_ns;
        if response.status == 101 && response.headers.upgrade == Some(head::Upgrade::WebSocket) {
            "WebSocket".clone_into(&mut exchange.protocol);
        }
        match response.headers.content {
            head::Content::Events | head::Content::JsonLines => exchange.streaming = Some(true),
            head::Content::Other => exchange.streaming = Some(false),
            head::Content::Grpc(method) => {
                exchange.streaming = method.streams();
                self.single = if exchange.streaming == Some(true) { Single::No } else { Single::Maybe(None) };
                self.grpc = Grpc::Missing;
            }
            head::Content::Opaque => self.flag(Flag::Opaque),
            head::Content::Unknown => {}
        }
        let exchange = &mut *self.exchange;
        if exchange.request_id.is_none() {
            exchange.request_id.clone_from(&response.headers.request_id);
        }
        Body::new(&response.headers, self.api.grammar.answer(), Side::Response)
    }

    /// The last headers of a gRPC call were written; `None` when they were not all understood.
    pub(super) fn grpc_status(&mut self, status: Option<u32>) {
        if self.grpc != Grpc::No {
            self.grpc = status.map_or(Grpc::Unknown, Grpc::Status);
        }
    }

    /// An event was written: the events that now count, in order.
    pub(super) fn release(&mut self, event: ContentEvent) -> [Option<ContentEvent>; 2] {
        match self.single {
            Single::No => [None, Some(event)],
            Single::Maybe(None) => {
                self.single = Single::Maybe(Some(event));
                [None; 2]
            }
            Single::Maybe(held) => {
                self.single = Single::No;
                self.exchange.streaming = Some(true);
                [held, Some(event)]
            }
        }
    }

    /// A content-bearing event was written; true when its time is kept.
    pub(super) fn content(&mut self, event: ContentEvent) -> bool {
        // The first one that was seen is the first only if nothing before it was missed.
        let first = self.exchange.content_total == 0
            && self.exchange.first_byte_out_ns.is_some()
            && !self.first_unsure
            && self.spans_ns.is_none_or(|call| call == event.time_ns);
        let exchange = &mut *self.exchange;
        if first {
            exchange.first_token_ns = Some(event.time_ns);
        }
        exchange.content_total += 1;
        exchange.end_missed = false;
        let kept = exchange.content.len() < self.most_content;
        if kept {
            exchange.content.push(event);
        }
        kept
    }

    /// Bytes it holds.
    pub(super) fn held(&self) -> usize {
        memory::EXCHANGE + self.exchange.content.len() * memory::EVENT
    }

    /// Memory is short: the times of its content are not kept, those to come neither.
    pub(super) fn forget_content(&mut self) {
        self.most_content = 0;
        self.exchange.content = Vec::new();
        self.sure_content = 0;
    }

    /// Records of calls that wrote so many bytes of the answer, or of what came after it, were lost.
    pub(super) fn lost_calls(&mut self, len: u64) {
        if self.lost_bytes == 0 {
            self.sure_content = self.exchange.content.len();
        }
        self.lost_bytes = self.lost_bytes.saturating_add(len);
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
        (exchange.content_missed, exchange.end_missed) = (true, true);
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
        if let Some(facts) = body.facts() {
            self.resolve(facts);
            self.answer_told(facts);
        }
        if self.api.generates && body.ends_lost() {
            self.flag(Flag::Gap);
        }
        let outcome = self.outcome(ending, body);
        let exchange = &mut *self.exchange;
        exchange.id = Some(self.id);
        exchange.outcome = Some(outcome);
        if matches!(self.single, Single::Maybe(Some(_))) {
            exchange.streaming = Some(false);
        }
        exchange.flags.sort_unstable();
        self.forget_unsure();
        self.exchange
    }

    /// What the answer's body told.
    fn answer_told(&mut self, facts: &Facts) {
        let exchange = &mut *self.exchange;
        if facts.model.is_some() {
            exchange.model.clone_from(&facts.model);
        }
        if facts.version.is_some() {
            exchange.model_version.clone_from(&facts.version);
        }
        exchange.finish_reason = facts.finish_reason().map(str::to_owned);
        exchange.input_tokens = facts.input_tokens();
        exchange.output_tokens = facts.output_tokens();
        exchange.tokens_source = facts.tokens_source();
        exchange.interleaved = facts.interleaved;
        let (doubts, ends_in_doubt) = facts.doubts();
        exchange.content_missed |= doubts;
        exchange.end_missed |= ends_in_doubt;
    }
}
