//! The streams of one connection. Each carries one exchange.

mod flow;
mod losses;

use std::collections::{BTreeMap, VecDeque};

use super::{
    super::{
        arrival::Arrivals,
        delivery::Deliveries,
        exchanges::{Context, Exchanges, Origin},
        grpc::Method,
        http1::{Side, head},
        mask::mask_all,
        open::Ending,
    },
    fields::Block,
    windows::{Shared, Window},
};
use crate::{decode::Stamp, request::record::Flag};

/// Streams on one connection that are not over.
const MAX_STREAMS: usize = 512;
/// Streams that are over and are remembered to be, where it could be that they were never seen.
const MAX_OVER: usize = 256;

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not a state in disguise")]
struct Stream {
    exchanges: Exchanges,
    /// The final response head is out.
    answered: bool,
    /// It is a gRPC call.
    grpc: bool,
    /// Of the request, when it is one.
    method: Method,
    /// The last call that read the end of a message of the request, and when that had arrived.
    message_read: Option<(Stamp, Arrivals)>,
    /// A part of the request was lost: its end may have been in it.
    request_lost: bool,
    /// A part of the answer was lost: what follows begins somewhere in it.
    answer_lost: bool,
    /// Framing was lost inside the answer, and nothing has come since: it may be over.
    doubtful: bool,
    /// Bytes of the request's body that are still to come, where its head says it.
    request_left: Option<u64>,
    /// The same of the answer.
    answer_left: Option<u64>,
    /// What of the answer may be sent.
    window: Window,
}

/// Takes so many bytes from those that are still `left`: true if they were the last. More than were left prove that
/// nothing is known of it.
fn takes_last(left: &mut Option<u64>, len: u64) -> bool {
    *left = left.and_then(|left| left.checked_sub(len));
    *left == Some(0)
}

impl Stream {
    fn new(origin: Origin, first: bool, window: Window) -> Self {
        Self::with(Exchanges::on_stream(origin, first), window)
    }

    fn with(exchanges: Exchanges, window: Window) -> Self {
        Self {
            exchanges,
            answered: false,
            grpc: false,
            method: Method::Other,
            message_read: None,
            request_lost: false,
            answer_lost: false,
            doubtful: false,
            request_left: None,
            answer_left: None,
            window,
        }
    }

    /// A stream of messages in both directions is answered before the request ends: what was read by then is what
    /// the answer is to.
    fn read_so_far(&mut self, cx: &mut Context<'_>) {
        if let Some((at, arrivals)) = self.message_read.take()
            && self.exchanges.reading()
        {
            self.exchanges.read(at, arrivals);
            self.exchanges.request_end(at, cx);
        }
    }

    fn answer(&mut self, block: &Block, at: Stamp, cx: &mut Context<'_>) {
        match block.status() {
            Some(status) => {
                let mut response = head::Response { status, headers: block.headers(self.method) };
                // A gRPC call is answered as one; the reader of its messages notices if it is not.
                if self.grpc && !block.is_complete() && response.headers.content == head::Content::Unknown {
                    response.headers.content = head::Content::Grpc(self.method);
                }
                self.grpc |= matches!(response.headers.content, head::Content::Grpc(_));
                self.exchanges.response_head(&response, at, self.request_lost, cx);
            }
            None => self.exchanges.response_found(&[], at, self.request_lost, cx),
        }
        self.answer_left = block.content_len();
        // What is not known to be something else, may be.
        self.grpc |= !block.is_complete();
        self.answered = true;
    }
}

/// Bytes of a body.
#[derive(Debug)]
pub(super) struct Octets<'b> {
    /// Still to be masked.
    pub bytes: &'b mut [u8],
    /// A frame begins with them.
    pub fresh: bool,
    /// The body is known to end with them.
    pub last: bool,
}

/// The streams that are not over, and what is remembered of the others.
#[derive(Debug)]
pub(super) struct Streams {
    origin: Origin,
    table: BTreeMap<u32, Stream>,
    /// Highest stream that a client opened.
    highest: u32,
    over: VecDeque<u32>,
    /// Frames were lost, so that an answer without a request is nothing strange.
    lossy: bool,
    blocked: bool,
    /// When the client ended its side of the connection.
    peer_closed_ns: Option<u64>,
    shared: Shared,
    /// Arrival of the bytes of the read that is being looked at.
    pub arrivals: Arrivals,
    /// Of all answers of the connection.
    pub deliveries: Deliveries,
}

impl Streams {
    /// None yet.
    pub(super) fn new(origin: Origin) -> Self {
        Self {
            lossy: !origin.whole,
            shared: Shared::new(origin.whole),
            origin,
            table: BTreeMap::new(),
            highest: 0,
            over: VecDeque::new(),
            blocked: false,
            peer_closed_ns: None,
            arrivals: Arrivals::default(),
            deliveries: Deliveries::default(),
        }
    }

