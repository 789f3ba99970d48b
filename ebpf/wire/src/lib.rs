//! The contract between the kernel side and the agent: records, map and program names, nothing else.
//!
//! Every record in the ring buffer begins with a [`Header`]; `header.len` is the number of meaningful bytes,
//! which may be less than what the kernel side reserved. All times are `CLOCK_MONOTONIC` nanoseconds
//! (`bpf_ktime_get_ns`). Both sides are built from this crate, and the agent refuses a record whose
//! [`Header::abi`] is not [`ABI`].
#![no_std]
#![forbid(unsafe_code)]

pub mod cookie;
pub mod counter;
pub mod cuda;
pub mod memory;
pub mod names;
pub mod process;
pub mod rare;
pub mod socket;
pub mod tls;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of everything in this crate. Raised with every change of a layout or of a meaning.
pub const ABI: u16 = 2;

/// First bytes of every record.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Header {
    /// [`ABI`] of the writer.
    pub abi: u16,
    /// A [`Kind`] as a number. A plain integer, because an unknown kind is data, not undefined behaviour.
    pub kind: u16,
    /// Meaningful bytes of the record, header included.
    pub len: u32,
    /// When the thing happened, `CLOCK_MONOTONIC` ns.
    pub time_ns: u64,
    /// Process (thread group) in whose context it happened; 0 when it happened in an interrupt for nobody.
    pub tgid: u32,
    /// Thread in whose context it happened; 0 as above.
    pub tid: u32,
}

/// What a record is. Kinds of 0x100 and above are written by the agent itself (observations) and stand in
/// recordings beside the kernel's.
#[repr(u16)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// [`socket::Data`]: bytes went through a socket of a watched process.
    SocketData = 1,
    /// [`socket::Open`]: a socket was seen for the first time by a watched process.
    SocketOpen = 2,
    /// [`socket::State`]: a TCP connection of a watched process changed state.
    SocketState = 3,
    /// [`socket::Listen`]: a watched process began to listen.
    SocketListen = 4,
    /// [`socket::Ack`]: the peer of a watched process has acknowledged all that was written.
    SocketAck = 5,
    /// [`cuda::CountedStep`]: a result marker, with the work since the previous one.
    Step = 16,
    /// [`cuda::Memory`]: one call of a memory row, as it was written before [`memory::Call`].
    Memory = 17,
    /// [`cuda::Tally`]: work that is counted before anybody waits for it.
    Tally = 19,
    /// [`memory::Call`]: one call of a memory row.
    MemoryCall = 26,
    /// [`cuda::Context`]: a call that says which device a context or a number of CUDA's is.
    Context = 18,
    /// [`rare::Resolved`]: the driver gave somebody the address of a function.
    Resolved = 24,
    /// [`rare::Rare`]: one call of a rare row.
    Rare = 25,
    /// [`process::Process`]: a process replaced its image.
    Exec = 32,
    /// [`process::Process`]: a watched process started another.
    Fork = 33,
    /// [`process::Process`]: a watched process ended.
    Exit = 34,
    /// [`process::Process`]: a process that is not watched called a probed CUDA function for the first time.
    CudaSeen = 35,
    /// [`tls::Data`]: plaintext went through a TLS library in a watched process.
    TlsData = 48,
    /// JSON written by the agent: something it saw in /proc or of itself.
    Observation = 0x100,
    /// [`tls::Verdict`], written by the agent: what it found out about a connection that speaks TLS.
    TlsVerdict = 0x101,
}

impl Kind {
    /// The kind behind a number, if there is one.
    pub const fn from_u16(n: u16) -> Option<Self> {
        Some(match n {
            1 => Self::SocketData,
            2 => Self::SocketOpen,
            3 => Self::SocketState,
            4 => Self::SocketListen,
            5 => Self::SocketAck,
            16 => Self::Step,
            17 => Self::Memory,
            19 => Self::Tally,
            26 => Self::MemoryCall,
            18 => Self::Context,
            24 => Self::Resolved,
            25 => Self::Rare,
            32 => Self::Exec,
            33 => Self::Fork,
            34 => Self::Exit,
            35 => Self::CudaSeen,
            48 => Self::TlsData,
            0x100 => Self::Observation,
            0x101 => Self::TlsVerdict,
            _ => return None,
        })
    }
}

const _: () = assert!(size_of::<Header>() == 24);
