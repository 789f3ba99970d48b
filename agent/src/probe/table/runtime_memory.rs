//! Copies, memory and graphs of the CUDA runtime, as the other functions of it (see [`super::runtime`]).
//!
//! Left out are those whose arguments differ between CUDA 12 and 13 under one name (batches, prefetches).

use wire::cookie::{Class, Loc};

use super::{Row, legacy, per_thread, runtime::runtime};

pub(super) const ROWS: &[Row] = &[
    Row {
        bytes: Loc::Arg(4),
        ..runtime(
            "cudaMemcpyPeer",
            Class::CopyD2D,
            &[legacy("cudaMemcpyPeer")],
            "cudaError_t cudaMemcpyPeer(void *dst, int dstDevice, const void *src, int srcDevice, size_t \
             count)",
        )
    },
    Row {
        stream: Loc::Arg(5),
        bytes: Loc::Arg(4),
        ..runtime(
            "cudaMemcpyPeerAsync",
            Class::CopyD2D,
            &[legacy("cudaMemcpyPeerAsync")],
            "cudaError_t cudaMemcpyPeerAsync(void *dst, int dstDevice, const void *src, int srcDevice, \
             size_t count, cudaStream_t hStream)",
        )
    },
    Row {
        bytes: Loc::Arg(2),
        blocking: true,
        ..runtime(
            "cudaMemcpyToSymbol",
            Class::CopyAny,
            &[legacy("cudaMemcpyToSymbol"), per_thread("cudaMemcpyToSymbol_ptds")],
            "cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *src, size_t count, size_t \
             offset, cudaMemcpyKind kind)",
        )
    },
    Row {
        stream: Loc::Arg(5),
        bytes: Loc::Arg(2),
        ..runtime(
            "cudaMemcpyToSymbolAsync",
            Class::CopyAny,
            &[legacy("cudaMemcpyToSymbolAsync"), per_thread("cudaMemcpyToSymbolAsync_ptsz")],
            "cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *src, size_t count, \
             size_t offset, cudaMemcpyKind kind, cudaStream_t hStream)",
        )
    },
    Row {
        bytes: Loc::Arg(2),
        blocking: true,
        ..runtime(
            "cudaMemcpyFromSymbol",
            Class::CopyAny,
            &[legacy("cudaMemcpyFromSymbol"), per_thread("cudaMemcpyFromSymbol_ptds")],
            "cudaError_t cudaMemcpyFromSymbol(void *dst, const void *symbol, size_t count, size_t offset, \
             cudaMemcpyKind kind)",
        )
    },
    Row {
        stream: Loc::Arg(5),
        bytes: Loc::Arg(2),
        ..runtime(
            "cudaMemcpyFromSymbolAsync",
            Class::CopyAny,
            &[legacy("cudaMemcpyFromSymbolAsync"), per_thread("cudaMemcpyFromSymbolAsync_ptsz")],
            "cudaError_t cudaMemcpyFromSymbolAsync(void *dst, const void *symbol, size_t count, size_t \
             offset, cudaMemcpyKind kind, cudaStream_t hStream)",
        )
    },
    Row {
        bytes: Loc::Arg(4),
        object: Loc::Arg(5),
        blocking: true,
        ..runtime(
            "cudaMemcpy2D",
            Class::CopyRows,
            &[legacy("cudaMemcpy2D"), per_thread("cudaMemcpy2D_ptds")],
            "cudaError_t cudaMemcpy2D(void *dst, size_t dpitch, const void *src, size_t spitch, size_t \
             width, size_t height, cudaMemcpyKind kind)",
        )
    },
    Row {
        stream: Loc::Stack(2),
        bytes: Loc::Arg(4),
        object: Loc::Arg(5),
        ..runtime(
            "cudaMemcpy2DAsync",
            Class::CopyRows,
            &[legacy("cudaMemcpy2DAsync"), per_thread("cudaMemcpy2DAsync_ptsz")],
            "cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch, \
             size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t hStream)",
        )
    },
    Row {
        object: Loc::Arg(0),
        blocking: true,
        ..runtime(
            "cudaMemcpy3D",
            Class::CopyExtent,
            &[legacy("cudaMemcpy3D"), per_thread("cudaMemcpy3D_ptds")],
            "cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms *pCopy)",
        )
    },
    Row {
        stream: Loc::Arg(1),
        object: Loc::Arg(0),
        ..runtime(
            "cudaMemcpy3DAsync",
            Class::CopyExtent,
            &[legacy("cudaMemcpy3DAsync"), per_thread("cudaMemcpy3DAsync_ptsz")],
            "cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms *pCopy, cudaStream_t hStream)",
        )
    },
    Row {
        ..runtime(
            "cudaMemset",
            Class::Memset,
            &[legacy("cudaMemset"), per_thread("cudaMemset_ptds")],
            "cudaError_t cudaMemset(void *devPtr, int value, size_t count)",
        )
    },
    Row {
        stream: Loc::Arg(3),
        ..runtime(
            "cudaMemsetAsync",
            Class::Memset,
            &[legacy("cudaMemsetAsync"), per_thread("cudaMemsetAsync_ptsz")],
            "cudaError_t cudaMemsetAsync(void *devPtr, int value, size_t count, cudaStream_t hStream)",
        )
    },
    Row {
        ..runtime(
            "cudaMemset2D",
            Class::Memset,
            &[legacy("cudaMemset2D"), per_thread("cudaMemset2D_ptds")],
            "cudaError_t cudaMemset2D(void *devPtr, size_t pitch, int value, size_t width, size_t height)",
        )
    },
    Row {
        stream: Loc::Arg(5),
        ..runtime(
            "cudaMemset2DAsync",
            Class::Memset,
            &[legacy("cudaMemset2DAsync"), per_thread("cudaMemset2DAsync_ptsz")],
            "cudaError_t cudaMemset2DAsync(void *devPtr, size_t pitch, int value, size_t width, size_t \
             height, cudaStream_t hStream)",
        )
    },
    Row {
        bytes: Loc::Arg(1),
        object: Loc::Arg(0),
        ..runtime(
            "cudaMallocManaged",
            Class::AllocManaged,
            &[legacy("cudaMallocManaged")],
            "cudaError_t cudaMallocManaged(void **devPtr, size_t bytes, unsigned flags)",
        )
    },
    Row {
        bytes: Loc::Arg(2),
        object: Loc::Arg(0),
        other: Loc::Arg(1),
        ..runtime(
            "cudaMallocPitch",
            Class::AllocPitch,
            &[legacy("cudaMallocPitch")],
            "cudaError_t cudaMallocPitch(void **devPtr, size_t *pPitch, size_t bytes, size_t Height)",
        )
    },
    Row {
        stream: Loc::Arg(3),
        bytes: Loc::Arg(1),
        object: Loc::Arg(0),
        other: Loc::Arg(2),
        ..runtime(
            "cudaMallocFromPoolAsync",
            Class::AllocPool,
            &[legacy("cudaMallocFromPoolAsync"), per_thread("cudaMallocFromPoolAsync_ptsz")],
            "cudaError_t cudaMallocFromPoolAsync(void **ptr, size_t bytes, cudaMemPool_t pool, \
             cudaStream_t hStream)",
        )
    },
    Row {
        bytes: Loc::Arg(1),
        object: Loc::Arg(0),
        ..runtime(
            "cudaMallocHost",
            Class::AllocHost,
            &[legacy("cudaMallocHost")],
            "cudaError_t cudaMallocHost(void **ptr, size_t bytes)",
        )
    },
    Row {
        bytes: Loc::Arg(1),
        object: Loc::Arg(0),
        ..runtime(
            "cudaHostAlloc",
            Class::AllocHost,
            &[legacy("cudaHostAlloc")],
            "cudaError_t cudaHostAlloc(void **pHost, size_t bytes, unsigned flags)",
        )
    },
    Row {
        object: Loc::Arg(0),
        ..runtime(
            "cudaFreeHost",
            Class::FreeHost,
            &[legacy("cudaFreeHost")],
            "cudaError_t cudaFreeHost(void *ptr)",
        )
    },
    Row {
        bytes: Loc::Arg(1),
        object: Loc::Arg(0),
        ..runtime(
            "cudaHostRegister",
            Class::RegisterHost,
            &[legacy("cudaHostRegister")],
            "cudaError_t cudaHostRegister(void *ptr, size_t bytes, unsigned flags)",
        )
    },
    Row {
        object: Loc::Arg(0),
        ..runtime(
            "cudaHostUnregister",
            Class::UnregisterHost,
            &[legacy("cudaHostUnregister")],
            "cudaError_t cudaHostUnregister(void *ptr)",
        )
    },
    Row {
        object: Loc::Arg(0),
        other: Loc::Arg(1),
        ..runtime(
            "cudaMemGetInfo",
            Class::MemoryInfo,
            &[legacy("cudaMemGetInfo")],
            "cudaError_t cudaMemGetInfo(size_t *free, size_t *total)",
        )
    },
    Row {
        ..runtime(
            "cudaGraphInstantiate",
            Class::GraphInstantiate,
            &[legacy("cudaGraphInstantiate")],
            "cudaError_t cudaGraphInstantiate(cudaGraphExec_t *pGraphExec, cudaGraph_t graph, unsigned \
             long long flags)",
        )
    },
    Row {
        ..runtime(
            "cudaGraphInstantiateWithFlags",
            Class::GraphInstantiate,
            &[legacy("cudaGraphInstantiateWithFlags")],
            "cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *pGraphExec, cudaGraph_t graph, \
             unsigned long long flags)",
        )
    },
    Row {
        ..runtime(
            "cudaGraphInstantiateWithParams",
            Class::GraphInstantiate,
            &[legacy("cudaGraphInstantiateWithParams"), per_thread("cudaGraphInstantiateWithParams_ptsz")],
            "cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t *pGraphExec, cudaGraph_t graph, \
             cudaGraphInstantiateParams *params)",
        )
    },
];
