//! Loops that the kernel runs, so that its verifier looks at one turn instead of all of them in turn; and on kernels
//! that cannot (before 5.17), a few turns that it does look at.

use core::ffi::c_void;
use core::ptr;

use aya_ebpf::helpers::generated::bpf_loop;

/// To go on.
pub(crate) const GO_ON: u64 = 0;
/// To end early.
pub(crate) const STOP: u64 = 1;

/// 1 where the kernel has `bpf_loop`; set at load.
#[unsafe(no_mangle)]
static HAS_LOOP: u32 = 0;

/// Whether loops have as many turns as they are given. The verifier knows, and does not look at what comes of the other
/// answer.
#[inline(always)]
pub(crate) fn is_full() -> bool {
    // SAFETY: a static. Volatile, because the value is patched in after compilation.
    unsafe { ptr::read_volatile(&raw const HAS_LOOP) != 0 }
}

/// Calls `turn(index, state)` up to `turns` times, until it returns [`STOP`]; at most `FEW` times where the kernel has no
/// loops.
#[inline(always)]
pub(crate) fn repeat<const FEW: u32, T>(turns: u32, turn: extern "C" fn(u64, *mut T) -> u64, state: &mut T) {
    if is_full() {
        // SAFETY: the helper calls `turn` with an index and `state`, and returns before `state` ends.
        unsafe { bpf_loop(turns, turn as *mut c_void, (&raw mut *state).cast(), 0) };
        return;
    }
    let mut index = 0;
    while index < FEW && index < turns {
        if turn(u64::from(index), &raw mut *state) == STOP {
            return;
        }
        index += 1;
    }
}
