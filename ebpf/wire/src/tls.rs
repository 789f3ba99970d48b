//! Records of what a TLS library reads and writes in clear.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Header;
use crate::socket::SockId;

/// Attach cookie: the function writes.
pub const COOKIE_SEND: u64 = 1;
/// Attach cookie: the function returns 1 and gives the number of bytes through its fourth argument.
pub const COOKIE_COUNTED: u64 = 2;

/// Identity of a TLS connection as its library knows it, within one process. The pointer alone is reused.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct SslId {
    /// Address of the `SSL`; an opaque number to the agent, never exported.
    pub ssl: u64,
    /// When it was first seen.
    pub birth_ns: u64,
}

/// One call that moved plaintext, at its return; or, with a `len` of 0, the beginning of a step of a handshake. Followed by `head_len` and then `tail_len` bytes, as [`Data`] of a
/// socket is.
///
/// [`Data`]: crate::socket::Data
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Data {
    /// [`crate::Kind::TlsData`]; `time_ns` is taken as the call returns.
    pub header: Header,
    /// Which TLS connection.
    pub ssl: SslId,
    /// The socket that the same thread last moved bytes through, in the same direction, within the call; all zero if
    /// it used none.
    pub sock: SockId,
    /// Plaintext bytes of this direction before this call, since birth.
    pub offset: u64,
    /// Bytes moved.
    pub len: u32,
    /// Bytes the caller offered or had room for.
    pub requested: u32,
    /// Captured bytes of the beginning.
    pub head_len: u16,
    /// Captured bytes of the end.
    pub tail_len: u16,
    /// [`crate::socket::DIR_RECV`] or [`crate::socket::DIR_SEND`].
    pub dir: u8,
    /// [`crate::socket::FLAG_NO_PAYLOAD`] or 0.
    pub flags: u8,
    /// Keeps the size a multiple of eight.
    pub reserved: u16,
}

/// What the agent found out about a connection that speaks TLS. Written by the agent itself, in place of the records
/// of which it took the plaintext.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Verdict {
    /// [`crate::Kind::TlsVerdict`].
    pub header: Header,
    /// Which connection; all zero for plaintext of which the connection is not known.
    pub id: SockId,
    /// Plaintext bytes that it is about, for [`UNLINKED`]; 0 otherwise.
    pub bytes: u64,
    /// What was found: [`SEEN`] and those below it.
    pub finding: u8,
    /// Keeps the size a multiple of eight.
    pub reserved: [u8; 7],
}

/// A connection speaks TLS.
pub const SEEN: u8 = 1;
/// Its plaintext is known: socket records of it carry that from here on.
pub const LINKED: u8 = 2;
/// It carries application data that nobody decrypts in our sight.
pub const OPAQUE: u8 = 3;
/// Plaintext of which the connection is not known; it is dropped.
pub const UNLINKED: u8 = 4;
/// A link turned out to be wrong and was cut.
pub const CONTRADICTED: u8 = 5;
/// The framing of a linked connection was lost: until it is found again, its times are those of the last socket call.
pub const UNFRAMED: u8 = 6;

const _: () = assert!(size_of::<Data>() == 24 + 16 + 16 + 24);
const _: () = assert!(size_of::<Verdict>() == 24 + 16 + 16);
