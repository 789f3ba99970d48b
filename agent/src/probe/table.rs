//! The one table of CUDA driver functions that are probed.
//!
//! A function with a known shape is one more row here and no new kernel code: the row's cookie tells the program
//! what the function does and where its arguments are (System V x86-64). The row number is what records carry.

use wire::{
    cookie::{Class, Cookie, FLAG_BLOCKING, FLAG_PER_THREAD, Loc},
    names,
};

/// Symbol that tells a CUDA driver library from a file that merely has its name.
pub const DRIVER_MARK: &str = "cuLaunchKernel";

/// One function of the driver API.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Name in the API and in everything the agent prints.
    pub name: &'static str,
    /// What it does.
    pub class: Class,
    /// Exported symbols of it; each that exists is attached.
    pub symbols: &'static [Symbol],
    /// Where the stream handle is.
    pub stream: Loc,
    /// Where the number of bytes is.
    pub bytes: Loc,
    /// Where the event, graph or address is.
    pub object: Loc,
    /// The call returns only when the copy is done, so it is a result marker too.
    pub blocking: bool,
    /// Every driver of the last ten years has it: its absence is worth a warning.
    pub required: bool,
    /// Prototype in `cuda.h`.
    pub prototype: &'static str,
}

/// One exported variant of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Name in the dynamic symbol table.
    pub name: &'static str,
    /// Handle 0 is the calling thread's own stream (`_ptds`, `_ptsz`), not the legacy one.
    pub per_thread: bool,
}

const fn legacy(name: &'static str) -> Symbol {
    Symbol { name, per_thread: false }
}

const fn per_thread(name: &'static str) -> Symbol {
    Symbol { name, per_thread: true }
}

/// A program to attach for a row: at the entry, or at the return of the function (the kind is the program's own).
pub type Program = &'static str;

impl Row {
    /// Programs that the row needs, entry first.
    pub const fn programs(&self) -> &'static [Program] {
        match self.class {
            Class::Launch | Class::GraphLaunch => &[names::PROG_LAUNCH],
            Class::CopyH2D | Class::CopyD2H | Class::CopyD2D | Class::CopyAny if self.blocking => {
                &[names::PROG_SYNC_ENTER, names::PROG_SYNC_RETURN]
            }
            Class::CopyH2D | Class::CopyD2H | Class::CopyD2D | Class::CopyAny => &[names::PROG_COPY],
            Class::SyncStream | Class::SyncEvent | Class::SyncContext => {
                &[names::PROG_SYNC_ENTER, names::PROG_SYNC_RETURN]
            }
            Class::EventRecord => &[names::PROG_EVENT_RECORD],
            Class::WaitEvent => &[names::PROG_WAIT_EVENT],
            Class::Alloc | Class::Free => &[names::PROG_MEMORY_ENTER, names::PROG_MEMORY_RETURN],
        }
    }

    /// The number that the program finds when it fires at `symbol`; `row` is the row's place in [`TABLE`].
    pub const fn cookie(&self, row: u16, symbol: Symbol) -> Cookie {
        let per_thread = if symbol.per_thread { FLAG_PER_THREAD } else { 0 };
        let blocking = if self.blocking { FLAG_BLOCKING } else { 0 };
        Cookie {
            row,
            stream: self.stream,
            bytes: self.bytes,
            object: self.object,
            class: self.class,
            flags: per_thread | blocking,
        }
    }
}

/// A row without arguments; the table below overrides what a function has.
const fn row(name: &'static str, class: Class, symbols: &'static [Symbol], prototype: &'static str) -> Row {
    Row {
        name,
        class,
        symbols,
        stream: Loc::None,
        bytes: Loc::None,
        object: Loc::None,
        blocking: false,
        required: true,
        prototype,
    }
}

/// Names of the rows by row number, as [`crate::decode::Observation::Start`] keeps them.
pub fn row_names() -> Vec<String> {
    TABLE.iter().map(|row| row.name.to_owned()).collect()
}

/// Every function that is probed. The place in the table is the row number: add at the end only, recordings hold it.
///
/// Which copies are result markers: `cuMemcpyDtoH` returns when the bytes are on the host. `cuMemcpyHtoD` may return
/// once the source has been staged, and `cuMemcpyDtoD` at once, so their work stays pending for the next marker.
/// `cuMemcpy` does not tell its direction; it counts as a marker, since the host may read the result after it.
pub const TABLE: &[Row] = &[
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
        stream: Loc::Arg(0),
        ..row(
            "cuStreamSynchronize",
            Class::SyncStream,
            &[legacy("cuStreamSynchronize"), per_thread("cuStreamSynchronize_ptsz")],
            "CUresult cuStreamSynchronize(CUstream hStream)",
        )
    },
    Row {
        object: Loc::Arg(0),
        ..row(
            "cuEventSynchronize",
            Class::SyncEvent,
            &[legacy("cuEventSynchronize")],
            "CUresult cuEventSynchronize(CUevent hEvent)",
        )
    },
    Row {
        // CUDA 13 adds `_v2(CUcontext ctx)`; a wait for another context than the current one is counted as one for
        // every stream of the process, as the plain call is.
        ..row(
            "cuCtxSynchronize",
            Class::SyncContext,
            &[legacy("cuCtxSynchronize"), legacy("cuCtxSynchronize_v2")],
            "CUresult cuCtxSynchronize(void)",
        )
    },
    Row {
        stream: Loc::Arg(1),
        object: Loc::Arg(0),
        ..row(
            "cuEventRecord",
            Class::EventRecord,
            &[legacy("cuEventRecord"), per_thread("cuEventRecord_ptsz")],
            "CUresult cuEventRecord(CUevent hEvent, CUstream hStream)",
        )
    },
    Row {
        stream: Loc::Arg(1),
        object: Loc::Arg(0),
        required: false,
        ..row(
            "cuEventRecordWithFlags",
            Class::EventRecord,
            &[legacy("cuEventRecordWithFlags"), per_thread("cuEventRecordWithFlags_ptsz")],
            "CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned flags)",
        )
    },
    Row {
        stream: Loc::Arg(0),
        object: Loc::Arg(1),
        ..row(
            "cuStreamWaitEvent",
            Class::WaitEvent,
            &[legacy("cuStreamWaitEvent"), per_thread("cuStreamWaitEvent_ptsz")],
            "CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned flags)",
        )
    },
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
        bytes: Loc::Arg(1),
        object: Loc::Arg(0),
        ..row(
            "cuMemAlloc",
            Class::Alloc,
            &[legacy("cuMemAlloc_v2")],
            "CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytes)",
        )
    },
    Row {
        object: Loc::Arg(0),
        ..row("cuMemFree", Class::Free, &[legacy("cuMemFree_v2")], "CUresult cuMemFree_v2(CUdeviceptr dptr)")
    },
];

#[cfg(test)]
#[path = "table/tests.rs"]
mod tests;
