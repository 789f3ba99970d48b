//! Connections: who is the server, and whether they carry exchanges at all.

use std::cmp::Reverse;

use rustc_hash::{FxHashMap, FxHashSet};
use wire::socket::{self, SockId};

use super::{
    Client,
    accepted::Accepted,
    call,
    ends::{AF_UNIX, Ends},
    exchanges::{Context, Origin},
    http2,
    mask::{begins_request, begins_response, mask_all},
    memory,
    open::Ending,
};
use crate::decode::{Payload, Stamp};

/// What a connection is to us.
#[derive(Debug)]
enum Role {
    /// It carries no exchanges: why.
    Ignored(&'static str),
    /// Which side is the server is not known yet.
    Unknown,
    /// A unix socket of which nothing was captured: it was not seen to bring requests.
    Unix,
    /// A process of a service accepted it.
    Server(Accepted),
}

/// The other side accepted it.
const CLIENT: Role = Role::Ignored("client_side");

#[derive(Debug)]
struct Connection {
    role: Role,
    /// Of the first record; `None` when that was lost.
    open: Option<socket::Open>,
    /// Process of the last call.
    tgid: u32,
    /// Thread of the last write; 0 before the first.
    writer_tid: u32,
    /// Last record.
    last_ns: u64,
    /// The socket at the other end, if a watched process has it.
    other: Option<SockId>,
    /// Who has that, as last seen.
    client: Option<Client>,
    /// The peer has reset it: what had arrived before may still be read, and nothing can be written.
    reset: bool,
}

/// The table of connections.
#[derive(Debug)]
pub(super) struct Connections {
    max: usize,
    table: FxHashMap<SockId, Connection>,
    ends: Ends,
}

impl Connections {
    /// None yet; at most `max`.
    pub(super) fn new(max: usize) -> Self {
        Self { max: max.max(1), table: FxHashMap::default(), ends: Ends::default() }
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
            (_, socket::ROLE_CONNECTED) => CLIENT,
            (AF_UNIX, socket::ROLE_UNKNOWN) => Role::Unix,
            _ => Role::Unknown,
        };
        let at = Stamp::from(&open.header);
        if let Some(earlier) = self.ends.replaced(open) {
            self.leave(earlier, at, cx);
        }
        let mut connection = Connection { open: Some(*open), ..Connection::new(role, at) };
        let is_told = open.role != socket::ROLE_UNKNOWN;
        if open.role == socket::ROLE_ACCEPTED || !is_told && connection.is_listened_for(at.tgid, cx) {
            connection.serve(open.id, false, cx);
        }
        self.insert(open.id, connection, at, cx);
        if let Some(other) = self.ends.add(open) {
            self.join(open.id, other);
            self.infer([open.id, other], cx);
        }
    }

    /// Of the two ends of a connection, one of which nothing is known is what the other is not.
    fn infer(&mut self, [one, other]: [SockId; 2], cx: &mut Context<'_>) {
        for (end, far) in [(one, other), (other, one)] {
            let far = self.table.get(&far).map(|connection| &connection.role);
            let serves = matches!(far, Some(Role::Server(_)));
            let asks = matches!(far, Some(Role::Ignored("client_side")));
            let unknown = self.table.get_mut(&end).filter(|end| matches!(end.role, Role::Unknown));
            match unknown {
                Some(client) if serves => client.role = CLIENT,
                Some(server) if asks => server.serve(end, false, cx),
                _ => {}
            }
        }
    }

    /// A unix socket was closed, which shows when another one is in its place, or when both ends have no more to say. By
    /// whom, and when, is not known.
    fn leave(&mut self, id: SockId, at: Stamp, cx: &mut Context<'_>) {
        let Some(mut connection) = self.table.remove(&id) else { return };
        cx.client = connection.client;
        if let Role::Server(server) = &mut connection.role {
            server.vanished(at, cx);
            server.give_up_deliveries(cx);
        }
        connection.open.iter().for_each(|open| self.ends.remove(open));
    }

