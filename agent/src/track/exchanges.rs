//! The exchanges of one connection: requests answered in the order in which they came.

use std::collections::VecDeque;

use wire::socket::SockId;

use super::{
    Client, Exchange, ExchangeId, Tracked,
    arrival::Arrivals,
    body::Body,
    delivery::Deliveries,
    http1::{Side, head},
    memory::{self, Held},
    older::Older,
    open::{Ending, Open},
    process::Processes,
};
use crate::{decode::Stamp, health::Health, request::record::Flag};

mod held;
mod internal;
mod responses;
mod tunnel;

use held::{Waiting, deliver};
use internal::is_internal;
use tunnel::Tunnel;

/// Requests on one connection that are not answered.
const MAX_OPEN: usize = 64;

/// What the handling of an event may use beside its connection.
pub(super) struct Context<'a> {
    pub processes: &'a Processes,
    pub health: &'a mut Health,
    pub out: &'a mut Vec<Tracked>,
    pub held: &'a mut Held,
    pub next_exchange: &'a mut u64,
    pub older: &'a mut Older,
    /// The watched process at the other end of the connection.
    pub client: Option<Client>,
}

/// What is known of a connection from its first record.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub id: SockId,
    pub local_port: Option<u16>,
    pub peer: Option<String>,
    /// It is a unix socket.
    pub is_unix: bool,
    /// The agent saw it from its first byte.
    pub whole: bool,
    /// Which side is the server was told by the bytes.
    pub role_guessed: bool,
    /// As in records.
    pub protocol: &'static str,
}

/// The exchanges of one connection.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not a state in disguise")]
pub(super) struct Exchanges {
    origin: Origin,
    open: VecDeque<Open>,
    /// The last one's request is not read to its end.
    reading: bool,
    /// The first one's final response head is out.
    answering: bool,
    request_body: Body,
    response_body: Body,
    /// First byte of the response head that is being written.
    head_begun_ns: Option<u64>,
    /// Response bytes before the final head is complete.
    head_bytes: u64,
    /// No exchange has finished yet.
    first: bool,
    /// A part of the requests was lost, so that an answer without a request is nothing strange.
    requests_lost: bool,
    peer_closed_ns: Option<u64>,
    blocked_since_ns: Option<u64>,
    last_read: Option<Stamp>,
    arrivals: Arrivals,
    /// Answers of which it is not known whether the client was there to read them; kept where that may show.
    held: VecDeque<Waiting>,
    holds: bool,
    /// What the connection has become.
    tunnel: Option<Box<Tunnel>>,
}

impl Exchanges {
    /// None yet.
    pub(super) fn new(origin: Origin) -> Self {
        Self {
            requests_lost: !origin.whole,
            origin,
            open: VecDeque::new(),
            reading: false,
            answering: false,
            request_body: Body::Opaque,
            response_body: Body::Opaque,
            head_begun_ns: None,
            head_bytes: 0,
            first: true,
            peer_closed_ns: None,
            blocked_since_ns: None,
            last_read: None,
            arrivals: Arrivals::default(),
            held: VecDeque::new(),
            holds: true,
            tunnel: None,
        }
    }

    /// Those of one stream of a connection: at most one. `first` when it is the connection's first, or begins before
    /// the agent saw the connection.
    pub(super) fn on_stream(origin: Origin, first: bool) -> Self {
        Self { first, holds: false, ..Self::new(origin) }
    }

    /// What they were made with.
    pub(super) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The connection goes on with HTTP/2, and the answer on a stream of it, where nothing is held.
    pub(super) fn speak(&mut self, protocol: &'static str, cx: &mut Context<'_>) {
        self.let_go(Ending::ClientGone, cx);
        self.holds = false;
        self.origin.protocol = protocol;
        for open in &mut self.open {
            protocol.clone_into(&mut open.exchange.protocol);
        }
    }

    /// Exchanges that are not over.
    pub(super) fn open(&self) -> &VecDeque<Open> {
        &self.open
    }

    /// Exchanges of this process are not over.
    pub(super) fn serves(&self, pid: u32) -> bool {
        let tunnel = self.tunnel.iter().map(|tunnel| tunnel.open());
        self.open.iter().chain(tunnel).any(|open| open.exchange.pid == pid)
    }

    /// A request is not read to its end.
    pub(super) fn reading(&self) -> bool {
        self.reading
    }

    /// A final response head is out, its end is not.
    pub(super) fn answering(&self) -> bool {
        self.answering
    }

