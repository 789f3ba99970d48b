//! Records of calls that are rare: the driver's functions looked up by name, kernels loaded or compiled, graphs made
//! executable.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Header;

/// Bytes of a function's name that are kept.
pub const NAME: usize = 48;

/// Flag of [`Resolved`]: of two variants, the one for the calling thread's own default stream was meant.
pub const RESOLVE_PER_THREAD: u16 = 2;

/// The driver gave a process the address of a function. One record per process and address.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Resolved {
    /// [`crate::Kind::Resolved`]; `time_ns` is the return of the call.
    pub header: Header,
    /// The address.
    pub address: u64,
    /// What the call said of the name (`CUdriverProcAddressQueryResult`); 0 is found, and what is here where it
    /// does not say.
    pub status: u32,
    /// Return code (`CUresult`).
    pub result: u32,
    /// Row in the agent's table.
    pub row: u16,
    /// `CU_GET_PROC_ADDRESS_*` flags, the lower half.
    pub flags: u16,
    /// Version of CUDA whose function was asked for (`CUDA_VERSION`: 12020 is 12.2); 0 in recordings from before it was
    /// told.
    pub version: u32,
    /// The name that was asked for, NUL padded, cut to what fits.
    pub name: [u8; NAME],
}

/// One call that may take long and is rare, at its return.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Rare {
    /// [`crate::Kind::Rare`]; `time_ns` is the return of the call.
    pub header: Header,
    /// Entry of the call.
    pub enter_ns: u64,
    /// Bytes given to it, where it is told; else 0.
    pub bytes: u64,
    /// Row in the agent's table.
    pub row: u16,
    /// [`crate::cookie::Class`] as a number.
    pub class: u8,
    /// Keeps the layout free of padding.
    pub reserved: u8,
    /// Return code (`CUresult`).
    pub result: u32,
}

const _: () = assert!(size_of::<Resolved>() == 48 + NAME);
const _: () = assert!(size_of::<Rare>() == 48);
