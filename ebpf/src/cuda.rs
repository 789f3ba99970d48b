//! CUDA driver calls of watched processes: work is summed up per stream, and leaves the kernel with the wait that
//! proves it finished.

pub(crate) mod arguments;
mod array;
pub(crate) mod begin;
pub(crate) mod call;
mod capture;
mod claim;
pub(crate) mod clock;
pub(crate) mod context;
mod copy;
pub(crate) mod list;
mod marker;
mod memory;
pub(crate) mod nest;
mod order;
pub(crate) mod query;
pub(crate) mod rare;
pub(crate) mod resolve;
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
use crate::maps::{
    BEGIN_CALLS, CONTEXT_CALLS, CUDA_SEEN, DEPTHS, MEMORY_CALLS, NESTING, QUERY_CALLS, RARE_CALLS,
    RESOLVE_CALLS, SCOPE, SYNC_CALLS, own_tgid, watches_all,
};
use crate::process;
use crate::scope::{Task, scope_of};

/// match: `CUresult cuLaunchKernel(CUfunction, 6 x unsigned, unsigned shared, CUstream, void **, void **)`,
/// `cuLaunchKernelEx(const CUlaunchConfig *, ...)`, `cuGraphLaunch(CUgraphExec, CUstream)`
#[uprobe]
pub(crate) fn cuda_launch(ctx: ProbeContext) -> u32 {
    finish(nest::once(Entry::new(&ctx), work::launch))
}

/// match: `CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t bytes, CUstream)` and its like
#[uprobe]
pub(crate) fn cuda_copy(ctx: ProbeContext) -> u32 {
    finish(nest::once(Entry::new(&ctx), work::copy))
}

/// match: `CUresult cuEventRecord(CUevent, CUstream)`
#[uprobe]
pub(crate) fn cuda_event_record(ctx: ProbeContext) -> u32 {
    finish(nest::once(Entry::new(&ctx), order::record))
}

/// match: `CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned flags)`
#[uprobe]
pub(crate) fn cuda_wait_event(ctx: ProbeContext) -> u32 {
    finish(nest::once(Entry::new(&ctx), order::wait))
}

/// match: `CUresult cuStreamSynchronize(CUstream)`, `cuEventSynchronize(CUevent)`, `cuCtxSynchronize(void)`,
/// `cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t bytes)` and its like
#[uprobe]
pub(crate) fn cuda_sync_enter(ctx: ProbeContext) -> u32 {
    finish(nest::once_until_return(Entry::new(&ctx), marker::enter))
}

/// match: the return (`CUresult`) of what `cuda_sync_enter` is attached to
#[uretprobe]
pub(crate) fn cuda_sync_return(ctx: RetProbeContext) -> u32 {
    finish(nest::at_return(&ctx, marker::leave))
}

/// match: `CUresult cuEventQuery(CUevent)`, `cuStreamQuery(CUstream)`
#[uprobe]
pub(crate) fn cuda_query_enter(ctx: ProbeContext) -> u32 {
    finish(nest::once_until_return(Entry::new(&ctx), query::enter))
}

/// match: the return (`CUresult`) of what `cuda_query_enter` is attached to
#[uretprobe]
pub(crate) fn cuda_query_return(ctx: RetProbeContext) -> u32 {
    finish(nest::at_return(&ctx, query::leave))
}

/// match: `CUresult cuStreamCreate(CUstream *, unsigned flags)`, `cuStreamBeginCapture_v2(CUstream, mode)`
#[uprobe]
pub(crate) fn cuda_begin_enter(ctx: ProbeContext) -> u32 {
    finish(nest::once_until_return(Entry::new(&ctx), begin::enter))
}

/// match: the return (`CUresult`) of what `cuda_begin_enter` is attached to
#[uretprobe]
pub(crate) fn cuda_begin_return(ctx: RetProbeContext) -> u32 {
    finish(nest::at_return(&ctx, begin::leave))
}

/// match: `CUresult cuStreamEndCapture(CUstream, CUgraph *)`, `cuStreamDestroy_v2(CUstream)`,
/// `cuEventDestroy_v2(CUevent)`
#[uprobe]
pub(crate) fn cuda_end(ctx: ProbeContext) -> u32 {
    finish(nest::once(Entry::new(&ctx), begin::end))
}

/// Attached nowhere; run by the agent.
#[raw_tracepoint(tracepoint = "sys_enter")]
pub(crate) fn cuda_tally(_ctx: RawTracePointContext) -> u32 {
    finish(tally::all())
}

/// match: `CUresult cuMemAlloc_v2(CUdeviceptr *, size_t bytes)`, `cuMemFree_v2(CUdeviceptr)` and the other memory rows
#[uprobe]
pub(crate) fn cuda_memory_enter(ctx: ProbeContext) -> u32 {
    finish(nest::once_until_return(Entry::new(&ctx), memory::enter))
}

/// match: the return (`CUresult`) of what `cuda_memory_enter` is attached to
#[uretprobe]
pub(crate) fn cuda_memory_return(ctx: RetProbeContext) -> u32 {
    finish(nest::at_return(&ctx, memory::leave))
}

/// match: `CUresult cuCtxSetCurrent(CUcontext)`, `cuCtxPushCurrent(CUcontext)`, `cuCtxPopCurrent(CUcontext *)`
#[uprobe]
pub(crate) fn cuda_context_current(ctx: ProbeContext) -> u32 {
    finish(nest::once(Entry::new(&ctx), context::change))
}