    fn begin(&mut self, at: Stamp, cx: &mut Context<'_>) -> &mut Open {
        let id = ExchangeId(*cx.next_exchange);
        *cx.next_exchange += 1;
        cx.held.add(memory::EXCHANGE);
        let origin = &self.origin;
        let exchange = Exchange {
            service: cx.processes.service(at.tgid),
            connection: Some(origin.id),
            pid: at.tgid,
            reader_tid: at.tid,
            local_port: origin.local_port,
            peer: origin.peer.clone(),
            client: cx.client,
            protocol: origin.protocol.to_owned(),
            accept_ns: (self.first && self.open.is_empty() && origin.whole).then_some(origin.id.birth_ns),
            close_ns: self.peer_closed_ns,
            ..Exchange::default()
        };
        let mut open = Open::new(exchange, id);
        if self.first && !origin.whole {
            open.flag(Flag::MidStream);
        }
        if origin.role_guessed {
            open.flag(Flag::RoleGuessed);
        }
        self.open.push_back(open);
        let last = self.open.len() - 1;
        &mut self.open[last]
    }

    /// Request bytes were read.
    pub(super) fn read(&mut self, at: Stamp, arrivals: Arrivals) {
        self.last_read = Some(at);
        self.arrivals = arrivals;
    }

    /// Arrival of the bytes that were read last.
    pub(super) fn arrivals(&mut self) -> &mut Arrivals {
        &mut self.arrivals
    }

    /// A request begins. False when there are too many.
    pub(super) fn request_begin(&mut self, at: Stamp, cx: &mut Context<'_>) -> bool {
        if self.open.len() == MAX_OPEN {
            cx.health.ignore("pipeline_full");
            return false;
        }
        self.reading = true;
        self.request_body = Body::Opaque;
        let (time_ns, source) = self.arrivals.next();
        let exchange = &mut self.begin(at, cx).exchange;
        exchange.first_byte_in_ns = Some(time_ns);
        exchange.arrival = Some(source);
        true
    }

    /// The request that is being read.
    pub(super) fn current_request(&mut self) -> Option<&mut Open> {
        if self.reading { self.open.back_mut() } else { None }
    }

    /// So many bytes of the request were read.
    pub(super) fn request_bytes(&mut self, len: u64) {
        if let Some(open) = self.current_request() {
            open.exchange.bytes_in = open.exchange.bytes_in.saturating_add(len);
        }
    }

    /// The request's head is complete: whoever reads it may begin to work on it.
    pub(super) fn request_head(&mut self, request: head::Request, at: Stamp, cx: &mut Context<'_>) {
        let Some(open) = self.current_request() else { return };
        open.exchange.head_bytes_in = Some(open.exchange.bytes_in);
        if open.exchange.service.is_some() {
            let (pid, listener) = (open.exchange.pid, open.exchange.listener());
            cx.out.push(Tracked::Begun { exchange: open.id, pid, listener, time_ns: at.time_ns });
        }
        self.request_body = open.request_head(request);
    }

    /// The body of the request that is being read.
    pub(super) fn request_body(&mut self) -> &mut Body {
        &mut self.request_body
    }

    /// The model of the request that is being read stands in what was left out of its body, if anywhere.
    pub(super) fn misses_model(&mut self) -> bool {
        let is_missed = self.request_body.lacks_model();
        is_missed && self.current_request().is_some_and(|open| open.grammar().has_model())
    }

    /// The request's last byte was read.
    pub(super) fn request_end(&mut self, at: Stamp, cx: &mut Context<'_>) {
        let body = std::mem::take(&mut self.request_body);
        let arrived = self.arrivals.last();
        if let Some(open) = self.current_request() {
            open.request_body(&body);
            open.request_read(at, arrived);
            announce(open, at, cx);
        }
        self.reading = false;
    }

    /// Bytes of requests were lost, and framing with them.
    pub(super) fn requests_lost(&mut self) {
        self.requests_lost = true;
        self.request_body.gap(None);
        if let Some(open) = self.current_request() {
            open.flag(Flag::Gap);
        }
    }

    /// What began as a request was none.
    pub(super) fn request_garbage(&mut self, cx: &mut Context<'_>) {
        self.requests_lost();
        if self.current_request().is_some_and(|open| !open.has_head)
            && let Some(open) = self.open.pop_back()
        {
            let exchange = open.id;
            cx.held.sub(open.held());
            self.reading = false;
            cx.out.push(Tracked::Forgotten { exchange });
        }
        cx.health.ignore("bad_request");
    }

