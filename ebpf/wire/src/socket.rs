//! Socket records.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Header;

/// Bytes kept of the beginning of a call that does not fit whole.
pub const HEAD: usize = 1024;
/// Bytes kept of the end of a call that does not fit whole.
pub const TAIL: usize = 512;
/// A call of up to this many bytes is captured whole.
pub const WHOLE: usize = HEAD + TAIL;

/// Identity of a connection: the kernel's socket and when it was born. The pointer alone is reused.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct SockId {
    /// Address of `struct sock`; an opaque number to the agent, never exported.
    pub sock: u64,
    /// When the connection was established, or first seen if it is older than the agent.
    pub birth_ns: u64,
}

/// The process read from the socket.
pub const DIR_RECV: u8 = 0;
/// The process wrote to the socket.
pub const DIR_SEND: u8 = 1;

/// Not known (the socket is older than the agent).
pub const ROLE_UNKNOWN: u8 = 0;
/// Accepted on a listening port: the peer connected to us.
pub const ROLE_ACCEPTED: u8 = 1;
/// This side connected.
pub const ROLE_CONNECTED: u8 = 2;

/// The socket existed before the agent saw it; offsets count from the first sight. With [`ROLE_ACCEPTED`] if its port
/// is one that a watched process listens on.
pub const FLAG_MID_STREAM: u8 = 1;
/// No payload could be captured; sizes and times are exact.
pub const FLAG_NO_PAYLOAD: u8 = 2;
/// The call had more segments than were walked: captured bytes end early.
pub const FLAG_IOVEC_TRUNCATED: u8 = 4;
/// The record does not begin a call: what came before it in the call stands in the records before.
pub const FLAG_CONTINUED: u8 = 8;
/// The record does not end a call: the rest stands in records with [`FLAG_CONTINUED`].
pub const FLAG_MORE: u8 = 16;
/// The record is of no call: bytes up to `offset` moved in this direction some time since the record before, and no call
/// told of them. `result` is 0.
pub const FLAG_UNSEEN: u8 = 32;

/// What the network said of the bytes of one call, from the segments themselves. All zero: not known.
///
/// A read: when its bytes arrived at this host, that is when they could have been read (a segment behind a hole
/// counts from when the hole was filled). The first `first_len` bytes arrived at `first_ns`, those from `last_from`
/// on at `last_ns`, and those between at some time between. Either time may be 0 by itself.
///
/// A write: `last_ns` is when the peer had acknowledged everything up to its end, where that was before the call
/// ended, and `first_len` and `last_from` are then `srtt_us` and `retransmits` of an [`Ack`] (0 both in records of before
/// that was told); otherwise an [`Ack`] follows, and all is 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Network {
    /// First byte, ns.
    pub first_ns: u64,
    /// Last byte, ns.
    pub last_ns: u64,
    /// Bytes that came with the first one.
    pub first_len: u32,
    /// Position in this call of the first byte that came with the last one.
    pub last_from: u32,
}

/// One read or write call on a socket, at its return. Followed by `head_len` and then `tail_len` bytes.
///
/// `result > 0`: that many bytes moved, `offset..offset + result` of this direction; the first `head_len` and
/// the last `tail_len` of them follow. `result == 0` on receive: the peer ended its side. `result < 0`:
/// `-errno`; only errors that mean something are recorded (a full socket on send, resets).
///
/// On TCP, `offset` counts bytes that moved without a call that was seen, too: it is then beyond the end of the record
/// before. Where that shows before another call does, a record with [`FLAG_UNSEEN`] tells.
///
/// On sockets that carry several messages in one call (HTTP/2, pipelining) a long call is written in pieces: records
/// with [`FLAG_MORE`] or [`FLAG_CONTINUED`], in order, each as if it were a call on its own part of the stream. Their
/// time is the same; `requested` counts from the piece's first byte on, so that only the last one tells of a short call;
/// `network` is that of the piece.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Data {
    /// [`crate::Kind::SocketData`]; `time_ns` is taken as the call ends in the kernel.
    pub header: Header,
    /// Which connection.
    pub id: SockId,
    /// Bytes of this direction before this call, since birth.
    pub offset: u64,
    /// When its bytes crossed the network.
    pub network: Network,
    /// Bytes moved, 0, or `-errno`.
    pub result: i32,
    /// Bytes the caller offered or had room for; 0 when not known.
    pub requested: u32,
    /// Captured bytes of the beginning.
    pub head_len: u16,
    /// Captured bytes of the end.
    pub tail_len: u16,
    /// System call number; which family of calls the caller uses.
    pub syscall: u16,
    /// [`DIR_RECV`] or [`DIR_SEND`].
    pub dir: u8,
    /// `FLAG_*`.
    pub flags: u8,
}

