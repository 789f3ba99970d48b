//! Connections: who is the server, and whether they carry exchanges at all.

use std::{
    cmp::Reverse,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
};

use rustc_hash::FxHashMap;
use wire::socket::{self, SockId};

use super::{
    accepted::Accepted,
    exchanges::{Context, Origin},
    http1::{Direction, Found, Side},
    http2,
    mask::{begins_request, begins_response, mask_all},
    memory,
    open::Ending,
    sse::Sse,
};
use crate::decode::{Payload, Stamp};

const AF_UNIX: u16 = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// What a connection is to us.
#[derive(Debug)]
enum Role {
    /// It carries no exchanges: why.
    Ignored(&'static str),
    /// Which side is the server is not known yet.
    Unknown,
    /// A process of a service accepted it.
    Server(Accepted),
}

#[derive(Debug)]
struct Connection {
    role: Role,
    /// Of the first record; `None` when that was lost.
    open: Option<socket::Open>,
    /// Process of the last call.
    tgid: u32,
    /// Last record.
    last_ns: u64,
}

/// The table of connections.
#[derive(Debug)]
pub(super) struct Connections {
    max: usize,
    table: FxHashMap<SockId, Connection>,
}

impl Connections {
    /// None yet; at most `max`.
    pub(super) fn new(max: usize) -> Self {
        Self { max: max.max(1), table: FxHashMap::default() }
    }

    /// Connections in the table.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// A socket was seen for the first time.
    pub(super) fn open(&mut self, open: &socket::Open, cx: &mut Context<'_>) {
        if self.table.get(&open.id).is_some_and(Connection::is_served) {
            // Two threads were first; what the other one did may be known already.
            return;
        }
        let role = match (open.family, open.role) {
            (AF_UNIX, _) => Role::Ignored("unix_socket"),
            (_, socket::ROLE_CONNECTED) => Role::Ignored("client_side"),
            (_, socket::ROLE_ACCEPTED) => Role::Server(Accepted::new(origin(open.id, Some(open), false))),
            _ => Role::Unknown,
        };
        let at = Stamp::from(&open.header);
        self.insert(
            open.id,
            Connection { role, open: Some(*open), tgid: at.tgid, last_ns: at.time_ns },
            at,
            cx,
        );
    }

    /// One call on a socket: its payload is masked when this returns.
    pub(super) fn data(&mut self, data: &socket::Data, payload: Payload<'_>, cx: &mut Context<'_>) {
        let at = Stamp::from(&data.header);
        if !self.table.contains_key(&data.id) {
            let unseen = Connection { role: Role::Unknown, open: None, tgid: at.tgid, last_ns: at.time_ns };
            self.insert(data.id, unseen, at, cx);
        }
        let Some(connection) = self.table.get_mut(&data.id) else { return };
        connection.tgid = at.tgid;
        connection.last_ns = at.time_ns;
        if matches!(connection.role, Role::Unknown)
            && let Some(proof) = connection.learn_role(data, &payload, cx)
        {
            // What proves a role must stay, so that a recording proves it again.
            let Payload { head, tail } = payload;
            return drop_payload(Payload { head: &mut head[proof..], tail }, "client_side", cx);
        }
        match &mut connection.role {
            // It stays one, since its last answer may not be acknowledged yet.
            Role::Server(server) => {
                if let Some(why) = server.closed() {
                    return drop_payload(payload, why, cx);
                }
                server.data(data, payload, cx);
                if let Some(why) = server.closed() {
                    cx.health.ignore(why);
                }
            }
            Role::Ignored(why) => drop_payload(payload, why, cx),
            Role::Unknown => drop_payload(payload, "role_unknown", cx),
        }
        if cx.held.is_over() {
            self.give_up(at, cx);
        }
    }

    /// Memory is short: the connections that hold most give it up, until there is room for a while.
    fn give_up(&mut self, at: Stamp, cx: &mut Context<'_>) {
        let held = |(id, c): (&SockId, &Connection)| match &c.role {
            Role::Server(server) => Some((server.held(), c.last_ns, *id)),
            _ => None,
        };
        let mut largest: Vec<_> = self.table.iter().filter_map(held).collect();
        // Of those that hold the same, the one that was idle longest.
        largest.sort_unstable_by_key(|(held, last_ns, id)| (Reverse(*held), *last_ns, *id));
        // First what an exchange can do without, then whole connections.
        for whole in [false, true] {
            // One exchange by itself has nothing that it could do without.
            let least = if whole { 0 } else { memory::EXCHANGE };
            for (.., id) in largest.iter().filter(|(held, ..)| *held > least) {
                if cx.held.has_room() {
                    return;
                }
                let Some(Connection { role: Role::Server(server), .. }) = self.table.get_mut(id) else {
                    continue;
                };
                if whole {
                    server.finish(Ending::OutOfSight, "connection_memory", at, cx);
                } else {
                    server.give_up(at, cx);
                }
                cx.health.limit("connection_memory");
            }
        }
    }

    /// Everything written on a connection is acknowledged.
    pub(super) fn ack(&mut self, ack: &socket::Ack, cx: &mut Context<'_>) {
        if let Some(Connection { role: Role::Server(server), .. }) = self.table.get_mut(&ack.id) {
            server.ack(ack, cx);
        }
    }

