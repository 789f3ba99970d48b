//! Memory records: one per call of a memory row, at its return.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Header;
use crate::cuda::Memory;

/// A call that allocates, frees, maps or asks about memory, whatever came of it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Call {
    /// [`crate::Kind::MemoryCall`]; `time_ns` is the return of the call.
    pub header: Header,
    /// Entry of the call.
    pub enter_ns: u64,
    /// Context that was current for the thread at the entry, 0 when not known.
    pub context: u64,
    /// Bytes: asked for, mapped or reserved; free ones of `MemoryInfo`; the value of a pool's attribute; 0 for a free.
    /// Of an array, what its elements take.
    pub bytes: u64,
    /// Address or handle that was given (0 when the call failed), or that was freed, released or acted on.
    pub address: u64,
    /// What the class adds, 0 otherwise: the pool of `AllocPool`; the place of `CreatePhysical` (kind of place in the
    /// low half, device in the high half); the address asked about of `RetainPhysical`; the handle of `MapRange`; the attribute of `SetPool` and `GetPool`; of `ExportAddress` and
    /// `ImportAddress` a digest of the handle, the same in both processes, 0 if it could not be read; all
    /// bytes of `MemoryInfo`.
    pub other: u64,
    /// Row in the agent's table.
    pub row: u16,
    /// [`crate::cookie::Class`] as a number.
    pub class: u8,
    /// `CALL_*`.
    pub flags: u8,
    /// Return code (`CUresult`): 0 is success, 2 is out of memory.
    pub result: u32,
}

/// All memory calls of the process have been seen, from `cuInit` on: what was freed was seen given.
pub const CALL_WHOLE: u8 = 1;
/// `bytes` is computed from a description and not what the driver takes.
pub const CALL_ESTIMATED: u8 = 2;
/// The stream of the call was being captured: it went into a graph, and nothing was given or freed.
pub const CALL_CAPTURED: u8 = 4;

/// `CU_MEM_LOCATION_TYPE_DEVICE`, the kind of place in [`Call::other`] of `CreatePhysical`.
pub const PLACE_DEVICE: u32 = 1;
/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`: bytes that a pool keeps when it is asked to give back.
pub const POOL_RELEASE_THRESHOLD: u64 = 4;
/// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`: bytes that a pool holds.
pub const POOL_RESERVED: u64 = 5;

const _: () = assert!(size_of::<Call>() == 72);

impl From<Memory> for Call {
    /// A record of the older form, which recordings hold: with nothing known beside it.
    fn from(old: Memory) -> Self {
        let Memory { header, enter_ns, bytes, address, row, class, result, .. } = old;
        Self { header, enter_ns, context: 0, bytes, address, other: 0, row, class, flags: 0, result }
    }
}
