//! Calls within calls: the outermost counts.
//!
//! A driver's exported function may call an inner one to which a probe was added, and one library that has the
//! driver's functions may call another. Both probes fire then. A call is an inner one if it returns into the code of
//! such a library, or if it takes the place of the function that was just entered (a jump at its end): same stack, same
//! return address, same row, another place. Only processes in [`NESTING`] are asked; where there are none it costs
//! one load.

use aya_ebpf::programs::RetProbeContext;
use wire::cookie::{FLAG_INNER, FLAG_RUNTIME, Packed};
use wire::counter::Counter;
use wire::names::{RANGES, SCOPE_PATH_DRIVER, SCOPE_PATH_INNER, SCOPE_PATH_RUNTIME};

use super::arguments::{Entry, cookie, read};
use super::zeroed;
use crate::atomic::Word;
use crate::emit::{Outcome, Stop};
use crate::maps::{DEPTHS, FALLBACK, LAST_ENTRIES, NESTING, NESTING_COUNT, SCOPE};
use crate::scope::Task;

/// Where a thread entered a probed function last.
#[repr(C)]
pub(crate) struct LastEntry {
    stack: Word,
    back: Word,
    place: Word,
    row: Word,
    is_inner: Word,
}

/// Runs `body` unless another probe counts the call.
#[inline(always)]
pub(crate) fn once(entry: Entry, body: impl FnOnce(Entry) -> Outcome) -> Outcome {
    if is_not_ours(entry.cookie) {
        return Err(Stop::Quiet);
    }
    if may_nest() && is_nested(entry.stack(), entry.place(), entry.cookie) {
        return Err(Stop::Count(Counter::Nested));
    }
    body(entry)
}

/// The same for a function whose return is probed too, which [`at_return`] then must know.
#[inline(always)]
pub(crate) fn once_until_return(entry: Entry, body: impl FnOnce(Entry) -> Outcome) -> Outcome {
    if is_not_ours(entry.cookie) {
        return Err(Stop::Quiet);
    }
    if may_nest() && is_nested(entry.stack(), entry.place(), entry.cookie) {
        deeper(Task::current());
        return Err(Stop::Count(Counter::Nested));
    }
    if may_nest() {
        outermost(Task::current());
    }
    note_path(entry.cookie);
    body(entry)
}

/// Runs `body` unless it is the return of a call that another probe counts. Returns come in the order of the stack.
#[inline(always)]
pub(crate) fn at_return(
    context: &RetProbeContext,
    body: impl FnOnce(&RetProbeContext) -> Outcome,
) -> Outcome {
    if is_not_ours(cookie(context)) || (may_nest() && is_nested_return(Task::current())) {
        return Err(Stop::Quiet);
    }
    body(context)
}

/// A function of the runtime, in a process whose driver counts.
#[inline(always)]
fn is_not_ours(cookie: Packed) -> bool {
    cookie.flags() & FLAG_RUNTIME != 0 && !is_fallback(Task::current())
}

#[inline(never)]
fn is_fallback(task: Task) -> bool {
    // SAFETY: presence alone counts.
    unsafe { FALLBACK.get(task.tgid()) }.is_some()
}

#[inline(always)]
fn may_nest() -> bool {
    NESTING_COUNT.get(0).is_some_and(|count| count.get() != 0)
}

/// Whether the call belongs to another one; if not, it may have others in it.
#[inline(never)]
fn is_nested(stack: u64, place: u64, cookie: Packed) -> bool {
    let task = Task::current();
    // SAFETY: plain numbers, written as a whole by the agent.
    let Some(ranges) = (unsafe { NESTING.get(task.tgid()) }) else { return false };
    let back = read(stack).unwrap_or(0);
    let mut is_inside = false;
    for index in 0..RANGES {
        is_inside |= ranges[2 * index] <= back && back < ranges[2 * index + 1];
    }
    is_inside || replaces(task, stack, back, place, cookie)
}

/// Whether the function took the place of the one entered last; if not, it is now that one.
#[inline(never)]
fn replaces(task: Task, stack: u64, back: u64, place: u64, cookie: Packed) -> bool {
    let Some(last) = last_entry(task) else { return false };
    let (row, is_inner) = (u64::from(cookie.row()), u64::from(cookie.flags() & FLAG_INNER));
    let is_same = last.stack.get() == stack && last.row.get() == row && last.place.get() != place;
    // An exported function does not take the place of one without a name: the program just has both addresses.
    let may_replace = last.is_inner.get() == 0 || is_inner != 0;
    // A probed return puts its own address in the place of the caller's; the entry is forgotten at that return.
    if is_same && may_replace && (last.back.get() == back || is_returning(task)) {
        last.stack.set(0);
        return true;
    }
    last.stack.set(stack);
    last.back.set(back);
    last.place.set(place);
    last.row.set(row);
    last.is_inner.set(is_inner);
    false
}

#[inline(never)]
fn last_entry(task: Task) -> Option<&'static LastEntry> {
    const NO_EXIST: u64 = 1;
    let _ = LAST_ENTRIES.insert(task.0, zeroed::<LastEntry>(), NO_EXIST);
    // SAFETY: map memory outlives the program; all of it is words.
    unsafe { LAST_ENTRIES.get(task.0) }
}

/// The thread is in a call of which the return is probed.
#[inline(never)]
fn is_returning(task: Task) -> bool {
    super::is_in_a_call(task)
}

#[inline(never)]
fn deeper(task: Task) {
    const NO_EXIST: u64 = 1;
    let _ = DEPTHS.insert(task.0, zeroed::<Word>(), NO_EXIST);
    // SAFETY: map memory outlives the program; a word.
    if let Some(depth) = unsafe { DEPTHS.get(task.0) } {
        depth.add(1);
    }
}

/// What is left of inner calls had no return within our sight.
#[inline(never)]
fn outermost(task: Task) {
    // SAFETY: as above.
    if let Some(depth) = unsafe { DEPTHS.get(task.0) } {
        depth.set(0);
    }
}

#[inline(never)]
fn is_nested_return(task: Task) -> bool {
    // SAFETY: as above.
    let Some(depth) = (unsafe { DEPTHS.get(task.0) }) else { return false };
    let now = depth.get();
    if now == 0 {
        return false;
    }
    // The thread's own.
    depth.set(now - 1);
    true
}

/// Keeps in the scope of the process which way its calls take.
#[inline(never)]
fn note_path(cookie: Packed) {
    let path = match cookie.flags() & (FLAG_RUNTIME | FLAG_INNER) {
        0 => SCOPE_PATH_DRIVER,
        FLAG_INNER => SCOPE_PATH_INNER,
        _ => SCOPE_PATH_RUNTIME,
    };
    if let Some(bits) = SCOPE.get_ptr_mut(Task::current().tgid()) {
        // SAFETY: an aligned word of the map. What two threads or the agent write at once may lose a bit, which the
        // next call sets again.
        unsafe {
            let known = bits.read_volatile();
            if known & path == 0 {
                bits.write_volatile(known | path);
            }
        }
    }
}
