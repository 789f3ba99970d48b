//! Counts of work that nobody has waited for: told now and then, and when a stream or a process ends.

use core::ffi::c_void;

use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::helpers::generated::bpf_for_each_map_elem;
use wire::Kind;
use wire::counter::Counter;
use wire::cuda::{TALLY_PROCESS_END, TALLY_STREAM_END, TALLY_TIMER, Tally};

use super::claim::{NO_WORK, claim};
use super::list;
use super::stream::{Stream, StreamKey, field};
use crate::atomic::Word;
use crate::emit::{Outcome, finish, reserve, submit, write_header};
use crate::maps::{STREAM_LISTS, STREAMS};
use crate::scope::{Task, scope_of};

/// What was asked of a stream that is gone is done by then, waited for or not.
const LINGER_NS: u64 = 10_000_000_000;

/// Tells what every stream has to tell, and drops what is left of streams and processes that are gone.
#[inline(always)]
pub(crate) fn all() -> Outcome {
    let streams = (&raw const STREAMS).cast_mut().cast::<c_void>();
    // SAFETY: the helper calls `visit` with each entry.
    unsafe { bpf_for_each_map_elem(streams, visit as *mut c_void, core::ptr::null_mut(), 0) };
    Ok(())
}

#[inline(never)]
extern "C" fn visit(_: *mut c_void, key: *const StreamKey, stream: *const Stream, _: *mut c_void) -> u64 {
    const GO_ON: u64 = 0;
    // SAFETY: the helper lends an entry of the map.
    let (key, stream) = unsafe { (*key, &*stream) };
    let is_gone = scope_of(key.tgid) == 0;
    let why = if is_gone { TALLY_PROCESS_END } else { TALLY_TIMER };
    let outcome = tell(&key, stream, why);
    let is_told = outcome.is_ok();
    finish(outcome);
    if is_told && is_gone {
        let _ = STREAMS.remove(&key);
        let _ = STREAM_LISTS.remove(key.tgid);
    } else if is_told && is_over(stream) {
        list::remove(&key);
    } else if !is_gone {
        list::relist(&key);
    }
    GO_ON
}

#[inline(never)]
fn is_over(stream: &Stream) -> bool {
    if stream.is_ended.get() == 0 {
        return false;
    }
    // SAFETY: always valid.
    let now = unsafe { bpf_ktime_get_ns() };
    stream.is_claimed() || stream.totals.last_ns.get() + LINGER_NS < now
}

/// Tells what a stream that is destroyed has to tell.
#[inline(never)]
pub(crate) fn at_stream_end(key: &StreamKey, stream: &Stream) -> Outcome {
    tell(key, stream, TALLY_STREAM_END)
}

/// Tells what a stream of a process that ends has to tell; false if it cannot now.
#[inline(never)]
pub(crate) fn at_process_end(key: &StreamKey, stream: &Stream) -> bool {
    let outcome = tell(key, stream, TALLY_PROCESS_END);
    let is_told = outcome.is_ok();
    finish(outcome);
    is_told
}

/// Counts are moved only once there is room for their record; without room they come with the next.
#[inline(never)]
fn tell(key: &StreamKey, stream: &Stream, why: u32) -> Outcome {
    if !has_news(stream) {
        return Ok(());
    }
    let mut entry = reserve::<Tally>(Counter::TallyDelayed)?;
    let tally = entry.as_mut_ptr();
    let whole_process = Task(u64::from(key.tgid) << 32);
    // SAFETY: `tally` is the reserved entry; every byte of it is written here or by `fill`.
    unsafe {
        let now = time_of(stream, why);
        write_header(&raw mut (*tally).header, Kind::Tally, size_of::<Tally>(), now, whole_process);
        (*tally).work = NO_WORK;
        (*tally).captured = claim(&stream.captured_told, &stream.captured);
        (*tally).stream = key.handle();
        (*tally).why = why;
        (*tally).reserved = 0;
        fill(tally, stream);
    }
    submit(entry);
    Ok(())
}

/// When what is told was so: of a process that is gone, before its end.
#[inline(never)]
fn time_of(stream: &Stream, why: u32) -> u64 {
    match stream.totals.last_ns.get() {
        last if why == TALLY_PROCESS_END && last != 0 => last,
        // SAFETY: always valid.
        _ => unsafe { bpf_ktime_get_ns() },
    }
}

#[inline(never)]
fn has_news(stream: &Stream) -> bool {
    if is_behind(&stream.captured_told, &stream.captured) {
        return true;
    }
    for (told, work) in stream.counted.iter().zip(&stream.totals.work) {
        if is_behind(told, work) {
            return true;
        }
    }
    false
}

/// A subprogram of its own, for the sake of the stack.
#[inline(never)]
fn is_behind(told: &Word, all: &Word) -> bool {
    told.get() < all.get()
}

/// # Safety
/// `tally` must be a reserved record.
#[inline(never)]
unsafe fn fill(tally: *mut Tally, stream: &Stream) {
    let count = |field: usize| claim(&stream.counted[field], &stream.totals.work[field]);
    // SAFETY: the caller's record.
    unsafe {
        let work = &raw mut (*tally).work;
        (*work).launches = count(field::LAUNCHES);
        (*work).graphs = count(field::GRAPHS);
        (*work).copies = count(field::COPIES);
        (*work).h2d_bytes = count(field::H2D);
        (*work).d2h_bytes = count(field::D2H);
        (*work).other_bytes = count(field::OTHER);
    }
}
