//! The server's side of one HTTP/2 connection: records of both directions to exchanges, one per stream.
//!
//! | module | knows |
//! |---|---|
//! | [`frame`], [`find`] | frames, over any pieces and gaps; where they begin when that is not known |
//! | [`hpack`], [`huffman`], [`table`] | header blocks, masked as they pass |
//! | [`fields`] | which headers matter, and what they say |
//! | [`half`], [`losses`] | one direction; what a loss does to it |
//! | [`streams`] | exchanges |
//! | [`control`] | resets, settings, and what else is not of a message |
//! | [`windows`] | flow control, and who waits for it |
//!
//! What a loss does: inside a frame, only its own stream notices. Beyond its end, everything in that direction may
//! have been in it: open exchanges are flagged, and unless it is clear that no headers were among it, their table begins
//! empty again, so that later requests may lack a path. It is clear when the next request has the next number, and
//! when no answer was open whose headers or gRPC status were still to come. After any loss the windows of flow control are
//! not known any more.

mod control;
mod ends;
mod fields;
mod find;
mod frame;
mod half;
mod hpack;
mod huffman;
mod losses;
mod streams;
mod table;
mod windows;

use wire::socket;

use super::{
    arrival::Arrivals,
    call::{self, Call, side},
    exchanges::{Context, Origin},
    http1::Side,
    mask::{self, mask_all},
    open::Ending,
    server::Server,
};
use crate::decode::{Payload, Stamp};
pub(super) use find::begins;
use frame::{END_HEADERS, END_STREAM, Frames, HEADER, Header, Kind, PREFACE, Piece};
use half::{Half, Pending};
use streams::{Octets, Streams};

/// As in records.
pub(super) const PROTOCOL: &str = "HTTP/2";
/// The first bytes of a connection, as far as they are there, are a client's preface.
pub(super) fn begins_preface(bytes: &[u8]) -> bool {
    let len = bytes.len().min(PREFACE.len());
    bytes[..len] == PREFACE[..len]
}

/// The bytes of a call of `total` bytes are frames, of this side.
pub(super) fn is_frames(side: Side, bytes: &[u8], total: u64) -> bool {
    begins_message(side, bytes, frame::FOUND_MAX) || find::chain(bytes, total, frame::FOUND_MAX, |_| false)
}

fn begins_message(side: Side, bytes: &[u8], max: u32) -> bool {
    find::begins_within(bytes, max).is_some_and(|proof| proof.request == (side == Side::Request))
}

/// One connection that a process accepted.
#[derive(Debug)]
pub(super) struct Http2 {
    halves: [Half; 2],
    streams: Streams,
    /// Arrival of the request's frame that is being looked at.
    begun: Arrivals,
    /// A frame was understood.
    proven: bool,
    /// Bytes of header tables, as far as they are in the account of all connections.
    counted: usize,
    /// Nothing more can be understood, and why.
    closed: Option<&'static str>,
}

impl Http2 {
    /// With nothing seen yet.
    pub(super) fn new(origin: Origin) -> Self {
        let origin = Origin { protocol: PROTOCOL, ..origin };
        let frames = |preface| if origin.whole { Frames::new(preface) } else { Frames::lost() };
        let expected = origin.whole.then_some(0);
        Self {
            halves: [Half::new(frames(true), expected), Half::new(frames(false), expected)],
            streams: Streams::new(origin),
            begun: Arrivals::default(),
            proven: false,
            counted: 0,
            closed: None,
        }
    }

    /// Behind a request over HTTP/1 that asked for it: the answer comes on stream 1, and the server's frames begin at
    /// byte `offset`.
    pub(super) fn upgraded(server: Server, offset: u64, cx: &mut Context<'_>) -> Self {
        let origin = server.origin().clone();
        let (mut exchanges, requests, deliveries) = server.hand_over();
        exchanges.speak(PROTOCOL, cx);
        let mut http2 = Self::new(Origin { whole: true, ..origin });
        let [ours, theirs] = &mut http2.halves;
        (ours.expected, theirs.expected) = (requests, Some(offset));
        // The client's settings stand in a header that is not kept.
        theirs.frames.max = frame::FOUND_MAX;
        http2.streams.windows_unknown();
        http2.streams.adopt(exchanges);
        http2.streams.deliveries = deliveries;
        http2.proven = true;
        http2
    }

