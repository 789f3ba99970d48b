//! Calls that ask whether work is done, and do not wait.
//!
//! Most are noise: of libraries that look after what they lent, of watchdogs. A poll is a result marker if somebody
//! was waiting by it: it finds done what another, a short time before, had found not done. What is asked about is
//! told by its handle and how often that was recorded, since handles come again.

use core::ptr;

use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::programs::RetProbeContext;
use wire::cookie::{Argument, Class};
use wire::counter::Counter;

use super::arguments::{Entry, cookie};
use super::call::{SyncCall, begin_sync};
use super::stream::{EventKey, StreamKey, find};
use super::{is_watched, marker, order, watched, zeroed};
use crate::atomic::Word;
use crate::emit::{Outcome, Stop, count};
use crate::maps::{QUERY_CALLS, SYNC_CALLS};
use crate::scope::Task;

/// `CUDA_SUCCESS`.
const DONE: u32 = 0;
/// `CUDA_ERROR_NOT_READY`.
const NOT_READY: u32 = 600;

/// Polls that are further apart than this are not a wait. Watchdogs look every 100 ms or less often (NCCL's in
/// PyTorch), loops that wait with a sleep in between every few milliseconds at most.
const GAP_NS: u64 = 20_000_000;

/// Polls that found the present work of a stream, or of an event, not done.
#[repr(C)]
pub(crate) struct Polls {
    /// What was asked about, see [`QueryCall::moment`].
    moment: Word,
    /// First of them, ns; 0 for none.
    first_ns: Word,
    last_ns: Word,
}

impl Polls {
    #[inline(never)]
    fn note(&self, moment: u64, now: u64) {
        if self.first_ns.get() == 0 || self.moment.get() != moment {
            self.moment.set(moment);
            self.first_ns.set(now);
        }
        self.last_ns.set(now);
    }

    /// When the wait began of which a poll at `now` is the end; 0 if it is none.
    #[inline(never)]
    fn wait_since(&self, moment: u64, now: u64) -> u64 {
        let first = self.first_ns.get();
        self.first_ns.set(0);
        if first == 0 || self.moment.get() != moment {
            return 0;
        }
        if now - self.last_ns.get() > GAP_NS {
            count(Counter::PollTooSlow);
            return 0;
        }
        first
    }
}

/// A call in progress.
#[repr(C)]
pub(crate) struct QueryCall {
    row: Word,
    /// Event that is asked about; 0 for a stream.
    event: Word,
    /// Stream that is asked about; none while there is nothing to know.
    stream: StreamKey,
    /// How often the event had been recorded, or how much had been asked of the stream.
    moment: Word,
}

impl QueryCall {
    /// The entry is kept between calls. Row 0 is a launch.
    #[inline(always)]
    pub(crate) fn is_in_progress(&self) -> bool {
        self.row.get() != 0
    }

    #[inline(always)]
    fn set(&self, event: u64, stream: &StreamKey, moment: u64) {
        self.event.set(event);
        self.moment.set(moment);
        // SAFETY: map memory, writable, and this thread's own.
        unsafe { ptr::write_volatile((&raw const self.stream).cast_mut(), *stream) };
    }
}

#[inline(always)]
pub(crate) fn enter(entry: Entry) -> Outcome {
    let task = Task::current();
    watched(task, entry.cookie.row())?;
    let class = entry.class()?;
    let call = current(task)?;
    call.row.set(u64::from(entry.cookie.row()));
    call.set(0, &StreamKey::NONE, 0);
    if matches!(class, Class::QueryEvent) {
        ask_event(task, call, entry.argument(Argument::Object)?);
    } else {
        let key = StreamKey::new(task, entry.argument(Argument::Stream)?, entry.cookie.flags());
        ask_stream(call, &key);
    }
    Ok(())
}

/// The thread's entry, kept from one poll to the next: there may be a million of them a second.
#[inline(never)]
fn find_or_make(thread: u64) -> Option<&'static QueryCall> {
    // SAFETY: map memory outlives the program; only this thread uses the entry.
    let known = unsafe { QUERY_CALLS.get(thread) };
    if known.is_some() {
        return known;
    }
    QUERY_CALLS.insert(thread, zeroed::<QueryCall>(), 0).ok()?;
    // SAFETY: as above.
    unsafe { QUERY_CALLS.get(thread) }
}

