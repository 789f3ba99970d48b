//! Fields of `struct sock`, at offsets that the agent resolved. Whatever is not resolved reads as 0.

use aya_ebpf::helpers::bpf_probe_read_kernel;
use aya_ebpf::helpers::generated::bpf_probe_read_kernel as probe_read_kernel;

use wire::socket::tcp;

use crate::maps::offset;

/// `AF_UNIX`.
pub(crate) const UNIX: u16 = 1;
/// `AF_INET`.
pub(crate) const INET: u16 = 2;
/// `AF_INET6`.
pub(crate) const INET6: u16 = 10;

/// The other side, or both, sends no more: nothing is to be read.
pub(crate) const RCV_SHUTDOWN: u8 = 1;
/// This side sends no more.
pub(crate) const SEND_SHUTDOWN: u8 = 2;

/// `IPPROTO_TCP`.
const TCP: u16 = 6;

/// The peer has ended its side, in this state of a connection.
#[inline(always)]
fn has_ended(state: u8) -> bool {
    /// States that nothing else asks for.
    const TIME_WAIT: u8 = 6;
    const CLOSING: u8 = 11;
    matches!(state, tcp::CLOSE_WAIT | tcp::LAST_ACK | TIME_WAIT | CLOSING)
}

/// A kernel socket.
#[derive(Clone, Copy)]
pub(crate) struct Sock(pub(crate) *const u8);

impl Sock {
    pub(crate) fn id(self) -> u64 {
        self.0 as u64
    }

    #[inline(always)]
    pub(crate) fn family(self) -> u16 {
        self.field(offset!(family))
    }

    /// Whether an internet socket is TCP, as far as that can be told.
    #[inline(always)]
    pub(crate) fn is_tcp(self) -> bool {
        const MPTCP: u16 = 262;
        // 0 where it is not resolved.
        matches!(self.field(offset!(protocol)), 0 | TCP | MPTCP)
    }

    /// State of a TCP connection, see [`wire::socket::tcp`].
    #[inline(always)]
    pub(crate) fn state(self) -> u8 {
        self.field(offset!(state))
    }

    /// Which of its sides have ended: `SEND_SHUTDOWN`, `RCV_SHUTDOWN`; 0 also when that is not known.
    #[inline(always)]
    pub(crate) fn shutdown(self) -> u8 {
        self.field(offset!(sock_shutdown))
    }

    /// Local port, host byte order.
    #[inline(always)]
    pub(crate) fn local_port(self) -> u16 {
        self.field(offset!(local_port))
    }

    /// Peer's port, host byte order.
    #[inline(always)]
    pub(crate) fn peer_port(self) -> u16 {
        u16::from_be(self.field(offset!(peer_port)))
    }

    /// Next byte expected; 0 when sequence numbers are not known.
    #[inline(always)]
    pub(crate) fn rcv_nxt(self) -> u32 {
        self.field(offset!(rcv_nxt))
    }

    /// Next byte to be read.
    #[inline(always)]
    pub(crate) fn copied_seq(self) -> u32 {
        self.field(offset!(copied_seq))
    }

    /// First byte not acknowledged by the peer.
    #[inline(always)]
    pub(crate) fn snd_una(self) -> u32 {
        self.field(offset!(snd_una))
    }

    /// Next byte to be sent.
    #[inline(always)]
    pub(crate) fn snd_nxt(self) -> u32 {
        self.field(offset!(snd_nxt))
    }

    /// Next byte to be written.
    #[inline(always)]
    pub(crate) fn write_seq(self) -> u32 {
        self.field(offset!(write_seq))
    }

    /// How far the process has read, without the end of the stream; `None` if it is not TCP or not known.
    #[inline(always)]
    pub(crate) fn read_position(self) -> Option<u32> {
        if !self.counts_bytes() {
            return None;
        }
        let (state, position) = (self.state(), self.copied_seq());
        // The end takes a number too, once it is read.
        let is_at_end = has_ended(state) && position == self.rcv_nxt();
        Some(position.wrapping_sub(u32::from(is_at_end)))
    }

    /// How far the process has written; `None` likewise, and once it has closed, since the end takes a number too.
    #[inline(always)]
    pub(crate) fn write_position(self) -> Option<u32> {
        let is_open = matches!(self.state(), tcp::ESTABLISHED | tcp::SYN_RECV | tcp::CLOSE_WAIT);
        (self.counts_bytes() && is_open).then(|| self.write_seq())
    }

    /// Whether it has sequence numbers of its own: those of MPTCP lie elsewhere.
    #[inline(always)]
    fn counts_bytes(self) -> bool {
        offset!(copied_seq) != 0 && self.field::<u16>(offset!(protocol)) == TCP
    }

    /// Smoothed round-trip time, microseconds.
    #[inline(always)]
    pub(crate) fn srtt_us(self) -> u32 {
        self.field::<u32>(offset!(srtt_us)) >> 3
    }

    /// Segments sent again since birth.
    #[inline(always)]
    pub(crate) fn retransmits(self) -> u32 {
        self.field(offset!(total_retrans))
    }

    /// Inode number of the network namespace.
    #[inline(always)]
    pub(crate) fn netns(self) -> u32 {
        let net: *const u8 = self.field::<u64>(offset!(net)) as *const u8;
        if net.is_null() { 0 } else { Sock(net).field(offset!(netns_inum)) }
    }

    /// Copies both addresses; all zero when they are not known.
    ///
    /// # Safety
    /// Both destinations must be writable.
    #[inline(always)]
    pub(crate) unsafe fn write_addresses(self, family: u16, local: *mut [u8; 16], peer: *mut [u8; 16]) {
        // SAFETY: the caller's destinations.
        unsafe {
            *local = [0; 16];
            *peer = [0; 16];
            match family {
                INET => {
                    self.copy(offset!(local_v4), local, 4);
                    self.copy(offset!(peer_v4), peer, 4);
                }
                INET6 => {
                    self.copy(offset!(local_v6), local, 16);
                    self.copy(offset!(peer_v6), peer, 16);
                }
                _ => {}
            }
        }
    }

    #[inline(always)]
    pub(crate) fn field<T: Copy + Default>(self, offset: usize) -> T {
        if offset == 0 {
            return T::default();
        }
        // SAFETY: a checked read of kernel memory.
        unsafe { bpf_probe_read_kernel(self.0.wrapping_add(offset).cast::<T>()) }.unwrap_or_default()
    }

    #[inline(always)]
    unsafe fn copy(self, offset: usize, to: *mut [u8; 16], len: u32) {
        // The peer's IPv4 address is the first field of all: offset 0 is only "not resolved" if the family is too,
        // and then no address is asked for.
        // SAFETY: a checked read of kernel memory into the caller's destination.
        unsafe { probe_read_kernel(to.cast(), len, self.0.wrapping_add(offset).cast()) };
    }
}
