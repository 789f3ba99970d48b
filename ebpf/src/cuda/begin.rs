//! What begins and ends: streams, events, captures. Rare calls.

use core::ptr;

use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::programs::RetProbeContext;
use wire::cookie::{Argument, Class};
use wire::counter::Counter;

use super::arguments::{Entry, cookie, read};
use super::stream::{EventKey, KIND_BLOCKING, KIND_FREE, Stream, StreamKey, find, find_or_make};
use super::{is_watched, list, tally, watched, zeroed};
use crate::atomic::Word;
use crate::emit::{Outcome, Stop};
use crate::maps::{BEGIN_CALLS, CUDA_EVENTS, STREAM_KINDS};
use crate::scope::Task;

const SUCCESS: u32 = 0;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u64 = 1;

/// A call that makes a stream, or begins a capture in one.
#[repr(C)]
pub(crate) struct BeginCall {
    row: Word,
    class: Word,
    /// Where the handle of the new stream will be.
    object: Word,
    /// Flags of the new stream.
    flags: Word,
    /// Stream of the capture.
    stream: StreamKey,
}

#[inline(always)]
pub(crate) fn enter(entry: Entry) -> Outcome {
    let task = Task::current();
    watched(task, entry.cookie.row())?;
    let call = insert(task.0).ok_or(Stop::Count(Counter::MapFull))?;
    call.row.set(u64::from(entry.cookie.row()));
    call.class.set(entry.class()? as u64);
    call.object.set(entry.argument(Argument::Object)?);
    call.flags.set(entry.argument(Argument::Bytes)?);
    let key = StreamKey::new(task, entry.argument(Argument::Stream)?, entry.cookie.flags());
    // SAFETY: map memory, writable, and this thread's own.
    unsafe { ptr::write_volatile((&raw const call.stream).cast_mut(), key) };
    Ok(())
}

#[inline(never)]
fn insert(thread: u64) -> Option<&'static BeginCall> {
    BEGIN_CALLS.insert(thread, zeroed::<BeginCall>(), 0).ok()?;
    // SAFETY: map memory outlives the program; only this thread uses the entry.
    unsafe { BEGIN_CALLS.get(thread) }
}

#[inline(always)]
pub(crate) fn leave(context: &RetProbeContext) -> Outcome {
    let task = Task::current();
    if !is_watched(task) {
        return Err(Stop::Quiet);
    }
    let row = cookie(context).row();
    // SAFETY: as above.
    let call = unsafe { BEGIN_CALLS.get(task.0) };
    let call =
        call.filter(|call| call.row.get() == u64::from(row)).ok_or(Stop::Count(Counter::ReturnUnmatched))?;
    let outcome = if context.ret::<u32>() != SUCCESS {
        Ok(())
    } else if call.class.get() == Class::CaptureBegin as u64 {
        capture(call)
    } else {
        stream_made(task, call)
    };
    let _ = BEGIN_CALLS.remove(task.0);
    outcome
}

#[inline(never)]
fn capture(call: &BeginCall) -> Outcome {
    let stream = find_or_make(&call.stream)?;
    // SAFETY: always valid.
    stream.begin_capture(&call.stream, unsafe { bpf_ktime_get_ns() });
    Ok(())
}

/// Its handle may be that of an earlier stream of which something is left.
#[inline(never)]
fn stream_made(task: Task, call: &BeginCall) -> Outcome {
    let handle = read(call.object.get()).ok_or(Stop::Count(Counter::ArgumentUnreadable))?;
    let key = StreamKey::new(task, handle, 0);
    let kind = if call.flags.get() & NON_BLOCKING != 0 { KIND_FREE } else { KIND_BLOCKING };
    let _ = STREAM_KINDS.insert(&key, &Word::new(kind), 0);
    if let Some(stream) = find(&key) {
        stream.kind.set(kind);
        stream.is_ended.set(0);
        stream.capture.leave();
        stream.begin_anew();
    }
    Ok(())
}

#[inline(always)]
pub(crate) fn end(entry: Entry) -> Outcome {
    let task = Task::current();
    watched(task, entry.cookie.row())?;
    let class = entry.class()?;
    let object = entry.argument(Argument::Object)?;
    if object != 0 {
        return event_end(task, object);
    }
    let key = StreamKey::new(task, entry.argument(Argument::Stream)?, entry.cookie.flags());
    let stream = find(&key).ok_or(Stop::Quiet)?;
    if matches!(class, Class::CaptureEnd) {
        stream.end_capture(&key);
        Ok(())
    } else {
        stream_end(&key, stream)
    }
}

/// Its handle may come again for another one.
#[inline(never)]
fn event_end(task: Task, handle: u64) -> Outcome {
    let _ = CUDA_EVENTS.remove(&EventKey { tgid: task.tgid(), reserved: 0, handle });
    Ok(())
}

/// What nobody has waited for is still done, and a wait that comes later may prove it.
#[inline(never)]
fn stream_end(key: &StreamKey, stream: &Stream) -> Outcome {
    let _ = STREAM_KINDS.remove(key);
    stream.capture.leave();
    let told = tally::at_stream_end(key, stream);
    if told.is_ok() && stream.is_claimed() {
        list::remove(key);
    } else {
        stream.is_ended.set(1);
    }
    told
}
