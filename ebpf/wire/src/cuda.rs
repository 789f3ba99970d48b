//! CUDA records.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Header;

/// Work done on streams, as counted at the driver's entry points.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Work {
    /// Kernel launches.
    pub launches: u64,
    /// Graph launches.
    pub graphs: u64,
    /// Copies of any direction, and memsets, which move no bytes.
    pub copies: u64,
    /// Bytes host to device.
    pub h2d_bytes: u64,
    /// Bytes device to host.
    pub d2h_bytes: u64,
    /// Bytes device to device, or of unknown direction.
    pub other_bytes: u64,
}

/// A result marker that found work: everything asked of the GPU that this wait proved finished, and that no
/// earlier marker had claimed. One record per marker; a marker that finds nothing writes none.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Step {
    /// [`crate::Kind::Step`]; `time_ns` is the return of the marker: the result is on the host.
    pub header: Header,
    /// The work.
    pub work: Work,
    /// Entry of the marker call: the host began to wait here.
    pub enter_ns: u64,
    /// First launch, graph launch or copy of this work; 0 when not known.
    pub first_ns: u64,
    /// Last launch, graph launch or copy of this work; 0 when not known.
    pub last_ns: u64,
    /// Stream waited for (or on which the event was recorded); 0 for a context-wide wait.
    pub stream: u64,
    /// Event waited for, 0 for other markers.
    pub event: u64,
    /// Executable graph launched last in this work, 0 when none.
    pub graph: u64,
    /// Row of the marker in the agent's table.
    pub row: u16,
    /// `STEP_*`.
    pub flags: u16,
    /// The marker's return code (`CUresult`).
    pub result: u32,
    /// Context of the stream that was waited for, of the waiting thread for a context-wide wait; 0 when not known (made
    /// current before the agent came). Records of before this field end in front of it: see [`STEP_WITHOUT_CONTEXT`].
    pub context: u64,
}

/// What a [`crate::Kind::Step`] record is. Recordings of earlier agents end with `step`; then all of its work is fresh.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct CountedStep {
    /// The step.
    pub step: Step,
    /// What counts grow by: the part of `step.work` that no [`Tally`] has told before.
    pub fresh: Work,
}

/// Work that was told before any marker claimed it, so that counts are right although nobody waits. A later step may
/// claim it still, and says then that it is not fresh.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Tally {
    /// [`crate::Kind::Tally`]; `tid` is 0 where it stands for the whole process.
    pub header: Header,
    /// The work.
    pub work: Work,
    /// Launches of kernels and graphs that went into a capture instead of to the GPU.
    pub captured: u64,
    /// The stream.
    pub stream: u64,
    /// `TALLY_*`.
    pub why: u32,
    /// Keeps the layout free of padding.
    pub reserved: u32,
}

/// It was time.
pub const TALLY_TIMER: u32 = 1;
/// The stream was destroyed.
pub const TALLY_STREAM_END: u32 = 2;
/// The process ended, or replaced its image.
pub const TALLY_PROCESS_END: u32 = 3;
/// Length of a [`Step`] of a recording from before it had its context.
pub const STEP_WITHOUT_CONTEXT: usize = size_of::<Step>() - 8;

/// `first_ns` may be too early or too late: more boundaries were in flight than are tracked.
pub const STEP_FIRST_BOUNDED: u16 = 1;
/// The work came from more than one stream.
pub const STEP_MULTI_STREAM: u16 = 2;
/// The marker is a poll that found the work done: that was between the poll before and `time_ns`, and `enter_ns` is the
/// first poll that found it not done.
pub const STEP_POLLED: u16 = 4;
/// Some of what the wait proved may be missing: there were more streams, or more dependencies between them, than are
/// followed.
pub const STEP_WORK_MISSED: u16 = 8;
/// A wait for the legacy stream took work of a stream that is older than the agent: whether the legacy stream waits for
/// that one is not known.
pub const STEP_STREAM_UNKNOWN: u16 = 16;

/// One call that allocates or frees device memory, at its return. Not written any more, see [`crate::memory::Call`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Memory {
    /// [`crate::Kind::Memory`]; `time_ns` is the return of the call.
    pub header: Header,
    /// Entry of the call.
    pub enter_ns: u64,
    /// Bytes asked for; 0 for a free.
    pub bytes: u64,
    /// Device address given or freed; 0 when the call failed.
    pub address: u64,
    /// Row in the agent's table.
    pub row: u16,
    /// [`crate::cookie::Class`] as a number: `Alloc` or `Free`.
    pub class: u8,
    /// Keeps the layout free of padding.
    pub reserved: u8,
    /// Return code (`CUresult`): 0 is success, 2 is out of memory.
    pub result: u32,
}

/// A call that says which device a context is on, or which device a number of CUDA's is, at its return. Only of calls
/// that succeeded; the same again within a second is left out.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Context {
    /// [`crate::Kind::Context`]; `time_ns` is the return of the call.
    pub header: Header,
    /// The context made, given or destroyed; 0 for other calls.
    pub context: u64,
    /// The device (`CUdevice`); -1 where the call does not name it.
    pub device: i32,
    /// The ordinal asked for, for [`crate::cookie::Class::DeviceGet`]; -1 for other calls.
    pub ordinal: i32,
    /// Row in the agent's table.
    pub row: u16,
    /// [`crate::cookie::Class`] as a number, one of `Context…` or `Device…`.
    pub class: u8,
    /// Keeps the layout free of padding.
    pub reserved: [u8; 5],
    /// The UUID (16 bytes), or the PCI address as text, NUL padded; zeros for other calls.
    pub text: [u8; 32],
}

const _: () = assert!(size_of::<Work>() == 48);
const _: () = assert!(size_of::<CountedStep>() == size_of::<Step>() + 48);
const _: () = assert!(size_of::<Tally>() == 24 + 48 + 24);
const _: () = assert!(size_of::<Step>() == 24 + 48 + 48 + 8 + 8);
const _: () = assert!(size_of::<Context>() == 80);
const _: () = assert!(size_of::<Memory>() == 56);
