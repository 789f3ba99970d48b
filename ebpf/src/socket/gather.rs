//! Vectored calls that are captured whole: their segments are first copied to one place, from which pieces are cut.
//!
//! A few rooms for the whole machine. A program takes one by its processor's number, and looks at two: it holds it for
//! microseconds, and where programs can be preempted another one on the same processor finds it taken.

use core::ffi::c_void;
use core::hint::black_box;

use aya_ebpf::helpers::generated::{bpf_get_smp_processor_id, bpf_probe_read_user};

use wire::counter::Counter;

use super::call::{MAX_SEGMENTS, segment};
use crate::atomic::Word;
use crate::emit::count;
use crate::maps::GATHER;
use crate::repeat::{GO_ON, STOP, repeat};

/// Rooms there are.
pub(crate) const ROOMS: u32 = 16;
/// Bytes of a call that fit.
pub(crate) const CAPACITY: usize = 64 * 1024;
/// Bytes that are copied at once.
const STRIDE: usize = 4096;

/// Where one call is gathered, and how far that is. (Here, since the verifier does not follow values in maps: on the
/// stack it would take each turn of the loop for another one.)
#[repr(C)]
pub(crate) struct Room {
    taken: Word,
    /// Segment that is copied, and how much of it was.
    index: Word,
    within: Word,
    done: Word,
    /// With room behind the end for a copy that the verifier thinks could be too long.
    bytes: [u8; CAPACITY + STRIDE],
}

/// A room that is ours until it is given back.
pub(crate) struct Gathered(&'static Room);

/// A call to copy.
struct Job {
    room: &'static Room,
    vector: u64,
    count: u64,
    len: u32,
}

impl Gathered {
    /// Copies up to `len` bytes of a vector of `count` segments to a room that was taken.
    #[inline(always)]
    pub(crate) fn new(room: &'static Room, vector: u64, count: u64, len: u32) -> Self {
        room.index.set(0);
        room.within.set(0);
        room.done.set(0);
        let mut job = Job { room, vector, count, len };
        repeat::<0, _>(MAX_STEPS, step, &mut job);
        Self(room)
    }

    /// Bytes of the call from its beginning on.
    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        self.0.done.get() as u32
    }

    /// Where they are, in kernel memory.
    #[inline(always)]
    pub(crate) fn address(&self) -> u64 {
        self.0.bytes.as_ptr() as u64
    }

    /// Gives the room back.
    #[inline(always)]
    pub(crate) fn release(self) {
        self.0.taken.publish(0);
    }
}

/// A room, for a call that is then gathered in it; `None`, counted, if those it may have are taken.
#[inline(always)]
pub(crate) fn take() -> Option<&'static Room> {
    // SAFETY: always valid.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    let room = try_take(cpu % ROOMS).or_else(|| try_take((cpu + ROOMS / 2) % ROOMS));
    if room.is_none() {
        count(Counter::GatherBusy);
    }
    room
}

#[inline(always)]
fn try_take(number: u32) -> Option<&'static Room> {
    GATHER.get(number).filter(|room| room.taken.replace(0, 1))
}

/// Each step copies one stride, or the rest of a segment.
const MAX_STEPS: u32 = MAX_SEGMENTS as u32 + (CAPACITY / STRIDE) as u32;

#[inline(never)]
extern "C" fn step(_: u64, job: *mut Job) -> u64 {
    // SAFETY: the job of `Gathered::new`.
    let Job { room, vector, count, len } = unsafe { &*job };
    let (index, within, done) = (room.index.get(), room.within.get(), room.done.get() as u32);
    if done >= *len || index >= *count {
        return STOP;
    }
    let Some(segment) = segment(*vector, index) else { return STOP };
    let wanted = u64::from(*len - done);
    let left = segment.len.saturating_sub(within);
    let len = black_box(if left < wanted { left } else { wanted }) as u32;
    let len = if len > STRIDE as u32 { STRIDE as u32 } else { len };
    let at = black_box(done) as usize & (CAPACITY - 1);
    // SAFETY: a checked read of user memory; the verifier proves that it fits.
    let is_read = unsafe {
        let to = room.bytes.as_ptr().wrapping_add(at).cast_mut().cast::<c_void>();
        bpf_probe_read_user(to, len, (segment.base + within) as *const c_void) == 0
    };
    if !is_read {
        return STOP;
    }
    room.done.set(u64::from(done + len));
    let within = within + u64::from(len);
    let is_over = within >= segment.len;
    room.index.set(index + u64::from(is_over));
    room.within.set(if is_over { 0 } else { within });
    GO_ON
}
