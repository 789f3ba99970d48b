//! A connection that a process accepted, whatever protocol it speaks.
//!
//! HTTP/2 begins with the client's preface or the server's settings; on a connection older than the agent, calls
//! begin with frames. Everything else is left to HTTP/1, which knows what it is not.

use std::net::SocketAddr;

use wire::socket::{self, SockId};

use super::{
    Tracked, call,
    ends::{AF_UNIX, address},
    exchanges::{Context, Origin},
    http1::Side,
    http2::{Http2, begins_preface, is_frames},
    open::Ending,
    server::Server,
};
use crate::decode::{Payload, Stamp};

/// The server's side of a connection.
#[derive(Debug)]
pub(super) enum Accepted {
    /// Nothing was seen that tells the protocol.
    New(New),
    /// HTTP/1, or not known to be anything else.
    Http1(Box<Server>),
    /// HTTP/2.
    Http2(Box<Http2>),
}

/// A connection of an unknown protocol.
#[derive(Debug)]
pub(super) struct New {
    origin: Origin,
    /// The first call, when it was a single `P`: `POST` and the preface of HTTP/2 both begin so.
    first: Option<socket::Data>,
}

impl Accepted {
    /// With nothing seen yet.
    pub(super) fn new(origin: Origin) -> Self {
        Self::New(New { origin, first: None })
    }

    /// Nothing more can be understood on this connection: why.
    pub(super) fn closed(&self) -> Option<&'static str> {
        match self {
            Self::New(_) => None,
            Self::Http1(server) => server.closed(),
            Self::Http2(server) => server.closed(),
        }
    }

    /// Exchanges of this process are open.
    pub(super) fn serves(&self, pid: u32) -> bool {
        match self {
            Self::New(_) => false,
            Self::Http1(server) => server.serves(pid),
            Self::Http2(server) => server.serves(pid),
        }
    }

    /// Number of the oldest open exchange.
    pub(super) fn oldest(&self) -> Option<u64> {
        match self {
            Self::New(_) => None,
            Self::Http1(server) => server.oldest(),
            Self::Http2(server) => server.oldest(),
        }
    }

    /// One call on the socket.
    pub(super) fn data(&mut self, data: &socket::Data, payload: Payload<'_>, cx: &mut Context<'_>) {
        let side = call::side(data);
        let frames = || call::begins(data) && is_frames(side, payload.head, call::extent(data));
        match self {
            Self::New(new) => {
                let whole_p = new.first.is_none() && data.offset == 0 && &*payload.head == b"P";
                if data.dir == socket::DIR_RECV && data.result == 1 && whole_p && new.origin.whole {
                    new.first = Some(*data);
                    return;
                }
                // A client that was seen from its first byte begins with the preface, or is not understood.
                let may_be_frames = side == Side::Response || !new.origin.whole;
                let decided = if new.is_http2(data, &payload) || (may_be_frames && frames()) {
                    // The kernel side knows the preface, if it sees it.
                    if !new.origin.whole || new.first.is_some() {
                        cx.out.push(Tracked::WantWhole(new.origin.id));
                    }
                    Self::Http2(Box::new(Http2::new(new.origin.clone())))
                } else {
                    Self::Http1(Box::new(Server::new(new.origin.clone())))
                };
                let first = new.first;
                *self = decided;
                if let Some(first) = first {
                    self.forward(&first, Payload { head: &mut [b'P'], tail: &mut [] }, cx);
                }
            }
            // What it took for HTTP/1 so far, it knew nothing of.
            Self::Http1(server) if !server.is_proven() && !server.origin().whole && frames() => {
                cx.out.push(Tracked::WantWhole(server.origin().id));
                cx.held.sub(server.held());
                *self = Self::Http2(Box::new(Http2::new(server.origin().clone())));
            }
            Self::Http1(_) | Self::Http2(_) => {}
        }
        let Payload { head, tail } = payload;
        self.forward(data, Payload { head: &mut *head, tail: &mut *tail }, cx);
        if let Some((len, rest)) = self.switch(data, cx) {
            self.forward(&rest, Payload { head: &mut head[len..], tail }, cx);
        }
    }

    /// Goes on with HTTP/2, if HTTP/1 has led to that in this call: with the rest of it behind so many bytes.
    fn switch(&mut self, data: &socket::Data, cx: &mut Context<'_>) -> Option<(usize, socket::Data)> {
        let Self::Http1(server) = self else { return None };
        let len = server.switched()?;
        let origin = server.origin().clone();
        cx.out.push(Tracked::WantWhole(origin.id));
        let mut server = std::mem::replace(&mut **server, Server::new(origin));
        server.forget_heads(cx);
        // Fits: it is a part of a call.
        let taken = u32::try_from(len).unwrap_or(u32::MAX);
        let rest = socket::Data {
            offset: data.offset + u64::from(taken),
            result: data.result.saturating_sub_unsigned(taken),
            requested: data.requested.saturating_sub(taken),
            ..*data
        };
        *self = Self::Http2(Box::new(Http2::upgraded(server, rest.offset, cx)));
        (rest.result > 0).then_some((len, rest))
    }

    fn forward(&mut self, data: &socket::Data, payload: Payload<'_>, cx: &mut Context<'_>) {
        match self {
            Self::New(_) => {}
            Self::Http1(server) => server.data(data, payload, cx),
            Self::Http2(server) => server.data(data, payload, cx),
        }
    }

    /// The connection went to another state.
    pub(super) fn state(&mut self, state: &socket::State, local: bool, cx: &mut Context<'_>) {
        match self {
            Self::New(_) => {}
            Self::Http1(server) => server.state(state, local, cx),
            Self::Http2(server) => server.state(state, local, cx),
        }
    }

    /// The client has acknowledged what was written.
    pub(super) fn ack(&mut self, ack: &socket::Ack, cx: &mut Context<'_>) {
        match self {
            Self::New(_) => {}
            Self::Http1(server) => server.ack(ack, cx),
            Self::Http2(server) => server.ack(ack, cx),
        }
    }

    /// The connection is out of sight: no acknowledgement will come.
    pub(super) fn give_up_deliveries(&mut self, cx: &mut Context<'_>) {
        match self {
            Self::New(_) => {}
            Self::Http1(server) => server.give_up_deliveries(cx),
            Self::Http2(server) => server.give_up_deliveries(cx),
        }
    }

    /// Bytes held for what the peer has sent.
    pub(super) fn held(&self) -> usize {
        match self {
            Self::New(_) => 0,
            Self::Http1(server) => server.held(),
            Self::Http2(server) => server.held(),
        }
    }

    /// Memory is short, and this connection holds most of it.
    pub(super) fn give_up(&mut self, at: Stamp, cx: &mut Context<'_>) {
        match self {
            Self::New(_) => {}
            Self::Http1(server) => server.give_up(at, cx),
            Self::Http2(server) => server.give_up(at, cx),
        }
    }

    /// It is no more, and nothing tells who ended it.
    pub(super) fn vanished(&mut self, at: Stamp, cx: &mut Context<'_>) {
        if let Self::Http1(server) = self {
            server.end_with_connection(at, cx);
        }
        self.finish(Ending::OutOfSight, "after_close", at, cx);
    }

    /// Ends what is open; whatever comes after is of no use.
    pub(super) fn finish(&mut self, ending: Ending, why: &'static str, at: Stamp, cx: &mut Context<'_>) {
        match self {
            Self::New(_) => {}
            Self::Http1(server) => server.finish(ending, why, at, cx),
            Self::Http2(server) => server.finish(ending, why, at, cx),
        }
    }
}

