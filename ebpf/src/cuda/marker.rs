//! Result markers: calls that return when work is finished.
//!
//! What a wait covers is fixed at its entry: work that other threads add while it lasts is not proved by it.

use aya_ebpf::bindings::BPF_RB_NO_WAKEUP;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::programs::RetProbeContext;
use wire::Kind;
use wire::cookie::{Argument, Class};
use wire::counter::Counter;
use wire::cuda::{CountedStep, STEP_POLLED, STEP_STREAM_UNKNOWN, STEP_WORK_MISSED};

use super::arguments::{Entry, cookie};
use super::call::{COVER_ALL, COVER_CLOCK, COVER_LEGACY, SyncCall, begin_sync, current_sync};
use super::claim::Claim;
use super::copy;
use super::list::{WAITS, for_each, is_incomplete, take_slot};
use super::order::find_event;
use super::stream::{EventKey, KIND_FREE, KIND_UNKNOWN, Stream, StreamKey, Totals, find, find_or_make};
use super::{context, is_watched, watched};
use crate::emit::{Outcome, Stop, count, reserve, submit, write_header};
use crate::maps::SYNC_CALLS;
use crate::scope::Task;

#[inline(always)]
pub(crate) fn enter(entry: Entry) -> Outcome {
    let task = Task::current();
    watched(task, entry.cookie.row())?;
    let class = entry.class()?;
    if matches!(class, Class::SyncContext | Class::SyncStream | Class::SyncEvent) {
        return wait(entry, task, class);
    }
    let key = StreamKey::new(task, entry.argument(Argument::Stream)?, entry.cookie.flags());
    let stream = find_or_make(&key)?;
    if !copy::account(entry, stream)? {
        return Ok(());
    }
    // A copy that waits for itself.
    cover_stream(&key, stream, task, begin(entry, task)?);
    Ok(())
}

#[inline(always)]
fn begin(entry: Entry, task: Task) -> Result<&'static SyncCall, Stop> {
    let call = begin_sync(task)?;
    // SAFETY: always valid.
    call.enter_ns.set(unsafe { bpf_ktime_get_ns() });
    call.row.set(u64::from(entry.cookie.row()));
    Ok(call)
}

