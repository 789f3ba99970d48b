//! Processes: exec of anybody, fork and exit of the watched.

use core::ffi::c_void;

use aya_ebpf::helpers::{bpf_ktime_get_ns, bpf_probe_read_kernel, generated};
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use wire::Kind;
use wire::counter::Counter;
use wire::names::SCOPE_PATHS;
use wire::process::Process;

use crate::cuda;
use crate::emit::{Outcome, Stop, finish, reserve, submit_now, write_header};
use crate::maps::{CUDA_SEEN, SCOPE, offset};
use crate::scope::{Task, scope_of};
use crate::tls;

/// Every process may become interesting with a new image, so all are reported.
///
/// match: `sched_process_exec(struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm)`
#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub(crate) fn process_exec(_ctx: RawTracePointContext) -> u32 {
    let task = Task::current();
    let _ = CUDA_SEEN.remove(task.tgid());
    cuda::forget_process(task.tgid());
    if scope_of(task.tgid()) != 0 {
        tls::forget_process(task);
    }
    forget_paths(task.tgid());
    finish(emit(Kind::Exec, task, 0, 0))
}

/// A new image has made no calls.
#[inline(always)]
fn forget_paths(tgid: u32) {
    if let Some(bits) = SCOPE.get_ptr_mut(tgid) {
        // SAFETY: an aligned word of the map.
        unsafe { bits.write_volatile(bits.read_volatile() & !SCOPE_PATHS) };
    }
}

/// Children of the watched are watched from their first instruction on.
///
/// match: `sched_process_fork(struct task_struct *parent, struct task_struct *child)`
#[raw_tracepoint(tracepoint = "sched_process_fork")]
pub(crate) fn process_fork(ctx: RawTracePointContext) -> u32 {
    finish(fork(&ctx))
}

fn fork(ctx: &RawTracePointContext) -> Outcome {
    let parent = Task::current();
    let bits = scope_of(parent.tgid());
    let child = new_process(ctx.arg(1)).ok_or(Stop::Quiet)?;
    bury(child)?;
    if bits == 0 {
        return Err(Stop::Quiet);
    }
    SCOPE.insert(child, bits & !SCOPE_PATHS, 0).map_err(|_| Counter::MapFull)?;
    cuda::inherit(parent.tgid(), child);
    emit(Kind::Fork, parent, child, 0)
}

/// A number that is given to a new process is nobody else's any more: who had it has ended, and was taken for living and
/// marked as watched by a look at /proc that came later.
#[inline(always)]
fn bury(number: u32) -> Outcome {
    if scope_of(number) == 0 {
        return Ok(());
    }
    let _ = SCOPE.remove(number);
    emit(Kind::Exit, Task::leader(number), 0, 0)
}

/// The tgid of a new task, if it is a process and not another thread of its parent.
fn new_process(task: *const u8) -> Option<u32> {
    let (tgid_at, pid_at) = (offset!(task_tgid), offset!(task_pid));
    if tgid_at == 0 {
        return None;
    }
    // SAFETY: a checked read of kernel memory.
    let tgid: u32 = unsafe { bpf_probe_read_kernel(task.wrapping_add(tgid_at).cast()) }.ok()?;
    // SAFETY: likewise.
    let pid: u32 = unsafe { bpf_probe_read_kernel(task.wrapping_add(pid_at).cast()) }.ok()?;
    (tgid == pid).then_some(tgid)
}

/// Threads only leave their calls behind; the last one ends the process.
///
/// match: `sched_process_exit(struct task_struct *p, ...)`, run by `p` itself
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub(crate) fn process_exit(ctx: RawTracePointContext) -> u32 {
    finish(exit(ctx.arg(0)))
}

fn exit(ended: *const u8) -> Outcome {
    let task = Task::current();
    if scope_of(task.tgid()) != 0 {
        cuda::end_thread(task);
    }
    cuda::forget_thread(task);
    tls::forget_thread(task);
    if !is_last(task, ended) {
        return Err(Stop::Quiet);
    }
    // Another process may get the number without an exec.
    cuda::forget_any(task.tgid());
    if scope_of(task.tgid()) == 0 {
        return Err(Stop::Quiet);
    }
    cuda::forget_process(task.tgid());
    let _ = SCOPE.remove(task.tgid());
    emit(Kind::Exit, task, 0, 0)
}

/// Whether no thread of the process is left: the kernel counts an ended one out before it comes here. Of two that end at
/// once both may be the last; the second finds the process watched no more. Where it is not known, the first thread
/// stands for the process.
fn is_last(task: Task, ended: *const u8) -> bool {
    let (signal_at, live_at) = (offset!(task_signal), offset!(signal_live));
    if signal_at == 0 {
        return task.is_leader();
    }
    // SAFETY: checked reads of kernel memory.
    let live = unsafe {
        bpf_probe_read_kernel(ended.wrapping_add(signal_at).cast::<*const u8>())
            .and_then(|signal| bpf_probe_read_kernel(signal.wrapping_add(live_at).cast::<u32>()))
    };
    live.map_or(task.is_leader(), |live| live == 0)
}

/// One process record, named after the current task.
#[inline(never)]
pub(crate) fn emit(kind: Kind, task: Task, child: u32, row: u32) -> Outcome {
    let mut entry = reserve::<Process>(Counter::DropProcess)?;
    let record = entry.as_mut_ptr();
    // SAFETY: `record` is the reserved entry; every byte of it is written here.
    unsafe {
        write_header(&raw mut (*record).header, kind, size_of::<Process>(), bpf_ktime_get_ns(), task);
        (*record).child = child;
        (*record).row = row;
        let comm = &raw mut (*record).comm;
        generated::bpf_get_current_comm(comm.cast::<c_void>(), 16);
    }
    submit_now(entry);
    Ok(())
}
