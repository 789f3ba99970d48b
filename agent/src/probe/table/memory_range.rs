//! Physical memory and addresses apart, and memory of other processes.

use wire::cookie::{Class, Loc};

use super::{Row, legacy, row};

pub(super) const ROWS: &[Row] = &[
    Row {
        bytes: Loc::Arg(1),
        object: Loc::Arg(0),
        other: Loc::Arg(2),
        required: false,
        ..row(
            "cuMemCreate",
            Class::CreatePhysical,
            &[legacy("cuMemCreate")],
            "CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags)",
        )
    },
    Row {
        object: Loc::Arg(0),
        required: false,
        ..row(
            "cuMemRelease",
            Class::ReleasePhysical,
            &[legacy("cuMemRelease")],
            "CUresult cuMemRelease(CUmemGenericAllocationHandle handle)",
        )
    },
    Row {
        object: Loc::Arg(0),
        other: Loc::Arg(1),
        required: false,
        ..row(
            "cuMemRetainAllocationHandle",
            Class::RetainPhysical,
            &[legacy("cuMemRetainAllocationHandle")],
            "CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)",
        )
    },
    Row {
        object: Loc::Arg(0),
        required: false,
        ..row(
            "cuMemImportFromShareableHandle",
            Class::ImportPhysical,
            &[legacy("cuMemImportFromShareableHandle")],
            "CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle, CUmemAllocationHandleType shHandleType)",
        )
    },
    Row {
        bytes: Loc::Arg(1),
        object: Loc::Arg(0),
        other: Loc::Arg(3),
        required: false,
        ..row(
            "cuMemMap",
            Class::MapRange,
            &[legacy("cuMemMap")],
            "CUresult cuMemMap(CUdeviceptr dptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)",
        )
    },
    Row {
        bytes: Loc::Arg(1),
        object: Loc::Arg(0),
        required: false,
        ..row(
            "cuMemUnmap",
            Class::UnmapRange,
            &[legacy("cuMemUnmap")],
            "CUresult cuMemUnmap(CUdeviceptr dptr, size_t bytes)",
        )
    },
    Row {
        bytes: Loc::Arg(1),
        object: Loc::Arg(0),
        required: false,
        ..row(
            "cuMemAddressReserve",
            Class::ReserveRange,
            &[legacy("cuMemAddressReserve")],
            "CUresult cuMemAddressReserve(CUdeviceptr *dptr, size_t bytes, size_t alignment, CUdeviceptr addr, unsigned long long flags)",
        )
    },
    Row {
        bytes: Loc::Arg(1),
        object: Loc::Arg(0),
        required: false,
        ..row(
            "cuMemAddressFree",
            Class::FreeRange,
            &[legacy("cuMemAddressFree")],
            "CUresult cuMemAddressFree(CUdeviceptr dptr, size_t bytes)",
        )
    },
    Row {
        object: Loc::Arg(1),
        other: Loc::Arg(0),
        required: false,
        ..row(
            "cuIpcGetMemHandle",
            Class::ExportAddress,
            &[legacy("cuIpcGetMemHandle")],
            "CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)",
        )
    },
    Row {
        // The handle is a structure of 64 bytes, passed by value: behind the return address.
        object: Loc::Arg(0),
        other: Loc::Stack(1),
        required: false,
        ..row(
            "cuIpcOpenMemHandle",
            Class::ImportAddress,
            &[legacy("cuIpcOpenMemHandle"), legacy("cuIpcOpenMemHandle_v2")],
            "CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *dptr, CUipcMemHandle ipcHandle, unsigned Flags)",
        )
    },
    Row {
        object: Loc::Arg(0),
        required: false,
        ..row(
            "cuIpcCloseMemHandle",
            Class::CloseImport,
            &[legacy("cuIpcCloseMemHandle")],
            "CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)",
        )
    },
    Row {
        object: Loc::Arg(1),
        other: Loc::Arg(0),
        required: false,
        ..row(
            "cuMemPoolExportPointer",
            Class::ExportAddress,
            &[legacy("cuMemPoolExportPointer")],
            "CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr dptr)",
        )
    },
    Row {
        object: Loc::Arg(0),
        other: Loc::Arg(2),
        required: false,
        ..row(
            "cuMemPoolImportPointer",
            Class::ImportAddress,
            &[legacy("cuMemPoolImportPointer")],
            "CUresult cuMemPoolImportPointer(CUdeviceptr *dptr, CUmemoryPool pool, CUmemPoolPtrExportData *shareData)",
        )
    },
];
