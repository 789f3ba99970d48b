//! Memory rows: one record per call, with its return code.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::programs::RetProbeContext;
use wire::Kind;
use wire::cookie::{Argument, Class};
use wire::counter::Counter;
use wire::cuda::Memory;

use super::arguments::{Entry, cookie, read};
use super::call::{MemoryCall, begin_memory, current_memory};
use super::{is_watched, watched};
use crate::emit::{Outcome, Stop, count, reserve, submit, write_header};
use crate::maps::MEMORY_CALLS;
use crate::scope::Task;

const SUCCESS: u32 = 0;

#[inline(always)]
pub(crate) fn enter(entry: Entry) -> Outcome {
    let class = entry.class()?;
    let task = Task::current();
    watched(task, entry.cookie.row())?;
    let call = begin_memory(task)?;
    // SAFETY: always valid.
    call.enter_ns.set(unsafe { bpf_ktime_get_ns() });
    call.row.set(u64::from(entry.cookie.row()));
    call.class.set(class as u64);
    call.bytes.set(entry.argument(Argument::Bytes)?);
    call.object.set(entry.argument(Argument::Object)?);
    Ok(())
}

#[inline(always)]
pub(crate) fn leave(context: &RetProbeContext) -> Outcome {
    let task = Task::current();
    if !is_watched(task) {
        return Err(Stop::Quiet);
    }
    let call = current_memory(task, cookie(context).row())?;
    let outcome = emit(task, call, context.ret());
    let _ = MEMORY_CALLS.remove(task.0);
    outcome
}

#[inline(never)]
fn emit(task: Task, call: &MemoryCall, result: u32) -> Outcome {
    let address = address(call, result);
    let mut entry = reserve::<Memory>(Counter::DropMemory)?;
    let record = entry.as_mut_ptr();
    // SAFETY: `record` is the reserved entry; every byte of it is written here.
    unsafe {
        write_header(&raw mut (*record).header, Kind::Memory, size_of::<Memory>(), bpf_ktime_get_ns(), task);
        (*record).enter_ns = call.enter_ns.get();
        (*record).bytes = call.bytes.get();
        (*record).address = address;
        (*record).row = call.row.get() as u16;
        (*record).class = call.class.get() as u8;
        (*record).reserved = 0;
        (*record).result = result;
    }
    submit(entry);
    Ok(())
}

/// The address given or freed; 0 if the call failed or it cannot be read.
#[inline(always)]
fn address(call: &MemoryCall, result: u32) -> u64 {
    let object = call.object.get();
    if result != SUCCESS {
        return 0;
    }
    if call.class.get() == Class::Free as u64 {
        return object;
    }
    read(object).unwrap_or_else(|| {
        count(Counter::ArgumentUnreadable);
        0
    })
}