    /// Stream 1 answers a request that came before the first frame.
    pub(super) fn adopt(&mut self, exchanges: Exchanges) {
        self.highest = 1;
        self.table.insert(1, Stream::with(exchanges, self.shared.window()));
    }

    /// The stream is open.
    pub(super) fn contains(&self, id: u32) -> bool {
        self.table.contains_key(&id)
    }

    /// Exchanges of this process are open.
    pub(super) fn serves(&self, pid: u32) -> bool {
        self.table.values().flat_map(|s| s.exchanges.open()).any(|open| open.exchange.pid == pid)
    }

    /// Number of the oldest open exchange.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.table.values().flat_map(|s| s.exchanges.open()).map(|open| open.id.0).min()
    }

    /// A client that leaves out no number opens this stream next.
    pub(super) fn is_next(&self, id: u32) -> bool {
        id == if self.highest == 0 { 1 } else { self.highest.saturating_add(2) }
    }

    /// Headers of an answer may have been among frames of the server that were lost.
    pub(super) fn may_lose_headers(&self) -> bool {
        self.lossy || self.table.values().any(|s| !s.answered || s.grpc)
    }

    /// A request's headers begin.
    pub(super) fn request_begin(&mut self, id: u32, at: Stamp, begun: Arrivals, cx: &mut Context<'_>) {
        if id <= self.highest || id.is_multiple_of(2) {
            return;
        }
        let first = self.highest == 0 && self.origin.whole;
        self.highest = id;
        self.end_doubtful(at, cx);
        if self.table.len() >= MAX_STREAMS
            && let Some(oldest) = self.table.keys().next().copied()
        {
            cx.health.limit("http2_streams");
            self.finish(oldest, Ending::OutOfSight, at, cx);
        }
        // An answer that came before it on this stream is somebody else's, or of a request that was missed.
        self.finish(id, Ending::OutOfSight, at, cx);
        let mut stream = Stream::new(self.origin.clone(), first, self.shared.window());
        self.peer_closed_ns.iter().for_each(|closed_ns| stream.exchanges.client_closed(*closed_ns));
        stream.exchanges.read(at, begun);
        stream.exchanges.request_begin(at, cx);
        self.table.insert(id, stream);
    }

    /// An answer whose end may have been lost is over when the client goes on to something else.
    fn end_doubtful(&mut self, at: Stamp, cx: &mut Context<'_>) {
        let doubtful: Vec<u32> = self.table.iter().filter(|(_, s)| s.doubtful).map(|(id, _)| *id).collect();
        for id in doubtful {
            self.finish(id, Ending::OutOfSight, at, cx);
        }
    }

    /// A request's headers, or its trailers, are complete.
    pub(super) fn request_block(&mut self, id: u32, block: &Block, at: Stamp, cx: &mut Context<'_>) {
        let Some(stream) = self.table.get_mut(&id) else { return };
        let Some(open) = stream.exchanges.current_request().filter(|open| !open.has_head) else { return };
        if block.bad {
            open.flag(Flag::Gap);
        }
        if !self.origin.whole && !block.is_complete() {
            open.flag(Flag::MidStream);
        }
        let request = block.request();
        if let head::Content::Grpc(method) = request.headers.content {
            stream.method = method;
            stream.grpc = true;
        }
        stream.request_left = block.content_len();
        stream.exchanges.request_head(request, at, cx);
    }

    /// A response's headers, interim or final, or its trailers, are complete; they began to be written `begun_ns`.
    pub(super) fn response_block(
        &mut self,
        id: u32,
        block: &Block,
        end: bool,
        begun_ns: u64,
        at: Stamp,
        cx: &mut Context<'_>,
    ) {
        let Some(stream) = self.answering(id) else { return };
        if !stream.answered {
            if block.status().is_some_and(|status| status < 200) {
                return stream.exchanges.interim();
            }
            stream.exchanges.response_begin(Stamp { time_ns: begun_ns, ..at });
            stream.answer(block, at, cx);
            self.begin_window(id, at.time_ns);
        }
        let Some(stream) = self.table.get_mut(&id) else { return };
        if end {
            stream.exchanges.trailers(block.grpc_status(), block.is_complete());
        }
    }

    /// The stream that a server's frame belongs to.
    fn answering(&mut self, id: u32) -> Option<&mut Stream> {
        let unseen = self.lossy && id % 2 == 1 && self.table.len() < MAX_STREAMS && !self.over.contains(&id);
        if !self.table.contains_key(&id) && unseen {
            let stream = Stream::new(self.origin.clone(), !self.origin.whole, self.shared.window());
            self.table.insert(id, stream);
        }
        self.table.get_mut(&id)
    }

    /// Bytes of a body.
    pub(super) fn data(&mut self, side: Side, id: u32, octets: Octets<'_>, at: Stamp, cx: &mut Context<'_>) {
        match side {
            Side::Request => self.request_data(id, octets, at),
            Side::Response => self.response_data(id, octets, at, cx),
        }
    }

    fn request_data(&mut self, id: u32, Octets { bytes, last, .. }: Octets<'_>, at: Stamp) {
        let stream = self.table.get_mut(&id).filter(|s| s.exchanges.reading());
        let Some(stream) = stream else { return mask_all(bytes) };
        stream.exchanges.read(at, self.arrivals);
        let last = takes_last(&mut stream.request_left, bytes.len() as u64) || last;
        let body = stream.exchanges.request_body();
        let before = body.messages();
        body.feed(bytes, last);
        if body.messages() > before {
            stream.message_read = Some((at, self.arrivals));
        }
    }

    fn response_data(&mut self, id: u32, octets: Octets<'_>, at: Stamp, cx: &mut Context<'_>) {
        let Octets { bytes, fresh, last } = octets;
        let Some(stream) = self.answering(id) else { return mask_all(bytes) };
        if !stream.answered || (stream.answer_lost && fresh) {
            stream.exchanges.response_found(bytes, at, stream.request_lost, cx);
            stream.answered = true;
            stream.answer_lost = false;
        }
        stream.read_so_far(cx);
        let last = takes_last(&mut stream.answer_left, bytes.len() as u64) || last;
        stream.exchanges.response_body(bytes, last, at, cx);
    }

    /// So many bytes of frames of this stream.
    pub(super) fn bytes(&mut self, side: Side, id: u32, len: u64, at: Stamp) {
        let Some(stream) = self.table.get_mut(&id) else { return };
        match side {
            Side::Request => stream.exchanges.request_bytes(len),
            Side::Response => {
                stream.doubtful = false;
                stream.exchanges.response_bytes(len, at);
            }
        }
    }

    /// The side of the stream ended; `unseen` when it is not known when.
    pub(super) fn end(&mut self, side: Side, id: u32, unseen: bool, at: Stamp, cx: &mut Context<'_>) {
        let Some(stream) = self.table.get_mut(&id) else { return };
        if unseen {
            stream.exchanges.end_unseen(side);
        }
        match side {
            Side::Request => {
                stream.exchanges.read(at, self.arrivals);
                stream.exchanges.request_end(at, cx);
            }
            Side::Response => stream.exchanges.response_end(at, &mut self.deliveries, cx),
        }
        self.forget(id);
    }

    /// The exchange ends before its answer does.
    pub(super) fn finish(&mut self, id: u32, ending: Ending, at: Stamp, cx: &mut Context<'_>) {
        let Some(stream) = self.table.get_mut(&id) else { return };
        stream.exchanges.finish_all(ending, at, cx);
        self.forget(id);
    }

    /// All that is open ends.
    pub(super) fn finish_all(&mut self, ending: Ending, at: Stamp, cx: &mut Context<'_>) {
        self.refuse(0, ending, at, cx);
    }

    /// Bytes held for what is open.
    pub(super) fn held(&self) -> usize {
        self.table.values().map(|stream| stream.exchanges.held()).sum()
    }

    /// Memory is short: of one stream the times of its content go, of several all go out of sight.
    pub(super) fn give_up(&mut self, at: Stamp, cx: &mut Context<'_>) {
        if self.table.len() > 1 {
            self.finish_all(Ending::OutOfSight, at, cx);
        }
        self.table.values_mut().for_each(|stream| stream.exchanges.give_up(at, cx));
    }

    /// Everything on higher streams ends.
    pub(super) fn refuse(&mut self, last: u32, ending: Ending, at: Stamp, cx: &mut Context<'_>) {
        let refused: Vec<u32> = self.table.range(last.saturating_add(1)..).map(|(id, _)| *id).collect();
        for id in refused {
            self.finish(id, ending, at, cx);
        }
    }

    fn forget(&mut self, id: u32) {
        if !self.table.get(&id).is_some_and(|s| s.exchanges.open().is_empty()) {
            return;
        }
        self.table.remove(&id);
        if self.over.len() == MAX_OVER {
            self.over.pop_front();
        }
        self.over.push_back(id);
    }

    /// The client ended its side of the connection.
    pub(super) fn client_closed(&mut self, time_ns: u64) {
        self.peer_closed_ns.get_or_insert(time_ns);
        for stream in self.table.values_mut() {
            stream.exchanges.client_closed(time_ns);
        }
    }

    /// A write ended, or was refused; `full` when the socket took no more. Keeps account of the time it was full.
    pub(super) fn wrote(&mut self, time_ns: u64, full: bool) {
        if !full && !self.blocked {
            return;
        }
        self.blocked = full;
        for stream in self.table.values_mut().filter(|s| s.answered) {
            stream.exchanges.wrote(time_ns, full);
        }
    }

    /// A write was refused by a full socket.
    pub(super) fn refused(&mut self, time_ns: u64) {
        self.blocked = true;
        for stream in self.table.values_mut().filter(|s| s.answered) {
            stream.exchanges.refused(time_ns);
        }
    }
}