    /// The next request begins though the end of this one was not seen.
    pub(super) fn leave_request(&mut self) {
        self.reading = false;
    }

    /// The end of a message went by unseen.
    pub(super) fn end_unseen(&mut self, side: Side) {
        let open = match side {
            Side::Request => self.current_request(),
            Side::Response => self.open.front_mut().filter(|_| self.answering),
        };
        let Some(open) = open else { return };
        open.flag(Flag::Gap);
        if side == Side::Response {
            open.exchange.last_byte_out_ns = None;
        }
    }

    /// The client ended its side.
    pub(super) fn client_closed(&mut self, time_ns: u64) {
        self.peer_closed_ns.get_or_insert(time_ns);
        for open in &mut self.open {
            open.exchange.close_ns.get_or_insert(time_ns);
        }
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.closed(time_ns);
        }
    }

    /// Nothing more comes on this connection, or for all that is open on it.
    pub(super) fn finish_all(&mut self, ending: Ending, at: Stamp, cx: &mut Context<'_>) {
        self.let_go(ending, cx);
        self.end_tunnel(ending, at, cx);
        let ending = if self.peer_closed_ns.is_some() && ending == Ending::ServerGone {
            Ending::ClientGone
        } else {
            ending
        };
        while let Some(front) = self.open.front_mut() {
            if ending != Ending::OutOfSight {
                front.exchange.close_ns.get_or_insert(at.time_ns);
            }
            self.finish_first(ending, None, cx);
        }
    }

    /// Bytes held for what is open.
    pub(super) fn held(&self) -> usize {
        let tunnel = self.tunnel.iter().map(|tunnel| tunnel.open());
        self.open.iter().chain(tunnel).map(Open::held).sum::<usize>() + self.waiting()
    }

    /// Memory is short: of one exchange the times of its content go, of several all that is open goes out of sight.
    pub(super) fn give_up(&mut self, at: Stamp, cx: &mut Context<'_>) {
        for open in &mut self.open {
            open.flag(Flag::Gap);
            let before = open.held();
            open.forget_content();
            cx.held.sub(before - open.held());
        }
        if self.open.len() > 1 {
            self.requests_lost = true;
            self.finish_all(Ending::OutOfSight, at, cx);
        }
    }

    /// `deliveries` only of an answer that is complete.
    fn finish_first(&mut self, ending: Ending, deliveries: Option<&mut Deliveries>, cx: &mut Context<'_>) {
        let Some((mut open, body)) = self.take_first(cx) else { return };
        if let Some(deliveries) = deliveries {
            deliver(&mut open, deliveries, cx);
        }
        cx.out.push(Tracked::Finished(open.finish(ending, &body)));
    }

    /// Takes the first exchange out, with the body of its answer; `None` when there is nothing to tell of it.
    fn take_first(&mut self, cx: &mut Context<'_>) -> Option<(Open, Body)> {
        let mut open = self.open.pop_front()?;
        cx.held.sub(open.held());
        if self.reading && self.open.is_empty() {
            open.request_body(&std::mem::take(&mut self.request_body));
            self.reading = false;
        }
        let answered = std::mem::take(&mut self.answering);
        let body = if answered { std::mem::take(&mut self.response_body) } else { Body::Opaque };
        self.blocked_since_ns = None;
        self.first = false;
        let service = open.exchange.service.or_else(|| cx.processes.service(open.exchange.pid));
        let why = if !open.has_head && !answered {
            Some("request_head_incomplete")
        } else if service.is_none() || (open.request_done && !open.announced) {
            Some("process_without_service")
        } else {
            None
        };
        if let Some(why) = why {
            cx.health.ignore(why);
            cx.out.push(Tracked::Forgotten { exchange: open.id });
            return None;
        }
        open.exchange.service = service;
        open.exchange.client = cx.client.or(open.exchange.client);
        open.exchange.probe |= is_internal(&open.exchange, cx);
        Some((open, body))
    }
}

/// Tells later stages of a request that was read.
fn announce(open: &mut Open, at: Stamp, cx: &mut Context<'_>) {
    let Some(service) = cx.processes.service(open.exchange.pid) else { return };
    open.exchange.service = Some(service);
    open.announced = true;
    open.exchange.client = cx.client.or(open.exchange.client);
    open.exchange.probe |= is_internal(&open.exchange, cx);
    cx.out.push(Tracked::RequestRead {
        exchange: open.id,
        service,
        time_ns: at.time_ns,
        tid: at.tid,
        client: open.exchange.client,
        sight: Box::new(open.exchange.sight()),
    });
}
