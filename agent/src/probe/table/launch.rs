//! Launches of kernels and graphs.
//!
//! They are counted when they are called; one that fails is counted too, since a second probe at the return would double
//! what a launch costs. Time that a launch is kept waiting by a full queue lies between the first launch of a step and
//! its result and so in its GPU-bound time; what of that time the thread spent within launches is not known.
//! `cuLaunchHostFunc` and `cuStreamAddCallback` are no work of the GPU, and their callbacks no markers;
//! `cuStreamWaitValue*`, `cuStreamWriteValue*` and `cuStreamBatchMemOp` are not followed.

use wire::cookie::{Class, Loc};

use super::{Row, legacy, per_thread, row};

pub(super) const ROWS: &[Row] = &[
    Row {
        // Arguments 7 and up are on the stack: gridDim, blockDim take six registers with `f`; blockDimZ is slot 1,
        // sharedMemBytes slot 2, hStream slot 3.
        stream: Loc::Stack(3),
        ..row(
            "cuLaunchKernel",
            Class::Launch,
            &[legacy("cuLaunchKernel"), per_thread("cuLaunchKernel_ptsz")],
            "CUresult cuLaunchKernel(CUfunction f, unsigned gridDimX, unsigned gridDimY, unsigned gridDimZ, \
             unsigned blockDimX, unsigned blockDimY, unsigned blockDimZ, unsigned sharedMemBytes, CUstream hStream, \
             void **kernelParams, void **extra)",
        )
    },
    Row {
        // CUlaunchConfig: seven `unsigned` (28 bytes), padding to 32, then `CUstream hStream`.
        stream: Loc::Deref(32),
        required: false,
        ..row(
            "cuLaunchKernelEx",
            Class::Launch,
            &[legacy("cuLaunchKernelEx"), per_thread("cuLaunchKernelEx_ptsz")],
            "CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)",
        )
    },
    Row {
        stream: Loc::Stack(3),
        ..row(
            "cuLaunchCooperativeKernel",
            Class::Launch,
            &[legacy("cuLaunchCooperativeKernel"), per_thread("cuLaunchCooperativeKernel_ptsz")],
            "CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gridDimX, unsigned gridDimY, \
             unsigned gridDimZ, unsigned blockDimX, unsigned blockDimY, unsigned blockDimZ, \
             unsigned sharedMemBytes, CUstream hStream, void **kernelParams)",
        )
    },
    Row {
        stream: Loc::Arg(1),
        object: Loc::Arg(0),
        ..row(
            "cuGraphLaunch",
            Class::GraphLaunch,
            &[legacy("cuGraphLaunch"), per_thread("cuGraphLaunch_ptsz")],
            "CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)",
        )
    },
    Row {
        // A launch for each device, in the stream of its entry of the list; all are counted in the first one's.
        // CUDA_LAUNCH_PARAMS: the function, seven `unsigned`, padding to 40, then `CUstream hStream`.
        stream: Loc::Deref(40),
        bytes: Loc::Arg(1),
        required: false,
        ..row(
            "cuLaunchCooperativeKernelMultiDevice",
            Class::Launch,
            &[legacy("cuLaunchCooperativeKernelMultiDevice")],
            "CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned numDevices, unsigned flags)",
        )
    },
    Row {
        // The ways before CUDA 4, which later drivers still have.
        required: false,
        ..row("cuLaunch", Class::Launch, &[legacy("cuLaunch")], "CUresult cuLaunch(CUfunction f)")
    },
    Row {
        required: false,
        ..row(
            "cuLaunchGrid",
            Class::Launch,
            &[legacy("cuLaunchGrid")],
            "CUresult cuLaunchGrid(CUfunction f, int width, int height)",
        )
    },
    Row {
        stream: Loc::Arg(3),
        required: false,
        ..row(
            "cuLaunchGridAsync",
            Class::Launch,
            &[legacy("cuLaunchGridAsync")],
            "CUresult cuLaunchGridAsync(CUfunction f, int width, int height, CUstream hStream)",
        )
    },
];
