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
    Tracked,
    arrival::Arrivals,
    call::{self, Call, side},
    delivery::Deliveries,
    exchanges::{Context, Exchanges, Origin},
    http1::{Direction, Found, Gap, Piece, Side, ends_chunked, head, head::Upgrade},
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
    deliveries: Deliveries,
    /// A message was understood.
    proven: bool,
    /// The connection becomes one of HTTP/2; with the bytes of the call that were still HTTP/1, once that is known.
    switching: bool,
    switched: Option<usize>,
    /// Long calls were asked for.
    wants_whole: bool,
    /// Bytes of heads, as far as they are in the account of all connections.
    counted: usize,
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
            deliveries: Deliveries::default(),
            proven: false,
            switching: false,
            switched: None,
            wants_whole: false,
            counted: 0,
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
        self.exchanges.serves(pid)
    }

    /// Number of the oldest open exchange.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.exchanges.tunnel_id().or_else(|| self.exchanges.open().front().map(|open| open.id.0))
    }

    /// One call on the socket.
    pub(super) fn data(&mut self, data: &socket::Data, payload: Payload<'_>, cx: &mut Context<'_>) {
        let at = Stamp::from(&data.header);
        match Call::of(data) {
            Call::Moved(len) => self.bytes(side(data), data, len, payload, cx),
            Call::Closed => self.exchanges.client_closed(at.time_ns),
            Call::Unseen => self.went_unseen(data, cx),
            Call::Nothing => {}
            Call::Refused => self.exchanges.refused(at.time_ns),
            Call::Gone => self.finish(Ending::ClientGone, "after_close", at, cx),
            Call::Failed => cx.health.ignore("socket_error"),
        }
        self.recount(cx);
    }

    fn recount(&mut self, cx: &mut Context<'_>) {
        cx.held.recount(&mut self.counted, self.requests.held() + self.responses.held());
    }

    /// No head is read here any more.
    pub(super) fn forget_heads(&mut self, cx: &mut Context<'_>) {
        cx.held.recount(&mut self.counted, 0);
    }

    /// Bytes held for what the peer has sent.
    pub(super) fn held(&self) -> usize {
        self.counted + self.exchanges.held()
    }

    /// Memory is short: a head that is not complete counts as lost, and see [`Exchanges::give_up`].
    pub(super) fn give_up(&mut self, at: Stamp, cx: &mut Context<'_>) {
        if !self.requests.head().is_empty() {
            self.request_lost(0, at, cx);
        }
        if !self.responses.head().is_empty() {
            self.response_lost(0, false, at, cx);
        }
        self.exchanges.give_up(at, cx);
        self.recount(cx);
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
        if self.exchanges.is_tunnel() {
            mask_all(head);
            mask_all(tail);
            self.exchanges.through_tunnel(side, missing.saturating_add(len));
            return cx.health.ignore("upgraded");
        }
        self.account(side, data, len, at);
        if missing > 0 {
            cx.health.ignore("socket_bytes_missing");
            self.gap(side, missing, true, at, cx);
        }
        if self.direction(side).is_lost() && call::begins(data) {
            self.find(side, head, call::extent(data), tail, at, cx);
        }
        let captured = head.len();
        let middle = len.saturating_sub((captured + tail.len()) as u64);
        let last = middle == 0 && tail.is_empty() && call::ends(data);
        let left = self.feed(side, head, last, at, cx);
        if self.switching {
            self.switched = Some(captured - left);
            return;
        }
        if middle > 0 && self.exchanges.is_tunnel() {
            self.exchanges.through_tunnel(side, middle);
        } else if middle > 0 {
            if side == Side::Request {
                self.exchanges.arrivals().reach(len - tail.len() as u64);
            }
            self.left_out(side, middle, at, cx);
        }
        if !tail.is_empty() {
            self.feed(side, tail, true, at, cx);
        }
        if self.switching {
            // The head that says so lies around a gap.
            self.finish(Ending::OutOfSight, "upgraded", at, cx);
        }
    }

    /// The connection has become one of HTTP/2 behind so many bytes of this call.
    pub(super) fn switched(&self) -> Option<usize> {
        self.switched
    }

    /// Its exchange, which is answered on stream 1, the next byte of the requests, and the answers on their way.
    pub(super) fn hand_over(self) -> (Exchanges, Option<u64>, Deliveries) {
        (self.exchanges, self.expected[usize::from(socket::DIR_RECV)], self.deliveries)
    }

    /// Notes when the bytes of a call went.
    fn account(&mut self, side: Side, data: &socket::Data, len: u64, at: Stamp) {
        match side {
            Side::Request => self.exchanges.read(at, Arrivals::new(data.network, at.time_ns)),
            Side::Response => {
                self.deliveries.wrote(data.offset.saturating_add(len), &data.network);
                self.exchanges.wrote(at.time_ns, call::is_short(data));
            }
        }
    }

    fn direction(&mut self, side: Side) -> &mut Direction {
        match side {
            Side::Request => &mut self.requests,
            Side::Response => &mut self.responses,
        }
    }

    /// Captured bytes in a row; `last` when the call ends with them. How many are left, which are not HTTP/1 any more.
    fn feed(&mut self, side: Side, bytes: &mut [u8], last: bool, at: Stamp, cx: &mut Context<'_>) -> usize {
        let mut input = bytes;
        loop {
            let before = input.len();
            let Some(piece) = self.direction(side).next(&mut input) else { break };
            let used = (before - input.len()) as u64;
            match side {
                Side::Request => self.request_piece(piece, used, at, cx),
                Side::Response => self.response_piece(piece, used, at, cx),
            }
            if self.switching {
                return input.len();
            }
        }
        if !input.is_empty() {
            self.lost_bytes(side, input, last, at, cx);
        }
        0
    }

    fn end(&mut self, side: Side, at: Stamp, cx: &mut Context<'_>) {
        match side {
            Side::Request => self.exchanges.request_end(at, cx),
            Side::Response => self.exchanges.response_end(at, &mut self.deliveries, cx),
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
                    self.exchanges.request_head(request, at, cx);
                }
                None => self.request_garbage(at, cx),
            },
            Piece::Body(bytes, last) => {
                self.exchanges.request_body().feed(bytes, last);
            }
            Piece::End => {
                // The next body of this client is likely to have it in the same place.
                if self.exchanges.misses_model() {
                    self.want_whole(cx);
                }
                self.exchanges.request_end(at, cx);
            }
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
            Piece::Body(bytes, last) => self.exchanges.response_body(bytes, last, at, cx),
            Piece::End => self.exchanges.response_end(at, &mut self.deliveries, cx),
            Piece::Garbage => self.response_garbage(at, cx),
            Piece::Frame => {}
        }
    }

    fn response_head(&mut self, at: Stamp, cx: &mut Context<'_>) {
        let Some(response) = head::response(self.responses.head()) else {
            return self.response_garbage(at, cx);
        };
        self.proven = true;
        let one_open = !self.exchanges.reading() && self.exchanges.open().len() == 1;
        self.switching = response.status == 101 && response.headers.upgrade == Some(Upgrade::H2c) && one_open;
        if self.switching || response.status < 200 && response.status != 101 {
            self.responses.body(None);
            return self.exchanges.interim();
        }
        let request_lost = self.requests.is_lost();
        let framing = self.exchanges.response_head(&response, at, request_lost, cx);
        self.responses.body(Some(framing));
        let connect =
            self.exchanges.open().front().is_some_and(|o| o.exchange.method.as_deref() == Some("CONNECT"));
        if response.status == 101 || (connect && response.status < 300) {
            self.leave_http(at, cx);
        }
    }

    /// The first exchange's answer is the last of HTTP on this connection.
    fn leave_http(&mut self, at: Stamp, cx: &mut Context<'_>) {
        let is_told = self.exchanges.become_tunnel(cx);
        self.requests.lose();
        self.responses.lose();
        if !is_told {
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
        self.deliveries.acked(ack, cx.out);
        self.exchanges.acked(ack.offset, &mut self.deliveries, cx);
    }

    /// The connection is out of sight: no acknowledgement will come.
    pub(super) fn give_up_deliveries(&mut self, cx: &mut Context<'_>) {
        self.deliveries.give_up(cx.out);
    }

    /// The connection went to another state.
    pub(super) fn state(&mut self, state: &socket::State, local: bool, cx: &mut Context<'_>) {
        let at = Stamp::from(&state.header);
        match (state.old, state.new) {
            (_, socket::tcp::CLOSE_WAIT) => self.exchanges.client_closed(at.time_ns),
            // A reset by the client. What had arrived may still be read, and is told as well.
            (socket::tcp::ESTABLISHED | socket::tcp::CLOSE_WAIT, socket::tcp::CLOSE) if !local => {
                self.exchanges.client_closed(at.time_ns);
                self.exchanges.finish_all(Ending::ClientGone, at, cx);
            }
            // From there to the end means that the client had closed, though it may not have been said: it is only
            // said of connections from which something was read.
            (socket::tcp::CLOSE_WAIT, socket::tcp::CLOSE) => {
                self.exchanges.client_closed(at.time_ns);
                self.server_closed(at, cx);
            }
            // Nothing more is read of what had arrived before the reset.
            (socket::tcp::CLOSE, socket::tcp::CLOSE) => {
                self.finish(Ending::ClientGone, "after_close", at, cx);
            }
            (_, socket::tcp::FIN_WAIT1 | socket::tcp::CLOSE) => self.server_closed(at, cx),
            _ => {}
        }
    }

    /// The server closed: an answer that ends with the connection is complete, any other is not.
    fn server_closed(&mut self, at: Stamp, cx: &mut Context<'_>) {
        self.end_with_connection(at, cx);
        self.finish(Ending::ServerGone, "after_close", at, cx);
    }

    /// An answer that ends with the connection is complete.
    pub(super) fn end_with_connection(&mut self, at: Stamp, cx: &mut Context<'_>) {
        if self.responses.until_close() {
            self.exchanges.response_end(at, &mut self.deliveries, cx);
        }
    }

    /// Ends what is open; whatever comes after is of no use.
    pub(super) fn finish(&mut self, ending: Ending, why: &'static str, at: Stamp, cx: &mut Context<'_>) {
        self.exchanges.finish_all(ending, at, cx);
        self.requests.lose();
        self.responses.lose();
        self.closed.get_or_insert(why);
        self.recount(cx);
    }
}