    /// Two sockets turned out to be the two ends of one connection.
    fn join(&mut self, one: SockId, other: SockId) {
        for (end, far) in [(one, other), (other, one)] {
            if let Some(connection) = self.table.get_mut(&end) {
                connection.other = Some(far);
            }
        }
    }

    /// The watched process at the other end of a connection, as last seen there; the connection is made if there is none.
    /// One look-up, and one more where there is such a process.
    fn client(&mut self, id: SockId, at: Stamp, cx: &mut Context<'_>) -> Option<Client> {
        let Some(connection) = self.table.get(&id) else {
            self.insert(id, Connection::new(Role::Unknown, at), at, cx);
            return None;
        };
        let other = connection.other.and_then(|other| self.table.get(&other));
        other.map(|c| Client { pid: c.tgid, tid: c.writer_tid }).or(connection.client)
    }

    /// One call on a socket: its payload is masked when this returns.
    pub(super) fn data(&mut self, data: &socket::Data, payload: Payload<'_>, cx: &mut Context<'_>) {
        let at = Stamp::from(&data.header);
        cx.client = self.client(data.id, at, cx);
        let Some(connection) = self.table.get_mut(&data.id) else { return };
        connection.client = cx.client;
        connection.tgid = at.tgid;
        connection.last_ns = at.time_ns;
        if data.dir == socket::DIR_SEND {
            connection.writer_tid = at.tid;
        }
        if matches!(connection.role, Role::Unix) && !payload.head.is_empty() {
            connection.role = Role::Unknown;
        }
        if matches!(connection.role, Role::Unknown)
            && call::begins(data)
            && let Some(proof) = connection.learn_role(data, &payload, cx)
        {
            // What proves a role must stay, so that a recording proves it again.
            let Payload { head, tail } = payload;
            return drop_payload(Payload { head: &mut head[proof..], tail }, "client_side", cx);
        }
        match &mut connection.role {
            // It stays one, since its last answer may not be acknowledged yet.
            Role::Server(server) => {
                let in_vain = connection.reset && data.dir == socket::DIR_SEND && data.result > 0;
                if let Some(why) = server.closed().or(in_vain.then_some("after_close")) {
                    return drop_payload(payload, why, cx);
                }
                server.data(data, payload, cx);
                if let Some(why) = server.closed() {
                    cx.health.ignore(why);
                }
                let is_over = data.result == 0 || server.closed() == Some("after_close");
                let is_unix = connection.open.is_some_and(|open| open.family == AF_UNIX);
                if is_unix && is_over && server.oldest().is_none() {
                    self.leave(data.id, at, cx);
                }
            }
            Role::Ignored(why) => drop_payload(payload, why, cx),
            Role::Unix => drop_payload(payload, "unix_socket", cx),
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
        if !self.table.contains_key(&state.id) {
            return;
        }
        cx.client = self.client(state.id, Stamp::from(&state.header), cx);
        let Some(connection) = self.table.get_mut(&state.id) else { return };
        connection.client = cx.client;
        connection.last_ns = state.header.time_ns;
        // Whichever process of the server has it.
        let local = state.header.tgid != 0;
        if let Role::Server(server) = &mut connection.role {
            server.state(state, local, cx);
        }
        if state.new != socket::tcp::CLOSE {
            return;
        }
        if let Role::Server(server) = &mut connection.role {
            server.give_up_deliveries(cx);
        }
        // Its port is free for others.
        connection.open.iter().for_each(|open| self.ends.remove(open));
        if !local && matches!(state.old, socket::tcp::ESTABLISHED | socket::tcp::CLOSE_WAIT) {
            // After a reset calls still return; without this entry they would look like a new connection.
            connection.reset = true;
            if !matches!(connection.role, Role::Server(_)) {
                connection.role = Role::Ignored("after_close");
            }
        } else {
            self.table.remove(&state.id);
        }
    }

    /// The last process of a service ended, and the exchanges it had. While others run, they may have the same
    /// connections, and these tell when they end.
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
            cx.client = connection.client;
            if let Role::Server(server) = &mut connection.role {
                server.finish(ending, why, at, cx);
                server.give_up_deliveries(cx);
            }
            connection.role = Role::Ignored(why);
        }
    }

    /// Adds a connection; when the table is full, a sixteenth goes: first what is over, then what was idle longest.
    fn insert(&mut self, id: SockId, connection: Connection, at: Stamp, cx: &mut Context<'_>) {
        if self.table.len() >= self.max && !self.table.contains_key(&id) {
            let mut use_of: Vec<_> = self.table.values().map(Connection::uses).collect();
            let nth = use_of.len() / 16;
            let (_, limit, _) = use_of.select_nth_unstable(nth);
            let limit = *limit;
            // Those that go, since finishing changes what they are.
            let is_out = |c: &Connection| c.uses() <= limit;
            let out: FxHashSet<SockId> =
                self.table.iter().filter(|(_, c)| is_out(c)).map(|(id, _)| *id).collect();
            self.finish(is_out, Ending::OutOfSight, "connection_evicted", at, cx);
            let ends = &mut self.ends;
            self.table.retain(|id, c| {
                let stays = !out.contains(id);
                c.open.iter().filter(|_| !stays).for_each(|open| ends.remove(open));
                stays
            });
            cx.health.ignore("connection_table_full");
        }
        self.table.insert(id, connection);
    }
}

