//! [1b] Plaintext in the place of ciphertext: socket records of TLS connections get the bytes that a TLS library gave
//! or took, so that everything behind sees a connection in clear, with the times of its socket calls.
//!
//! [`Links::take`] stands between the source and [`crate::decode`]. A recording holds what comes out of it (masked),
//! so a replay needs no links. Pure, and bounded: what is forgotten is told as [`wire::tls::UNLINKED`].
//!
//! | module | knows |
//! |---|---|
//! | [`frame`] | where records of TLS begin and end in what a socket carried |
//! | [`flow`] | one direction: which record holds which plaintext |
//! | [`connection`] | both, and when a connection is opaque |
//! | [`links`] | how links are proven, used and cut |
//! | [`plain`] | plaintext that waits, and the socket record that takes it |
//! | [`table`] | what was not used for longest |
//!
//! Whose plaintext a connection carries is proven in one of three ways, and checked with every call after that:
//! 1. the library used the socket within its own call, on the same thread;
//! 2. the thread read a record of exactly the length of plaintext that came out after it, from the connection that it
//!    had read when it took a step of the handshake, or else from no other connection that is not linked;
//! 3. a thread wrote a record of exactly the length of plaintext that went in before, on it and nowhere else.
//!
//! Nothing else links them: plaintext without a proof is counted and dropped.

mod connection;
mod flow;
mod frame;
mod links;
mod plain;
mod table;

use std::collections::VecDeque;

use wire::{
    Header, Kind,
    socket::{self, DIR_RECV, DIR_SEND, SockId},
    tls,
};
use zerocopy::{FromBytes, IntoBytes};

use connection::{Connection, SslKey, verdict};
use frame::{begins_handshake, header};
use plain::Chunk;
use table::Table;

/// Connections, and TLS connections of libraries, that are known at a time.
const MAX_KNOWN: usize = 16_384;
/// Threads of which it is known what they read last.
const MAX_THREADS: usize = 16_384;
/// Connections that are not linked and may turn out to be somebody's.
const MAX_UNREAD: usize = 256;
/// TLS connections of libraries without a socket that wait for one.
const MAX_UNLINKED: usize = 256;
/// Closed connections that may still be read from.
const MAX_CLOSED: usize = 256;
/// Plaintext that waits for its socket call, bytes in all.
const MAX_HELD: usize = 8 << 20;
/// Calls of one TLS connection that wait.
const MAX_WAITING: usize = 1024;
/// Plaintext that nobody is known to have sent waits no longer.
const PATIENCE_NS: u64 = 2_000_000_000;

/// What a socket is.
#[derive(Debug)]
enum Socket {
    /// No byte of it was seen.
    New { whole: bool, serves: bool },
    /// It does not speak TLS.
    Clear,
    /// It does.
    Tls(Box<Connection>),
}

/// A TLS connection of a library.
#[derive(Debug, Default)]
struct Ssl {
    /// Its socket, once proven.
    sock: Option<SockId>,
    /// Thread of its last call.
    tid: u32,
    /// What the thread had read last when it took a step of the handshake.
    shook: Option<SockId>,
    /// What it wrote and no socket carried yet.
    waiting: VecDeque<Chunk>,
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is not about TLS: it goes on as it is.
    Pass,
    /// The records that were appended, maybe none, go on in its place.
    Replaced,
}

/// Who carries whose plaintext.
#[derive(Debug)]
pub struct Links {
    sockets: Table<SockId, Socket>,
    ssls: Table<SslKey, Ssl>,
    /// The connection that a thread last read from.
    last_read: Table<u32, SockId>,
    /// Connections that were read from and are not linked, oldest first.
    unread: VecDeque<SockId>,
    /// Threads that read from more of them than that: which one is theirs cannot be told by there being one alone.
    crowded: Table<u32, ()>,
    /// Without a socket, and with something that waits, oldest first.
    unlinked: VecDeque<SslKey>,
    /// Connections that are closed, but may still be read from.
    closed: Table<SockId, SockId>,
    /// Bytes of plaintext that wait.
    held: usize,
}

impl Default for Links {
    fn default() -> Self {
        Self {
            sockets: Table::new(MAX_KNOWN),
            ssls: Table::new(MAX_KNOWN),
            last_read: Table::new(MAX_THREADS),
            unread: VecDeque::new(),
            crowded: Table::new(MAX_THREADS),
            unlinked: VecDeque::new(),
            closed: Table::new(MAX_CLOSED),
            held: 0,
        }
    }
}

