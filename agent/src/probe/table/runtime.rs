//! Functions of the CUDA runtime (`libcudart`), for processes whose driver cannot be attached to. Everywhere else the
//! driver, which each of them calls, is what counts.
//!
//! `dim3` is three `unsigned`, passed in two registers (System V x86-64). Which way a copy goes is in its kind, which is
//! no location of a cookie: such copies count without a direction.

use wire::cookie::{Class, Loc};

use super::{Row, Symbol, legacy, per_thread, row};

pub(super) const fn runtime(
    name: &'static str,
    class: Class,
    symbols: &'static [Symbol],
    prototype: &'static str,
) -> Row {
    Row { required: false, runtime: true, ..row(name, class, symbols, prototype) }
}

pub(super) const ROWS: &[Row] = &[
    Row {
        stream: Loc::Stack(2),
        ..runtime(
            "cudaLaunchKernel",
            Class::Launch,
            &[legacy("cudaLaunchKernel"), per_thread("cudaLaunchKernel_ptsz")],
            "cudaError_t cudaLaunchKernel(const void *func, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem, \
             cudaStream_t hStream)",
        )
    },
    Row {
        stream: Loc::Stack(2),
        ..runtime(
            "cudaLaunchCooperativeKernel",
            Class::Launch,
            &[legacy("cudaLaunchCooperativeKernel"), per_thread("cudaLaunchCooperativeKernel_ptsz")],
            "cudaError_t cudaLaunchCooperativeKernel(const void *func, dim3 gridDim, dim3 blockDim, void **args, \
             size_t sharedMem, cudaStream_t hStream)",
        )
    },
    Row {
        stream: Loc::Deref(32),
        ..runtime(
            "cudaLaunchKernelExC",
            Class::Launch,
            &[legacy("cudaLaunchKernelExC"), per_thread("cudaLaunchKernelExC_ptsz")],
            "cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *func, void **args)",
        )
    },
    Row {
        stream: Loc::Arg(1),
        object: Loc::Arg(0),
        ..runtime(
            "cudaGraphLaunch",
            Class::GraphLaunch,
            &[legacy("cudaGraphLaunch"), per_thread("cudaGraphLaunch_ptsz")],
            "cudaError_t cudaGraphLaunch(cudaGraphExec_t hGraphExec, cudaStream_t hStream)",
        )
    },
    Row {
        bytes: Loc::Arg(2),
        blocking: true,
        ..runtime(
            "cudaMemcpy",
            Class::CopyAny,
            &[legacy("cudaMemcpy"), per_thread("cudaMemcpy_ptds")],
            "cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, cudaMemcpyKind kind)",
        )
    },
    Row {
        stream: Loc::Arg(4),
        bytes: Loc::Arg(2),
        ..runtime(
            "cudaMemcpyAsync",
            Class::CopyAny,
            &[legacy("cudaMemcpyAsync"), per_thread("cudaMemcpyAsync_ptsz")],
            "cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, cudaMemcpyKind kind, \
             cudaStream_t hStream)",
        )
    },
    Row {
        stream: Loc::Arg(0),
        ..runtime(
            "cudaStreamSynchronize",
            Class::SyncStream,
            &[legacy("cudaStreamSynchronize"), per_thread("cudaStreamSynchronize_ptsz")],
            "cudaError_t cudaStreamSynchronize(cudaStream_t hStream)",
        )
    },
    Row {
        object: Loc::Arg(0),
        ..runtime(
            "cudaEventSynchronize",
            Class::SyncEvent,
            &[legacy("cudaEventSynchronize")],
            "cudaError_t cudaEventSynchronize(cudaEvent_t hEvent)",
        )
    },
    Row {
        ..runtime(
            "cudaDeviceSynchronize",
            Class::SyncContext,
            &[legacy("cudaDeviceSynchronize")],
            "cudaError_t cudaDeviceSynchronize(void)",
        )
    },
    Row {
        stream: Loc::Arg(1),
        object: Loc::Arg(0),
        ..runtime(
            "cudaEventRecord",
            Class::EventRecord,
            &[legacy("cudaEventRecord"), per_thread("cudaEventRecord_ptsz")],
            "cudaError_t cudaEventRecord(cudaEvent_t hEvent, cudaStream_t hStream)",
        )
    },
    Row {
        stream: Loc::Arg(1),
        object: Loc::Arg(0),
        ..runtime(
            "cudaEventRecordWithFlags",
            Class::EventRecord,
            &[legacy("cudaEventRecordWithFlags"), per_thread("cudaEventRecordWithFlags_ptsz")],
            "cudaError_t cudaEventRecordWithFlags(cudaEvent_t hEvent, cudaStream_t hStream, unsigned flags)",
        )
    },
    Row {
        stream: Loc::Arg(0),
        object: Loc::Arg(1),
        ..runtime(
            "cudaStreamWaitEvent",
            Class::WaitEvent,
            &[legacy("cudaStreamWaitEvent"), per_thread("cudaStreamWaitEvent_ptsz")],
            "cudaError_t cudaStreamWaitEvent(cudaStream_t hStream, cudaEvent_t hEvent, unsigned flags)",
        )
    },
    Row {
        bytes: Loc::Arg(1),
        object: Loc::Arg(0),
        ..runtime(
            "cudaMalloc",
            Class::Alloc,
            &[legacy("cudaMalloc")],
            "cudaError_t cudaMalloc(void **dptr, size_t bytes)",
        )
    },
    Row {
        stream: Loc::Arg(2),
        bytes: Loc::Arg(1),
        object: Loc::Arg(0),
        ..runtime(
            "cudaMallocAsync",
            Class::AllocAsync,
            &[legacy("cudaMallocAsync"), per_thread("cudaMallocAsync_ptsz")],
            "cudaError_t cudaMallocAsync(void **dptr, size_t bytes, cudaStream_t hStream)",
        )
    },
    Row {
        object: Loc::Arg(0),
        ..runtime("cudaFree", Class::Free, &[legacy("cudaFree")], "cudaError_t cudaFree(void *dptr)")
    },
    Row {
        stream: Loc::Arg(1),
        object: Loc::Arg(0),
        ..runtime(
            "cudaFreeAsync",
            Class::FreeAsync,
            &[legacy("cudaFreeAsync"), per_thread("cudaFreeAsync_ptsz")],
            "cudaError_t cudaFreeAsync(void *dptr, cudaStream_t hStream)",
        )
    },
    Row {
        stream: Loc::Arg(0),
        ..runtime(
            "cudaStreamBeginCapture",
            Class::CaptureBegin,
            &[legacy("cudaStreamBeginCapture"), per_thread("cudaStreamBeginCapture_ptsz")],
            "cudaError_t cudaStreamBeginCapture(cudaStream_t hStream, cudaStreamCaptureMode mode)",
        )
    },
    Row {
        stream: Loc::Arg(0),
        ..runtime(
            "cudaStreamEndCapture",
            Class::CaptureEnd,
            &[legacy("cudaStreamEndCapture"), per_thread("cudaStreamEndCapture_ptsz")],
            "cudaError_t cudaStreamEndCapture(cudaStream_t hStream, cudaGraph_t *pGraph)",
        )
    },
    Row {
        object: Loc::Arg(0),
        ..runtime(
            "cudaEventQuery",
            Class::QueryEvent,
            &[legacy("cudaEventQuery")],
            "cudaError_t cudaEventQuery(cudaEvent_t hEvent)",
        )
    },
    Row {
        stream: Loc::Arg(0),
        ..runtime(
            "cudaStreamQuery",
            Class::QueryStream,
            &[legacy("cudaStreamQuery"), per_thread("cudaStreamQuery_ptsz")],
            "cudaError_t cudaStreamQuery(cudaStream_t hStream)",
        )
    },
    Row {
        object: Loc::Arg(0),
        ..runtime(
            "cudaStreamCreate",
            Class::StreamCreate,
            &[legacy("cudaStreamCreate")],
            "cudaError_t cudaStreamCreate(cudaStream_t *phStream)",
        )
    },
    Row {
        bytes: Loc::Arg(1),
        object: Loc::Arg(0),
        ..runtime(
            "cudaStreamCreateWithFlags",
            Class::StreamCreate,
            &[legacy("cudaStreamCreateWithFlags")],
            "cudaError_t cudaStreamCreateWithFlags(cudaStream_t *phStream, unsigned flags)",
        )
    },
    Row {
        bytes: Loc::Arg(1),
        object: Loc::Arg(0),
        ..runtime(
            "cudaStreamCreateWithPriority",
            Class::StreamCreate,
            &[legacy("cudaStreamCreateWithPriority")],
            "cudaError_t cudaStreamCreateWithPriority(cudaStream_t *phStream, unsigned flags, int priority)",
        )
    },
    Row {
        stream: Loc::Arg(0),
        ..runtime(
            "cudaStreamDestroy",
            Class::Destroy,
            &[legacy("cudaStreamDestroy")],
            "cudaError_t cudaStreamDestroy(cudaStream_t hStream)",
        )
    },
    Row {
        object: Loc::Arg(0),
        ..runtime(
            "cudaEventDestroy",
            Class::Destroy,
            &[legacy("cudaEventDestroy")],
            "cudaError_t cudaEventDestroy(cudaEvent_t hEvent)",
        )
    },
];
