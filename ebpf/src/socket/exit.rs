//! Tier B: socket calls seen where every system call ends, on kernels without the tracepoints of tier A.
//!
//! The records are the same. What tier A sees beyond: `io_uring`, and 32-bit programs.

use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use wire::counter::Counter;
use wire::names::SCOPE_SOCKETS;
use wire::socket::{DIR_RECV, DIR_SEND};

use super::call::Call;
use super::descriptor;
use super::identity::find;
use super::registers::{Registers, number};
use super::sock::Sock;
use super::{ECONNRESET, MSG_TRUNC, Moved, NOT_OF_THE_STREAM, is_news, note, record, unix};
use crate::emit::{Outcome, Stop, count, finish};
use crate::repeat::{GO_ON, STOP, is_full, repeat};
use crate::scope::Task;

/// Messages of a batch that are looked at: as many as the kernel takes (`UIO_MAXIOV`).
const MAX_MESSAGES: u32 = 1024;
/// `struct mmsghdr`, and where in it is the number of bytes that moved.
const MESSAGE_SIZE: u64 = 64;
const MESSAGE_LEN: u64 = 56;

/// What a system call does to a socket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moves {
    Nothing,
    /// It is not one of the native ones.
    Unknown,
    /// One message.
    One,
    /// Several.
    Batch,
    /// From a file to a socket.
    Sendfile,
    /// Between a pipe and a socket.
    Splice,
}

/// Runs at the end of every system call of the host, so most must be sent on their way at once.
///
/// match: `sys_exit(struct pt_regs *regs, long ret)`
#[raw_tracepoint(tracepoint = "sys_exit")]
pub(crate) fn sock_exit(ctx: RawTracePointContext) -> u32 {
    finish(exited(ctx.arg(1)))
}

#[inline(always)]
fn exited(result: i64) -> Outcome {
    let registers = Registers::current();
    if registers.returns_from_signal() {
        return Err(Stop::Quiet);
    }
    let syscall = registers.exiting();
    let moves = syscall.map_or(Moves::Unknown, moves);
    let task = Task::current();
    if moves == Moves::Nothing || !task.is_watched(SCOPE_SOCKETS) {
        return Err(Stop::Quiet);
    }
    let Some(syscall) = syscall.filter(|_| !descriptor::in_32_bit_call()) else {
        return Err(Stop::Count(Counter::CallForeign));
    };
    if moves == Moves::Batch && result > 1 {
        batch(task, registers, syscall, result)
    } else {
        one(task, registers, syscall, result as i32)
    }
}

#[inline(always)]
fn moves(syscall: u16) -> Moves {
    match syscall {
        number::READ | number::READV | number::PREADV2 | number::RECVFROM | number::RECVMSG => Moves::One,
        number::WRITE | number::WRITEV | number::PWRITEV2 | number::SENDTO | number::SENDMSG => Moves::One,
        number::RECVMMSG | number::SENDMMSG => Moves::Batch,
        number::SENDFILE => Moves::Sendfile,
        number::SPLICE => Moves::Splice,
        _ => Moves::Nothing,
    }
}

/// Which way the bytes of one of these calls go; of a splice, if its first descriptor is a socket.
#[inline(always)]
fn direction(syscall: u16) -> u8 {
    match syscall {
        number::WRITE | number::WRITEV | number::PWRITEV2 => DIR_SEND,
        number::SENDTO | number::SENDMSG | number::SENDMMSG | number::SENDFILE => DIR_SEND,
        _ => DIR_RECV,
    }
}

/// The flags of a call that has any that matter.
#[inline(always)]
fn flags(syscall: u16, registers: Registers) -> i32 {
    match syscall {
        number::RECVFROM | number::RECVMMSG => registers.fourth() as i32,
        number::RECVMSG => registers.third() as i32,
        _ => 0,
    }
}