impl Links {
    /// Takes one record of the kernel side, and appends what goes on in its place.
    pub fn take(&mut self, record: &[u8], out: &mut Vec<Vec<u8>>) -> Taken {
        let Ok((head, _)) = Header::read_from_prefix(record) else { return Taken::Pass };
        let Some(record) = record.get(..head.len as usize).filter(|_| head.abi == wire::ABI) else {
            return Taken::Pass;
        };
        match Kind::from_u16(head.kind) {
            Some(Kind::SocketOpen) => self.open(record, out),
            Some(Kind::SocketData) => return self.data(record, out),
            Some(Kind::SocketAck) => return self.ack(record, out),
            Some(Kind::SocketState) => self.state(record, out),
            Some(Kind::TlsData) => return self.plaintext(record, out),
            Some(Kind::Observation) => self.expire(&head, out),
            _ => {}
        }
        Taken::Pass
    }

    /// The socket carries TLS.
    pub fn speak_tls(&self, id: SockId) -> bool {
        matches!(self.sockets.get(&id), Some(Socket::Tls(_)))
    }

    fn open(&mut self, record: &[u8], out: &mut Vec<Vec<u8>>) {
        let Ok((open, _)) = socket::Open::read_from_prefix(record) else { return };
        let whole = open.flags & socket::FLAG_MID_STREAM == 0;
        let serves = open.role != socket::ROLE_CONNECTED;
        if self.sockets.get(&open.id).is_none() {
            self.add(open.id, Socket::New { whole, serves }, &open.header, out);
        }
    }

    /// Adds a socket; the library's connection of one that had to go for it has none any more.
    fn add(&mut self, id: SockId, socket: Socket, header: &Header, out: &mut Vec<Vec<u8>>) {
        let Some(Socket::Tls(evicted)) = self.sockets.insert(id, socket) else { return };
        let Some(key) = evicted.ssl else { return };
        let Some(ssl) = self.ssls.get_mut(&key) else { return };
        ssl.sock = None;
        self.wait_unlinked(key, header, out);
    }

    fn data(&mut self, record: &[u8], out: &mut Vec<Vec<u8>>) -> Taken {
        let Some((data, head, tail)) = socket_data(record) else { return Taken::Pass };
        let Some(connection) = self.speaks_tls(&data, head, out) else { return Taken::Pass };
        // Ciphertext: the next call shows it as well.
        if data.flags & socket::FLAG_UNSEEN != 0 {
            return Taken::Replaced;
        }
        // An end or an error means the same to both.
        if data.result <= 0 {
            return Taken::Pass;
        }
        let has_gap = data.dir == DIR_SEND && connection.is_behind_gap(&data);
        connection.call(&data, head, tail);
        if let Some(ssl) = connection.ssl.filter(|_| has_gap) {
            self.lost(ssl, &data.header, out);
        }
        let ssl = self.connection(data.id).and_then(|connection| connection.ssl);
        match (data.dir, ssl) {
            (DIR_RECV, ssl) => self.note_read(&data, ssl.is_none()),
            (_, Some(ssl)) => self.write_on(ssl, &data.header, out),
            (_, None) => self.prove_by_write(&data, out),
        }
        if let Some(connection) = self.connection(data.id)
            && connection.becomes_opaque(false)
        {
            out.push(connection.verdict(tls::OPAQUE, &data.header));
        }
        Taken::Replaced
    }

    fn note_read(&mut self, data: &socket::Data, is_unlinked: bool) {
        self.last_read.insert(data.header.tid, data.id);
        if is_unlinked && !self.unread.contains(&data.id) {
            if self.unread.len() == MAX_UNREAD
                && let Some(oldest) = self.unread.pop_front()
                && let Some(tid) = self.connection(oldest).and_then(|connection| connection.reader())
            {
                self.crowded.insert(tid, ());
            }
            self.unread.push_back(data.id);
        }
    }

    /// The connection, if it speaks TLS as far as is known.
    fn speaks_tls(
        &mut self,
        data: &socket::Data,
        head: &[u8],
        out: &mut Vec<Vec<u8>>,
    ) -> Option<&mut Connection> {
        if self.sockets.get(&data.id).is_none() {
            self.add(data.id, Socket::New { whole: false, serves: true }, &data.header, out);
        }
        let socket = self.sockets.get_mut(&data.id)?;
        if let Socket::New { whole, serves } = *socket
            && data.result > 0
        {
            let is_tls = begins_handshake(head) || (!whole && header(head).is_some());
            *socket = Socket::Clear;
            if is_tls {
                let connection = Connection::new(data.id, whole, serves);
                out.push(connection.verdict(tls::SEEN, &data.header));
                *socket = Socket::Tls(Box::new(connection));
            }
        }
        match socket {
            Socket::Tls(connection) => Some(connection),
            Socket::New { .. } | Socket::Clear => None,
        }
    }

