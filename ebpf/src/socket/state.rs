//! Births and deaths of TCP connections, and new listening ports.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use wire::Kind;
use wire::counter::Counter;
use wire::names::{SCOPE_SOCKETS, listen_key};
use wire::socket::{Listen, ROLE_ACCEPTED, ROLE_CONNECTED, State, tcp};

use super::identity::{Socket, announce, begin, find, forget};
use super::segment;
use super::sock::{RCV_SHUTDOWN, SEND_SHUTDOWN, Sock};
use super::unseen;
use crate::emit::{Outcome, Stop, count, finish, reserve, submit, submit_now, write_header};
use crate::maps::LISTEN;
use crate::scope::Task;

/// match: `inet_sock_set_state(const struct sock *sk, const int oldstate, const int newstate)`
#[raw_tracepoint(tracepoint = "inet_sock_set_state")]
pub(crate) fn sock_state(ctx: RawTracePointContext) -> u32 {
    let (sock, old, new): (_, i32, i32) = (Sock(ctx.arg(0)), ctx.arg(1), ctx.arg(2));
    finish(match new as u8 {
        tcp::LISTEN => listening(sock),
        tcp::SYN_SENT => connecting(sock),
        tcp::ESTABLISHED => established(sock, old as u8),
        tcp::FIN_WAIT2 => acknowledged(sock),
        tcp::LAST_ACK => closing_too(sock),
        tcp::FIN_WAIT1 | tcp::CLOSE_WAIT | tcp::CLOSE => closing(sock, old as u8, new as u8),
        _ => Ok(()),
    })
}

/// A closed connection stays known until its process lets go of it, because what was received may still be read.
///
/// match: `tcp_destroy_sock(struct sock *sk)`
#[raw_tracepoint(tracepoint = "tcp_destroy_sock")]
pub(crate) fn sock_destroy(ctx: RawTracePointContext) -> u32 {
    let sock = Sock(ctx.arg(0));
    let told = match find(sock) {
        Some(socket) if socket.is_reset() && socket.is_opened() => {
            tell(socket, sock, [tcp::CLOSE, tcp::CLOSE], Task::NOBODY)
        }
        _ => Ok(()),
    };
    forget(sock);
    finish(told)
}

/// In the context of the process that calls `listen`.
#[inline(always)]
fn listening(sock: Sock) -> Outcome {
    let task = Task::current();
    if !task.is_watched(SCOPE_SOCKETS) {
        return Err(Stop::Quiet);
    }
    let (netns, port) = (sock.netns(), sock.local_port());
    if port == 0 {
        return Err(Stop::Quiet);
    }
    segment::add_port(port);
    LISTEN.insert(listen_key(netns, port), 0, 0).map_err(|_| Counter::MapFull)?;
    let mut entry = reserve::<Listen>(Counter::DropSocket)?;
    let record = entry.as_mut_ptr();
    // SAFETY: `record` is the reserved entry; every byte of it is written here.
    unsafe {
        let now = bpf_ktime_get_ns();
        write_header(&raw mut (*record).header, Kind::SocketListen, size_of::<Listen>(), now, task);
        (*record).netns = netns;
        (*record).port = port;
        (*record).family = sock.family();
    }
    submit_now(entry);
    Ok(())
}

/// In the context of the process that calls `connect`; the answer may come in anybody's.
#[inline(always)]
fn connecting(sock: Sock) -> Outcome {
    if !Task::current().is_watched(SCOPE_SOCKETS) {
        return Err(Stop::Quiet);
    }
    // SAFETY: always valid.
    begin(sock, unsafe { bpf_ktime_get_ns() }, ROLE_CONNECTED)?;
    let socket = find(sock).ok_or(Stop::Count(Counter::MapFull))?;
    socket.owner.set(Task::current().0);
    Ok(())
}

#[inline(always)]
fn established(sock: Sock, old: u8) -> Outcome {
    // SAFETY: always valid.
    let now = unsafe { bpf_ktime_get_ns() };
    match old {
        tcp::SYN_RECV => accepted(sock, now),
        tcp::SYN_SENT => connected(sock, now),
        _ => Ok(()),
    }
}

/// Told at once: if the peer is a watched process of this host, its record of the connection comes after this one.
#[inline(always)]
fn connected(sock: Sock, now: u64) -> Outcome {
    let socket = find(sock).filter(|socket| !socket.is_opened()).ok_or(Stop::Quiet)?;
    socket.birth_ns.set(now);
    announce(socket, sock, sock.family(), now, Task(socket.owner.get()))
}

/// The handshake is complete; the process will `accept` it later.
#[inline(always)]
fn accepted(sock: Sock, now: u64) -> Outcome {
    let key = listen_key(sock.netns(), sock.local_port());
    LISTEN.get_ptr(key).ok_or(Stop::Quiet)?;
    // What came with the first segment (TCP Fast Open) may be read, and answered, before the handshake is complete.
    if find(sock).is_some_and(Socket::take_early) {
        return Ok(());
    }
    begin(sock, now, ROLE_ACCEPTED)
}

/// The peer has acknowledged everything, the end of this side among it.
#[inline(always)]
fn acknowledged(sock: Sock) -> Outcome {
    segment::settled(find(sock).ok_or(Stop::Quiet)?, sock)
}

/// This side closes after the peer.
#[inline(always)]
fn closing_too(sock: Sock) -> Outcome {
    unseen::closing(find(sock).ok_or(Stop::Quiet)?, sock);
    Ok(())
}

#[inline(always)]
fn closing(sock: Sock, old: u8, new: u8) -> Outcome {
    let socket = find(sock).ok_or(Stop::Quiet)?;
    if new == tcp::FIN_WAIT1 {
        unseen::closing(socket, sock);
    }
    // A reset leaves both sides open until after this; whoever closes has ended both, and does it himself.
    let is_reset = new == tcp::CLOSE && matches!(old, tcp::ESTABLISHED | tcp::CLOSE_WAIT);
    let is_ours = new == tcp::FIN_WAIT1 || is_reset && sock.shutdown() == RCV_SHUTDOWN | SEND_SHUTDOWN;
    if new == tcp::CLOSE {
        socket.close(is_reset && !is_ours);
        if let Err(Stop::Count(counter)) = segment::settled(socket, sock) {
            count(counter);
        }
    }
    if !socket.is_opened() {
        return Err(Stop::Quiet);
    }
    // Only a close from this side is certain to run in its process; the others come in interrupts as well.
    tell(socket, sock, [old, new], if is_ours { Task::current() } else { Task::NOBODY })
}

/// Tells the agent of a change of state, from the first to the second.
#[inline(always)]
pub(crate) fn tell(socket: &Socket, sock: Sock, [old, new]: [u8; 2], task: Task) -> Outcome {
    let mut entry = reserve::<State>(Counter::DropSocket)?;
    let record = entry.as_mut_ptr();
    // SAFETY: `record` is the reserved entry; every byte of it is written here.
    unsafe {
        write_header(
            &raw mut (*record).header,
            Kind::SocketState,
            size_of::<State>(),
            bpf_ktime_get_ns(),
            task,
        );
        (*record).id = socket.id(sock);
        (*record).old = old;
        (*record).new = new;
        (*record).reserved = [0; 6];
    }
    submit(entry);
    Ok(())
}