impl New {
    /// It begins with the preface, as far as it is there. (No method of HTTP/1 begins with `PR`.)
    fn is_http2(&self, data: &socket::Data, payload: &Payload<'_>) -> bool {
        let head = &*payload.head;
        match self.first {
            Some(_) => data.offset == 1 && head.first() == Some(&b'R'),
            None => data.dir == socket::DIR_RECV && head.len() >= 2 && begins_preface(head),
        }
    }
}
impl Origin {
    /// Of a connection that a process of a service accepted.
    pub(super) fn of(id: SockId, open: Option<&socket::Open>, role_guessed: bool) -> Self {
        let whole =
            open.is_some_and(|o| o.role == socket::ROLE_ACCEPTED && o.flags & socket::FLAG_MID_STREAM == 0);
        Self {
            id,
            local_port: open.map(|o| o.local_port).filter(|port| *port != 0),
            peer: open.and_then(peer),
            is_unix: open.is_some_and(|open| open.family == AF_UNIX),
            whole,
            role_guessed,
            protocol: "HTTP/1.1",
        }
    }
}

/// The peer's address and port; `None` when the kernel side could not read them.
fn peer(open: &socket::Open) -> Option<String> {
    let ip = address(open.family, &open.peer_addr)?;
    (open.peer_port != 0).then(|| SocketAddr::new(ip, open.peer_port).to_string())
}