    /// A connection went to another state.
    pub(super) fn state(&mut self, state: &socket::State, cx: &mut Context<'_>) {
        let Some(connection) = self.table.get_mut(&state.id) else { return };
        connection.last_ns = state.header.time_ns;
        let local = state.header.tgid != 0 && state.header.tgid == connection.tgid;
        if let Role::Server(server) = &mut connection.role {
            server.state(state, local, cx);
        }
        if state.new != socket::tcp::CLOSE {
            return;
        }
        if let Role::Server(server) = &mut connection.role {
            server.give_up_deliveries(cx);
        }
        if matches!(state.old, socket::tcp::ESTABLISHED | socket::tcp::CLOSE_WAIT) {
            // After a reset a write may still return; without this entry it would look like a new connection.
            connection.role = Role::Ignored("after_close");
        } else {
            self.table.remove(&state.id);
        }
    }

    /// A process ended, and the exchanges it had.
    pub(super) fn exit(&mut self, pid: u32, at: Stamp, cx: &mut Context<'_>) {
        let serves = |c: &Connection| matches!(&c.role, Role::Server(server) if server.serves(pid));
        self.finish(serves, Ending::ServerGone, "after_exit", at, cx);
    }

    /// Finishes the exchanges of some connections, oldest first.
    fn finish(
        &mut self,
        which: impl Fn(&Connection) -> bool,
        ending: Ending,
        why: &'static str,
        at: Stamp,
        cx: &mut Context<'_>,
    ) {
        let mut found: Vec<_> = self.table.values_mut().filter(|c| which(c)).collect();
        found.sort_unstable_by_key(|c| match &c.role {
            Role::Server(server) => server.oldest(),
            _ => None,
        });
        for connection in found {
            if let Role::Server(server) = &mut connection.role {
                server.finish(ending, why, at, cx);
                server.give_up_deliveries(cx);
            }
            connection.role = Role::Ignored(why);
        }
    }

    /// Adds a connection; when the table is full, the sixteenth that was idle longest goes.
    fn insert(&mut self, id: SockId, connection: Connection, at: Stamp, cx: &mut Context<'_>) {
        if self.table.len() >= self.max && !self.table.contains_key(&id) {
            let mut last: Vec<u64> = self.table.values().map(|c| c.last_ns).collect();
            let nth = last.len() / 16;
            let (_, limit, _) = last.select_nth_unstable(nth);
            let limit = *limit;
            self.finish(|c| c.last_ns <= limit, Ending::OutOfSight, "connection_evicted", at, cx);
            self.table.retain(|_, c| c.last_ns > limit);
            cx.health.ignore("connection_table_full");
        }
        self.table.insert(id, connection);
    }
}

impl Connection {
    /// It carries exchanges, as far as is known.
    fn is_served(&self) -> bool {
        matches!(&self.role, Role::Server(server) if server.closed().is_none())
    }

    /// Who is the server, from the listening ports or from what the bytes begin with. When this side is the
    /// client: how many bytes prove it.
    fn learn_role(&mut self, data: &socket::Data, payload: &Payload<'_>, cx: &Context<'_>) -> Option<usize> {
        let open = self.open.as_ref();
        let head = &*payload.head;
        let http2 = |request| http2::begins(head).filter(|proof| proof.request == request).map(|p| p.len);
        let request = begins_request(head).or_else(|| http2(true));
        let response = begins_response(head).or_else(|| http2(false));
        let received = data.dir == socket::DIR_RECV;
        let listens =
            |open: &socket::Open| cx.processes.listens(data.header.tgid, open.netns, open.local_port);
        let guessed = if open.is_some_and(listens) {
            false
        } else if (received && request.is_some())
            || (!received && (http2(false).is_some() || answers(data, payload)))
        {
            true
        } else {
            let proof = if received { response } else { request };
            if proof.is_some() {
                self.role = Role::Ignored("client_side");
            }
            return proof;
        };
        self.role = Role::Server(Accepted::new(origin(data.id, open, guessed)));
        None
    }
}

/// Bytes that were written are a response's: a status line, or a whole chunk with an event.
fn answers(data: &socket::Data, payload: &Payload<'_>) -> bool {
    let head = &*payload.head;
    let mut probe = Direction::new(Side::Response, true);
    let len = u64::try_from(data.result).unwrap_or_default();
    match probe.find(head, len, payload.tail) {
        Some(Found::Message) => true,
        Some(Found::Chunk(begin, end)) => head.get(begin..end).is_some_and(Sse::begins),
        None => false,
    }
}

fn origin(id: SockId, open: Option<&socket::Open>, role_guessed: bool) -> Origin {
    let whole =
        open.is_some_and(|o| o.role == socket::ROLE_ACCEPTED && o.flags & socket::FLAG_MID_STREAM == 0);
    Origin {
        id,
        local_port: open.map(|o| o.local_port).filter(|port| *port != 0),
        peer: open.and_then(peer),
        whole,
        role_guessed,
        protocol: "HTTP/1.1",
    }
}

/// The peer's address and port; `None` when the kernel side could not read them.
fn peer(open: &socket::Open) -> Option<String> {
    let address = &open.peer_addr;
    let ip = match open.family {
        AF_INET => Ipv4Addr::new(address[0], address[1], address[2], address[3]).into(),
        AF_INET6 => Ipv6Addr::from(*address).to_canonical(),
        _ => return None,
    };
    (open.peer_port != 0).then(|| SocketAddr::new(ip, open.peer_port).to_string())
}

fn drop_payload(Payload { head, tail }: Payload<'_>, why: &'static str, cx: &mut Context<'_>) {
    mask_all(head);
    mask_all(tail);
    cx.health.ignore(why);
}
