//! Result markers: calls that return when work is finished.
//!
//! What a wait covers is fixed at its entry: work that other threads add while it lasts is not proved by it.

use aya_ebpf::bindings::BPF_RB_NO_WAKEUP;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::programs::RetProbeContext;
use wire::Kind;
use wire::cookie::{Argument, Class};
use wire::counter::Counter;
use wire::cuda::Step;

use super::arguments::{Entry, cookie};
use super::call::{SyncCall, begin_sync, current_sync};
use super::claim::Claim;
use super::order::find_event;
use super::stream::{EventKey, Stream, StreamKey, find, find_or_make, for_each};
use super::{context, is_watched, watched, work};
use crate::emit::{Outcome, Stop, reserve, submit, write_header};
use crate::maps::SYNC_CALLS;
use crate::scope::Task;

#[inline(always)]
pub(crate) fn enter(entry: Entry) -> Outcome {
    let task = Task::current();
    watched(task, entry.cookie.row())?;
    let call = begin_sync(task)?;
    // SAFETY: always valid.
    call.enter_ns.set(unsafe { bpf_ktime_get_ns() });
    call.row.set(u64::from(entry.cookie.row()));
    let class = entry.class()?;
    match class {
        Class::SyncContext => {
            cover_all(task, call);
            Ok(())
        }
        Class::SyncEvent => cover_event(task, call, entry.argument(Argument::Object)?),
        _ => {
            let key = StreamKey::new(task, entry.argument(Argument::Stream)?, entry.cookie.flags());
            let stream = find_or_make(&key)?;
            if !matches!(class, Class::SyncStream) {
                // A copy that waits for itself.
                work::account_copy(entry, stream)?;
            }
            cover_stream(&key, stream, task, call);
            Ok(())
        }
    }
}

#[inline(never)]
fn cover_event(task: Task, call: &SyncCall, handle: u64) -> Outcome {
    let clock = find_event(&EventKey { tgid: task.tgid(), reserved: 0, handle })?;
    call.event.set(handle);
    call.clock.copy_from(clock);
    call.stream.set(call.clock.own.stream.handle());
    Ok(())
}

/// The legacy stream is in order with all others of its context.
#[inline(never)]
fn cover_stream(key: &StreamKey, stream: &Stream, task: Task, call: &SyncCall) {
    call.stream.set(key.handle());
    if key.is_legacy() {
        cover_all(task, call);
    } else {
        call.clock.take(key, stream);
    }
}

#[inline(never)]
fn cover_all(task: Task, call: &SyncCall) {
    let context = context::current(task);
    call.is_wide.set(1);
    call.context.set(context);
    for_each(task.tgid(), |_, stream| {
        if stream.is_of(context) {
            stream.snapshot(&stream.wide);
        }
    });
}

#[inline(always)]
pub(crate) fn leave(context: &RetProbeContext) -> Outcome {
    let task = Task::current();
    if !is_watched(task) {
        return Err(Stop::Quiet);
    }
    let call = current_sync(task, cookie(context).row())?;
    let outcome = if is_pending(task, call) { emit(task, call, context.ret()) } else { Ok(()) };
    let _ = SYNC_CALLS.remove(task.0);
    outcome
}

#[inline(never)]
fn is_pending(task: Task, call: &SyncCall) -> bool {
    if call.is_wide.get() == 0 {
        return call.clock.is_pending();
    }
    let (context, mut pending) = (call.context.get(), false);
    for_each(task.tgid(), |_, stream| pending |= stream.is_of(context) && is_wide_pending(stream));
    pending
}

#[inline(never)]
fn is_wide_pending(stream: &Stream) -> bool {
    stream.claimed_operations() < stream.wide.operations()
}

/// The context of the stream waited for, else the thread's own.
#[inline(never)]
fn context_of(task: Task, call: &SyncCall) -> u64 {
    let stream = if call.is_wide.get() == 0 { find(&call.clock.own.stream) } else { None };
    match stream.map_or(0, |stream| stream.context.get()) {
        0 => context::current(task),
        context => context,
    }
}

/// Work is claimed only once there is room for its record; without room it stays for the next marker.
#[inline(never)]
fn emit(task: Task, call: &SyncCall, result: u32) -> Outcome {
    let mut entry = reserve::<Step>(Counter::DropStep)?;
    let step = entry.as_mut_ptr();
    // SAFETY: `step` is the reserved entry; every byte of it is written here or by `Claim`.
    let claim = unsafe {
        write_header(&raw mut (*step).header, Kind::Step, size_of::<Step>(), bpf_ktime_get_ns(), task);
        (*step).enter_ns = call.enter_ns.get();
        (*step).stream = call.stream.get();
        (*step).event = call.event.get();
        (*step).row = call.row.get() as u16;
        (*step).result = result;
        (*step).context = context_of(task, call);
        Claim::begin(step)
    };
    if call.is_wide.get() == 0 {
        claim.take_clock(&call.clock);
    } else {
        let context = call.context.get();
        for_each(task.tgid(), |_, stream| {
            if stream.is_of(context) {
                claim.take(stream, &stream.wide);
            }
        });
    }
    if claim.is_empty() {
        // Another thread's marker was faster.
        entry.discard(BPF_RB_NO_WAKEUP.into());
    } else {
        submit(entry);
    }
    Ok(())
}