    fn connection(&mut self, id: SockId) -> Option<&mut Connection> {
        match self.sockets.get_mut(&id)? {
            Socket::Tls(connection) => Some(connection),
            Socket::New { .. } | Socket::Clear => None,
        }
    }

    fn ack(&mut self, record: &[u8], out: &mut Vec<Vec<u8>>) -> Taken {
        let Ok((ack, _)) = socket::Ack::read_from_prefix(record) else { return Taken::Pass };
        let Some(connection) = self.connection(ack.id) else { return Taken::Pass };
        out.extend(connection.ack(&ack).map(|ack| ack.as_bytes().to_vec()));
        Taken::Replaced
    }

    fn state(&mut self, record: &[u8], out: &mut Vec<Vec<u8>>) {
        let Ok((state, _)) = socket::State::read_from_prefix(record) else { return };
        if state.new != socket::tcp::CLOSE {
            return;
        }
        let Some(connection) = self.connection(state.id) else {
            self.sockets.remove(&state.id);
            return;
        };
        let ssl = connection.ssl;
        if connection.becomes_opaque(true) {
            out.push(connection.verdict(tls::OPAQUE, &state.header));
        }
        if let Some(key) = ssl {
            // It will never be sent.
            self.drop_waiting(key, &state.header, out);
        }
        self.unread.retain(|unread| *unread != state.id);
        // What had arrived may still be read.
        if let Some(oldest) = self.closed.insert(state.id, state.id) {
            self.forget(oldest, &state.header, out);
        }
    }

    /// Forgets a socket, and the library's connection on it.
    fn forget(&mut self, id: SockId, header: &Header, out: &mut Vec<Vec<u8>>) {
        let Some(Socket::Tls(connection)) = self.sockets.remove(&id) else { return };
        if let Some(key) = connection.ssl {
            self.drop_waiting(key, header, out);
            self.ssls.remove(&key);
        }
    }

    fn plaintext(&mut self, record: &[u8], out: &mut Vec<Vec<u8>>) -> Taken {
        let Some((data, head, tail)) = tls_data(record) else { return Taken::Replaced };
        let key = (data.header.tgid, data.ssl);
        if self.ssls.get(&key).is_none()
            && let Some(evicted) = self.ssls.insert(key, Ssl::default())
        {
            self.let_go(evicted, &data.header, out);
        }
        if let Some(ssl) = self.ssls.get_mut(&key) {
            ssl.tid = data.header.tid;
        }
        if data.len == 0 {
            let shook = self.last_read.get(&data.header.tid).copied();
            if let Some(ssl) = self.ssls.get_mut(&key) {
                ssl.shook = shook;
            }
            return Taken::Replaced;
        }
        if data.sock.sock != 0 {
            self.prove_by_nesting(key, data.sock, &data.header, out);
        }
        let chunk = Chunk::new(&data, head, tail);
        if data.dir == DIR_SEND {
            self.wrote(key, chunk, &data.header, out);
        } else {
            self.read(key, &chunk, &data, out);
        }
        Taken::Replaced
    }
}

/// A record of a socket call, and its captured bytes.
fn socket_data(record: &[u8]) -> Option<(socket::Data, &[u8], &[u8])> {
    let (data, rest) = socket::Data::read_from_prefix(record).ok()?;
    let (head, rest) = rest.split_at_checked(data.head_len.into())?;
    let fits = u64::from(data.head_len) + u64::from(data.tail_len) <= u64::try_from(data.result).unwrap_or(0);
    let tail = rest.get(..data.tail_len.into())?;
    (fits || data.result <= 0).then_some((data, head, tail))
}

/// A record of a TLS library's call, and its captured bytes.
fn tls_data(record: &[u8]) -> Option<(tls::Data, &[u8], &[u8])> {
    let (data, rest) = tls::Data::read_from_prefix(record).ok()?;
    let (head, rest) = rest.split_at_checked(data.head_len.into())?;
    let fits = u32::from(data.head_len) + u32::from(data.tail_len) <= data.len;
    let tail = rest.get(..data.tail_len.into())?;
    (fits && data.dir <= DIR_SEND).then_some((data, head, tail))
}

#[cfg(test)]
mod tests;