/// A socket seen by a watched process for the first time; comes before its first [`Data`]. When two threads are
/// first at once, a second one with the same [`SockId`] repeats the first.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Open {
    /// [`crate::Kind::SocketOpen`]; `time_ns` is when it was first seen, the birth is in `id`.
    pub header: Header,
    /// Which connection.
    pub id: SockId,
    /// Local address; IPv4 in the first four bytes. Network byte order.
    pub local_addr: [u8; 16],
    /// Peer's address, likewise. Of a unix socket, the first eight bytes are the address of the kernel's socket at the
    /// other end ([`SockId::sock`] of its own records), native byte order; 0 when it is not known.
    pub peer_addr: [u8; 16],
    /// Network namespace (inode number).
    pub netns: u32,
    /// Local port, host byte order.
    pub local_port: u16,
    /// Peer's port, host byte order.
    pub peer_port: u16,
    /// Address family (2 = IPv4, 10 = IPv6, 1 = unix).
    pub family: u16,
    /// `ROLE_*`.
    pub role: u8,
    /// `FLAG_MID_STREAM` or 0.
    pub flags: u8,
    /// Keeps the size a multiple of eight.
    pub reserved: u32,
}

/// TCP states that are reported (numbers of the kernel's `enum`).
pub mod tcp {
    /// Fully open.
    pub const ESTABLISHED: u8 = 1;
    /// This side asked to connect.
    pub const SYN_SENT: u8 = 2;
    /// A peer asked to connect.
    pub const SYN_RECV: u8 = 3;
    /// This side closed first.
    pub const FIN_WAIT1: u8 = 4;
    /// This side closed first, and the peer has acknowledged all.
    pub const FIN_WAIT2: u8 = 5;
    /// Gone: closed by both, or reset.
    pub const CLOSE: u8 = 7;
    /// The peer closed first.
    pub const CLOSE_WAIT: u8 = 8;
    /// The peer closed first, and now this side.
    pub const LAST_ACK: u8 = 9;
    /// Listening.
    pub const LISTEN: u8 = 10;
}

/// A watched connection entered `FIN_WAIT1`, `CLOSE_WAIT` or CLOSE. From ESTABLISHED or `CLOSE_WAIT` straight to CLOSE is a
/// reset: by this side (which closed while something was unread, or lingers for no time) where the header names a
/// process, else by the peer.
/// Of a unix socket only this is told: from `CLOSE_WAIT` to CLOSE, when the client was found to have closed; to
/// `FIN_WAIT1` when its peer, whoever that is, found that this side sends no more; and from there to CLOSE when it found
/// that this side has closed.
///
/// After a close by this side, CLOSE comes as soon as the peer has acknowledged it, whether or not the peer closed
/// too. What had arrived before a reset by the peer may still be read after it, under the same [`SockId`]; from CLOSE to
/// CLOSE says that nothing more is.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct State {
    /// [`crate::Kind::SocketState`]; `tgid` and `tid` are 0 unless this side closed.
    pub header: Header,
    /// Which connection.
    pub id: SockId,
    /// State before, see [`tcp`].
    pub old: u8,
    /// State now, see [`tcp`].
    pub new: u8,
    /// Keeps the size a multiple of eight.
    pub reserved: [u8; 6],
}

/// The peer has acknowledged everything that was written so far. One record each time nothing is left in flight, not
/// one per acknowledgement; see [`Network`] for the case that it came before the write returned. On sockets whose long
/// calls are written in pieces, which carry many answers at a time, one record per acknowledgement.
///
/// On a connection that this side has closed, or the peer on its side, acknowledgements are not seen one by one, and
/// the record comes with the change of state that proves the last one.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Ack {
    /// [`crate::Kind::SocketAck`], in interrupt context as a rule: `tgid` and `tid` are 0.
    pub header: Header,
    /// Which connection.
    pub id: SockId,
    /// Bytes since birth that are acknowledged.
    pub offset: u64,
    /// Smoothed round-trip time, microseconds; 0 when not known.
    pub srtt_us: u32,
    /// Segments sent again since birth.
    pub retransmits: u32,
}

/// A watched process began to listen on a TCP port.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Listen {
    /// [`crate::Kind::SocketListen`].
    pub header: Header,
    /// Network namespace (inode number).
    pub netns: u32,
    /// Port, host byte order.
    pub port: u16,
    /// Address family.
    pub family: u16,
}