#[inline(always)]
fn current(task: Task) -> Result<&'static QueryCall, Stop> {
    find_or_make(task.0).ok_or(Stop::Count(Counter::MapFull))
}

#[inline(never)]
fn ask_event(task: Task, call: &QueryCall, handle: u64) {
    // One that was never recorded is done, and no news.
    let Ok(clock) = order::find_event(&EventKey { tgid: task.tgid(), reserved: 0, handle }) else { return };
    if clock.is_pending() {
        call.set(handle, &clock.own.stream, clock.sequence.get());
    }
}

#[inline(never)]
fn ask_stream(call: &QueryCall, key: &StreamKey) {
    if let Some(stream) = find(key)
        && !stream.is_claimed()
    {
        call.set(0, key, stream.totals.operations());
    }
}

#[inline(always)]
pub(crate) fn leave(context: &RetProbeContext) -> Outcome {
    let task = Task::current();
    if !is_watched(task) {
        return Err(Stop::Quiet);
    }
    let row = cookie(context).row();
    // SAFETY: as in `find_or_make`.
    let call = unsafe { QUERY_CALLS.get(task.0) };
    let call = call.filter(|call| call.row.get() == u64::from(row)).ok_or(Stop::Quiet)?;
    call.row.set(0);
    if call.stream.tgid == 0 {
        return Err(Stop::Quiet);
    }
    let is_wait = if call.event.get() != 0 {
        ends_event(task, call, row, context.ret())
    } else {
        ends_stream(task, call, row, context.ret())
    };
    if is_wait { end(task) } else { Err(Stop::Quiet) }
}

/// Emitted from here and not from where it was found out, because calls nest at most eight deep.
#[inline(always)]
fn end(task: Task) -> Outcome {
    // SAFETY: map memory outlives the program; all of it is words.
    let wait = unsafe { SYNC_CALLS.get(task.0) }.ok_or(Stop::Quiet)?;
    let outcome = marker::finish(task, wait, DONE);
    let _ = SYNC_CALLS.remove(task.0);
    outcome
}

/// Whether the answer ends a wait; then it is the thread's wait.
#[inline(never)]
fn ends_event(task: Task, call: &QueryCall, row: u16, result: u32) -> bool {
    let handle = call.event.get();
    let Ok(clock) = order::find_event(&EventKey { tgid: task.tgid(), reserved: 0, handle }) else {
        return false;
    };
    let moment = call.moment.get();
    if clock.sequence.get() != moment {
        return false;
    }
    let since = judge(&clock.polls, moment, result);
    let Some(wait) = begin(task, call, row, since) else { return false };
    wait.event.set(handle);
    wait.clock.copy_from(clock);
    true
}

/// As [`ends_event`].
#[inline(never)]
fn ends_stream(task: Task, call: &QueryCall, row: u16, result: u32) -> bool {
    let Some(stream) = find(&call.stream) else { return false };
    let moment = call.moment.get();
    // What was asked of it meanwhile need not be done.
    if stream.totals.operations() != moment {
        return false;
    }
    let since = judge(&stream.polls, moment, result);
    let Some(wait) = begin(task, call, row, since) else { return false };
    wait.clock.take(&call.stream, stream);
    true
}

/// The thread's wait, if there was one.
#[inline(never)]
fn begin(task: Task, call: &QueryCall, row: u16, since: u64) -> Option<&'static SyncCall> {
    if since == 0 {
        return None;
    }
    let Ok(wait) = begin_sync(task) else {
        count(Counter::MapFull);
        return None;
    };
    wait.stream.set(call.stream.handle());
    wait.row.set(u64::from(row));
    wait.enter_ns.set(since);
    wait.is_polled.set(1);
    Some(wait)
}

/// When the wait began that this answer ends; 0 if it ends none.
#[inline(never)]
fn judge(polls: &Polls, moment: u64, result: u32) -> u64 {
    // SAFETY: always valid.
    let now = unsafe { bpf_ktime_get_ns() };
    match result {
        NOT_READY => {
            polls.note(moment, now);
            0
        }
        DONE => polls.wait_since(moment, now),
        _ => 0,
    }
}
