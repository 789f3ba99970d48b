//! Segments of watched connections, as they come in.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use wire::Kind;
use wire::counter::Counter;
use wire::socket::Ack;

use super::identity::{Socket, find_or_backfill};
use super::network::Segment;
use super::sock::Sock;
use crate::emit::{Outcome, Stop, finish, reserve, submit, write_header};
use crate::maps::{LISTEN_PORTS, OWN_PORTS};
use crate::scope::Task;

/// Runs for every segment of every open TCP connection of the host, so most must be sent on their way at once.
///
/// match: `tcp_probe(struct sock *sk, const struct sk_buff *skb)`
#[raw_tracepoint(tracepoint = "tcp_probe")]
pub(crate) fn sock_segment(ctx: RawTracePointContext) -> u32 {
    let sock = Sock(ctx.arg(0));
    if !is_of_interest(sock.local_port()) {
        return 0;
    }
    finish(segment(sock, Segment::read(ctx.arg(1))))
}

/// Some watched process listens on this port, in some namespace.
#[inline(always)]
fn is_of_interest(port: u16) -> bool {
    let (word, bit) = (u32::from(port) / 64, u32::from(port) % 64);
    let theirs = LISTEN_PORTS.get(word).copied().unwrap_or(0);
    let ours = OWN_PORTS.get(word).map_or(0, crate::atomic::Word::get);
    (theirs | ours) >> bit & 1 != 0
}

/// Makes a port one of interest. For good: that others use it later costs them a look-up.
#[inline(always)]
pub(crate) fn add_port(port: u16) {
    if let Some(word) = OWN_PORTS.get(u32::from(port) / 64) {
        word.or(1 << (u32::from(port) % 64));
    }
}

#[inline(always)]
fn segment(sock: Sock, segment: Segment) -> Outcome {
    // SAFETY: always valid.
    let now = unsafe { bpf_ktime_get_ns() };
    let socket = find_or_backfill(sock, now)?;
    socket.times.arrived(sock, segment, now);
    let offset = socket.times.acknowledged(sock, segment.ack, now, socket.is_whole()).ok_or(Stop::Quiet)?;
    emit(socket, sock, offset, now)
}

/// A connection went to a state in which everything may be acknowledged: there, segments are not seen one by one.
#[inline(always)]
pub(crate) fn settled(socket: &Socket, sock: Sock) -> Outcome {
    let offset = socket.times.reached(sock.snd_una()).ok_or(Stop::Quiet)?;
    // SAFETY: always valid.
    emit(socket, sock, offset, unsafe { bpf_ktime_get_ns() })
}

#[inline(never)]
fn emit(socket: &Socket, sock: Sock, offset: u64, now: u64) -> Outcome {
    let mut entry = reserve::<Ack>(Counter::DropSocket)?;
    let record = entry.as_mut_ptr();
    // SAFETY: `record` is the reserved entry; every byte of it is written here.
    unsafe {
        write_header(&raw mut (*record).header, Kind::SocketAck, size_of::<Ack>(), now, Task::NOBODY);
        (*record).id = socket.id(sock);
        (*record).offset = offset;
        (*record).srtt_us = sock.srtt_us();
        (*record).retransmits = sock.retransmits();
    }
    submit(entry);
    Ok(())
}
