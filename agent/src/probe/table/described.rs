//! Copies that a structure describes, and several at once.
//!
//! Of `cuMemcpy3DBatchAsync` there is no row: the layout of its operations was still changing between CUDA 12.8 and 13.

use wire::cookie::{Class, Loc};

use super::{Row, legacy, per_thread, row};

pub(super) const ROWS: &[Row] = &[
    Row {
        object: Loc::Arg(0),
        blocking: true,
        ..row(
            "cuMemcpy2D",
            Class::Copy2D,
            &[legacy("cuMemcpy2D_v2"), per_thread("cuMemcpy2D_v2_ptds")],
            "CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy)",
        )
    },
    Row {
        object: Loc::Arg(0),
        blocking: true,
        ..row(
            "cuMemcpy2DUnaligned",
            Class::Copy2D,
            &[legacy("cuMemcpy2DUnaligned_v2"), per_thread("cuMemcpy2DUnaligned_v2_ptds")],
            "CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *pCopy)",
        )
    },
    Row {
        stream: Loc::Arg(1),
        object: Loc::Arg(0),
        ..row(
            "cuMemcpy2DAsync",
            Class::Copy2D,
            &[legacy("cuMemcpy2DAsync_v2"), per_thread("cuMemcpy2DAsync_v2_ptsz")],
            "CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream)",
        )
    },
    Row {
        object: Loc::Arg(0),
        blocking: true,
        ..row(
            "cuMemcpy3D",
            Class::Copy3D,
            &[legacy("cuMemcpy3D_v2"), per_thread("cuMemcpy3D_v2_ptds")],
            "CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy)",
        )
    },
    Row {
        stream: Loc::Arg(1),
        object: Loc::Arg(0),
        ..row(
            "cuMemcpy3DAsync",
            Class::Copy3D,
            &[legacy("cuMemcpy3DAsync_v2"), per_thread("cuMemcpy3DAsync_v2_ptsz")],
            "CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream)",
        )
    },
    Row {
        object: Loc::Arg(0),
        ..row(
            "cuMemcpy3DPeer",
            Class::Copy3D,
            &[legacy("cuMemcpy3DPeer"), per_thread("cuMemcpy3DPeer_ptds")],
            "CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *pCopy)",
        )
    },
    Row {
        stream: Loc::Arg(1),
        object: Loc::Arg(0),
        ..row(
            "cuMemcpy3DPeerAsync",
            Class::Copy3D,
            &[legacy("cuMemcpy3DPeerAsync"), per_thread("cuMemcpy3DPeerAsync_ptsz")],
            "CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream)",
        )
    },
    Row {
        // CUDA 12.8.
        stream: Loc::Stack(3),
        bytes: Loc::Arg(3),
        object: Loc::Arg(2),
        required: false,
        ..row(
            "cuMemcpyBatchAsync",
            Class::CopyBatch,
            &[legacy("cuMemcpyBatchAsync"), per_thread("cuMemcpyBatchAsync_ptsz")],
            "CUresult cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, size_t *failIdx, CUstream hStream)",
        )
    },
    Row {
        // CUDA 13.
        stream: Loc::Stack(2),
        bytes: Loc::Arg(3),
        object: Loc::Arg(2),
        required: false,
        ..row(
            "cuMemcpyBatchAsync_v2",
            Class::CopyBatch,
            &[legacy("cuMemcpyBatchAsync_v2"), per_thread("cuMemcpyBatchAsync_v2_ptsz")],
            "CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream)",
        )
    },
];