impl Connection {
    fn new(role: Role, at: Stamp) -> Self {
        let Stamp { time_ns: last_ns, tgid, .. } = at;
        Self { role, open: None, tgid, writer_tid: 0, last_ns, other: None, client: None, reset: false }
    }

    /// How much is lost with it: nothing if it is over, more if it is open, most if something is going on; and when it
    /// was used last.
    fn uses(&self) -> (u8, u64) {
        let worth = match &self.role {
            Role::Ignored("client_side") => 1,
            Role::Ignored(_) => 0,
            Role::Server(server) if server.oldest().is_some() => 2,
            Role::Server(server) if self.reset || server.closed().is_some() => 0,
            Role::Server(_) | Role::Unknown | Role::Unix => 1,
        };
        (worth, self.last_ns)
    }

    /// It carries exchanges, as far as is known.
    fn is_served(&self) -> bool {
        matches!(&self.role, Role::Server(server) if server.closed().is_none())
    }

    /// A process of a service accepted it.
    fn serve(&mut self, id: SockId, role_guessed: bool, cx: &mut Context<'_>) {
        let open = self.open.as_ref();
        if let Some(open) = open {
            cx.older.found(open, cx.processes);
        }
        self.role = Role::Server(Accepted::new(Origin::of(id, open, role_guessed)));
    }

    /// The service of a process listens at its port.
    fn is_listened_for(&self, pid: u32, cx: &Context<'_>) -> bool {
        self.open.is_some_and(|open| cx.processes.listens(pid, open.netns, open.local_port))
    }

    /// Who is the server, from the listening ports or from what the bytes begin with. When this side is the
    /// client: how many bytes prove it.
    fn learn_role(
        &mut self,
        data: &socket::Data,
        payload: &Payload<'_>,
        cx: &mut Context<'_>,
    ) -> Option<usize> {
        let head = &*payload.head;
        let http2 = |request| http2::begins(head).filter(|proof| proof.request == request).map(|p| p.len);
        let request = begins_request(head).or_else(|| http2(true));
        let response = begins_response(head).or_else(|| http2(false));
        let received = data.dir == socket::DIR_RECV;
        let guessed = if self.is_listened_for(data.header.tgid, cx) {
            false
        } else if (received && request.is_some())
            || (!received && (http2(false).is_some() || call::answers(data, payload)))
        {
            true
        } else {
            let proof = if received { response } else { request };
            if proof.is_some() {
                self.role = CLIENT;
            }
            return proof;
        };
        self.serve(data.id, guessed, cx);
        None
    }
}

fn drop_payload(Payload { head, tail }: Payload<'_>, why: &'static str, cx: &mut Context<'_>) {
    mask_all(head);
    mask_all(tail);
    cx.health.ignore(why);
}
