//! Contexts and devices: which context is current, on which device it is, and which device a number of CUDA's is.

use wire::cookie::{Class, Loc};

use super::{Row, legacy, row};

/// A row in which `object` is the first argument, and `bytes` the one that the class says.
const fn of(row: Row, bytes: Loc) -> Row {
    Row { object: Loc::Arg(0), bytes, required: false, ..row }
}

pub(super) const ROWS: &[Row] = &[
    of(
        row(
            "cuCtxCreate",
            Class::ContextCreate,
            &[legacy("cuCtxCreate"), legacy("cuCtxCreate_v2")],
            "CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned flags, CUdevice dev)",
        ),
        Loc::Arg(2),
    ),
    of(
        row(
            "cuCtxCreate_v3",
            Class::ContextCreate,
            &[legacy("cuCtxCreate_v3")],
            "CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *params, int numParams, unsigned flags, \
             CUdevice dev)",
        ),
        Loc::Arg(4),
    ),
    of(
        row(
            "cuCtxCreate_v4",
            Class::ContextCreate,
            &[legacy("cuCtxCreate_v4")],
            "CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *params, unsigned flags, CUdevice dev)",
        ),
        Loc::Arg(3),
    ),
    of(
        row(
            "cuDevicePrimaryCtxRetain",
            Class::ContextRetain,
            &[legacy("cuDevicePrimaryCtxRetain")],
            "CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)",
        ),
        Loc::Arg(1),
    ),
    of(
        row(
            "cuCtxSetCurrent",
            Class::ContextSet,
            &[legacy("cuCtxSetCurrent")],
            "CUresult cuCtxSetCurrent(CUcontext ctx)",
        ),
        Loc::None,
    ),
    of(
        row(
            "cuCtxPushCurrent",
            Class::ContextPush,
            &[legacy("cuCtxPushCurrent"), legacy("cuCtxPushCurrent_v2")],
            "CUresult cuCtxPushCurrent_v2(CUcontext ctx)",
        ),
        Loc::None,
    ),
    of(
        row(
            "cuCtxPopCurrent",
            Class::ContextPop,
            &[legacy("cuCtxPopCurrent"), legacy("cuCtxPopCurrent_v2")],
            "CUresult cuCtxPopCurrent_v2(CUcontext *pctx)",
        ),
        Loc::None,
    ),
    of(
        row(
            "cuCtxDestroy",
            Class::ContextDestroy,
            &[legacy("cuCtxDestroy"), legacy("cuCtxDestroy_v2")],
            "CUresult cuCtxDestroy_v2(CUcontext ctx)",
        ),
        Loc::None,
    ),
    reset(
        "cuDevicePrimaryCtxRelease",
        &[legacy("cuDevicePrimaryCtxRelease"), legacy("cuDevicePrimaryCtxRelease_v2")],
        "CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)",
    ),
    reset(
        "cuDevicePrimaryCtxReset",
        &[legacy("cuDevicePrimaryCtxReset"), legacy("cuDevicePrimaryCtxReset_v2")],
        "CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)",
    ),
    of(
        row(
            "cuDeviceGet",
            Class::DeviceGet,
            &[legacy("cuDeviceGet")],
            "CUresult cuDeviceGet(CUdevice *device, int ordinal)",
        ),
        Loc::Arg(1),
    ),
    of(
        row(
            "cuDeviceGetUuid",
            Class::DeviceUuid,
            // The first gives the UUID of the whole GPU for a MIG instance; the second the instance's own.
            &[legacy("cuDeviceGetUuid"), legacy("cuDeviceGetUuid_v2")],
            "CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)",
        ),
        Loc::Arg(1),
    ),
    of(
        row(
            "cuDeviceGetPCIBusId",
            Class::DeviceBus,
            &[legacy("cuDeviceGetPCIBusId")],
            "CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)",
        ),
        Loc::Arg(2),
    ),
    of(
        row(
            "cuDeviceGetByPCIBusId",
            Class::DeviceByBus,
            &[legacy("cuDeviceGetByPCIBusId")],
            "CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)",
        ),
        Loc::Arg(1),
    ),
];

/// A row whose only argument is a device.
const fn reset(name: &'static str, symbols: &'static [super::Symbol], prototype: &'static str) -> Row {
    let row = row(name, Class::ContextReset, symbols, prototype);
    Row { bytes: Loc::Arg(0), required: false, ..row }
}
