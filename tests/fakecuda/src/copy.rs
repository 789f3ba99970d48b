//! Copies. They take time and are counted; no byte moves, and host pointers are not looked at.
//!
//! Simpler than the real thing: an asynchronous copy never waits for the device, whether its host memory is pinned
//! or not; a synchronous one always does, however small.

use std::ffi::c_void;

use crate::error::Error;
use crate::stream::{self, Default};
use crate::timeline::{CopyKind, Op};
use crate::{clock, memory};

/// A copy with its device ranges, 0 where the host is.
pub(crate) struct Copy {
    kind: CopyKind,
    to: u64,
    from: u64,
    bytes: u64,
}

impl Copy {
    pub(crate) fn new(kind: CopyKind, to: u64, from: u64, bytes: usize) -> Self {
        Self { kind, to, from, bytes: bytes as u64 }
    }

    /// Direction by the addresses, as the unified address space has it.
    pub(crate) fn unified(to: u64, from: u64, bytes: usize) -> Self {
        let kind = match (memory::is_device(to), memory::is_device(from)) {
            (true, false) => CopyKind::H2D,
            (false, true) => CopyKind::D2H,
            (true, true) => CopyKind::D2D,
            (false, false) => CopyKind::H2H,
        };
        Self::new(kind, to, from, bytes)
    }

    fn check(&self) -> Result<(), Error> {
        let (to, from) = match self.kind {
            CopyKind::H2D => (true, false),
            CopyKind::D2H => (false, true),
            CopyKind::D2D => (true, true),
            CopyKind::H2H => (false, false),
        };
        let good = |device: bool, at| !device || memory::owns(at, self.bytes);
        if good(to, self.to) && good(from, self.from) { Ok(()) } else { Err(Error::INVALID_VALUE) }
    }

    fn start(&self, stream: u64, default: Default) -> Result<Option<u64>, Error> {
        self.check()?;
        stream::resolve(stream, default)?.submit(Op::Copy { kind: self.kind, bytes: self.bytes })
    }

    pub(crate) fn asynchronous(&self, stream: u64, default: Default) -> Result<(), Error> {
        self.start(stream, default).map(drop)
    }

    /// On the default stream, and waits for the end.
    pub(crate) fn blocking(&self, default: Default) -> Result<(), Error> {
        if let Some(end) = self.start(0, default)? {
            clock::sleep_until(end);
        }
        Ok(())
    }
}

pub(crate) fn host(at: *const c_void) -> u64 {
    at.addr() as u64
}

export! {
    /// Host to device; returns when it is done.
    fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) {
        Copy::new(CopyKind::H2D, to, host(from), bytes).blocking(Default::Legacy)
    }

    /// Host to device; returns when it is done.
    fn cuMemcpyHtoD_v2_ptds(to: u64, from: *const c_void, bytes: usize) {
        Copy::new(CopyKind::H2D, to, host(from), bytes).blocking(Default::PerThread)
    }

    /// Device to host; returns when it is done.
    fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) {
        Copy::new(CopyKind::D2H, host(to), from, bytes).blocking(Default::Legacy)
    }

    /// Device to host; returns when it is done.
    fn cuMemcpyDtoH_v2_ptds(to: *mut c_void, from: u64, bytes: usize) {
        Copy::new(CopyKind::D2H, host(to), from, bytes).blocking(Default::PerThread)
    }

    /// Device to device; does not wait, as in the real driver.
    fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) {
        Copy::new(CopyKind::D2D, to, from, bytes).asynchronous(0, Default::Legacy)
    }

    /// Device to device; does not wait, as in the real driver.
    fn cuMemcpyDtoD_v2_ptds(to: u64, from: u64, bytes: usize) {
        Copy::new(CopyKind::D2D, to, from, bytes).asynchronous(0, Default::PerThread)
    }

    /// Host to device, in a stream.
    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: u64) {
        Copy::new(CopyKind::H2D, to, host(from), bytes).asynchronous(stream, Default::Legacy)
    }

    /// Host to device, in a stream.
    fn cuMemcpyHtoDAsync_v2_ptsz(to: u64, from: *const c_void, bytes: usize, stream: u64) {
        Copy::new(CopyKind::H2D, to, host(from), bytes).asynchronous(stream, Default::PerThread)
    }

    /// Device to host, in a stream.
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: u64) {
        Copy::new(CopyKind::D2H, host(to), from, bytes).asynchronous(stream, Default::Legacy)
    }

    /// Device to host, in a stream.
    fn cuMemcpyDtoHAsync_v2_ptsz(to: *mut c_void, from: u64, bytes: usize, stream: u64) {
        Copy::new(CopyKind::D2H, host(to), from, bytes).asynchronous(stream, Default::PerThread)
    }

    /// Device to device, in a stream.
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) {
        Copy::new(CopyKind::D2D, to, from, bytes).asynchronous(stream, Default::Legacy)
    }

    /// Device to device, in a stream.
    fn cuMemcpyDtoDAsync_v2_ptsz(to: u64, from: u64, bytes: usize, stream: u64) {
        Copy::new(CopyKind::D2D, to, from, bytes).asynchronous(stream, Default::PerThread)
    }

    /// Any direction, in a stream.
    fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: u64) {
        Copy::unified(to, from, bytes).asynchronous(stream, Default::Legacy)
    }

    /// Any direction, in a stream.
    fn cuMemcpyAsync_ptsz(to: u64, from: u64, bytes: usize, stream: u64) {
        Copy::unified(to, from, bytes).asynchronous(stream, Default::PerThread)
    }

    /// Any direction; returns when it is done.
    fn cuMemcpy(to: u64, from: u64, bytes: usize) {
        Copy::unified(to, from, bytes).blocking(Default::Legacy)
    }

    /// Any direction; returns when it is done.
    fn cuMemcpy_ptds(to: u64, from: u64, bytes: usize) {
        Copy::unified(to, from, bytes).blocking(Default::PerThread)
    }

    /// Between devices; does not wait. Contexts are not looked at.
    fn cuMemcpyPeer(to: u64, _to_context: u64, from: u64, _from_context: u64, bytes: usize) {
        Copy::new(CopyKind::D2D, to, from, bytes).asynchronous(0, Default::Legacy)
    }

    /// Between devices; does not wait. Contexts are not looked at.
    fn cuMemcpyPeer_ptds(to: u64, _to_context: u64, from: u64, _from_context: u64, bytes: usize) {
        Copy::new(CopyKind::D2D, to, from, bytes).asynchronous(0, Default::PerThread)
    }

    /// Between devices, in a stream. Contexts are not looked at.
    fn cuMemcpyPeerAsync(
        to: u64, _to_context: u64, from: u64, _from_context: u64, bytes: usize, stream: u64,
    ) {
        Copy::new(CopyKind::D2D, to, from, bytes).asynchronous(stream, Default::Legacy)
    }

    /// Between devices, in a stream. Contexts are not looked at.
    fn cuMemcpyPeerAsync_ptsz(
        to: u64, _to_context: u64, from: u64, _from_context: u64, bytes: usize, stream: u64,
    ) {
        Copy::new(CopyKind::D2D, to, from, bytes).asynchronous(stream, Default::PerThread)
    }
}
