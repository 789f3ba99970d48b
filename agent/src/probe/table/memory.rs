//! Allocations and frees of device memory, at once and in stream order.

use wire::cookie::{Class, Loc};

use super::{Row, legacy, narrow, per_thread, row};

pub(super) const ROWS: &[Row] = &[
    Row {
        bytes: Loc::Arg(1),
        object: Loc::Arg(0),
        ..row(
            "cuMemAlloc",
            Class::Alloc,
            &[legacy("cuMemAlloc_v2"), narrow("cuMemAlloc")],
            "CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytes)",
        )
    },
    Row {
        bytes: Loc::Arg(2),
        object: Loc::Arg(0),
        other: Loc::Arg(1),
        ..row(
            "cuMemAllocPitch",
            Class::AllocPitch,
            &[legacy("cuMemAllocPitch_v2")],
            "CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t bytesInRow, size_t Height, unsigned ElementSizeBytes)",
        )
    },
    Row {
        bytes: Loc::Arg(1),
        object: Loc::Arg(0),
        ..row(
            "cuMemAllocManaged",
            Class::AllocManaged,
            &[legacy("cuMemAllocManaged")],
            "CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytes, unsigned flags)",
        )
    },
    Row {
        object: Loc::Arg(0),
        ..row(
            "cuMemFree",
            Class::Free,
            &[legacy("cuMemFree_v2"), narrow("cuMemFree")],
            "CUresult cuMemFree_v2(CUdeviceptr dptr)",
        )
    },
    Row {
        stream: Loc::Arg(2),
        bytes: Loc::Arg(1),
        object: Loc::Arg(0),
        required: false,
        ..row(
            "cuMemAllocAsync",
            Class::AllocAsync,
            &[legacy("cuMemAllocAsync"), per_thread("cuMemAllocAsync_ptsz")],
            "CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytes, CUstream hStream)",
        )
    },
    Row {
        stream: Loc::Arg(3),
        bytes: Loc::Arg(1),
        object: Loc::Arg(0),
        other: Loc::Arg(2),
        required: false,
        ..row(
            "cuMemAllocFromPoolAsync",
            Class::AllocPool,
            &[legacy("cuMemAllocFromPoolAsync"), per_thread("cuMemAllocFromPoolAsync_ptsz")],
            "CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream hStream)",
        )
    },
    Row {
        stream: Loc::Arg(1),
        object: Loc::Arg(0),
        required: false,
        ..row(
            "cuMemFreeAsync",
            Class::FreeAsync,
            &[legacy("cuMemFreeAsync"), per_thread("cuMemFreeAsync_ptsz")],
            "CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)",
        )
    },
    Row {
        object: Loc::Arg(0),
        required: false,
        ..row(
            "cuMemPoolCreate",
            Class::CreatePool,
            &[legacy("cuMemPoolCreate")],
            "CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)",
        )
    },
    Row {
        object: Loc::Arg(0),
        required: false,
        ..row(
            "cuMemPoolDestroy",
            Class::DestroyPool,
            &[legacy("cuMemPoolDestroy")],
            "CUresult cuMemPoolDestroy(CUmemoryPool pool)",
        )
    },
    Row {
        bytes: Loc::Arg(1),
        object: Loc::Arg(0),
        required: false,
        ..row(
            "cuMemPoolTrimTo",
            Class::TrimPool,
            &[legacy("cuMemPoolTrimTo")],
            "CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t bytesToKeep)",
        )
    },
    Row {
        object: Loc::Arg(0),
        other: Loc::Arg(1),
        required: false,
        ..row(
            "cuMemPoolSetAttribute",
            Class::SetPool,
            &[legacy("cuMemPoolSetAttribute")],
            "CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)",
        )
    },
    Row {
        object: Loc::Arg(0),
        other: Loc::Arg(1),
        required: false,
        ..row(
            "cuMemPoolGetAttribute",
            Class::GetPool,
            &[legacy("cuMemPoolGetAttribute")],
            "CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)",
        )
    },
];
