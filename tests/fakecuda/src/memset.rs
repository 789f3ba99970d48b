//! Setting memory. It takes as long as a copy within the device, and does not wait.

use crate::error::Error;
use crate::memory;
use crate::stream::{self, Default};
use crate::timeline::Op;

/// Rows of `width` elements of `size` bytes, `pitch` bytes apart.
fn set(
    to: u64,
    pitch: usize,
    [size, width, height]: [usize; 3],
    stream: u64,
    default: Default,
) -> Result<(), Error> {
    let row = size.checked_mul(width).ok_or(Error::INVALID_VALUE)?;
    let last = pitch.checked_mul(height.saturating_sub(1)).ok_or(Error::INVALID_VALUE)?;
    if !memory::owns(to, last.saturating_add(row) as u64) {
        return Err(Error::INVALID_VALUE);
    }
    let bytes = row.saturating_mul(height) as u64;
    stream::resolve(stream, default)?.submit(Op::Memset { bytes }).map(drop)
}

export! {
    /// Elements of 1 byte(s).
    fn cuMemsetD8_v2(to: u64, _value: u8, count: usize) {
        set(to, 0, [1, count, 1], 0, Default::Legacy)
    }

    /// Rows of elements of 1 byte(s).
    fn cuMemsetD2D8_v2(to: u64, pitch: usize, _value: u8, width: usize, height: usize) {
        set(to, pitch, [1, width, height], 0, Default::Legacy)
    }

    /// Elements of 1 byte(s).
    fn cuMemsetD8_v2_ptds(to: u64, _value: u8, count: usize) {
        set(to, 0, [1, count, 1], 0, Default::PerThread)
    }

    /// Rows of elements of 1 byte(s).
    fn cuMemsetD2D8_v2_ptds(to: u64, pitch: usize, _value: u8, width: usize, height: usize) {
        set(to, pitch, [1, width, height], 0, Default::PerThread)
    }

    /// Elements of 1 byte(s), in a stream.
    fn cuMemsetD8Async(to: u64, _value: u8, count: usize, stream: u64) {
        set(to, 0, [1, count, 1], stream, Default::Legacy)
    }

    /// Rows of elements of 1 byte(s), in a stream.
    fn cuMemsetD2D8Async(to: u64, pitch: usize, _value: u8, width: usize, height: usize, stream: u64) {
        set(to, pitch, [1, width, height], stream, Default::Legacy)
    }

    /// Elements of 1 byte(s), in a stream.
    fn cuMemsetD8Async_ptsz(to: u64, _value: u8, count: usize, stream: u64) {
        set(to, 0, [1, count, 1], stream, Default::PerThread)
    }

    /// Rows of elements of 1 byte(s), in a stream.
    fn cuMemsetD2D8Async_ptsz(to: u64, pitch: usize, _value: u8, width: usize, height: usize, stream: u64) {
        set(to, pitch, [1, width, height], stream, Default::PerThread)
    }

    /// Elements of 2 byte(s).
    fn cuMemsetD16_v2(to: u64, _value: u16, count: usize) {
        set(to, 0, [2, count, 1], 0, Default::Legacy)
    }

    /// Rows of elements of 2 byte(s).
    fn cuMemsetD2D16_v2(to: u64, pitch: usize, _value: u16, width: usize, height: usize) {
        set(to, pitch, [2, width, height], 0, Default::Legacy)
    }

    /// Elements of 2 byte(s).
    fn cuMemsetD16_v2_ptds(to: u64, _value: u16, count: usize) {
        set(to, 0, [2, count, 1], 0, Default::PerThread)
    }

    /// Rows of elements of 2 byte(s).
    fn cuMemsetD2D16_v2_ptds(to: u64, pitch: usize, _value: u16, width: usize, height: usize) {
        set(to, pitch, [2, width, height], 0, Default::PerThread)
    }

    /// Elements of 2 byte(s), in a stream.
    fn cuMemsetD16Async(to: u64, _value: u16, count: usize, stream: u64) {
        set(to, 0, [2, count, 1], stream, Default::Legacy)
    }

    /// Rows of elements of 2 byte(s), in a stream.
    fn cuMemsetD2D16Async(to: u64, pitch: usize, _value: u16, width: usize, height: usize, stream: u64) {
        set(to, pitch, [2, width, height], stream, Default::Legacy)
    }

    /// Elements of 2 byte(s), in a stream.
    fn cuMemsetD16Async_ptsz(to: u64, _value: u16, count: usize, stream: u64) {
        set(to, 0, [2, count, 1], stream, Default::PerThread)
    }

    /// Rows of elements of 2 byte(s), in a stream.
    fn cuMemsetD2D16Async_ptsz(to: u64, pitch: usize, _value: u16, width: usize, height: usize, stream: u64) {
        set(to, pitch, [2, width, height], stream, Default::PerThread)
    }

    /// Elements of 4 byte(s).
    fn cuMemsetD32_v2(to: u64, _value: u32, count: usize) {
        set(to, 0, [4, count, 1], 0, Default::Legacy)
    }

    /// Rows of elements of 4 byte(s).
    fn cuMemsetD2D32_v2(to: u64, pitch: usize, _value: u32, width: usize, height: usize) {
        set(to, pitch, [4, width, height], 0, Default::Legacy)
    }

    /// Elements of 4 byte(s).
    fn cuMemsetD32_v2_ptds(to: u64, _value: u32, count: usize) {
        set(to, 0, [4, count, 1], 0, Default::PerThread)
    }

    /// Rows of elements of 4 byte(s).
    fn cuMemsetD2D32_v2_ptds(to: u64, pitch: usize, _value: u32, width: usize, height: usize) {
        set(to, pitch, [4, width, height], 0, Default::PerThread)
    }

    /// Elements of 4 byte(s), in a stream.
    fn cuMemsetD32Async(to: u64, _value: u32, count: usize, stream: u64) {
        set(to, 0, [4, count, 1], stream, Default::Legacy)
    }

    /// Rows of elements of 4 byte(s), in a stream.
    fn cuMemsetD2D32Async(to: u64, pitch: usize, _value: u32, width: usize, height: usize, stream: u64) {
        set(to, pitch, [4, width, height], stream, Default::Legacy)
    }

    /// Elements of 4 byte(s), in a stream.
    fn cuMemsetD32Async_ptsz(to: u64, _value: u32, count: usize, stream: u64) {
        set(to, 0, [4, count, 1], stream, Default::PerThread)
    }

    /// Rows of elements of 4 byte(s), in a stream.
    fn cuMemsetD2D32Async_ptsz(to: u64, pitch: usize, _value: u32, width: usize, height: usize, stream: u64) {
        set(to, pitch, [4, width, height], stream, Default::PerThread)
    }
}
