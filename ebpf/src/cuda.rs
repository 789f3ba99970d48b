//! CUDA driver calls of watched processes: work is summed up per stream, and leaves the kernel with the wait that
//! proves it finished.

pub(crate) mod arguments;
pub(crate) mod begin;
pub(crate) mod call;
mod capture;
mod claim;
pub(crate) mod clock;
mod copy;
pub(crate) mod list;
mod marker;
mod memory;
mod order;
pub(crate) mod query;
pub(crate) mod stream;
mod tally;
mod work;

use aya_ebpf::macros::{raw_tracepoint, uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RawTracePointContext, RetProbeContext};
use wire::Kind;
use wire::counter::Counter;
use wire::names::SCOPE_CUDA;

use self::arguments::Entry;
use crate::emit::{Outcome, Stop, count, finish};
use crate::maps::{BEGIN_CALLS, CUDA_SEEN, MEMORY_CALLS, QUERY_CALLS, SYNC_CALLS};
use crate::process;
use crate::scope::Task;

/// match: `CUresult cuLaunchKernel(CUfunction, 6 x unsigned, unsigned shared, CUstream, void **, void **)`,
/// `cuLaunchKernelEx(const CUlaunchConfig *, ...)`, `cuGraphLaunch(CUgraphExec, CUstream)`
#[uprobe]
pub(crate) fn cuda_launch(ctx: ProbeContext) -> u32 {
    finish(work::launch(Entry::new(&ctx)))
}

/// match: `CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t bytes, CUstream)` and its like
#[uprobe]
pub(crate) fn cuda_copy(ctx: ProbeContext) -> u32 {
    finish(work::copy(Entry::new(&ctx)))
}

/// match: `CUresult cuEventRecord(CUevent, CUstream)`
#[uprobe]
pub(crate) fn cuda_event_record(ctx: ProbeContext) -> u32 {
    finish(order::record(Entry::new(&ctx)))
}

/// match: `CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned flags)`
#[uprobe]
pub(crate) fn cuda_wait_event(ctx: ProbeContext) -> u32 {
    finish(order::wait(Entry::new(&ctx)))
}

/// match: `CUresult cuStreamSynchronize(CUstream)`, `cuEventSynchronize(CUevent)`, `cuCtxSynchronize(void)`,
/// `cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t bytes)` and its like
#[uprobe]
pub(crate) fn cuda_sync_enter(ctx: ProbeContext) -> u32 {
    finish(marker::enter(Entry::new(&ctx)))
}

/// match: the return (`CUresult`) of what `cuda_sync_enter` is attached to
#[uretprobe]
pub(crate) fn cuda_sync_return(ctx: RetProbeContext) -> u32 {
    finish(marker::leave(&ctx))
}

/// match: `CUresult cuEventQuery(CUevent)`, `cuStreamQuery(CUstream)`
#[uprobe]
pub(crate) fn cuda_query_enter(ctx: ProbeContext) -> u32 {
    finish(query::enter(Entry::new(&ctx)))
}

/// match: the return (`CUresult`) of what `cuda_query_enter` is attached to
#[uretprobe]
pub(crate) fn cuda_query_return(ctx: RetProbeContext) -> u32 {
    finish(query::leave(&ctx))
}

/// match: `CUresult cuStreamCreate(CUstream *, unsigned flags)`, `cuStreamBeginCapture_v2(CUstream, mode)`
#[uprobe]
pub(crate) fn cuda_begin_enter(ctx: ProbeContext) -> u32 {
    finish(begin::enter(Entry::new(&ctx)))
}

/// match: the return (`CUresult`) of what `cuda_begin_enter` is attached to
#[uretprobe]
pub(crate) fn cuda_begin_return(ctx: RetProbeContext) -> u32 {
    finish(begin::leave(&ctx))
}

/// match: `CUresult cuStreamEndCapture(CUstream, CUgraph *)`, `cuStreamDestroy_v2(CUstream)`,
/// `cuEventDestroy_v2(CUevent)`
#[uprobe]
pub(crate) fn cuda_end(ctx: ProbeContext) -> u32 {
    finish(begin::end(Entry::new(&ctx)))
}

/// Attached nowhere; run by the agent.
#[raw_tracepoint(tracepoint = "sys_enter")]
pub(crate) fn cuda_tally(_ctx: RawTracePointContext) -> u32 {
    finish(tally::all())
}

/// match: `CUresult cuMemAlloc_v2(CUdeviceptr *, size_t bytes)`, `cuMemFree_v2(CUdeviceptr)`
#[uprobe]
pub(crate) fn cuda_memory_enter(ctx: ProbeContext) -> u32 {
    finish(memory::enter(Entry::new(&ctx)))
}

/// match: the return (`CUresult`) of what `cuda_memory_enter` is attached to
#[uretprobe]
pub(crate) fn cuda_memory_return(ctx: RetProbeContext) -> u32 {
    finish(memory::leave(&ctx))
}

/// Ends the program unless the caller is watched; an unwatched caller is counted, and reported the first time.
#[inline(always)]
fn watched(task: Task, row: u16) -> Outcome {
    if is_watched(task) { Ok(()) } else { Err(report_unwatched(task, row)) }
}

#[inline(never)]
fn is_watched(task: Task) -> bool {
    task.is_watched(SCOPE_CUDA)
}

#[inline(never)]
fn report_unwatched(task: Task, row: u16) -> Stop {
    const NO_EXIST: u64 = 1;
    count(Counter::Unwatched);
    if task.tgid() == crate::maps::own_tgid() || CUDA_SEEN.insert(task.tgid(), 1, NO_EXIST).is_err() {
        return Stop::Quiet;
    }
    match process::emit(Kind::CudaSeen, task, 0, u32::from(row)) {
        Ok(()) => Stop::Quiet,
        Err(stop) => {
            // Not reported after all: the next call tries again.
            let _ = CUDA_SEEN.remove(task.tgid());
            stop
        }
    }
}

/// Drops what belongs to a process: its address space is gone.
pub(crate) fn forget_process(tgid: u32) {
    list::forget(tgid);
}

/// Drops the calls that a thread was in.
pub(crate) fn forget_thread(task: Task) {
    let _ = SYNC_CALLS.remove(task.0);
    let _ = QUERY_CALLS.remove(task.0);
    let _ = BEGIN_CALLS.remove(task.0);
    let _ = MEMORY_CALLS.remove(task.0);
}

/// Initial values of map entries, too large for the stack of a uprobe program.
static ZERO: [u64; 128] = [0; 128];

/// A value of zero bytes. Only for types for which that is a value: atomics, numbers, and arrays of them.
#[inline(always)]
pub(crate) fn zeroed<T>() -> &'static T {
    const { assert!(size_of::<T>() <= size_of::<[u64; 128]>() && align_of::<T>() <= 8) };
    // SAFETY: large enough, aligned, and all zero bytes; helpers only copy it.
    unsafe { &*(&raw const ZERO).cast::<T>() }
}
