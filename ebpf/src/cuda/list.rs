//! The streams of a process, for waits that cover all of them.

use wire::counter::Counter;

use super::stream::{Stream, StreamKey, find};
use super::{tally, zeroed};
use crate::atomic::Word;
use crate::emit::count;
use crate::maps::{STREAM_LISTS, STREAMS};

/// Streams of a process that waits for all of them cover.
const LISTED: u64 = 32;
/// Attempts to take or free a place: other threads are at it.
const ATTEMPTS: u32 = 4;

/// The streams of a process.
#[repr(C)]
pub(crate) struct StreamList {
    /// A bit for each place that is taken.
    taken: Word,
    /// Streams that found no place.
    pub(crate) missed: Word,
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
