//! The streams of a process, for waits that cover all of them.

use wire::counter::Counter;

use super::call::COVER_CLOCK;
use super::stream::{Stream, StreamKey, find};
use super::{tally, zeroed};
use crate::atomic::Word;
use crate::emit::count;
use crate::maps::{STREAM_LISTS, STREAMS, SYNC_CALLS};
use crate::scope::Task;

/// Streams of a process that waits for all of them cover.
const LISTED: u64 = 32;
/// Waits for all streams of a process that are followed at the same time.
pub(crate) const WAITS: usize = 4;
/// The slot of a wait for the streams of a process that has none.
pub(crate) const NO_STREAMS: u64 = u64::MAX;
/// Attempts to take or free a place: other threads are at it.
const ATTEMPTS: u32 = 4;

/// The streams of a process.
#[repr(C)]
pub(crate) struct StreamList {
    /// A bit for each place that is taken.
    taken: Word,
    /// Streams that found no place.
    pub(crate) missed: Word,
    /// Threads (`pid_tgid`) that wait for all streams, by slot; what is left of waits that are over is none.
    waits: [Word; WAITS],
    keys: [StreamKey; LISTED as usize],
}

/// Adds a new stream to its process's list.
#[inline(never)]
pub(crate) fn enlist(key: &StreamKey) {
    const NO_EXIST: u64 = 1;
    let _ = STREAM_LISTS.insert(key.tgid, zeroed::<StreamList>(), NO_EXIST);
    let Some(list) = STREAM_LISTS.get_ptr_mut(key.tgid) else {
        return count(Counter::MapFull);
    };
    // SAFETY: the place is this thread's alone, because its bit was taken atomically.
    unsafe {
        let place = take_place(&(*list).taken) as usize;
        if place < LISTED as usize {
            (*list).keys[place] = *key;
        } else {
            (*list).missed.add(1);
            count(Counter::StreamListFull);
        }
    }
}

/// Adds a stream that found no place when it was new, or that was not told of yet when its process got a new image, if
/// there is a place now.
#[inline(never)]
pub(crate) fn relist(key: &StreamKey) {
    const NO_EXIST: u64 = 1;
    if is_listed(key) {
        return;
    }
    let _ = STREAM_LISTS.insert(key.tgid, zeroed::<StreamList>(), NO_EXIST);
    let Some(list) = STREAM_LISTS.get_ptr_mut(key.tgid) else { return };
    // SAFETY: as in `enlist`.
    unsafe {
        let place = take_place(&(*list).taken) as usize;
        if place < LISTED as usize {
            (*list).keys[place] = *key;
        }
    }
}

#[inline(never)]
fn is_listed(key: &StreamKey) -> bool {
    // SAFETY: as in `for_each`.
    unsafe { STREAM_LISTS.get(key.tgid) }.is_some_and(|list| list.keys.iter().any(|listed| listed.is(key)))
}

/// A place that was free; [`LISTED`] if none was.
#[inline(never)]
fn take_place(taken: &Word) -> u64 {
    for _ in 0..ATTEMPTS {
        let bits = taken.get();
        let place = lowest_clear(bits);
        if place >= LISTED || taken.replace(bits, bits | 1 << place) {
            return place;
        }
    }
    LISTED
}

#[inline(never)]
fn lowest_clear(bits: u64) -> u64 {
    for place in 0..LISTED {
        if bits >> place & 1 == 0 {
            return place;
        }
    }
    LISTED
}

/// Removes a stream from its process's list and from the streams.
#[inline(never)]
pub(crate) fn remove(key: &StreamKey) {
    let _ = STREAMS.remove(key);
    let Some(list) = STREAM_LISTS.get_ptr_mut(key.tgid) else { return };
    for place in 0..LISTED {
        // SAFETY: a place is only reused once its bit is clear, which is last.
        unsafe {
            if (*list).keys[place as usize].is(key) {
                (*list).keys[place as usize] = StreamKey::NONE;
                free_place(&(*list).taken, place);
                return;
            }
        }
    }
}

#[inline(never)]
fn free_place(taken: &Word, place: u64) {
    for _ in 0..ATTEMPTS {
        let bits = taken.get();
        if taken.replace(bits, bits & !(1 << place)) {
            return;
        }
    }
}

/// Calls `visit` with each listed stream of a process.
#[inline(always)]
pub(crate) fn for_each(tgid: u32, mut visit: impl FnMut(&StreamKey, &Stream)) {
    // SAFETY: a place that is being written is either still unused or as good as complete: its key is looked up.
    let Some(list) = (unsafe { STREAM_LISTS.get(tgid) }) else {
        return;
    };
    for key in &list.keys {
        if key.tgid == 0 {
            continue;
        }
        if let Some(stream) = find(key) {
            visit(key, stream);
        }
    }
}

/// A slot of [`Stream::wide`] for a wait for all streams; [`WAITS`] if as many go on, [`NO_STREAMS`] if there is nothing
/// to wait for. The thread's call must say already
/// that it is such a wait, since that is what keeps the slot.
#[inline(never)]
pub(crate) fn take_slot(task: Task) -> u64 {
    // SAFETY: as above.
    let Some(list) = (unsafe { STREAM_LISTS.get(task.tgid()) }) else { return NO_STREAMS };
    for slot in 0..WAITS {
        let wait = &list.waits[slot];
        let holder = wait.get();
        if (holder == task.0 || !is_wide_wait(holder)) && wait.replace(holder, task.0) {
            return slot as u64;
        }
    }
    WAITS as u64
}

/// The thread is in a wait that is not by its clock.
#[inline(never)]
fn is_wide_wait(thread: u64) -> bool {
    // SAFETY: map memory outlives the program; all of it is words.
    unsafe { SYNC_CALLS.get(thread) }.is_some_and(|call| call.cover.get() != COVER_CLOCK)
}

/// Whether a process has, or had, streams that are not listed.
#[inline(never)]
pub(crate) fn is_incomplete(tgid: u32) -> bool {
    // SAFETY: as above.
    unsafe { STREAM_LISTS.get(tgid) }.is_some_and(|list| list.missed.get() != 0)
}

/// Tells what of a process's work was not told, and drops its streams. What cannot be told now, or is not listed, goes
/// with the next run of [`tally::all`].
pub(crate) fn forget(tgid: u32) {
    for_each(tgid, |key, stream| {
        if tally::at_process_end(key, stream) {
            let _ = STREAMS.remove(key);
        }
    });
    let _ = STREAM_LISTS.remove(tgid);
}
