//! Edges between streams: events recorded, and streams that wait for them.

use wire::cookie::Argument;
use wire::counter::Counter;

use super::arguments::Entry;
use super::clock::Clock;
use super::stream::{EventKey, Stream, StreamKey, find_or_make};
use super::{watched, zeroed};
use crate::emit::{Outcome, Stop};
use crate::maps::CUDA_EVENTS;
use crate::scope::Task;

/// The event holds the present of the stream, until it is recorded again.
#[inline(always)]
pub(crate) fn record(entry: Entry) -> Outcome {
    let task = Task::current();
    watched(task, entry.cookie.row())?;
    let handle = entry.argument(Argument::Object)?;
    let clock = find_or_make_event(&EventKey { tgid: task.tgid(), reserved: 0, handle })?;
    let key = StreamKey::new(task, entry.argument(Argument::Stream)?, entry.cookie.flags());
    take(clock, &key, find_or_make(&key)?);
    Ok(())
}

#[inline(never)]
fn take(clock: &Clock, key: &StreamKey, stream: &Stream) {
    clock.sequence.add(1);
    if stream.is_capturing() {
        clock.capture.join(&stream.capture);
        clock.clear();
    } else {
        clock.capture.leave();
        clock.take(key, stream);
    }
}

/// What the event holds comes before the stream's future; or the stream becomes part of the capture that the event is
/// part of.
#[inline(always)]
pub(crate) fn wait(entry: Entry) -> Outcome {
    let task = Task::current();
    watched(task, entry.cookie.row())?;
    let handle = entry.argument(Argument::Object)?;
    let clock = find_event(&EventKey { tgid: task.tgid(), reserved: 0, handle })?;
    let key = StreamKey::new(task, entry.argument(Argument::Stream)?, entry.cookie.flags());
    let stream = find_or_make(&key)?;
    if clock.capture.is_any() {
        stream.capture.join(&clock.capture);
    } else {
        stream.depend_on(&key, clock);
    }
    Ok(())
}

/// The event, if it was recorded.
#[inline(always)]
pub(crate) fn find_event(key: &EventKey) -> Result<&'static Clock, Stop> {
    // SAFETY: map memory outlives the program. An entry that is evicted and reused meanwhile mixes two moments, of
    // which each is claimed at most once.
    unsafe { CUDA_EVENTS.get(key) }.ok_or(Stop::Count(Counter::EventUnknown))
}

#[inline(always)]
fn find_or_make_event(key: &EventKey) -> Result<&'static Clock, Stop> {
    const NO_EXIST: u64 = 1;
    if let Ok(clock) = find_event(key) {
        return Ok(clock);
    }
    let _ = CUDA_EVENTS.insert(key, zeroed::<Clock>(), NO_EXIST);
    find_event(key).map_err(|_| Stop::Count(Counter::MapFull))
}