/// Byte offsets of kernel structure fields, resolved by the agent from the running kernel's BTF.
/// (Rust has no CO-RE field access.) All zero means "not resolved": tuples are then unknown.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Offsets {
    /// `sock.__sk_common.skc_family` (u16).
    pub family: u32,
    /// `sock.__sk_common.skc_state` (u8).
    pub state: u32,
    /// `sock.__sk_common.skc_num`: local port, host order (u16).
    pub local_port: u32,
    /// `sock.__sk_common.skc_dport`: peer's port, network order (u16).
    pub peer_port: u32,
    /// `sock.__sk_common.skc_rcv_saddr` (be32).
    pub local_v4: u32,
    /// `sock.__sk_common.skc_daddr` (be32).
    pub peer_v4: u32,
    /// `sock.__sk_common.skc_v6_rcv_saddr` (16 bytes).
    pub local_v6: u32,
    /// `sock.__sk_common.skc_v6_daddr` (16 bytes).
    pub peer_v6: u32,
    /// `sock.__sk_common.skc_net.net` (pointer to `struct net`).
    pub net: u32,
    /// `net.ns.inum` (u32).
    pub netns_inum: u32,
    /// `task_struct.tgid` (u32), for fork: the tracepoint gives task pointers.
    pub task_tgid: u32,
    /// `task_struct.pid` (u32).
    pub task_pid: u32,
    /// `sock.sk_protocol` (u16); 0 where it is not resolved, and then every socket counts as TCP.
    pub protocol: u32,
    /// `tcp_sock.rcv_nxt` (u32): next byte expected. This and all below are 0 where any of them is not resolved.
    pub rcv_nxt: u32,
    /// `tcp_sock.copied_seq` (u32): next byte to be read.
    pub copied_seq: u32,
    /// `tcp_sock.snd_una` (u32): first byte not acknowledged.
    pub snd_una: u32,
    /// `tcp_sock.snd_nxt` (u32): next byte to be sent.
    pub snd_nxt: u32,
    /// `tcp_sock.write_seq` (u32): next byte to be written.
    pub write_seq: u32,
    /// `tcp_sock.srtt_us` (u32): smoothed round-trip time, eighths of a microsecond.
    pub srtt_us: u32,
    /// `tcp_sock.total_retrans` (u32).
    pub total_retrans: u32,
    /// `sk_buff.cb` + `tcp_skb_cb.seq` (u32): first byte of a segment.
    pub segment_seq: u32,
    /// `sk_buff.cb` + `tcp_skb_cb.end_seq` (u32): first byte behind it.
    pub segment_end_seq: u32,
    /// `sk_buff.cb` + `tcp_skb_cb.ack_seq` (u32): what it acknowledges.
    pub segment_ack_seq: u32,
    /// `unix_sock.peer` (pointer to a `struct sock`). This and all below are 0 where any of them is not resolved: then
    /// nothing is captured on unix sockets.
    pub unix_peer: u32,
    /// `unix_sock.addr` (pointer): of an accepted socket, that of the one that listens.
    pub unix_address: u32,
    /// `sock.sk_socket` (pointer to a `struct socket`).
    pub sock_socket: u32,
    /// From a `struct socket` to the number of its inode (u64): both lie in a `struct socket_alloc`.
    pub socket_inode: u32,
    /// `sock.sk_shutdown` (u8), on its own; 0 where it is not resolved (a bit field on old kernels), and then a client of a
    /// unix socket that closes is only seen to end its side, and resets count as the peer's.
    pub sock_shutdown: u32,
    /// `task_struct.files` (pointer). This and all below are for tier B alone, and 0 where any of them is not resolved.
    pub task_files: u32,
    /// `files_struct.fdt` (pointer).
    pub files_table: u32,
    /// `fdtable.max_fds` (u32): its entries.
    pub table_entries: u32,
    /// `fdtable.fd`: pointer to an array of pointers to files.
    pub table_files: u32,
    /// `file.f_inode` (pointer).
    pub file_inode: u32,
    /// `file.private_data` (pointer): of a socket's file, its `struct socket`.
    pub file_private: u32,
    /// `inode.i_mode` (u16): what a file is.
    pub inode_mode: u32,
    /// `socket.sk` (pointer).
    pub socket_sock: u32,
    /// `task_struct.signal` (pointer). This and the next are 0 where one of them is not resolved, and then the end of its
    /// first thread counts as that of a process.
    pub task_signal: u32,
    /// `signal_struct.live` (u32): threads of a process that have not ended.
    pub signal_live: u32,
    /// `task_struct.thread_info.status` (u32), where the kernel notes a 32-bit call of a 64-bit program; 0 on machines that
    /// know no such thing.
    pub task_status: u32,
}

const _: () = assert!(size_of::<Data>() == 88);
const _: () = assert!(size_of::<Open>() == 24 + 16 + 32 + 16);
const _: () = assert!(size_of::<State>() == 48);
const _: () = assert!(size_of::<Ack>() == 56);
const _: () = assert!(size_of::<Listen>() == 32);
const _: () = assert!(size_of::<Offsets>() == 156);
