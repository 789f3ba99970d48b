//! Arrays: what their elements take.
//!
//! `CUDA_ARRAY_DESCRIPTOR` is width, height (8 bytes each), format and number of channels (4 each);
//! `CUDA_ARRAY3D_DESCRIPTOR` has the depth behind the height. What the driver really takes is not told by the call.

use wire::cookie::Class;
use wire::counter::Counter;
use wire::memory::CALL_ESTIMATED;

use super::arguments::read;
use super::call::MemoryCall;
use crate::emit::count;

/// Replaces the pointer to the description by the size. `extra` is the number of levels of a mipmap.
#[inline(never)]
pub(crate) fn measure(call: &MemoryCall) {
    let at = call.other.get();
    call.other.set(0);
    call.is_estimated.set(u64::from(CALL_ESTIMATED));
    let is_flat = call.class.get() == Class::AllocArray as u64;
    let elements = extent(at).wrapping_mul(extent(at + 8));
    let elements = if is_flat { elements } else { elements.wrapping_mul(extent(at + 16)) };
    let bytes = elements.wrapping_mul(element(if is_flat { at + 16 } else { at + 24 }));
    let is_mipmap = call.class.get() == Class::AllocMipmap as u64 && call.extra.get() as u32 > 1;
    // Each level is a quarter of the one before: a third more altogether, at most.
    call.bytes.set(if is_mipmap { bytes + bytes / 3 } else { bytes });
}

/// An extent of 0 means that the array lacks this dimension.
#[inline(never)]
fn extent(at: u64) -> u64 {
    match read(at) {
        Some(0) => 1,
        Some(n) => n,
        None => {
            count(Counter::ArgumentUnreadable);
            0
        }
    }
}

/// Bytes of an element, from the word of format and channels; 0 for a format that has none.
#[inline(never)]
fn element(at: u64) -> u64 {
    let word = read(at).unwrap_or(0);
    let channels = word >> 32;
    // `CU_AD_FORMAT_*`.
    match word as u32 {
        1 | 8 => channels,
        2 | 9 | 16 => 2 * channels,
        3 | 10 | 32 => 4 * channels,
        _ => 0,
    }
}
