//! Bytes that no call told of: moved by `io_uring` or a 32-bit call where tier B is in use, spliced out of a socket, read
//! without a copy.
//!
//! The kernel's own positions in the stream tell how many there were. They are compared when a call in the same
//! direction ends. The other direction is looked at when the thread that used it last makes a call, and when this side
//! closes: at other times, a call of another thread may be going on there.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use wire::Kind;
use wire::counter::Counter;
use wire::socket::{DIR_RECV, DIR_SEND, Data, FLAG_UNSEEN};

use super::Moved;
use super::identity::Socket;
use super::network::{VALID, after};
use super::sock::Sock;
use crate::atomic::Word;
use crate::emit::{count, count_by, reserve, submit, write_header};
use crate::scope::Task;

/// The positions do not go with what calls say, as with kernel TLS.
const UNCHECKED: u64 = 1 << 33;

/// Where each direction was when its last call ended: a TCP sequence number with [`VALID`], [`UNCHECKED`], or 0 when
/// nothing is known yet.
#[repr(C)]
pub(crate) struct Positions {
    received: Word,
    sent: Word,
    /// Who read last, and who wrote, as [`Task`] has it.
    reader: Word,
    writer: Word,
}

impl Positions {
    /// Of a connection that was not seen from its beginning.
    pub(crate) const fn unknown() -> Self {
        Self::of(0, 0)
    }

    /// Of one that begins now.
    #[inline(always)]
    pub(crate) fn new(sock: Sock) -> Self {
        let word = |position: Option<u32>| position.map_or(0, |at| VALID | u64::from(at));
        Self::of(word(sock.read_position()), word(sock.write_position()))
    }

    const fn of(received: u64, sent: u64) -> Self {
        let [reader, writer] = [Word::new(0), Word::new(0)];
        Self { received: Word::new(received), sent: Word::new(sent), reader, writer }
    }

    /// Notes who makes a call.
    #[inline(always)]
    fn used(&self, dir: u8, task: Task) {
        let by = if dir == DIR_SEND { &self.writer } else { &self.reader };
        by.set(task.0);
    }

    /// A message of several that moved in one call: the kernel is further by now than it.
    #[inline(always)]
    pub(crate) fn skip(&self, dir: u8, bytes: u32) {
        let word = if dir == DIR_SEND { &self.sent } else { &self.received };
        let before = word.get();
        if before & VALID != 0 {
            word.set(VALID | u64::from((before as u32).wrapping_add(bytes)));
        }
    }

    /// How many bytes of a direction moved between the last call and one of `bytes` that has just ended: 0 where that is
    /// not known.
    #[inline(always)]
    fn pass(&self, sock: Sock, dir: u8, bytes: u32) -> u32 {
        let (word, position) = if dir == DIR_SEND {
            (&self.sent, sock.write_position())
        } else {
            (&self.received, sock.read_position())
        };
        let before = word.get();
        let Some(now) = position.filter(|_| before != UNCHECKED) else { return 0 };
        let begin = now.wrapping_sub(bytes);
        if before != 0 && after(before as u32, begin) {
            word.set(UNCHECKED);
            return 0;
        }
        word.set(VALID | u64::from(now));
        if before == 0 {
            return 0;
        }
        let unseen = begin.wrapping_sub(before as u32);
        if unseen > 0 {
            count_by(Counter::BytesUnseen, u64::from(unseen));
        }
        unseen
    }
}

/// What went unseen before a call that has just ended. In its own direction: how many bytes, for its record to tell. The
/// other way, the agent is told at once; but only if the thread was the last to use that direction, since a call of
/// another one may be going on there.
#[inline(always)]
pub(crate) fn before<const ALONE: bool>(socket: &Socket, moved: &Moved, now: u64) -> u32 {
    let &Moved { task, sock, dir, result, .. } = moved;
    let positions = &socket.positions;
    if result <= 0 {
        return 0;
    }
    if !ALONE {
        positions.skip(dir, result as u32);
        return 0;
    }
    let by = if dir == DIR_SEND { &positions.reader } else { &positions.writer };
    if by.get() == task.0 {
        tell(socket, sock, dir ^ (DIR_SEND | DIR_RECV), task, now);
    }
    positions.used(dir, task);
    positions.pass(sock, dir, result as u32)
}

/// This side closes: what moved in either direction since the last call.
#[inline(always)]
pub(crate) fn closing(socket: &Socket, sock: Sock) {
    // SAFETY: always valid.
    let (task, now) = (Task::current(), unsafe { bpf_ktime_get_ns() });
    tell(socket, sock, DIR_RECV, task, now);
    tell(socket, sock, DIR_SEND, task, now);
}

/// Tells the agent how far a direction is, if no call told of all of it. If the ring is full, the next record shows it.
#[inline(never)]
fn tell(socket: &Socket, sock: Sock, dir: u8, task: Task, now: u64) {
    let unseen = u64::from(socket.positions.pass(sock, dir, 0));
    if unseen == 0 {
        return;
    }
    let offset = socket.advance(dir, unseen) + unseen;
    if !socket.is_opened() {
        return;
    }
    let Ok(mut entry) = reserve::<Data>(Counter::DropSocket) else { return count(Counter::DropSocket) };
    let record = entry.as_mut_ptr();
    // SAFETY: `record` is the reserved entry; every byte of it is written here.
    unsafe {
        write_header(&raw mut (*record).header, Kind::SocketData, size_of::<Data>(), now, task);
        (*record).id = socket.id(sock);
        (*record).offset = offset;
        (*record).network.first_ns = 0;
        (*record).network.last_ns = 0;
        (*record).network.first_len = 0;
        (*record).network.last_from = 0;
        (*record).result = 0;
        (*record).requested = 0;
        (*record).head_len = 0;
        (*record).tail_len = 0;
        (*record).syscall = u16::MAX;
        (*record).dir = dir;
        (*record).flags = FLAG_UNSEEN;
    }
    submit(entry);
}