/// match: `CUresult cuCtxCreate_v2(CUcontext *, unsigned flags, CUdevice)`,
/// `cuDevicePrimaryCtxRetain(CUcontext *, CUdevice)`, `cuDeviceGetUuid(CUuuid *, CUdevice)` and their like
#[uprobe]
pub(crate) fn cuda_context_enter(ctx: ProbeContext) -> u32 {
    finish(nest::once_until_return(Entry::new(&ctx), context::enter))
}

/// match: the return (`CUresult`) of what `cuda_context_enter` is attached to
#[uretprobe]
pub(crate) fn cuda_context_return(ctx: RetProbeContext) -> u32 {
    finish(nest::at_return(&ctx, context::leave))
}

/// match: `CUresult cuGetProcAddress_v2(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *)`
#[uprobe]
pub(crate) fn cuda_resolve_enter(ctx: ProbeContext) -> u32 {
    finish(nest::once_until_return(Entry::new(&ctx), resolve::enter))
}

/// match: the return (`CUresult`) of what `cuda_resolve_enter` is attached to
#[uretprobe]
pub(crate) fn cuda_resolve_return(ctx: RetProbeContext) -> u32 {
    finish(nest::at_return(&ctx, resolve::leave))
}

/// match: `CUresult cuModuleLoadData(CUmodule *, const void *image)` and its like
#[uprobe]
pub(crate) fn cuda_rare_enter(ctx: ProbeContext) -> u32 {
    finish(nest::once_until_return(Entry::new(&ctx), rare::enter))
}

/// match: the return (`CUresult`) of what `cuda_rare_enter` is attached to
#[uretprobe]
pub(crate) fn cuda_rare_return(ctx: RetProbeContext) -> u32 {
    finish(nest::at_return(&ctx, rare::leave))
}

/// Ends the program unless the caller is watched. One that is not is, from this call on, where all are to be;
/// otherwise it is counted, and reported the first time.
#[inline(always)]
fn watched(task: Task, row: u16) -> Outcome {
    if is_watched(task) || is_admitted(task, row) { Ok(()) } else { Err(report_unwatched(task, row)) }
}

/// A process may be over before the agent has had a look at it.
#[inline(never)]
fn is_admitted(task: Task, row: u16) -> bool {
    const NO_EXIST: u64 = 1;
    if !watches_all() || task.tgid() == own_tgid() {
        return false;
    }
    if SCOPE.insert(task.tgid(), SCOPE_CUDA, NO_EXIST).is_err() {
        return is_watched(task);
    }
    count(Counter::Admitted);
    // Lost, its calls belong to no service until the agent finds it by itself, and are counted as such.
    if let Err(Stop::Count(lost)) = process::emit(Kind::CudaSeen, task, task.tgid(), u32::from(row)) {
        count(lost);
    }
    true
}

#[inline(never)]
fn is_watched(task: Task) -> bool {
    task.is_watched(SCOPE_CUDA)
}

#[inline(never)]
fn report_unwatched(task: Task, row: u16) -> Stop {
    const NO_EXIST: u64 = 1;
    count(Counter::Unwatched);
    if task.tgid() == own_tgid() || CUDA_SEEN.insert(task.tgid(), 1, NO_EXIST).is_err() {
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

/// The thread is in a call whose return is probed.
#[inline(always)]
fn is_in_a_call(task: Task) -> bool {
    // SAFETY: presence alone counts.
    unsafe {
        SYNC_CALLS.get(task.0).is_some()
            || MEMORY_CALLS.get(task.0).is_some()
            || RARE_CALLS.get(task.0).is_some()
            || BEGIN_CALLS.get(task.0).is_some()
            || QUERY_CALLS.get(task.0).is_some_and(query::QueryCall::is_in_progress)
            || CONTEXT_CALLS.get(task.0).is_some()
    }
}

/// Drops what belongs to a process: its address space is gone.
pub(crate) fn forget_process(tgid: u32) {
    list::forget(tgid);
    memory::forget(tgid);
    if scope_of(tgid) != 0 {
        context::forget_process(tgid);
    } else {
        context::forget(Task::leader(tgid));
    }
    let _ = NESTING.remove(tgid);
}

/// A child has its parent's libraries where the parent has them.
pub(crate) fn inherit(parent: u32, child: u32) {
    // SAFETY: plain numbers, written as a whole by the agent.
    if let Some(ranges) = unsafe { NESTING.get(parent) } {
        let _ = NESTING.insert(child, ranges, 0);
    }
}

/// Tells what a thread of a watched process leaves that nobody but it can use.
pub(crate) fn end_thread(task: Task) {
    context::end_streams(task);
}

/// Drops the calls that a thread was in.
pub(crate) fn forget_thread(task: Task) {
    let _ = SYNC_CALLS.remove(task.0);
    let _ = QUERY_CALLS.remove(task.0);
    let _ = BEGIN_CALLS.remove(task.0);
    let _ = MEMORY_CALLS.remove(task.0);
    context::forget(task);
    let _ = RARE_CALLS.remove(task.0);
    let _ = RESOLVE_CALLS.remove(task.0);
    let _ = DEPTHS.remove(task.0);
}

/// Drops what is noted of every process, watched or not: its last thread ends.
pub(crate) fn forget_any(tgid: u32) {
    memory::forget(tgid);
    let _ = CUDA_SEEN.remove(tgid);
}

/// Initial values of map entries, too large for the stack of a uprobe program.
static ZERO: [u64; 192] = [0; 192];

/// A value of zero bytes. Only for types for which that is a value: atomics, numbers, and arrays of them.
#[inline(always)]
pub(crate) fn zeroed<T>() -> &'static T {
    const { assert!(size_of::<T>() <= size_of::<[u64; 192]>() && align_of::<T>() <= 8) };
    // SAFETY: large enough, aligned, and all zero bytes; helpers only copy it.
    unsafe { &*(&raw const ZERO).cast::<T>() }
}
