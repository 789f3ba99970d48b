//! Which connection: birth, role and the running offset of each direction.

use wire::Kind;
use wire::counter::Counter;
use wire::names::listen_key;
use wire::socket::{DIR_SEND, FLAG_MID_STREAM, Open, ROLE_ACCEPTED, ROLE_UNKNOWN, SockId, WHOLE, tcp};

use super::network::Times;
use super::sock::{self, Sock};
use super::unix;
use super::unseen::Positions;
use crate::atomic::Word;
use crate::emit::{Outcome, Stop, reserve, submit, write_header};
use crate::maps::{LISTEN, SOCKS, WHOLE_CALLS};
use crate::repeat::is_full;
use crate::scope::Task;

/// The connection is over.
const CLOSED: u64 = 1;
/// The same, since the peer has reset it.
const RESET: u64 = 2;
/// `BPF_NOEXIST`.
const NO_EXIST: u64 = 1;

/// What is known of a socket.
#[repr(C)]
pub(crate) struct Socket {
    /// `CLOCK_MONOTONIC` ns.
    pub(crate) birth_ns: Word,
    received: Word,
    sent: Word,
    /// 0 until an [`Open`] was written.
    opened: Word,
    /// [`CLOSED`] or [`RESET`] once the connection is; what was received before may still be read.
    closed: Word,
    /// 1 until the handshake of a connection is complete that was read from before.
    early: Word,
    /// 1 if long calls are captured whole.
    whole: Word,
    /// Who asked to connect, as [`Task`] has it; 0 when that was not seen.
    pub(crate) owner: Word,
    /// Of a unix socket, number of its file's inode.
    pub(crate) inode: Word,
    /// 1 if it is a unix socket that was seen to bring requests.
    serving: Word,
    /// `ROLE_*`.
    role: u8,
    /// `FLAG_MID_STREAM` or 0.
    flags: u8,
    reserved: [u8; 6],
    /// When its bytes crossed the network.
    pub(crate) times: Times,
    /// How far calls went.
    pub(crate) positions: Positions,
}

impl Socket {
    #[inline(always)]
    fn new(birth_ns: u64, role: u8, flags: u8, times: Times, positions: Positions) -> Self {
        Self {
            birth_ns: Word::new(birth_ns),
            received: Word::new(0),
            sent: Word::new(0),
            opened: Word::new(0),
            closed: Word::new(0),
            early: Word::new(0),
            whole: Word::new(0),
            owner: Word::new(0),
            inode: Word::new(0),
            serving: Word::new(0),
            role,
            flags,
            reserved: [0; 6],
            times,
            positions,
        }
    }

    /// Its identity to the agent.
    pub(crate) fn id(&self, sock: Sock) -> SockId {
        SockId { sock: sock.id(), birth_ns: self.birth_ns.get() }
    }

    /// Whether the agent knows it.
    pub(crate) fn is_opened(&self) -> bool {
        self.opened.get() != 0
    }

    /// Notes that it brings requests.
    pub(crate) fn serve(&self) {
        self.serving.set(1);
    }

    /// Whether it was seen to bring requests.
    pub(crate) fn is_serving(&self) -> bool {
        self.serving.get() != 0
    }

    /// Notes that the connection is over; by a reset from the peer, if it `is_reset`.
    pub(crate) fn close(&self, is_reset: bool) {
        self.closed.set(if is_reset { RESET } else { CLOSED });
    }

    /// Whether the peer has reset it.
    pub(crate) fn is_reset(&self) -> bool {
        self.closed.get() == RESET
    }

    /// Whether it was read from before its handshake was complete, which it is now.
    pub(crate) fn take_early(&self) -> bool {
        self.closed.get() == 0 && self.early.replace(1, 0)
    }

    /// Notes that its long calls are to be captured whole, from now on.
    #[inline(always)]
    pub(crate) fn want_whole(&self) {
        self.whole.set(1);
    }

    /// Whether it is known to carry several messages in one call.
    #[inline(always)]
    pub(crate) fn is_whole(&self) -> bool {
        self.whole.get() != 0
    }

    /// Whether its long calls are captured whole; asks the agent's list only for a long call.
    #[inline(always)]
    pub(crate) fn wants_whole(&self, sock: Sock, len: u32) -> bool {
        // A few pieces would not do, and the verifier would look at each.
        if !is_full() {
            return false;
        }
        if len as usize <= WHOLE || self.whole.get() != 0 {
            return self.whole.get() != 0;
        }
        // SAFETY: a single aligned word.
        let is_asked =
            unsafe { WHOLE_CALLS.get(sock.id()) }.is_some_and(|birth| *birth == self.birth_ns.get());
        if is_asked {
            self.want_whole();
        }
        is_asked
    }

    /// Whether the entry is about an earlier socket at this address, whose end was missed.
    #[inline(always)]
    fn is_stale(&self, sock: Sock) -> bool {
        self.closed.get() != 0 && !matches!(sock.state(), 0 | tcp::CLOSE)
    }

    /// Counts `bytes` more of a direction and returns how many went before.
    #[inline(always)]
    pub(crate) fn advance(&self, dir: u8, bytes: u64) -> u64 {
        let offset = if dir == DIR_SEND { &self.sent } else { &self.received };
        offset.fetch_add(bytes)
    }
}

/// The entry of a socket, if it has one.
#[inline(always)]
pub(crate) fn find(sock: Sock) -> Option<&'static Socket> {
    // SAFETY: map memory outlives the program; an entry reused meanwhile is a stale read of words, not unsound.
    unsafe { SOCKS.get(sock.id()) }
}