#[inline(always)]
fn wait(entry: Entry, task: Task, class: Class) -> Outcome {
    let call = begin(entry, task)?;
    match class {
        Class::SyncContext => {
            call.context.set(match entry.argument(Argument::Object)? {
                0 => context::current(task),
                named => named,
            });
            cover_all(task, call, COVER_ALL);
            Ok(())
        }
        Class::SyncEvent => cover_event(task, call, entry.argument(Argument::Object)?),
        _ => {
            let key = StreamKey::new(task, entry.argument(Argument::Stream)?, entry.cookie.flags());
            cover_stream(&key, find_or_make(&key)?, task, call);
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

/// The legacy stream is in order with all others of its context, unless they were made to be independent of it.
#[inline(never)]
fn cover_stream(key: &StreamKey, stream: &Stream, task: Task, call: &SyncCall) {
    call.stream.set(key.handle());
    if key.is_legacy() {
        call.context.set(context::current(task));
        cover_all(task, call, COVER_LEGACY);
    } else {
        call.clock.take(key, stream);
    }
}

#[inline(never)]
fn cover_all(task: Task, call: &SyncCall, cover: u64) {
    call.cover.set(cover);
    let slot = take_slot(task);
    call.slot.set(slot);
    if slot == WAITS as u64 {
        count(Counter::WideWaits);
    }
    if slot >= WAITS as u64 {
        return;
    }
    for_each(task.tgid(), |_, stream| {
        if is_covered(stream, call) {
            stream.snapshot(wide(stream, call));
        }
    });
}

#[inline(always)]
pub(crate) fn leave(context: &RetProbeContext) -> Outcome {
    let task = Task::current();
    if !is_watched(task) {
        return Err(Stop::Quiet);
    }
    let cookie = cookie(context);
    let call = match current_sync(task, cookie.row()) {
        Ok(call) => call,
        // Only its arguments told that it does not wait.
        Err(_) if matches!(cookie.class(), Some(Class::Copy2D | Class::Copy3D)) => return Err(Stop::Quiet),
        Err(stop) => return Err(stop),
    };
    let outcome = finish(task, call, context.ret());
    let _ = SYNC_CALLS.remove(task.0);
    outcome
}

/// Ends a wait: a step, if it proved any work finished.
#[inline(always)]
pub(crate) fn finish(task: Task, call: &SyncCall, result: u32) -> Outcome {
    if is_proof(result) && is_pending(task, call) { emit(task, call, result) } else { Ok(()) }
}

/// Whether a wait with this result is over because the work is: done, or ended by a fault of the device. Other errors
/// (a handle that is none, a capture) say that nobody waited.
#[inline(always)]
fn is_proof(result: u32) -> bool {
    const SUCCESS: u32 = 0;
    const ECC_UNCORRECTABLE: u32 = 214;
    const NVLINK_UNCORRECTABLE: u32 = 220;
    const ILLEGAL_ADDRESS: u32 = 700;
    const LAUNCH_TIMEOUT: u32 = 702;
    const ASSERT: u32 = 710;
    const HARDWARE_STACK_ERROR: u32 = 714;
    const LAUNCH_FAILED: u32 = 719;
    const UNKNOWN: u32 = 999;
    matches!(
        result,
        SUCCESS
            | ECC_UNCORRECTABLE
            | NVLINK_UNCORRECTABLE
            | ILLEGAL_ADDRESS
            | LAUNCH_TIMEOUT
            | ASSERT
            | HARDWARE_STACK_ERROR..=LAUNCH_FAILED | UNKNOWN
    )
}

#[inline(never)]
fn is_pending(task: Task, call: &SyncCall) -> bool {
    if call.cover.get() == COVER_CLOCK {
        return call.clock.is_pending();
    }
    if call.slot.get() >= WAITS as u64 {
        return false;
    }
    let mut pending = false;
    for_each(task.tgid(), |_, stream| pending |= is_wide_pending(stream, call));
    pending
}

#[inline(never)]
fn is_wide_pending(stream: &Stream, call: &SyncCall) -> bool {
    is_covered(stream, call) && stream.claimed_operations() < wide(stream, call).operations()
}

/// The moment of a stream at which a wait that is not by its clock began.
#[inline(always)]
fn wide<'a>(stream: &'a Stream, call: &SyncCall) -> &'a Totals {
    &stream.wide[call.slot.get() as usize % WAITS]
}

/// Whether a wait that is not by its clock covers it.
#[inline(always)]
fn is_covered(stream: &Stream, call: &SyncCall) -> bool {
    let is_in_order = call.cover.get() == COVER_ALL || stream.kind.get() != KIND_FREE;
    is_in_order && stream.is_of(call.context.get())
}

/// The context of the stream waited for, else the thread's own.
#[inline(never)]
fn context_of(task: Task, call: &SyncCall) -> u64 {
    let stream = if call.cover.get() == COVER_CLOCK { find(&call.clock.own.stream) } else { None };
    match stream.map_or(0, |stream| stream.context.get()) {
        0 => context::current(task),
        context => context,
    }
}

/// Work is claimed only once there is room for its record; without room it stays for the next marker.
#[inline(never)]
fn emit(task: Task, call: &SyncCall, result: u32) -> Outcome {
    let mut entry = reserve::<CountedStep>(Counter::DropStep)?;
    let record = entry.as_mut_ptr();
    // SAFETY: `record` is the reserved entry; every byte of it is written here or by `Claim`.
    let claim = unsafe {
        let step = &raw mut (*record).step;
        let now = bpf_ktime_get_ns();
        write_header(&raw mut (*step).header, Kind::Step, size_of::<CountedStep>(), now, task);
        (*step).enter_ns = call.enter_ns.get();
        (*step).stream = call.stream.get();
        (*step).event = call.event.get();
        (*step).row = call.row.get() as u16;
        (*step).result = result;
        (*step).context = context_of(task, call);
        Claim::begin(record)
    };
    take(task, call, claim);
    if claim.is_empty() {
        // Another thread's marker was faster.
        entry.discard(BPF_RB_NO_WAKEUP.into());
    } else {
        submit(entry);
    }
    Ok(())
}

#[inline(never)]
fn take(task: Task, call: &SyncCall, claim: Claim) {
    if call.is_polled.get() != 0 {
        claim.flag(STEP_POLLED);
    }
    if call.cover.get() == COVER_CLOCK {
        return claim.take_clock(&call.clock);
    }
    if is_incomplete(task.tgid()) {
        claim.flag(STEP_WORK_MISSED);
    }
    for_each(task.tgid(), |_, stream| take_wide(claim, stream, call));
}

#[inline(never)]
fn take_wide(claim: Claim, stream: &Stream, call: &SyncCall) {
    if !is_wide_pending(stream, call) {
        return;
    }
    if call.cover.get() == COVER_LEGACY && stream.kind.get() == KIND_UNKNOWN {
        claim.flag(STEP_STREAM_UNKNOWN);
    }
    claim.take(stream, wide(stream, call));
}
