//! Launches of kernels and graphs.

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
];
