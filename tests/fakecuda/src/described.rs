//! Copies that a structure describes, several at once, and prefetches. A prefetch is a copy of its bytes.

use std::ffi::c_void;

use crate::abi::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, MemcpyEnd};
use crate::copy::Copy;
use crate::error::Error;
use crate::stream::Default;
use crate::timeline::CopyKind;

/// `CU_MEMORYTYPE_HOST`, `_DEVICE`, `_ARRAY`.
const HOST: u32 = 1;
const DEVICE: u32 = 2;
const ARRAY: u32 = 3;

fn address(end: &MemcpyEnd) -> u64 {
    match end.kind {
        HOST => end.host.addr() as u64,
        ARRAY => end.array,
        _ => end.device,
    }
}

fn between(to: &MemcpyEnd, from: &MemcpyEnd, bytes: usize) -> Copy {
    let (target, source) = (address(to), address(from));
    let is_device = |kind| kind == DEVICE || kind == ARRAY;
    match (from.kind, to.kind) {
        (HOST, kind) if is_device(kind) => Copy::new(CopyKind::H2D, target, source, bytes),
        (kind, HOST) if is_device(kind) => Copy::new(CopyKind::D2H, target, source, bytes),
        (source_kind, target_kind) if is_device(source_kind) && is_device(target_kind) => {
            Copy::new(CopyKind::D2D, target, source, bytes)
        }
        _ => Copy::unified(target, source, bytes),
    }
}

fn plane(copy: Option<&CUDA_MEMCPY2D>) -> Result<Copy, Error> {
    let copy = copy.ok_or(Error::INVALID_VALUE)?;
    let bytes = copy.width.checked_mul(copy.height).ok_or(Error::INVALID_VALUE)?;
    Ok(between(&copy.to.end, &copy.from.end, bytes))
}

fn volume(copy: Option<&CUDA_MEMCPY3D>) -> Result<Copy, Error> {
    let copy = copy.ok_or(Error::INVALID_VALUE)?;
    let rows = copy.height.checked_mul(copy.depth).ok_or(Error::INVALID_VALUE)?;
    let bytes = copy.width.checked_mul(rows).ok_or(Error::INVALID_VALUE)?;
    Ok(between(&copy.to.end, &copy.from.end, bytes))
}

/// Arrays of addresses and sizes, each of `count` entries.
fn batch(lists: [*const u64; 3], count: usize, stream: u64, default: Default) -> Result<(), Error> {
    if lists.iter().any(|list| list.is_null()) || count == 0 {
        return Err(Error::INVALID_VALUE);
    }
    // SAFETY: the caller promises so many entries of each.
    let [to, from, sizes] = lists.map(|list| unsafe { std::slice::from_raw_parts(list, count) });
    to.iter().zip(from).zip(sizes).try_for_each(|((&to, &from), &bytes)| {
        let bytes = usize::try_from(bytes).map_err(|_| Error::INVALID_VALUE)?;
        Copy::unified(to, from, bytes).asynchronous(stream, default)
    })
}