/// All calls but batches of several in one place: the verifier goes through what follows once for each.
#[inline(never)]
fn one(task: Task, registers: Registers, syscall: u16, result: i32) -> Outcome {
    let mut dir = direction(syscall);
    let flags = flags(syscall, registers);
    if !is_news(dir, result) || flags & NOT_OF_THE_STREAM != 0 {
        return Err(Stop::Quiet);
    }
    let mut sock = descriptor::socket(registers.first() as u32);
    if sock.is_none() && syscall == number::SPLICE && is_news(DIR_SEND, result) {
        // Then the first of its two is a pipe.
        dir = DIR_SEND;
        sock = descriptor::socket(registers.third() as u32);
    }
    let sock = sock.ok_or(Stop::Quiet)?;
    if dir == DIR_RECV && (result == 0 || result == ECONNRESET) {
        note(unix::peer_ended(sock));
    }
    let (mut result, mut call) = (result, Call::opaque(syscall));
    match syscall {
        // The bytes of these never were in user memory.
        number::SENDFILE | number::SPLICE => {}
        number::RECVMMSG | number::SENDMMSG if result == 0 => return Err(Stop::Quiet),
        // Of a batch of one the number of messages is told, not that of bytes.
        number::RECVMMSG | number::SENDMMSG if result > 0 => {
            (result, call) = read_message(syscall, registers.second())?;
        }
        _ => call = Call::of(registers, syscall, dir),
    }
    let is_copied = flags & MSG_TRUNC == 0;
    record::<true>(&Moved { task, sock, dir, result, is_copied, call })
}

/// What a message of a batch moved, and where its bytes are.
#[inline(always)]
fn read_message(syscall: u16, header: u64) -> Result<(i32, Call), Stop> {
    // SAFETY: a checked read of user memory.
    let len = unsafe { bpf_probe_read_user((header + MESSAGE_LEN) as *const u32) };
    match (len, Call::of_message(syscall, header)) {
        (Ok(len), Some(call)) => Ok((len as i32, call)),
        _ => Err(Stop::Count(Counter::PayloadUnreadable)),
    }
}

/// Messages of a batch of several.
struct Batch {
    task: Task,
    sock: Sock,
    syscall: u16,
    dir: u8,
    is_copied: bool,
    messages: u64,
}

#[inline(never)]
fn batch(task: Task, registers: Registers, syscall: u16, result: i64) -> Outcome {
    let (dir, flags) = (direction(syscall), flags(syscall, registers));
    if flags & NOT_OF_THE_STREAM != 0 {
        return Err(Stop::Quiet);
    }
    let messages = registers.second();
    let sock = descriptor::socket(registers.first() as u32).ok_or(Stop::Quiet)?;
    let is_copied = flags & MSG_TRUNC == 0;
    let mut batch = Batch { task, sock, syscall, dir, is_copied, messages };
    let turns = if result < i64::from(MAX_MESSAGES) { result as u32 } else { MAX_MESSAGES };
    repeat::<1, _>(turns, message, &mut batch);
    if is_full() { Ok(()) } else { pass_over(&batch, turns) }
}

/// Without loops only the first message of a batch is looked at. The others become a gap.
#[inline(never)]
fn pass_over(batch: &Batch, turns: u32) -> Outcome {
    /// Of so many its length is known.
    const MAX: u32 = 16;
    if turns <= 1 {
        return Ok(());
    }
    let mut rest = Rest { messages: batch.messages, bytes: 0 };
    repeat::<MAX, _>(turns - 1, add_length, &mut rest);
    if let Some(socket) = find(batch.sock) {
        socket.advance(batch.dir, rest.bytes);
        socket.positions.skip(batch.dir, rest.bytes as u32);
    }
    Err(Stop::Count(Counter::IovecTruncated))
}

/// Messages of a batch behind its first, and what they moved.
struct Rest {
    messages: u64,
    bytes: u64,
}

#[inline(never)]
extern "C" fn add_length(index: u64, rest: *mut Rest) -> u64 {
    // SAFETY: the rest of `pass_over`.
    let rest = unsafe { &mut *rest };
    let header = rest.messages + (index + 1) * MESSAGE_SIZE;
    // SAFETY: a checked read of user memory.
    let Ok(len) = (unsafe { bpf_probe_read_user((header + MESSAGE_LEN) as *const u32) }) else { return STOP };
    rest.bytes += u64::from(len);
    GO_ON
}

#[inline(never)]
extern "C" fn message(index: u64, batch: *mut Batch) -> u64 {
    // SAFETY: the batch of `batch`.
    let Batch { task, sock, syscall, dir, is_copied, messages } = unsafe { &*batch };
    let (result, call) = match read_message(*syscall, messages + index * MESSAGE_SIZE) {
        Ok(message) => message,
        Err(_) => {
            count(Counter::PayloadUnreadable);
            return STOP;
        }
    };
    let moved = Moved { task: *task, sock: *sock, dir: *dir, result, is_copied: *is_copied, call };
    match record::<false>(&moved) {
        Err(Stop::Count(counter)) => count(counter),
        Err(Stop::Quiet) | Ok(()) => {}
    }
    GO_ON
}
