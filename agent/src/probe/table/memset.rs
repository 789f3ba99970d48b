//! Setting memory: an operation of the stream that moves no bytes. The plain forms return before it is done.

use wire::cookie::{Class, Loc};

use super::{Row, legacy, per_thread, row};

pub(super) const ROWS: &[Row] = &[
    Row {
        ..row(
            "cuMemsetD8",
            Class::Memset,
            &[legacy("cuMemsetD8_v2"), per_thread("cuMemsetD8_v2_ptds")],
            "CUresult cuMemsetD8_v2(CUdeviceptr dst, unsigned value, size_t n)",
        )
    },
    Row {
        stream: Loc::Arg(3),
        ..row(
            "cuMemsetD8Async",
            Class::Memset,
            &[legacy("cuMemsetD8Async"), per_thread("cuMemsetD8Async_ptsz")],
            "CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned value, size_t n, CUstream hStream)",
        )
    },
    Row {
        ..row(
            "cuMemsetD16",
            Class::Memset,
            &[legacy("cuMemsetD16_v2"), per_thread("cuMemsetD16_v2_ptds")],
            "CUresult cuMemsetD16_v2(CUdeviceptr dst, unsigned value, size_t n)",
        )
    },
    Row {
        stream: Loc::Arg(3),
        ..row(
            "cuMemsetD16Async",
            Class::Memset,
            &[legacy("cuMemsetD16Async"), per_thread("cuMemsetD16Async_ptsz")],
            "CUresult cuMemsetD16Async(CUdeviceptr dst, unsigned value, size_t n, CUstream hStream)",
        )
    },
    Row {
        ..row(
            "cuMemsetD32",
            Class::Memset,
            &[legacy("cuMemsetD32_v2"), per_thread("cuMemsetD32_v2_ptds")],
            "CUresult cuMemsetD32_v2(CUdeviceptr dst, unsigned value, size_t n)",
        )
    },
    Row {
        stream: Loc::Arg(3),
        ..row(
            "cuMemsetD32Async",
            Class::Memset,
            &[legacy("cuMemsetD32Async"), per_thread("cuMemsetD32Async_ptsz")],
            "CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned value, size_t n, CUstream hStream)",
        )
    },
    Row {
        ..row(
            "cuMemsetD2D8",
            Class::Memset,
            &[legacy("cuMemsetD2D8_v2"), per_thread("cuMemsetD2D8_v2_ptds")],
            "CUresult cuMemsetD2D8_v2(CUdeviceptr dst, size_t pitch, unsigned value, size_t width, size_t height)",
        )
    },
    Row {
        stream: Loc::Arg(5),
        ..row(
            "cuMemsetD2D8Async",
            Class::Memset,
            &[legacy("cuMemsetD2D8Async"), per_thread("cuMemsetD2D8Async_ptsz")],
            "CUresult cuMemsetD2D8Async(CUdeviceptr dst, size_t pitch, unsigned value, size_t width, size_t height, CUstream hStream)",
        )
    },
    Row {
        ..row(
            "cuMemsetD2D16",
            Class::Memset,
            &[legacy("cuMemsetD2D16_v2"), per_thread("cuMemsetD2D16_v2_ptds")],
            "CUresult cuMemsetD2D16_v2(CUdeviceptr dst, size_t pitch, unsigned value, size_t width, size_t height)",
        )
    },
    Row {
        stream: Loc::Arg(5),
        ..row(
            "cuMemsetD2D16Async",
            Class::Memset,
            &[legacy("cuMemsetD2D16Async"), per_thread("cuMemsetD2D16Async_ptsz")],
            "CUresult cuMemsetD2D16Async(CUdeviceptr dst, size_t pitch, unsigned value, size_t width, size_t height, CUstream hStream)",
        )
    },
    Row {
        ..row(
            "cuMemsetD2D32",
            Class::Memset,
            &[legacy("cuMemsetD2D32_v2"), per_thread("cuMemsetD2D32_v2_ptds")],
            "CUresult cuMemsetD2D32_v2(CUdeviceptr dst, size_t pitch, unsigned value, size_t width, size_t height)",
        )
    },
    Row {
        stream: Loc::Arg(5),
        ..row(
            "cuMemsetD2D32Async",
            Class::Memset,
            &[legacy("cuMemsetD2D32Async"), per_thread("cuMemsetD2D32Async_ptsz")],
            "CUresult cuMemsetD2D32Async(CUdeviceptr dst, size_t pitch, unsigned value, size_t width, size_t height, CUstream hStream)",
        )
    },
];
