//! The shared-memory file: simulated devices that all processes have in common.
//!
//! Everything in it is an atomic word and all zeros is a valid, empty state, so there is no moment of
//! initialisation that a crash could leave half done. `fakenvml` has this file too, to read what processes hold.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Most devices there are room for.
pub(crate) const MAX_DEVICES: usize = 8;

/// "fakecuda" with the version of the layout in the last byte.
pub(crate) const MAGIC: u64 = u64::from_be_bytes(*b"fakecud\x01");

/// Allocations per device that there is room for.
pub(crate) const MAX_BLOCKS: usize = 1 << 16;

/// The whole file.
#[repr(C)]
pub(crate) struct Layout {
    /// [`MAGIC`]; 0 in a new file.
    pub magic: AtomicU64,
    /// Memory per device, bytes.
    pub mem_bytes: AtomicU64,
    /// The devices.
    pub devices: [Device; MAX_DEVICES],
}

/// One device.
#[repr(C)]
pub(crate) struct Device {
    /// Kernels and graphs.
    pub compute: Engine,
    /// Copies host to device.
    pub h2d: Engine,
    /// Copies device to host.
    pub d2h: Engine,
    /// Memory.
    pub heap: Heap,
}

/// Memory of one device: a list of live blocks in address order. Changed under the file lock only; every change
/// becomes visible by one store, so that a process that dies in the middle leaves a sound list.
#[repr(C, align(64))]
pub(crate) struct Heap {
    /// First block, as index + 1; 0 is none.
    pub head: AtomicU32,
    /// Where the search for a free entry starts.
    pub hint: AtomicU32,
    /// The entries.
    pub blocks: [Block; MAX_BLOCKS],
}

/// One block of device memory.
#[repr(C)]
pub(crate) struct Block {
    /// The process: its id in the high half, the low half of its start time in the low half; 0 when the entry is free.
    pub owner: AtomicU64,
    /// From the start of the device's memory.
    pub offset: AtomicU64,
    /// Bytes.
    pub size: AtomicU64,
    /// Next block by address, as index + 1; 0 is none.
    pub next: AtomicU32,
    reserved: u32,
}

/// An engine runs one thing at a time, first come first served.
#[repr(C, align(64))]
pub(crate) struct Engine {
    busy_until: AtomicU64,
}

impl Engine {
    /// Takes the engine for `duration` ns, not before `earliest`; returns the end.
    pub(crate) fn take(&self, earliest: u64, duration: u64) -> u64 {
        let end = |busy: u64| earliest.max(busy) + duration;
        let before =
            self.busy_until.fetch_update(Ordering::AcqRel, Ordering::Acquire, |busy| Some(end(busy)));
        end(before.expect("the closure never refuses"))
    }
}