/// Begins a connection, forgetting what an earlier socket at the same address left.
#[inline(always)]
pub(crate) fn begin(sock: Sock, birth_ns: u64, role: u8) -> Outcome {
    let times = Times::new(sock.rcv_nxt(), birth_ns);
    let positions = if role == ROLE_ACCEPTED { Positions::new(sock) } else { Positions::unknown() };
    SOCKS
        .insert(sock.id(), Socket::new(birth_ns, role, 0, times, positions), 0)
        .map_err(|_| Stop::Count(Counter::MapFull))
}

/// The entry of an accepted connection, of which a segment has come; made now if the connection is older than the agent.
/// That is before anything of it is read, so that its first request already has an arrival.
#[inline(always)]
pub(crate) fn find_or_backfill(sock: Sock, now: u64) -> Result<&'static Socket, Stop> {
    match find(sock) {
        Some(socket) if !socket.is_stale(sock) => return Ok(socket),
        Some(_) => forget(sock),
        None => {}
    }
    LISTEN.get_ptr(listen_key(sock.netns(), sock.local_port())).ok_or(Stop::Quiet)?;
    adopt_older(sock, ROLE_ACCEPTED, now);
    find(sock).ok_or(Stop::Count(Counter::MapFull))
}

/// The entry of a socket of a watched process; made now if its beginning was not seen. There is none for sockets that
/// carry no stream.
#[inline(always)]
pub(crate) fn find_or_adopt(sock: Sock, is_tcp: bool, now: u64) -> Result<&'static Socket, Stop> {
    match find(sock) {
        Some(socket) if !socket.is_stale(sock) => return Ok(socket),
        Some(_) => forget(sock),
        None => {}
    }
    if is_tcp && !sock.is_tcp() {
        return Err(Stop::Quiet);
    }
    adopt(sock, is_tcp, now);
    find(sock).ok_or(Stop::Count(Counter::MapFull))
}

/// Tells the agent of a connection whose beginning was not seen and on which nothing was seen since.
#[inline(always)]
pub(crate) fn announce_older(sock: Sock, family: u16, now: u64, task: Task) -> Outcome {
    let socket = match find(sock) {
        Some(socket) if !socket.is_stale(sock) => socket,
        _ => {
            forget(sock);
            let is_served = LISTEN.get_ptr(listen_key(sock.netns(), sock.local_port())).is_some();
            adopt_older(sock, if is_served { ROLE_ACCEPTED } else { ROLE_UNKNOWN }, now);
            find(sock).ok_or(Stop::Count(Counter::MapFull))?
        }
    };
    // One that was seen from its beginning is told of with its first call.
    if socket.flags & FLAG_MID_STREAM == 0 { Ok(()) } else { announce(socket, sock, family, now, task) }
}

/// Makes the entry of a connection that is older than the agent. By itself, for the sake of the stack.
#[inline(never)]
fn adopt_older(sock: Sock, role: u8, now: u64) {
    let times = Times::new(sock.rcv_nxt(), 0);
    let socket = Socket::new(now, role, FLAG_MID_STREAM, times, Positions::unknown());
    // If a call was faster, its entry is as good.
    let _ = SOCKS.insert(sock.id(), socket, NO_EXIST);
}

/// Makes the entry of a socket whose beginning was not seen. By itself, for the sake of the stack, on which it is made.
#[inline(never)]
fn adopt(sock: Sock, is_tcp: bool, now: u64) {
    let times = Times::new(if is_tcp { sock.rcv_nxt() } else { 0 }, 0);
    // Only a connection that was accepted is read from in this state, and this is its beginning.
    let is_early = is_tcp && sock.state() == tcp::SYN_RECV;
    let (role, flags) = if is_early { (ROLE_ACCEPTED, 0) } else { (ROLE_UNKNOWN, FLAG_MID_STREAM) };
    let socket = Socket::new(now, role, flags, times, Positions::unknown());
    socket.early.set(u64::from(is_early));
    // If another thread was faster, its entry is as good.
    let _ = SOCKS.insert(sock.id(), socket, NO_EXIST);
}

/// Drops the entry of a socket that is no more.
#[inline(always)]
pub(crate) fn forget(sock: Sock) {
    let _ = SOCKS.remove(sock.id());
}

/// Tells the agent of a socket before its first data. Two threads that are first at once both do: the second record
/// repeats the first.
#[inline(never)]
pub(crate) fn announce(socket: &Socket, sock: Sock, family: u16, now: u64, task: Task) -> Outcome {
    if socket.is_opened() {
        return Ok(());
    }
    let mut entry = reserve::<Open>(Counter::DropSocket)?;
    let record = entry.as_mut_ptr();
    // SAFETY: `record` is the reserved entry; every byte of it is written here.
    unsafe {
        write_header(&raw mut (*record).header, Kind::SocketOpen, size_of::<Open>(), now, task);
        (*record).id = socket.id(sock);
        sock.write_addresses(family, &raw mut (*record).local_addr, &raw mut (*record).peer_addr);
        if family == sock::UNIX {
            (&raw mut (*record).peer_addr).cast::<u64>().write_unaligned(unix::peer(sock));
        }
        (*record).netns = sock.netns();
        (*record).local_port = sock.local_port();
        (*record).peer_port = sock.peer_port();
        (*record).family = family;
        // What begins with a request began with it.
        let serves = socket.is_serving();
        (*record).role = if serves { ROLE_ACCEPTED } else { socket.role };
        (*record).flags = if serves { 0 } else { socket.flags };
        (*record).reserved = 0;
    }
    submit(entry);
    socket.opened.set(1);
    Ok(())
}
