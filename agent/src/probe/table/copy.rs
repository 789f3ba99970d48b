//! Copies.
//!
//! Which copies are result markers: `cuMemcpyDtoH` returns when the bytes are on the host. `cuMemcpyHtoD` may return
//! once the source has been staged, and `cuMemcpyDtoD` at once, so their work stays pending for the next marker.
//! `cuMemcpyDtoHAsync` to memory that is not pinned returns when the bytes are there, too; the call does not tell which
//! memory it is, so its work waits for the next marker. `cuMemcpy` does not tell its direction; it counts as a marker, since the host may read the result after it.

use wire::cookie::{Class, Loc};

use super::{Row, legacy, per_thread, row};

pub(super) const ROWS: &[Row] = &[
    Row {
        bytes: Loc::Arg(2),
        ..row(
            "cuMemcpyHtoD",
            Class::CopyH2D,
            &[legacy("cuMemcpyHtoD_v2"), per_thread("cuMemcpyHtoD_v2_ptds")],
            "CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t bytes)",
        )
    },
    Row {
        bytes: Loc::Arg(2),
        blocking: true,
        ..row(
            "cuMemcpyDtoH",
            Class::CopyD2H,
            &[legacy("cuMemcpyDtoH_v2"), per_thread("cuMemcpyDtoH_v2_ptds")],
            "CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t bytes)",
        )
    },
    Row {
        bytes: Loc::Arg(2),
        ..row(
            "cuMemcpyDtoD",
            Class::CopyD2D,
            &[legacy("cuMemcpyDtoD_v2"), per_thread("cuMemcpyDtoD_v2_ptds")],
            "CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes)",
        )
    },
    Row {
        stream: Loc::Arg(3),
        bytes: Loc::Arg(2),
        ..row(
            "cuMemcpyHtoDAsync",
            Class::CopyH2D,
            &[legacy("cuMemcpyHtoDAsync_v2"), per_thread("cuMemcpyHtoDAsync_v2_ptsz")],
            "CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t bytes, CUstream hStream)",
        )
    },
    Row {
        stream: Loc::Arg(3),
        bytes: Loc::Arg(2),
        ..row(
            "cuMemcpyDtoHAsync",
            Class::CopyD2H,
            &[legacy("cuMemcpyDtoHAsync_v2"), per_thread("cuMemcpyDtoHAsync_v2_ptsz")],
            "CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t bytes, CUstream hStream)",
        )
    },
    Row {
        stream: Loc::Arg(3),
        bytes: Loc::Arg(2),
        ..row(
            "cuMemcpyDtoDAsync",
            Class::CopyD2D,
            &[legacy("cuMemcpyDtoDAsync_v2"), per_thread("cuMemcpyDtoDAsync_v2_ptsz")],
            "CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream hStream)",
        )
    },
    Row {
        bytes: Loc::Arg(2),
        blocking: true,
        ..row(
            "cuMemcpy",
            Class::CopyAny,
            &[legacy("cuMemcpy"), per_thread("cuMemcpy_ptds")],
            "CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t bytes)",
        )
    },
    Row {
        stream: Loc::Arg(3),
        bytes: Loc::Arg(2),
        ..row(
            "cuMemcpyAsync",
            Class::CopyAny,
            &[legacy("cuMemcpyAsync"), per_thread("cuMemcpyAsync_ptsz")],
            "CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream hStream)",
        )
    },
    Row {
        bytes: Loc::Arg(4),
        ..row(
            "cuMemcpyPeer",
            Class::CopyD2D,
            &[legacy("cuMemcpyPeer"), per_thread("cuMemcpyPeer_ptds")],
            "CUresult cuMemcpyPeer(CUdeviceptr dst, CUcontext dstContext, CUdeviceptr src, CUcontext srcContext, size_t bytes)",
        )
    },
    Row {
        stream: Loc::Arg(5),
        bytes: Loc::Arg(4),
        ..row(
            "cuMemcpyPeerAsync",
            Class::CopyD2D,
            &[legacy("cuMemcpyPeerAsync"), per_thread("cuMemcpyPeerAsync_ptsz")],
            "CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dstContext, CUdeviceptr src, CUcontext srcContext, size_t bytes, CUstream hStream)",
        )
    },
    Row {
        // Asked for: how much of it moves depends on where it is.
        stream: Loc::Arg(3),
        bytes: Loc::Arg(1),
        required: false,
        ..row(
            "cuMemPrefetchAsync",
            Class::CopyAny,
            &[legacy("cuMemPrefetchAsync"), per_thread("cuMemPrefetchAsync_ptsz")],
            "CUresult cuMemPrefetchAsync(CUdeviceptr dst, size_t bytes, CUdevice device, CUstream hStream)",
        )
    },
    Row {
        stream: Loc::Arg(4),
        bytes: Loc::Arg(1),
        required: false,
        ..row(
            "cuMemPrefetchAsync_v2",
            Class::CopyAny,
            &[legacy("cuMemPrefetchAsync_v2"), per_thread("cuMemPrefetchAsync_v2_ptsz")],
            "CUresult cuMemPrefetchAsync_v2(CUdeviceptr dst, size_t bytes, CUmemLocation location, unsigned flags, CUstream hStream)",
        )
    },
    Row {
        stream: Loc::Arg(4),
        bytes: Loc::Arg(2),
        required: false,
        ..row(
            "cuMemcpyWithAttributesAsync",
            Class::CopyAny,
            &[legacy("cuMemcpyWithAttributesAsync"), per_thread("cuMemcpyWithAttributesAsync_ptsz")],
            "CUresult cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUmemcpyAttributes *attributes, CUstream hStream)",
        )
    },
];
