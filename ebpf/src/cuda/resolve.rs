//! Functions that the driver gives the address of: `cuGetProcAddress`, which is how runtimes find it.

use aya_ebpf::helpers::{bpf_ktime_get_ns, bpf_probe_read_user, generated};
use aya_ebpf::programs::RetProbeContext;
use wire::Kind;
use wire::cookie::Argument;
use wire::counter::Counter;
use wire::rare::{NAME, Resolved};

use super::arguments::{Entry, cookie, read};
use super::{is_watched, watched, zeroed};
use crate::atomic::Word;
use crate::emit::{Outcome, Stop, count, reserve, submit_now, write_header};
use crate::maps::{RESOLVE_CALLS, RESOLVED};
use crate::scope::Task;

/// A call in progress.
#[repr(C)]
pub(crate) struct ResolveCall {
    row: Word,
    /// Where the name is.
    name: Word,
    /// Where the address will be.
    target: Word,
    /// Where it will say whether there is such a function; 0 where it does not.
    status: Word,
    flags: Word,
    /// Of CUDA, whose function is meant.
    version: Word,
}

/// An address in a process.
#[repr(C)]
pub(crate) struct Place {
    tgid: u32,
    reserved: u32,
    address: u64,
}

impl Place {
    #[inline(always)]
    fn new(task: Task, address: u64) -> Self {
        Self { tgid: task.tgid(), reserved: 0, address }
    }
}

#[inline(always)]
pub(crate) fn enter(entry: Entry) -> Outcome {
    let task = Task::current();
    watched(task, entry.cookie.row())?;
    let call = begin(task).ok_or(Counter::MapFull)?;
    call.row.set(u64::from(entry.cookie.row()));
    call.name.set(entry.register(0));
    call.version.set(entry.register(2));
    call.flags.set(entry.register(3));
    call.target.set(entry.argument(Argument::Object)?);
    call.status.set(entry.argument(Argument::Bytes)?);
    Ok(())
}

#[inline(never)]
fn begin(task: Task) -> Option<&'static ResolveCall> {
    RESOLVE_CALLS.insert(task.0, zeroed::<ResolveCall>(), 0).ok()?;
    current(task)
}

#[inline(always)]
fn current(task: Task) -> Option<&'static ResolveCall> {
    // SAFETY: map memory outlives the program; all of it is words.
    unsafe { RESOLVE_CALLS.get(task.0) }
}

#[inline(always)]
pub(crate) fn leave(context: &RetProbeContext) -> Outcome {
    let task = Task::current();
    if !is_watched(task) {
        return Err(Stop::Quiet);
    }
    let row = u64::from(cookie(context).row());
    let call = current(task).filter(|call| call.row.get() == row).ok_or(Counter::ReturnUnmatched)?;
    let outcome = tell(task, call, context.ret());
    let _ = RESOLVE_CALLS.remove(task.0);
    outcome
}

/// Once per process and address.
#[inline(always)]
fn tell(task: Task, call: &ResolveCall, result: u32) -> Outcome {
    let target = call.target.get();
    let address = if target == 0 { 0 } else { read(target).ok_or(Counter::ArgumentUnreadable)? };
    if address == 0 || is_known(task, address) {
        return Ok(());
    }
    let outcome = emit(task, call, address, result);
    if outcome.is_err() {
        // Not reported after all: it is when it is given again.
        let _ = RESOLVED.remove(&Place::new(task, address));
    }
    outcome
}

#[inline(never)]
fn is_known(task: Task, address: u64) -> bool {
    const NO_EXIST: u64 = 1;
    RESOLVED.insert(&Place::new(task, address), 1, NO_EXIST).is_err()
}

#[inline(never)]
fn emit(task: Task, call: &ResolveCall, address: u64, result: u32) -> Outcome {
    let mut entry = reserve::<Resolved>(Counter::DropResolved)?;
    let record = entry.as_mut_ptr();
    // SAFETY: `record` is the reserved entry; every byte of it is written here, the name by the helper within bounds.
    unsafe {
        write_header(
            &raw mut (*record).header,
            Kind::Resolved,
            size_of::<Resolved>(),
            bpf_ktime_get_ns(),
            task,
        );
        (*record).address = address;
        (*record).status = status(call.status.get());
        (*record).result = result;
        (*record).row = call.row.get() as u16;
        (*record).flags = call.flags.get() as u16;
        (*record).version = call.version.get() as u32;
        (*record).name = [0; NAME];
        let name = &raw mut (*record).name;
        let read = generated::bpf_probe_read_user_str(name.cast(), NAME as u32, call.name.get() as *const _);
        if read < 0 {
            count(Counter::ArgumentUnreadable);
        }
    }
    submit_now(entry);
    Ok(())
}

#[inline(never)]
fn status(at: u64) -> u32 {
    if at == 0 {
        return 0;
    }
    // SAFETY: a checked read of user memory.
    unsafe { bpf_probe_read_user(at as *const u32) }.unwrap_or(0)
}
