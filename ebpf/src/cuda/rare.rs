//! Rare rows: one record per call, with its times and its return code.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::programs::RetProbeContext;
use wire::Kind;
use wire::cookie::{Argument, Class};
use wire::counter::Counter;
use wire::rare::Rare;

use super::arguments::{Entry, RETURN_POPS, cookie, return_stack_pointer};
use super::{is_watched, memory, watched, zeroed};
use crate::atomic::Word;
use crate::emit::{Outcome, Stop, reserve, submit, write_header};
use crate::maps::RARE_CALLS;
use crate::scope::Task;

/// A call that takes longer than this did not return within our sight: what comes after it is not within it. Kernels are
/// compiled for minutes.
const LONGEST_NS: u64 = 600_000_000_000;

/// A call in progress.
#[repr(C)]
pub(crate) struct RareCall {
    enter_ns: Word,
    /// Where the stack was when it was entered.
    stack: Word,
    row: Word,
    class: Word,
    bytes: Word,
}

#[inline(always)]
pub(crate) fn enter(entry: Entry) -> Outcome {
    let class = entry.class()?;
    let task = Task::current();
    if matches!(class, Class::Init) {
        // Watched or not: it is the first call.
        memory::began(task.tgid());
    }
    watched(task, entry.cookie.row())?;
    // Within another call, as of one that loads a file and then what was in it: that one tells.
    if is_within(task, entry.stack()) {
        return Err(Stop::Count(Counter::Nested));
    }
    let call = begin(task).ok_or(Counter::MapFull)?;
    // SAFETY: always valid.
    call.enter_ns.set(unsafe { bpf_ktime_get_ns() });
    call.stack.set(entry.stack());
    call.row.set(u64::from(entry.cookie.row()));
    call.class.set(class as u64);
    call.bytes.set(entry.argument(Argument::Bytes)?);
    Ok(())
}

/// The thread is in a call that was entered higher in its stack.
#[inline(never)]
fn is_within(task: Task, stack: u64) -> bool {
    let Some(call) = current(task) else { return false };
    // SAFETY: always valid.
    let age = unsafe { bpf_ktime_get_ns() }.wrapping_sub(call.enter_ns.get());
    call.stack.get() > stack && age < LONGEST_NS
}

#[inline(never)]
fn begin(task: Task) -> Option<&'static RareCall> {
    RARE_CALLS.insert(task.0, zeroed::<RareCall>(), 0).ok()?;
    current(task)
}

#[inline(always)]
fn current(task: Task) -> Option<&'static RareCall> {
    // SAFETY: map memory outlives the program; all of it is words.
    unsafe { RARE_CALLS.get(task.0) }
}

#[inline(always)]
pub(crate) fn leave(context: &RetProbeContext) -> Outcome {
    let task = Task::current();
    if !is_watched(task) {
        return Err(Stop::Quiet);
    }
    let call = current(task).ok_or(Counter::ReturnUnmatched)?;
    if return_stack_pointer(context) != call.stack.get() + RETURN_POPS {
        // Of a call within this one.
        return Err(Stop::Quiet);
    }
    if call.row.get() != u64::from(cookie(context).row()) {
        return Err(Stop::Count(Counter::ReturnUnmatched));
    }
    let outcome = emit(task, call, context.ret());
    let _ = RARE_CALLS.remove(task.0);
    outcome
}

#[inline(never)]
fn emit(task: Task, call: &RareCall, result: u32) -> Outcome {
    let mut entry = reserve::<Rare>(Counter::DropRare)?;
    let record = entry.as_mut_ptr();
    // SAFETY: `record` is the reserved entry; every byte of it is written here.
    unsafe {
        write_header(&raw mut (*record).header, Kind::Rare, size_of::<Rare>(), bpf_ktime_get_ns(), task);
        (*record).enter_ns = call.enter_ns.get();
        (*record).bytes = call.bytes.get();
        (*record).row = call.row.get() as u16;
        (*record).class = call.class.get() as u8;
        (*record).reserved = 0;
        (*record).result = result;
    }
    submit(entry);
    Ok(())
}
