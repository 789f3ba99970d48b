//! Unix sockets: which connection it is, who is at its other end, and whether it carries requests.
//!
//! Nothing tells of their birth and death but what reads find: that of the socket itself, or that of its peer, in whatever
//! process. A connection is told from an earlier one at the same address by the number
//! of its file's inode. Programs talk to each other over many of them, so bytes are only captured on one that a
//! process accepted, from the first read on that begins like a request of HTTP.

use aya_ebpf::helpers::bpf_probe_read_user;
use wire::socket::{DIR_RECV, tcp};

use super::boundary::is_method;
use super::call::{Call, Source, segment};
use super::identity::{Socket, find, forget};
use super::sock::{RCV_SHUTDOWN, SEND_SHUTDOWN, Sock, UNIX};
use super::state::tell;
use crate::emit::{Outcome, Stop};
use crate::maps::offset;
use crate::scope::Task;

/// The socket at the other end; 0 when it is not known.
#[inline(always)]
pub(crate) fn peer(sock: Sock) -> u64 {
    sock.field(offset!(unix_peer))
}

/// Number of the file's inode; 0 when it is not known.
#[inline(always)]
pub(crate) fn inode(sock: Sock) -> u64 {
    let socket: *const u8 = sock.field::<u64>(offset!(sock_socket)) as *const u8;
    if socket.is_null() { 0 } else { Sock(socket).field(offset!(socket_inode)) }
}

/// Drops the entry of an earlier socket at this address. One without a number yet is of this one: another thread has
/// just made it.
#[inline(always)]
pub(crate) fn forget_earlier(sock: Sock) {
    let known = find(sock).map_or(0, |socket| socket.inode.get());
    if known != 0 && known != inode(sock) {
        forget(sock);
    }
}

/// Whether bytes of this call are wanted. The first call that shows it marks the socket.
#[inline(always)]
pub(crate) fn carries_requests(socket: &Socket, sock: Sock, dir: u8, call: &Call, bytes: u32) -> bool {
    if socket.inode.get() == 0 {
        socket.inode.set(inode(sock));
    }
    if socket.is_serving() {
        return true;
    }
    // A socket has the address that it, or the one that it was accepted on, listens on.
    let is_accepted = sock.field::<u64>(offset!(unix_address)) != 0;
    let serves = dir == DIR_RECV && bytes >= 4 && is_accepted && begins_request(call);
    if serves {
        socket.serve();
    }
    serves
}

/// The end of what is read was read: tells the agent if the peer has not only ended its side but closed. Nothing else
/// does.
#[inline(always)]
pub(crate) fn ended(socket: &Socket, sock: Sock) -> Outcome {
    // Neither is anything to be read, nor would be what is written.
    if !socket.is_serving() || sock.shutdown() != RCV_SHUTDOWN | SEND_SHUTDOWN {
        return Ok(());
    }
    tell(socket, sock, [tcp::CLOSE_WAIT, tcp::CLOSE], Task::NOBODY)
}

/// Somebody has read the end of what his peer sends: if that is a socket that brings requests, tells the agent that the
/// server has closed it, or sends no more. It stays where it is, and the other end's, until this end is closed too.
#[inline(always)]
pub(crate) fn peer_ended(sock: Sock) -> Outcome {
    if sock.family() != UNIX {
        return Err(Stop::Quiet);
    }
    let server = Sock(peer(sock) as *const u8);
    let socket =
        find(server).filter(|socket| socket.is_serving() && socket.is_opened()).ok_or(Stop::Quiet)?;
    // Its file is gone. (Without one from the beginning: it was never accepted, and brought no requests.)
    if offset!(sock_socket) != 0 && server.field::<u64>(offset!(sock_socket)) == 0 {
        return tell(socket, server, [tcp::FIN_WAIT1, tcp::CLOSE], Task::NOBODY);
    }
    // What this side has ended says nothing of the other.
    if sock.shutdown() == RCV_SHUTDOWN && server.shutdown() & SEND_SHUTDOWN != 0 {
        return tell(socket, server, [tcp::ESTABLISHED, tcp::FIN_WAIT1], Task::NOBODY);
    }
    Err(Stop::Quiet)
}

/// The call's first bytes are a method of those that clients send, or the preface of HTTP/2.
#[inline(always)]
fn begins_request(call: &Call) -> bool {
    let address = match call.source {
        Source::Opaque => return false,
        Source::Buffer { address } => address,
        Source::Vector { address, .. } => segment(address, 0).map_or(0, |segment| segment.base),
    };
    // SAFETY: a checked read of user memory.
    let first = unsafe { bpf_probe_read_user(address as *const [u8; 4]) }.unwrap_or([0; 4]);
    is_method(first) || &first == b"PRI "
}