export! {
    /// As described; returns when it is done.
    fn cuMemcpy2D_v2(copy: Option<&CUDA_MEMCPY2D>) {
        plane(copy)?.blocking(Default::Legacy)
    }

    /// As described; returns when it is done.
    fn cuMemcpy2DUnaligned_v2(copy: Option<&CUDA_MEMCPY2D>) {
        plane(copy)?.blocking(Default::Legacy)
    }

    /// As described; returns when it is done.
    fn cuMemcpy3D_v2(copy: Option<&CUDA_MEMCPY3D>) {
        volume(copy)?.blocking(Default::Legacy)
    }

    /// As described, between devices; does not wait.
    fn cuMemcpy3DPeer(copy: Option<&CUDA_MEMCPY3D>) {
        volume(copy)?.asynchronous(0, Default::Legacy)
    }

    /// As described; returns when it is done.
    fn cuMemcpy2D_v2_ptds(copy: Option<&CUDA_MEMCPY2D>) {
        plane(copy)?.blocking(Default::PerThread)
    }

    /// As described; returns when it is done.
    fn cuMemcpy2DUnaligned_v2_ptds(copy: Option<&CUDA_MEMCPY2D>) {
        plane(copy)?.blocking(Default::PerThread)
    }

    /// As described; returns when it is done.
    fn cuMemcpy3D_v2_ptds(copy: Option<&CUDA_MEMCPY3D>) {
        volume(copy)?.blocking(Default::PerThread)
    }

    /// As described, between devices; does not wait.
    fn cuMemcpy3DPeer_ptds(copy: Option<&CUDA_MEMCPY3D>) {
        volume(copy)?.asynchronous(0, Default::PerThread)
    }

    /// As described, in a stream.
    fn cuMemcpy2DAsync_v2(copy: Option<&CUDA_MEMCPY2D>, stream: u64) {
        plane(copy)?.asynchronous(stream, Default::Legacy)
    }

    /// As described, in a stream.
    fn cuMemcpy3DAsync_v2(copy: Option<&CUDA_MEMCPY3D>, stream: u64) {
        volume(copy)?.asynchronous(stream, Default::Legacy)
    }

    /// As described, between devices, in a stream.
    fn cuMemcpy3DPeerAsync(copy: Option<&CUDA_MEMCPY3D>, stream: u64) {
        volume(copy)?.asynchronous(stream, Default::Legacy)
    }

    /// Several copies. Attributes are not looked at.
    fn cuMemcpyBatchAsync(
        to: *const u64, from: *const u64, sizes: *const u64, count: usize, _attributes: *const c_void,
        _indices: *const usize, _attribute_count: usize, _failed: *mut usize, stream: u64,
    ) {
        batch([to, from, sizes], count, stream, Default::Legacy)
    }

    /// Several copies. Attributes are not looked at.
    fn cuMemcpyBatchAsync_v2(
        to: *const u64, from: *const u64, sizes: *const u64, count: usize, _attributes: *const c_void,
        _indices: *const usize, _attribute_count: usize, stream: u64,
    ) {
        batch([to, from, sizes], count, stream, Default::Legacy)
    }

    /// Moves memory to where it will be used.
    fn cuMemPrefetchAsync(at: u64, bytes: usize, _device: i32, stream: u64) {
        Copy::new(CopyKind::D2D, at, at, bytes).asynchronous(stream, Default::Legacy)
    }

    /// Moves memory to where it will be used.
    fn cuMemPrefetchAsync_v2(at: u64, bytes: usize, _location: u64, _flags: u32, stream: u64) {
        Copy::new(CopyKind::D2D, at, at, bytes).asynchronous(stream, Default::Legacy)
    }

    /// As described, in a stream.
    fn cuMemcpy2DAsync_v2_ptsz(copy: Option<&CUDA_MEMCPY2D>, stream: u64) {
        plane(copy)?.asynchronous(stream, Default::PerThread)
    }

    /// As described, in a stream.
    fn cuMemcpy3DAsync_v2_ptsz(copy: Option<&CUDA_MEMCPY3D>, stream: u64) {
        volume(copy)?.asynchronous(stream, Default::PerThread)
    }

    /// As described, between devices, in a stream.
    fn cuMemcpy3DPeerAsync_ptsz(copy: Option<&CUDA_MEMCPY3D>, stream: u64) {
        volume(copy)?.asynchronous(stream, Default::PerThread)
    }

    /// Several copies. Attributes are not looked at.
    fn cuMemcpyBatchAsync_ptsz(
        to: *const u64, from: *const u64, sizes: *const u64, count: usize, _attributes: *const c_void,
        _indices: *const usize, _attribute_count: usize, _failed: *mut usize, stream: u64,
    ) {
        batch([to, from, sizes], count, stream, Default::PerThread)
    }

    /// Several copies. Attributes are not looked at.
    fn cuMemcpyBatchAsync_v2_ptsz(
        to: *const u64, from: *const u64, sizes: *const u64, count: usize, _attributes: *const c_void,
        _indices: *const usize, _attribute_count: usize, stream: u64,
    ) {
        batch([to, from, sizes], count, stream, Default::PerThread)
    }

    /// Moves memory to where it will be used.
    fn cuMemPrefetchAsync_ptsz(at: u64, bytes: usize, _device: i32, stream: u64) {
        Copy::new(CopyKind::D2D, at, at, bytes).asynchronous(stream, Default::PerThread)
    }

    /// Moves memory to where it will be used.
    fn cuMemPrefetchAsync_v2_ptsz(at: u64, bytes: usize, _location: u64, _flags: u32, stream: u64) {
        Copy::new(CopyKind::D2D, at, at, bytes).asynchronous(stream, Default::PerThread)
    }
}
