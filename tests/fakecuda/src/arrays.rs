//! Copies from and to arrays. An array is device memory here, and its handle the address of that.

use std::ffi::c_void;

use crate::copy::{Copy, host};
use crate::stream::Default;
use crate::timeline::CopyKind;

fn place(array: u64, offset: usize) -> u64 {
    array.saturating_add(offset as u64)
}

export! {
    /// Array to host; returns when it is done.
    fn cuMemcpyAtoH_v2(to: *mut c_void, from: u64, offset: usize, bytes: usize) {
        Copy::new(CopyKind::D2H, host(to), place(from, offset), bytes).blocking(Default::Legacy)
    }

    /// Host to array; returns when it is done.
    fn cuMemcpyHtoA_v2(to: u64, offset: usize, from: *const c_void, bytes: usize) {
        Copy::new(CopyKind::H2D, place(to, offset), host(from), bytes).blocking(Default::Legacy)
    }

    /// Array to device; does not wait.
    fn cuMemcpyAtoD_v2(to: u64, from: u64, offset: usize, bytes: usize) {
        Copy::new(CopyKind::D2D, to, place(from, offset), bytes).asynchronous(0, Default::Legacy)
    }

    /// Device to array; does not wait.
    fn cuMemcpyDtoA_v2(to: u64, offset: usize, from: u64, bytes: usize) {
        Copy::new(CopyKind::D2D, place(to, offset), from, bytes).asynchronous(0, Default::Legacy)
    }

    /// Array to array; does not wait.
    fn cuMemcpyAtoA_v2(to: u64, to_offset: usize, from: u64, from_offset: usize, bytes: usize) {
        let (to, from) = (place(to, to_offset), place(from, from_offset));
        Copy::new(CopyKind::D2D, to, from, bytes).asynchronous(0, Default::Legacy)
    }

    /// Array to host; returns when it is done.
    fn cuMemcpyAtoH_v2_ptds(to: *mut c_void, from: u64, offset: usize, bytes: usize) {
        Copy::new(CopyKind::D2H, host(to), place(from, offset), bytes).blocking(Default::PerThread)
    }

    /// Host to array; returns when it is done.
    fn cuMemcpyHtoA_v2_ptds(to: u64, offset: usize, from: *const c_void, bytes: usize) {
        Copy::new(CopyKind::H2D, place(to, offset), host(from), bytes).blocking(Default::PerThread)
    }

    /// Array to device; does not wait.
    fn cuMemcpyAtoD_v2_ptds(to: u64, from: u64, offset: usize, bytes: usize) {
        Copy::new(CopyKind::D2D, to, place(from, offset), bytes).asynchronous(0, Default::PerThread)
    }

    /// Device to array; does not wait.
    fn cuMemcpyDtoA_v2_ptds(to: u64, offset: usize, from: u64, bytes: usize) {
        Copy::new(CopyKind::D2D, place(to, offset), from, bytes).asynchronous(0, Default::PerThread)
    }

    /// Array to array; does not wait.
    fn cuMemcpyAtoA_v2_ptds(to: u64, to_offset: usize, from: u64, from_offset: usize, bytes: usize) {
        let (to, from) = (place(to, to_offset), place(from, from_offset));
        Copy::new(CopyKind::D2D, to, from, bytes).asynchronous(0, Default::PerThread)
    }

    /// Array to host, in a stream.
    fn cuMemcpyAtoHAsync_v2(to: *mut c_void, from: u64, offset: usize, bytes: usize, stream: u64) {
        Copy::new(CopyKind::D2H, host(to), place(from, offset), bytes).asynchronous(stream, Default::Legacy)
    }

    /// Host to array, in a stream.
    fn cuMemcpyHtoAAsync_v2(to: u64, offset: usize, from: *const c_void, bytes: usize, stream: u64) {
        Copy::new(CopyKind::H2D, place(to, offset), host(from), bytes).asynchronous(stream, Default::Legacy)
    }

    /// Array to host, in a stream.
    fn cuMemcpyAtoHAsync_v2_ptsz(to: *mut c_void, from: u64, offset: usize, bytes: usize, stream: u64) {
        Copy::new(CopyKind::D2H, host(to), place(from, offset), bytes).asynchronous(stream, Default::PerThread)
    }

    /// Host to array, in a stream.
    fn cuMemcpyHtoAAsync_v2_ptsz(to: u64, offset: usize, from: *const c_void, bytes: usize, stream: u64) {
        Copy::new(CopyKind::H2D, place(to, offset), host(from), bytes).asynchronous(stream, Default::PerThread)
    }
}
