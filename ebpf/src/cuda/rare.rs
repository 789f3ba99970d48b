//! Rare rows: one record per call, with its times and its return code.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::programs::RetProbeContext;
use wire::Kind;
use wire::cookie::{Argument, Class};
use wire::counter::Counter;
use wire::rare::Rare;

use super::arguments::{Entry, cookie};
use super::{is_watched, memory, watched, zeroed};
use crate::atomic::Word;
use crate::emit::{Outcome, Stop, reserve, submit, write_header};
use crate::maps::RARE_CALLS;
use crate::scope::Task;

/// A call in progress.
#[repr(C)]
pub(crate) struct RareCall {
    enter_ns: Word,
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
    let row = u64::from(entry.cookie.row());
    // Within a call of another row, as of one that loads a file and then what was in it: that one tells.
    if current(task).is_some_and(|call| call.row.get() != row) {
        return Err(Stop::Count(Counter::Nested));
    }
    let call = begin(task).ok_or(Counter::MapFull)?;
    // SAFETY: always valid.
    call.enter_ns.set(unsafe { bpf_ktime_get_ns() });
    call.row.set(row);
    call.class.set(class as u64);
    call.bytes.set(entry.argument(Argument::Bytes)?);
    Ok(())
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
    if call.row.get() != u64::from(cookie(context).row()) {
        return Err(Stop::Quiet);
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
