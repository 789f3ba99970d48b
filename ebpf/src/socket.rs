//! Sockets of watched processes: every call that moved bytes, ended or failed, as the kernel saw it.

mod boundary;
mod call;
pub(crate) mod capture;
mod descriptor;
mod exit;
pub(crate) mod gather;
pub(crate) mod identity;
mod network;
pub(crate) mod older;
mod registers;
mod segment;
mod sock;
mod state;
mod unix;
mod unseen;

use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use wire::counter::Counter;
use wire::names::SCOPE_SOCKETS;
use wire::socket::{DIR_RECV, DIR_SEND, Network};

use self::call::Call;
use self::capture::Facts;
use self::sock::Sock;
use crate::emit::{Outcome, Stop, count, finish};
use crate::scope::Task;
use crate::tls;

const EAGAIN: i32 = -11;
const EPIPE: i32 = -32;
const ECONNRESET: i32 = -104;
const ETIMEDOUT: i32 = -110;

const MSG_OOB: i32 = 0x1;
const MSG_PEEK: i32 = 0x2;
const MSG_TRUNC: i32 = 0x20;
const MSG_ERRQUEUE: i32 = 0x2000;
/// What a client of HTTP/2 begins with, as far as no client of HTTP/1 does.
const PREFACE: [u8; 8] = *b"PRI * HT";
/// Reads that do not take bytes off the stream.
const NOT_OF_THE_STREAM: i32 = MSG_OOB | MSG_PEEK | MSG_ERRQUEUE;

/// match: `sock_recv_length(struct sock *sk, int ret, int flags)`
#[raw_tracepoint(tracepoint = "sock_recv_length")]
pub(crate) fn sock_recv(ctx: RawTracePointContext) -> u32 {
    finish(received(&ctx))
}

/// match: `sock_send_length(struct sock *sk, int ret, int flags)`
#[raw_tracepoint(tracepoint = "sock_send_length")]
pub(crate) fn sock_send(ctx: RawTracePointContext) -> u32 {
    finish(sent(&ctx))
}

#[inline(always)]
fn received(ctx: &RawTracePointContext) -> Outcome {
    let task = Task::current();
    let (result, flags): (i32, i32) = (ctx.arg(1), ctx.arg(2));
    if result == 0 || result == ECONNRESET {
        note(unix::peer_ended(Sock(ctx.arg(0))));
    }
    if !task.is_watched(SCOPE_SOCKETS) || !is_news(DIR_RECV, result) || flags & NOT_OF_THE_STREAM != 0 {
        return Err(Stop::Quiet);
    }
    let (sock, call) = (Sock(ctx.arg(0)), Call::current(DIR_RECV));
    let is_copied = flags & MSG_TRUNC == 0;
    record::<true>(&Moved { task, sock, dir: DIR_RECV, result, is_copied, call })
}

/// Counts what went wrong with something that is told beside another thing.
#[inline(always)]
fn note(outcome: Outcome) {
    if let Err(Stop::Count(counter)) = outcome {
        count(counter);
    }
}

#[inline(always)]
fn sent(ctx: &RawTracePointContext) -> Outcome {
    let task = Task::current();
    let result: i32 = ctx.arg(1);
    if !task.is_watched(SCOPE_SOCKETS) || !is_news(DIR_SEND, result) {
        return Err(Stop::Quiet);
    }
    let (sock, call) = (Sock(ctx.arg(0)), Call::current(DIR_SEND));
    record::<true>(&Moved { task, sock, dir: DIR_SEND, result, is_copied: true, call })
}

/// Whether a result tells something.
#[inline(always)]
fn is_news(dir: u8, result: i32) -> bool {
    if dir == DIR_RECV {
        result >= 0 || result == ECONNRESET || result == ETIMEDOUT
    } else {
        result > 0 || result == EAGAIN || result == EPIPE || result == ECONNRESET
    }
}

/// A call on a socket, at its end.
pub(crate) struct Moved {
    task: Task,
    sock: Sock,
    dir: u8,
    /// Bytes, 0, or `-errno`.
    result: i32,
    /// Or thrown away.
    is_copied: bool,
    call: Call,
}

/// Writes the records of a call, or (not `ALONE`) of one message of several that moved in one call. Of those, long ones
/// are never captured whole: so much work for the verifier would be more than it takes on.
#[inline(never)]
fn record<const ALONE: bool>(moved: &Moved) -> Outcome {
    let &Moved { task, sock, dir, result, is_copied, ref call } = moved;
    let family = sock.family();
    if !matches!(family, 0 | sock::UNIX | sock::INET | sock::INET6) {
        return Err(Stop::Quiet);
    }
    // SAFETY: always valid.
    let now = unsafe { bpf_ktime_get_ns() };
    if result == 0 && call.had_no_room() {
        return Err(Stop::Quiet);
    }
    // Or another internet socket, which has no entry and gets none.
    let is_tcp = matches!(family, sock::INET | sock::INET6);
    let is_unix = family == sock::UNIX;
    if is_unix {
        unix::forget_earlier(sock);
    }
    let socket = identity::find_or_adopt(sock, is_tcp, now)?;
    let bytes = if result > 0 { result as u32 } else { 0 };
    let is_wanted = !is_unix || unix::carries_requests(socket, sock, dir, call, bytes);
    identity::announce(socket, sock, family, now, task)?;
    let unseen = if is_tcp { unseen::before::<ALONE>(socket, moved, now) } else { 0 };
    let offset = socket.advance(dir, u64::from(unseen) + u64::from(bytes)) + u64::from(unseen);
    let network = if bytes == 0 || !is_tcp {
        Network::default()
    } else if dir == DIR_SEND {
        socket.times.of_write(sock, offset + u64::from(bytes))
    } else if ALONE {
        socket.times.of_read(sock, bytes)
    } else {
        // Where the kernel is by now is behind the last message of the call.
        count(Counter::ArrivalUnknown);
        Network::default()
    };
    if bytes > 0 {
        tls::uses(task, dir, socket.id(sock));
    }
    let with_payload = is_copied && is_wanted;
    let begins = dir == DIR_RECV && offset == 0 && with_payload;
    if begins && bytes as usize >= PREFACE.len() && call.begins_with(PREFACE) {
        socket.want_whole();
    }
    let is_whole = ALONE && socket.wants_whole(sock, bytes);
    let id = socket.id(sock);
    let facts = Facts { moved, now, id, offset, network, with_payload, is_whole };
    capture::emit::<ALONE>(&facts, socket)?;
    if is_unix && dir == DIR_RECV && result == 0 { unix::ended(socket, sock) } else { Ok(()) }
}
