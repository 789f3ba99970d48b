//! Unix sockets: which connection it is, who is at its other end, and whether it carries requests.
//!
//! Nothing tells of their birth and death. A connection is told from an earlier one at the same address by the number
//! of its file's inode. Programs talk to each other over many of them, so bytes are only captured on one that a
//! process accepted, from the first read on that begins like a request of HTTP.

use aya_ebpf::helpers::bpf_probe_read_user;
use wire::socket::{DIR_RECV, tcp};

use super::boundary::is_method;
use super::call::{Call, Source, segment};
use super::identity::{Socket, find, forget};
use super::sock::Sock;
use super::state::tell;
use crate::emit::Outcome;
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
    /// `SHUTDOWN_MASK`: neither is anything to be read, nor would be what is written.
    const BOTH: u8 = 3;
    if !socket.is_serving() || sock.field::<u8>(offset!(sock_shutdown)) & BOTH != BOTH {
        return Ok(());
    }
    tell(socket, sock, [tcp::CLOSE_WAIT, tcp::CLOSE], Task::NOBODY)
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
