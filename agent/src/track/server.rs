//! The server's side of one HTTP/1.1 connection: records of both directions to exchanges.
//!
//! Order. The ring buffer keeps the order in which records were reserved, and a server reads before it answers, so
//! records of the two directions come in causal order. Within a direction only threads that write to one socket
//! at the same time could swap records; an HTTP/1.1 server cannot do that without mixing up its own answers. A
//! record cannot be held back either, since its bytes are masked where they are before it is recorded. So a record
//! from behind counts as late, and the gap it left was handled as one: nothing breaks, the exchange says `gap`.

mod losses;

use wire::socket;

use super::{
    Delivery, Tracked,
    arrival::Arrivals,
    call::{self, Call, side},
    exchanges::{Context, Exchanges, Origin},
    http1::{Direction, Piece, Side, ends_chunked, head},
    mask::mask_all,
    open::Ending,
};
use crate::decode::{Payload, Stamp};

/// One connection that a process accepted.
#[derive(Debug)]
pub(super) struct Server {
    requests: Direction,
    responses: Direction,
    /// Next byte of each direction; `None` before the first.
    expected: [Option<u64>; 2],
    exchanges: Exchanges,
    /// A message was understood.
    proven: bool,
    /// Long calls were asked for.
    wants_whole: bool,
    /// Nothing more can be understood, and why.
    closed: Option<&'static str>,
}

impl Server {
    /// With nothing seen yet.
    pub(super) fn new(origin: Origin) -> Self {
        let lost = !origin.whole;
        Self {
            requests: Direction::new(Side::Request, lost),
            responses: Direction::new(Side::Response, lost),
            expected: [(!lost).then_some(0); 2],
            exchanges: Exchanges::new(origin),
            proven: false,
            wants_whole: false,
            closed: None,
        }
    }

