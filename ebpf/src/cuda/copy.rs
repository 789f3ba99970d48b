//! Copies: how many bytes, and which way.

use core::mem::offset_of;

use wire::cookie::{Argument, Class};
use wire::counter::Counter;

use super::arguments::{Entry, read};
use super::stream::{Stream, field};
use super::work::touch;
use crate::emit::{Stop, count};
use crate::repeat::{GO_ON, STOP, is_full, repeat};

/// `CUDA_MEMCPY2D` of `cuda.h`, as far as it matters.
#[repr(C)]
struct Copy2D {
    source: [u64; 2],
    source_type: u32,
    source_at: [u64; 4],
    target: [u64; 2],
    target_type: u32,
    target_at: [u64; 4],
    width: u64,
    height: u64,
}

/// `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER` of `cuda.h`, as far as they matter.
#[repr(C)]
struct Copy3D {
    source: [u64; 4],
    source_type: u32,
    source_at: [u64; 6],
    target: [u64; 4],
    target_type: u32,
    target_at: [u64; 6],
    width: u64,
    height: u64,
    depth: u64,
}

const _: () = assert!(size_of::<Copy2D>() == 128 && offset_of!(Copy2D, target_type) == 72);
const _: () = assert!(size_of::<Copy3D>() == 200 && offset_of!(Copy3D, target_type) == 120);

/// `CU_MEMORYTYPE_HOST`.
const HOST: u32 = 1;
/// `CU_MEMORYTYPE_UNIFIED`: the address says where, and not the call.
const UNIFIED: u32 = 4;

/// Copies of one batch that are added up, and those where the kernel has no loops.
const BATCH: u32 = 4096;
const FEW: u32 = 8;

/// Counts the copy, or memset, of a row of one of their classes. Whether a blocking one is a marker: what brings
/// nothing to the host may return before it is done. One that is captured counts for nothing.
#[inline(always)]
pub(crate) fn account(entry: Entry, stream: &Stream) -> Result<bool, Stop> {
    if stream.is_capturing() {
        return Ok(false);
    }
    let class = entry.class()?;
    match class {
        Class::CopyH2D => add(stream, field::H2D, entry.argument(Argument::Bytes)?),
        Class::CopyD2H => add(stream, field::D2H, entry.argument(Argument::Bytes)?),
        Class::Memset => add(stream, field::OTHER, 0),
        Class::CopyBatch => {
            batch(stream, entry.argument(Argument::Object)?, entry.argument(Argument::Bytes)?)
        }
        Class::CopyRows => {
            let rows = entry.argument(Argument::Object)?;
            add(stream, field::OTHER, entry.argument(Argument::Bytes)?.wrapping_mul(rows));
        }
        Class::CopyExtent => add(stream, field::OTHER, extent(entry.argument(Argument::Object)?)),
        Class::Copy2D | Class::Copy3D => return described(entry, stream, matches!(class, Class::Copy3D)),
        _ => add(stream, field::OTHER, entry.argument(Argument::Bytes)?),
    }
    Ok(!matches!(class, Class::CopyH2D))
}

#[inline(always)]
fn add(stream: &Stream, direction: usize, bytes: u64) {
    stream.totals.work[direction].add(bytes);
    stream.totals.work[field::COPIES].add(1);
    touch(stream);
}

#[inline(always)]
fn described(entry: Entry, stream: &Stream, has_depth: bool) -> Result<bool, Stop> {
    let at = entry.argument(Argument::Object)?;
    let direction = direction(at, has_depth);
    match direction {
        D2H => add(stream, field::D2H, volume(at, has_depth)),
        H2D => add(stream, field::H2D, volume(at, has_depth)),
        UNREADABLE => return Err(Stop::Count(Counter::ArgumentUnreadable)),
        _ => add(stream, field::OTHER, volume(at, has_depth)),
    }
    Ok(direction == D2H || direction == UNKNOWN)
}

const UNREADABLE: u64 = 0;
const H2D: u64 = 1;
const D2H: u64 = 2;
/// Between two places that are not the host.
const WITHIN: u64 = 3;
const UNKNOWN: u64 = 4;

/// A subprogram of its own, for the sake of the stack; therefore a number instead of an enum.
#[inline(never)]
fn direction(at: u64, has_depth: bool) -> u64 {
    let (source, target) = if has_depth {
        (offset_of!(Copy3D, source_type), offset_of!(Copy3D, target_type))
    } else {
        (offset_of!(Copy2D, source_type), offset_of!(Copy2D, target_type))
    };
    let (Some(source), Some(target)) = (read(at + source as u64), read(at + target as u64)) else {
        return UNREADABLE;
    };
    match (source as u32, target as u32) {
        (UNIFIED, _) | (_, UNIFIED) => UNKNOWN,
        (HOST, HOST) => UNKNOWN,
        (HOST, _) => H2D,
        (_, HOST) => D2H,
        _ => WITHIN,
    }
}

/// Bytes; 0 for what cannot be read.
#[inline(never)]
fn volume(at: u64, has_depth: bool) -> u64 {
    let word = |offset: usize| read(at + offset as u64).unwrap_or(0);
    if has_depth {
        word(offset_of!(Copy3D, width)) * word(offset_of!(Copy3D, height)) * word(offset_of!(Copy3D, depth))
    } else {
        word(offset_of!(Copy2D, width)) * word(offset_of!(Copy2D, height))
    }
}

/// Bytes of a `cudaMemcpy3DParms`; 0 for what cannot be read. Where an array takes part the width counts elements.
#[inline(never)]
fn extent(at: u64) -> u64 {
    /// Behind an array, a position (three words) and a pitched pointer (four), twice.
    const EXTENT: u64 = 2 * 8 * (1 + 3 + 4);
    let word = |index: u64| read(at + EXTENT + 8 * index).unwrap_or(0);
    word(0).wrapping_mul(word(1)).wrapping_mul(word(2))
}

/// Sizes that are being added up.
struct Batch {
    sizes: u64,
    len: u64,
    bytes: u64,
}

#[inline(never)]
fn batch(stream: &Stream, sizes: u64, len: u64) {
    if len > u64::from(if is_full() { BATCH } else { FEW }) {
        count(Counter::BatchTruncated);
    }
    let mut state = Batch { sizes, len, bytes: 0 };
    repeat::<FEW, _>(BATCH, next_size, &mut state);
    stream.totals.work[field::OTHER].add(state.bytes);
    stream.totals.work[field::COPIES].add(if len < u64::from(BATCH) { len } else { u64::from(BATCH) });
    touch(stream);
}

#[inline(never)]
extern "C" fn next_size(index: u64, state: *mut Batch) -> u64 {
    // SAFETY: the state of `batch`.
    let state = unsafe { &mut *state };
    if index >= state.len {
        return STOP;
    }
    let Some(bytes) = read(state.sizes + 8 * index) else {
        count(Counter::ArgumentUnreadable);
        return STOP;
    };
    state.bytes += bytes;
    GO_ON
}
