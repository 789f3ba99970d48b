//! Host memory that devices reach, arrays, and how much is free.

use wire::cookie::{Class, Loc};

use super::{Row, legacy, narrow, row};

pub(super) const ROWS: &[Row] = &[
    Row {
        object: Loc::Arg(0),
        other: Loc::Arg(1),
        ..row(
            "cuMemGetInfo",
            Class::MemoryInfo,
            &[legacy("cuMemGetInfo_v2")],
            "CUresult cuMemGetInfo_v2(size_t *free, size_t *total)",
        )
    },
    Row {
        bytes: Loc::Arg(1),
        object: Loc::Arg(0),
        ..row(
            "cuMemHostAlloc",
            Class::AllocHost,
            &[legacy("cuMemHostAlloc")],
            "CUresult cuMemHostAlloc(void **host, size_t bytes, unsigned Flags)",
        )
    },
    Row {
        bytes: Loc::Arg(1),
        object: Loc::Arg(0),
        required: false,
        ..row(
            "cuMemAllocHost",
            Class::AllocHost,
            &[legacy("cuMemAllocHost_v2"), narrow("cuMemAllocHost")],
            "CUresult cuMemAllocHost_v2(void **host, size_t bytes)",
        )
    },
    Row {
        object: Loc::Arg(0),
        ..row(
            "cuMemFreeHost",
            Class::FreeHost,
            &[legacy("cuMemFreeHost")],
            "CUresult cuMemFreeHost(void *host)",
        )
    },
    Row {
        bytes: Loc::Arg(1),
        object: Loc::Arg(0),
        required: false,
        ..row(
            "cuMemHostRegister",
            Class::RegisterHost,
            &[legacy("cuMemHostRegister"), legacy("cuMemHostRegister_v2")],
            "CUresult cuMemHostRegister_v2(void *host, size_t bytes, unsigned Flags)",
        )
    },
    Row {
        object: Loc::Arg(0),
        required: false,
        ..row(
            "cuMemHostUnregister",
            Class::UnregisterHost,
            &[legacy("cuMemHostUnregister")],
            "CUresult cuMemHostUnregister(void *host)",
        )
    },
    Row {
        object: Loc::Arg(0),
        other: Loc::Arg(1),
        required: false,
        ..row(
            "cuArrayCreate",
            Class::AllocArray,
            &[legacy("cuArrayCreate_v2")],
            "CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *desc)",
        )
    },
    Row {
        object: Loc::Arg(0),
        other: Loc::Arg(1),
        required: false,
        ..row(
            "cuArray3DCreate",
            Class::AllocArray3D,
            &[legacy("cuArray3DCreate_v2")],
            "CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc)",
        )
    },
    Row {
        object: Loc::Arg(0),
        required: false,
        ..row(
            "cuArrayDestroy",
            Class::FreeArray,
            &[legacy("cuArrayDestroy")],
            "CUresult cuArrayDestroy(CUarray array)",
        )
    },
    Row {
        object: Loc::Arg(0),
        other: Loc::Arg(1),
        required: false,
        ..row(
            "cuMipmappedArrayCreate",
            Class::AllocMipmap,
            &[legacy("cuMipmappedArrayCreate")],
            "CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned numMipmapLevels)",
        )
    },
    Row {
        object: Loc::Arg(0),
        required: false,
        ..row(
            "cuMipmappedArrayDestroy",
            Class::FreeArray,
            &[legacy("cuMipmappedArrayDestroy")],
            "CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)",
        )
    },
];
