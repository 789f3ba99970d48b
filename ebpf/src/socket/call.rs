//! What the caller offered: where its buffers are and how much room they have.

use aya_ebpf::helpers::bpf_probe_read_user;
use wire::socket::DIR_SEND;

use super::registers::{Registers, number};
use crate::repeat::{GO_ON, STOP, is_full, repeat};

/// Segments of a vectored call that are walked: as many as the kernel takes (`UIO_MAXIOV`).
pub(crate) const MAX_SEGMENTS: u64 = 1024;
/// The same on kernels without loops.
const FEW_SEGMENTS: u32 = 4;

/// `struct iovec`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Segment {
    pub(crate) base: u64,
    pub(crate) len: u64,
}

/// The middle of `struct user_msghdr`: `msg_iov` and `msg_iovlen`.
#[repr(C)]
#[derive(Clone, Copy)]
struct MessageVector {
    address: u64,
    count: u64,
}

/// Byte offset of `msg_iov` in `struct user_msghdr`.
const MESSAGE_VECTOR: u64 = 16;

/// Where the bytes of a call are.
#[derive(Clone, Copy)]
pub(crate) enum Source {
    /// Nowhere that could be read.
    Opaque,
    /// One buffer.
    Buffer { address: u64 },
    /// An array of [`Segment`]s.
    Vector { address: u64, count: u64 },
}

/// A socket call as its caller made it.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    /// System call number, `u16::MAX` when not known.
    pub(crate) syscall: u16,
    /// Bytes offered or room for; 0 when not known.
    pub(crate) requested: u32,
    pub(crate) source: Source,
}

impl Call {
    /// The call in progress, as far as it is one that moves bytes in direction `dir` between user memory and a socket.
    #[inline(always)]
    pub(crate) fn current(dir: u8) -> Self {
        let registers = Registers::current();
        match registers.syscall() {
            Some(syscall) => Self::of(registers, syscall, dir),
            None => Self::opaque(u16::MAX),
        }
    }

    /// One whose bytes cannot be read.
    #[inline(always)]
    pub(crate) const fn opaque(syscall: u16) -> Self {
        Self { syscall, requested: 0, source: Source::Opaque }
    }

    /// The system call of these registers.
    #[inline(always)]
    pub(crate) fn of(registers: Registers, syscall: u16, dir: u8) -> Self {
        let source = if dir == DIR_SEND { sent(syscall, registers) } else { received(syscall, registers) };
        let requested = match source {
            Source::Opaque => 0,
            Source::Buffer { .. } => saturate(registers.third()),
            Source::Vector { address, count } => total(address, count),
        };
        Self { syscall, requested, source }
    }

    /// One message of a batch, by its header; `None` if that cannot be read.
    #[inline(always)]
    pub(crate) fn of_message(syscall: u16, header: u64) -> Option<Self> {
        let MessageVector { address, count } = vector(header)?;
        Some(Self { syscall, requested: total(address, count), source: Source::Vector { address, count } })
    }

    /// Whether its first bytes, which are there, are these.
    #[inline(always)]
    pub(crate) fn begins_with(&self, bytes: [u8; 8]) -> bool {
        let address = match self.source {
            Source::Opaque => return false,
            Source::Buffer { address } => address,
            Source::Vector { address, .. } => segment(address, 0).map_or(0, |segment| segment.base),
        };
        // SAFETY: a checked read of user memory.
        let first = unsafe { bpf_probe_read_user(address as *const [u8; 8]) };
        first == Ok(bytes)
    }

    /// Whether it asked for nothing: then a result of 0 is not the end of the stream.
    #[inline(always)]
    pub(crate) fn had_no_room(&self) -> bool {
        matches!(self.source, Source::Buffer { .. }) && self.requested == 0
    }
}

#[inline(always)]
fn sent(syscall: u16, registers: Registers) -> Source {
    match syscall {
        number::WRITE | number::SENDTO => Source::Buffer { address: registers.second() },
        number::WRITEV | number::PWRITEV2 => {
            Source::Vector { address: registers.second(), count: registers.third() }
        }
        number::SENDMSG => message(registers.second()),
        number::SENDMMSG => only_message(registers),
        _ => Source::Opaque,
    }
}

#[inline(always)]
fn received(syscall: u16, registers: Registers) -> Source {
    match syscall {
        number::READ | number::RECVFROM => Source::Buffer { address: registers.second() },
        number::READV | number::PREADV2 => {
            Source::Vector { address: registers.second(), count: registers.third() }
        }
        number::RECVMSG => message(registers.second()),
        number::RECVMMSG => only_message(registers),
        _ => Source::Opaque,
    }
}

/// Each message of a batch passes here by itself, with nothing to say which one it is: only a batch of one is
/// certain.
#[inline(always)]
fn only_message(registers: Registers) -> Source {
    if registers.third() == 1 { message(registers.second()) } else { Source::Opaque }
}

#[inline(always)]
fn message(header: u64) -> Source {
    match vector(header) {
        Some(MessageVector { address, count }) => Source::Vector { address, count },
        None => Source::Opaque,
    }
}

/// The vector of the message with this header.
#[inline(always)]
fn vector(header: u64) -> Option<MessageVector> {
    // SAFETY: a checked read of user memory.
    unsafe { bpf_probe_read_user((header + MESSAGE_VECTOR) as *const MessageVector) }.ok()
}

/// The `index`-th segment of a vector.
#[inline(always)]
pub(crate) fn segment(vector: u64, index: u64) -> Option<Segment> {
    let address = vector + index * size_of::<Segment>() as u64;
    // SAFETY: a checked read of user memory.
    unsafe { bpf_probe_read_user(address as *const Segment) }.ok()
}

/// Calls `visit(index, state)` for up to [`MAX_SEGMENTS`] of `count` segments, until it returns [`STOP`].
#[inline(always)]
pub(crate) fn for_segments<T>(count: u64, visit: extern "C" fn(u64, *mut T) -> u64, state: &mut T) {
    let turns = if count < MAX_SEGMENTS { count } else { MAX_SEGMENTS } as u32;
    repeat::<FEW_SEGMENTS, _>(turns, visit, state);
}

/// A sum over the segments of a vector.
struct Sum {
    vector: u64,
    bytes: u64,
}

/// Bytes of all segments; 0 (not known) when there are too many to walk, or one cannot be read.
#[inline(never)]
fn total(vector: u64, count: u64) -> u32 {
    if count > if is_full() { MAX_SEGMENTS } else { u64::from(FEW_SEGMENTS) } {
        return 0;
    }
    let mut sum = Sum { vector, bytes: 0 };
    for_segments(count, add_segment, &mut sum);
    saturate(sum.bytes)
}

#[inline(never)]
extern "C" fn add_segment(index: u64, sum: *mut Sum) -> u64 {
    // SAFETY: the sum of `total`.
    let sum = unsafe { &mut *sum };
    let Some(segment) = segment(sum.vector, index) else {
        sum.bytes = 0;
        return STOP;
    };
    sum.bytes = sum.bytes.saturating_add(segment.len);
    GO_ON
}

#[inline(always)]
fn saturate(bytes: u64) -> u32 {
    if bytes > u64::from(u32::MAX) { u32::MAX } else { bytes as u32 }
}
