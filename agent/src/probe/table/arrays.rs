//! Copies from and to arrays.

use wire::cookie::{Class, Loc};

use super::{Row, legacy, per_thread, row};

pub(super) const ROWS: &[Row] = &[
    Row {
        bytes: Loc::Arg(3),
        blocking: true,
        ..row(
            "cuMemcpyAtoH",
            Class::CopyD2H,
            &[legacy("cuMemcpyAtoH_v2"), per_thread("cuMemcpyAtoH_v2_ptds")],
            "CUresult cuMemcpyAtoH_v2(void *dst, CUarray src, size_t srcOffset, size_t bytes)",
        )
    },
    Row {
        stream: Loc::Arg(4),
        bytes: Loc::Arg(3),
        ..row(
            "cuMemcpyAtoHAsync",
            Class::CopyD2H,
            &[legacy("cuMemcpyAtoHAsync_v2"), per_thread("cuMemcpyAtoHAsync_v2_ptsz")],
            "CUresult cuMemcpyAtoHAsync_v2(void *dst, CUarray src, size_t srcOffset, size_t bytes, CUstream hStream)",
        )
    },
    Row {
        bytes: Loc::Arg(3),
        ..row(
            "cuMemcpyHtoA",
            Class::CopyH2D,
            &[legacy("cuMemcpyHtoA_v2"), per_thread("cuMemcpyHtoA_v2_ptds")],
            "CUresult cuMemcpyHtoA_v2(CUarray dst, size_t dstOffset, const void *src, size_t bytes)",
        )
    },
    Row {
        stream: Loc::Arg(4),
        bytes: Loc::Arg(3),
        ..row(
            "cuMemcpyHtoAAsync",
            Class::CopyH2D,
            &[legacy("cuMemcpyHtoAAsync_v2"), per_thread("cuMemcpyHtoAAsync_v2_ptsz")],
            "CUresult cuMemcpyHtoAAsync_v2(CUarray dst, size_t dstOffset, const void *src, size_t bytes, CUstream hStream)",
        )
    },
    Row {
        bytes: Loc::Arg(3),
        ..row(
            "cuMemcpyAtoD",
            Class::CopyD2D,
            &[legacy("cuMemcpyAtoD_v2"), per_thread("cuMemcpyAtoD_v2_ptds")],
            "CUresult cuMemcpyAtoD_v2(CUdeviceptr dst, CUarray src, size_t srcOffset, size_t bytes)",
        )
    },
    Row {
        bytes: Loc::Arg(3),
        ..row(
            "cuMemcpyDtoA",
            Class::CopyD2D,
            &[legacy("cuMemcpyDtoA_v2"), per_thread("cuMemcpyDtoA_v2_ptds")],
            "CUresult cuMemcpyDtoA_v2(CUarray dst, size_t dstOffset, CUdeviceptr src, size_t bytes)",
        )
    },
    Row {
        bytes: Loc::Arg(4),
        ..row(
            "cuMemcpyAtoA",
            Class::CopyD2D,
            &[legacy("cuMemcpyAtoA_v2"), per_thread("cuMemcpyAtoA_v2_ptds")],
            "CUresult cuMemcpyAtoA_v2(CUarray dst, size_t dstOffset, CUarray src, size_t srcOffset, size_t bytes)",
        )
    },
];
