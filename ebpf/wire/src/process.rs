//! Process records.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Header;

/// Exec (any process), fork (of a watched one), exit (of a watched one), first CUDA call (of an unwatched one).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Process {
    /// Kind `Exec`, `Fork`, `Exit` or `CudaSeen`; `tgid` is the process it happened to (the parent, for a fork).
    pub header: Header,
    /// The new process of a fork; for `CudaSeen` the process itself if it is watched from this call on; 0 otherwise.
    pub child: u32,
    /// Attach cookie's row of the call, for `CudaSeen`; 0 otherwise.
    pub row: u32,
    /// Name of the task, NUL padded.
    pub comm: [u8; 16],
}

const _: () = assert!(size_of::<Process>() == 48);