    /// Nothing more can be understood on this connection: why.
    pub(super) fn closed(&self) -> Option<&'static str> {
        self.closed
    }

    /// What it was made with.
    pub(super) fn origin(&self) -> &Origin {
        self.exchanges.origin()
    }

    /// A message was understood.
    pub(super) fn is_proven(&self) -> bool {
        self.proven
    }

    /// Exchanges of this process are open.
    pub(super) fn serves(&self, pid: u32) -> bool {
        self.exchanges.open().iter().any(|open| open.exchange.pid == pid)
    }

    /// Number of the oldest open exchange.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.exchanges.open().front().map(|open| open.id.0)
    }

    /// One call on the socket.
    pub(super) fn data(&mut self, data: &socket::Data, payload: Payload<'_>, cx: &mut Context<'_>) {
        let at = Stamp::from(&data.header);
        match Call::of(data) {
            Call::Moved(len) => self.bytes(side(data), data, len, payload, cx),
            Call::Closed => self.exchanges.client_closed(at.time_ns),
            Call::Nothing => {}
            Call::Refused => self.exchanges.refused(at.time_ns),
            Call::Gone => self.finish(Ending::ClientGone, "after_close", at, cx),
            Call::Failed => cx.health.ignore("socket_error"),
        }
    }

    fn bytes(
        &mut self,
        side: Side,
        data: &socket::Data,
        len: u64,
        payload: Payload<'_>,
        cx: &mut Context<'_>,
    ) {
        let at = Stamp::from(&data.header);
        let Payload { head, tail } = payload;
        let expected = &mut self.expected[usize::from(data.dir)];
        let missing = data.offset.checked_sub(expected.unwrap_or(data.offset));
        let Some(missing) = missing else {
            mask_all(head);
            mask_all(tail);
            cx.health.ignore("socket_data_late");
            if side == Side::Response {
                self.exchanges.late_call(len);
            }
            return;
        };
        *expected = Some(data.offset.saturating_add(len));
        match side {
            Side::Request => self.exchanges.read(at, Arrivals::new(data.network, at.time_ns)),
            Side::Response => {
                let full = call::is_short(data);
                let end = data.offset.saturating_add(len);
                self.exchanges.wrote(at.time_ns, full, end, data.network.last_ns);
            }
        }
        if missing > 0 {
            cx.health.ignore("socket_bytes_missing");
            self.gap(side, missing, true, at, cx);
        }
        if self.direction(side).is_lost() && call::begins(data) {
            self.find(side, head, call::extent(data), tail, at, cx);
        }
        let middle = len.saturating_sub((head.len() + tail.len()) as u64);
        self.feed(side, head, middle == 0 && tail.is_empty() && call::ends(data), at, cx);
        if middle > 0 {
            if side == Side::Request {
                self.exchanges.arrivals().reach(len - tail.len() as u64);
            }
            let was_lost = self.direction(side).is_lost();
            self.gap(side, middle, false, at, cx);
            // A boundary was in it, and it is likely that the next such call has one too.
            let is_lost = !was_lost && self.direction(side).is_lost();
            if is_lost && !std::mem::replace(&mut self.wants_whole, true) {
                cx.out.push(Tracked::WantWhole(self.exchanges.origin().id));
            }
        }
        if !tail.is_empty() {
            self.feed(side, tail, true, at, cx);
        }
    }

    fn direction(&mut self, side: Side) -> &mut Direction {
        match side {
            Side::Request => &mut self.requests,
            Side::Response => &mut self.responses,
        }
    }

    /// Captured bytes in a row; `last` when the call ends with them.
    fn feed(&mut self, side: Side, bytes: &mut [u8], last: bool, at: Stamp, cx: &mut Context<'_>) {
        let mut input = bytes;
        loop {
            let before = input.len();
            let Some(piece) = self.direction(side).next(&mut input) else { break };
            let used = (before - input.len()) as u64;
            match side {
                Side::Request => self.request_piece(piece, used, at, cx),
                Side::Response => self.response_piece(piece, used, at, cx),
            }
        }
        if !input.is_empty() {
            self.lost_bytes(side, input, last, at, cx);
        }
    }

    /// Bytes of which it is not known what they are, unless they end a chunked body.
    fn lost_bytes(&mut self, side: Side, bytes: &mut [u8], last: bool, at: Stamp, cx: &mut Context<'_>) {
        let in_message = match side {
            Side::Request => self.exchanges.reading(),
            Side::Response => self.exchanges.answering(),
        };
        let end = if last && in_message && self.closed.is_none() { ends_chunked(bytes) } else { 0 };
        // The line end before the last chunk is what tells it.
        let keep = if end > 0 { (end + 2).min(bytes.len()) } else { 0 };
        let (bytes, kept) = bytes.split_at_mut(bytes.len() - keep);
        match side {
            _ if self.closed.is_some() => mask_all(bytes),
            // The body may still tell something: neither JSON nor events need framing to be found again.
            Side::Request if in_message => {
                self.exchanges.request_body().feed(bytes);
            }
            Side::Response if in_message => self.exchanges.response_body(bytes, at, cx),
            _ => mask_all(bytes),
        }
        self.unknown(side, (bytes.len() + kept.len()) as u64, at, cx);
        if end > 0 {
            self.direction(side).body(None);
            self.end(side, at, cx);
        }
    }

    fn unknown(&mut self, side: Side, len: u64, at: Stamp, cx: &mut Context<'_>) {
        match side {
            _ if self.closed.is_some() => {}
            Side::Request => self.exchanges.request_bytes(len),
            Side::Response => self.exchanges.response_unknown(len, at, cx),
        }
    }

    fn end(&mut self, side: Side, at: Stamp, cx: &mut Context<'_>) {
        match side {
            Side::Request => self.exchanges.request_end(at, cx),
            Side::Response => self.exchanges.response_end(at, cx),
        }
    }

    fn request_piece(&mut self, piece: Piece<'_>, used: u64, at: Stamp, cx: &mut Context<'_>) {
        self.exchanges.arrivals().advance(used);
        self.exchanges.request_bytes(used);
        match piece {
            Piece::Begin => {
                if self.responses.is_lost() && self.proven {
                    self.exchanges.finish_all(Ending::OutOfSight, at, cx);
                }
                if !self.exchanges.request_begin(at, cx) {
                    self.finish(Ending::OutOfSight, "pipeline_full", at, cx);
                }
            }
            Piece::Head => match head::request(self.requests.head()) {
                Some(request) => {
                    self.proven = true;
                    self.requests
                        .body(Some(request.headers.framing.unwrap_or(super::http1::Framing::Length(0))));
                    self.exchanges.request_head(request);
                }
                None => self.request_garbage(at, cx),
            },
            Piece::Body(bytes) => {
                self.exchanges.request_body().feed(bytes);
            }
            Piece::End => self.exchanges.request_end(at, cx),
            Piece::Garbage => self.request_garbage(at, cx),
            Piece::Frame => {}
        }
    }

    fn request_garbage(&mut self, at: Stamp, cx: &mut Context<'_>) {
        self.requests.lose();
        self.exchanges.request_garbage(cx);
        if !self.proven {
            self.finish(Ending::OutOfSight, "not_http1", at, cx);
        }
    }

    fn response_piece(&mut self, piece: Piece<'_>, used: u64, at: Stamp, cx: &mut Context<'_>) {
        self.exchanges.response_bytes(used, at);
        match piece {
            Piece::Begin => self.exchanges.response_begin(at),
            Piece::Head => self.response_head(at, cx),
            Piece::Body(bytes) => self.exchanges.response_body(bytes, at, cx),
            Piece::End => self.exchanges.response_end(at, cx),
            Piece::Garbage => self.response_garbage(at, cx),
            Piece::Frame => {}
        }
    }

    fn response_head(&mut self, at: Stamp, cx: &mut Context<'_>) {
        let Some(response) = head::response(self.responses.head()) else {
            return self.response_garbage(at, cx);
        };
        self.proven = true;
        if response.status < 200 && response.status != 101 {
            self.responses.body(None);
            return self.exchanges.interim();
        }
        let request_lost = self.requests.is_lost();
        let framing = self.exchanges.response_head(&response, at, request_lost, cx);
        self.responses.body(Some(framing));
        let connect =
            self.exchanges.open().front().is_some_and(|o| o.exchange.method.as_deref() == Some("CONNECT"));
        if response.status == 101 || (connect && response.status < 300) {
            self.exchanges.response_end(at, cx);
            self.finish(Ending::OutOfSight, "upgraded", at, cx);
        }
    }

    fn response_garbage(&mut self, at: Stamp, cx: &mut Context<'_>) {
        self.responses.lose();
        self.exchanges.responses_lost();
        cx.health.ignore("bad_response");
        if !self.proven {
            self.finish(Ending::OutOfSight, "not_http1", at, cx);
        }
    }

    /// The client has acknowledged what was written.
    pub(super) fn ack(&mut self, ack: &socket::Ack, cx: &mut Context<'_>) {
        let delivery = Delivery {
            acked_ns: ack.header.time_ns,
            srtt_us: (ack.srtt_us > 0).then_some(ack.srtt_us),
            retransmits: Some(ack.retransmits),
        };
        self.exchanges.acked(ack.offset, delivery, cx);
    }

    /// The connection is out of sight: no acknowledgement will come.
    pub(super) fn give_up_deliveries(&mut self, cx: &mut Context<'_>) {
        self.exchanges.give_up_deliveries(cx);
    }

    /// The connection went to another state.
    pub(super) fn state(&mut self, state: &socket::State, local: bool, cx: &mut Context<'_>) {
        let at = Stamp::from(&state.header);
        match (state.old, state.new) {
            (_, socket::tcp::CLOSE_WAIT) => self.exchanges.client_closed(at.time_ns),
            // From there to the end means that the client had closed, though it may not have been said: it is only
            // said of connections from which something was read.
            (socket::tcp::CLOSE_WAIT, socket::tcp::CLOSE) => {
                self.exchanges.client_closed(at.time_ns);
                self.server_closed(at, cx);
            }
            (socket::tcp::ESTABLISHED, socket::tcp::CLOSE) if !local => {
                self.finish(Ending::ClientGone, "after_close", at, cx);
            }
            (_, socket::tcp::FIN_WAIT1 | socket::tcp::CLOSE) => self.server_closed(at, cx),
            _ => {}
        }
    }

    /// The server closed: an answer that ends with the connection is complete, any other is not.
    fn server_closed(&mut self, at: Stamp, cx: &mut Context<'_>) {
        if self.responses.until_close() {
            self.exchanges.response_end(at, cx);
        }
        self.finish(Ending::ServerGone, "after_close", at, cx);
    }

    /// Ends what is open; whatever comes after is of no use.
    pub(super) fn finish(&mut self, ending: Ending, why: &'static str, at: Stamp, cx: &mut Context<'_>) {
        self.exchanges.finish_all(ending, at, cx);
        self.requests.lose();
        self.responses.lose();
        self.closed.get_or_insert(why);
    }
}
