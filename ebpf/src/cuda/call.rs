//! Calls in progress, between the entry and the return of a function.

use wire::counter::Counter;

use super::clock::Clock;
use super::zeroed;
use crate::atomic::Word;
use crate::emit::Stop;
use crate::maps::{MEMORY_CALLS, SYNC_CALLS};
use crate::scope::Task;

/// A wait.
#[repr(C)]
pub(crate) struct SyncCall {
    pub(crate) enter_ns: Word,
    pub(crate) row: Word,
    /// Handle of the stream waited for, 0 for all.
    pub(crate) stream: Word,
    /// Handle of the event waited for, 0 for none.
    pub(crate) event: Word,
    /// `COVER_*`.
    pub(crate) cover: Word,
    /// 1 if it is a poll.
    pub(crate) is_polled: Word,
    /// The context whose streams it covers, unless it is by `clock`; 0 covers those of all.
    pub(crate) context: Word,
    /// Where its moments of the streams are, unless it is by `clock`, see [`super::list::take_slot`].
    pub(crate) slot: Word,
    pub(crate) clock: Clock,
}

/// What `clock` says.
pub(crate) const COVER_CLOCK: u64 = 0;
/// Every stream of the context.
pub(crate) const COVER_ALL: u64 = 1;
/// Every stream of the context that is in order with the legacy one.
pub(crate) const COVER_LEGACY: u64 = 2;

/// A memory call.
#[repr(C)]
pub(crate) struct MemoryCall {
    pub(crate) enter_ns: Word,
    /// Where the stack was when it was entered.
    pub(crate) stack: Word,
    pub(crate) row: Word,
    pub(crate) class: Word,
    pub(crate) bytes: Word,
    /// Where the address or handle will be, or the address or handle.
    pub(crate) object: Word,
    /// What the class adds, or where it will be.
    pub(crate) other: Word,
    /// One more argument, where the class has one.
    pub(crate) extra: Word,
    /// Not 0 if sizes and addresses are of 32 bits.
    pub(crate) is_narrow: Word,
    /// `CALL_ESTIMATED`, or 0.
    pub(crate) is_estimated: Word,
    /// `CALL_CAPTURED`, or 0.
    pub(crate) is_captured: Word,
}

/// A fresh entry for the thread. One that is still there belongs to a call whose return was missed.
#[inline(always)]
pub(crate) fn begin_sync(task: Task) -> Result<&'static SyncCall, Stop> {
    insert_sync(task.0).ok_or(Stop::Count(Counter::MapFull))
}

#[inline(never)]
fn insert_sync(thread: u64) -> Option<&'static SyncCall> {
    SYNC_CALLS.insert(thread, zeroed::<SyncCall>(), 0).ok()?;
    // SAFETY: map memory outlives the program; all of it is words.
    unsafe { SYNC_CALLS.get(thread) }
}

/// The thread's wait, if it is one of this row.
#[inline(always)]
pub(crate) fn current_sync(task: Task, row: u16) -> Result<&'static SyncCall, Stop> {
    // SAFETY: as above.
    let call = unsafe { SYNC_CALLS.get(task.0) };
    call.filter(|call| call.row.get() == u64::from(row)).ok_or(Stop::Count(Counter::ReturnUnmatched))
}

/// As [`begin_sync`].
#[inline(always)]
pub(crate) fn begin_memory(task: Task) -> Result<&'static MemoryCall, Stop> {
    MEMORY_CALLS.insert(task.0, zeroed::<MemoryCall>(), 0).map_err(|_| Counter::MapFull)?;
    // SAFETY: as above.
    unsafe { MEMORY_CALLS.get(task.0) }.ok_or(Stop::Count(Counter::MapFull))
}

/// The thread's memory call.
#[inline(always)]
pub(crate) fn current_memory(task: Task) -> Result<&'static MemoryCall, Stop> {
    // SAFETY: as above.
    unsafe { MEMORY_CALLS.get(task.0) }.ok_or(Stop::Count(Counter::ReturnUnmatched))
}