    /// Nothing more can be understood on this connection: why.
    pub(super) fn closed(&self) -> Option<&'static str> {
        self.closed
    }

    /// Exchanges of this process are open.
    pub(super) fn serves(&self, pid: u32) -> bool {
        self.streams.serves(pid)
    }

    /// Number of the oldest open exchange.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.streams.oldest()
    }

    fn half(&mut self, side: Side) -> &mut Half {
        match side {
            Side::Request => &mut self.halves[0],
            Side::Response => &mut self.halves[1],
        }
    }

    /// One call on the socket.
    pub(super) fn data(&mut self, data: &socket::Data, payload: Payload<'_>, cx: &mut Context<'_>) {
        let at = Stamp::from(&data.header);
        match Call::of(data) {
            Call::Moved(len) => self.bytes(side(data), data, len, payload, cx),
            Call::Closed => self.streams.client_closed(at.time_ns),
            // The next call shows it as well.
            Call::Unseen | Call::Nothing => {}
            Call::Refused => self.streams.refused(at.time_ns),
            Call::Gone => self.finish(Ending::ClientGone, "after_close", at, cx),
            Call::Failed => cx.health.ignore("socket_error"),
        }
        self.recount(cx);
    }

    fn recount(&mut self, cx: &mut Context<'_>) {
        cx.held.recount(&mut self.counted, self.halves.iter().map(|half| half.headers.held()).sum());
    }

    /// Bytes held for what the peer has sent.
    pub(super) fn held(&self) -> usize {
        self.counted + self.streams.held()
    }

    /// Memory is short: header tables begin again, and see [`Streams::give_up`].
    pub(super) fn give_up(&mut self, at: Stamp, cx: &mut Context<'_>) {
        self.halves.iter_mut().for_each(Half::lose_headers);
        self.streams.give_up(at, cx);
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
        let half = self.half(side);
        let missing = data.offset.checked_sub(half.expected.unwrap_or(data.offset));
        let Some(missing) = missing.filter(|_| self.closed.is_none()) else {
            mask_all(head);
            mask_all(tail);
            cx.health.ignore(self.closed.unwrap_or("socket_data_late"));
            return;
        };
        let half = self.half(side);
        half.expected = Some(data.offset.saturating_add(len));
        if call::begins(data) {
            half.inside = None;
        }
        match side {
            Side::Request => self.streams.arrivals = Arrivals::new(data.network, at.time_ns),
            Side::Response => {
                self.streams.wrote(at.time_ns, call::is_short(data));
                self.streams.deliveries.wrote(data.offset.saturating_add(len), &data.network);
                self.streams.deliveries.reach(data.offset);
            }
        }
        if missing > 0 {
            cx.health.ignore("socket_bytes_missing");
            self.gap(side, missing, true, at, cx);
            self.half(side).inside = None;
        }
        if call::begins(data) {
            self.find(side, head, call::extent(data), data.offset == 0);
        }
        let head_len = head.len();
        self.feed(side, head, false, at, cx);
        let behind = len.saturating_sub(tail.len() as u64);
        let middle = behind.saturating_sub(head_len as u64);
        self.looked_at(side, behind, data);
        if middle > 0 {
            self.gap(side, middle, false, at, cx);
        }
        self.find_in_tail(side, tail, at, cx);
    }

    /// So many bytes of a call have been looked at.
    fn looked_at(&mut self, side: Side, position: u64, data: &socket::Data) {
        match side {
            Side::Request => self.streams.arrivals.reach(position),
            Side::Response => self.streams.deliveries.reach(data.offset.saturating_add(position)),
        }
    }

    /// So many more.
    fn look_on(&mut self, side: Side, len: usize) {
        match side {
            Side::Request => self.streams.arrivals.advance(len as u64),
            Side::Response => self.streams.deliveries.advance(len as u64),
        }
    }

    /// Captured bytes in a row, of the tail or of the head of a call.
    fn feed(&mut self, side: Side, bytes: &mut [u8], tail: bool, at: Stamp, cx: &mut Context<'_>) {
        let mut input = bytes;
        loop {
            let half = self.half(side);
            if half.frames.is_between() && !input.is_empty() {
                half.begun_ns = at.time_ns;
                if side == Side::Request {
                    self.begun = self.streams.arrivals;
                }
            }
            let before = input.len();
            let Some(piece) = self.half(side).frames.next(&mut input) else { break };
            self.look_on(side, before - input.len());
            self.piece(side, piece, false, at, cx);
        }
        self.look_on(side, input.len());
        let inside = self.half(side).inside;
        match inside {
            // Most likely still the same body, and what is looked for in it proves itself.
            Some(id) if tail && self.streams.contains(id) => {
                self.streams.data(side, id, Octets { bytes: input, fresh: false, last: false }, at, cx);
            }
            _ => mask_all(input),
        }
    }

    fn piece(&mut self, side: Side, piece: Piece<'_>, unseen: bool, at: Stamp, cx: &mut Context<'_>) {
        match piece {
            Piece::Begin(frame) => self.begin(side, frame, at, cx),
            Piece::Value(frame, value) => self.value(side, frame, value, at, cx),
            Piece::Content(frame, bytes, last) => self.content(side, frame, bytes, last, at, cx),
            Piece::End(frame) => self.end(side, frame, unseen, at, cx),
            Piece::Garbage => self.garbage(side, at, cx),
            Piece::Frame => {}
        }
    }

    fn begin(&mut self, side: Side, frame: Header, at: Stamp, cx: &mut Context<'_>) {
        self.proven = true;
        self.check_numbers(side, frame);
        let half = self.half(side);
        half.counted = 0;
        let begun_ns = half.begun_ns;
        let continued = frame.kind == Kind::Continuation;
        let fits = half.block.is_some_and(|block| block.stream.is_none_or(|id| id == frame.stream));
        if half.block.is_some() != continued || (continued && !fits) {
            half.lose_headers();
        }
        let end = frame.has(END_STREAM);
        match frame.kind {
            Kind::Headers => {
                half.block = Some(Pending { stream: Some(frame.stream), end, begun_ns });
                if side == Side::Request {
                    let read = Stamp { time_ns: begun_ns, ..at };
                    self.streams.request_begin(frame.stream, read, self.begun, cx);
                }
            }
            Kind::Data if side == Side::Response => self.streams.sent(frame.stream, frame.len, at.time_ns),
            Kind::Promise => half.block = Some(Pending { stream: None, end: false, begun_ns }),
            Kind::Continuation if half.block.is_none() => {
                // The rest of a block whose beginning was lost.
                half.headers.lose();
                half.block = Some(Pending { stream: None, end: false, begun_ns });
            }
            _ => {}
        }
        if is_of_message(frame) {
            self.streams.bytes(side, frame.stream, HEADER as u64, at);
        }
    }

    fn content(
        &mut self,
        side: Side,
        frame: Header,
        bytes: &mut [u8],
        last: bool,
        at: Stamp,
        cx: &mut Context<'_>,
    ) {
        let half = self.half(side);
        let fresh = half.counted == 0;
        // Fits: not more than the frame.
        let len = u32::try_from(bytes.len()).unwrap_or(0);
        half.counted += len;
        match frame.kind {
            Kind::Headers | Kind::Continuation | Kind::Promise => half.headers.octets(bytes),
            Kind::Data => self.streams.data(side, frame.stream, Octets { bytes, fresh, last }, at, cx),
            _ => mask_all(bytes),
        }
        if is_of_message(frame) {
            self.streams.bytes(side, frame.stream, len.into(), at);
        }
    }

    fn end(&mut self, side: Side, frame: Header, unseen: bool, at: Stamp, cx: &mut Context<'_>) {
        let half = self.half(side);
        let rest = frame.len.saturating_sub(half.counted);
        let skipped = half.frames.skips();
        if is_of_message(frame) {
            self.streams.bytes(side, frame.stream, rest.into(), at);
        }
        match frame.kind {
            Kind::Data if frame.has(END_STREAM) => self.streams.end(side, frame.stream, unseen, at, cx),
            Kind::Headers | Kind::Continuation | Kind::Promise => {
                if skipped {
                    self.half(side).headers.lose();
                }
                if frame.has(END_HEADERS) {
                    self.block_end(side, unseen, at, cx);
                }
            }
            _ => {}
        }
    }

    fn block_end(&mut self, side: Side, unseen: bool, at: Stamp, cx: &mut Context<'_>) {
        let half = self.half(side);
        let block = half.headers.end();
        let Some(Pending { stream, end, begun_ns }) = half.block.take() else { return };
        let Some(id) = stream else { return };
        if !block.is_complete() {
            cx.health.ignore("http2_headers_unknown");
        }
        match side {
            Side::Request => self.streams.request_block(id, &block, at, cx),
            Side::Response => self.streams.response_block(id, &block, end, begun_ns, at, cx),
        }
        if end {
            self.streams.end(side, id, unseen, at, cx);
        }
    }
}

/// Its bytes belong to a request or an answer.
fn is_of_message(frame: Header) -> bool {
    matches!(frame.kind, Kind::Data | Kind::Headers | Kind::Continuation)
}
