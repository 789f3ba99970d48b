//! Memory rows: one record per call, with its return code.
//!
//! Which calls belong together is told by the stack: a call returns to where it was entered, and one that is made
//! within another, deeper in the stack, is part of that and not counted.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::programs::RetProbeContext;
use wire::Kind;
use wire::cookie::{Argument, Class, FLAG_NARROW, Loc};
use wire::counter::Counter;
use wire::memory::{CALL_CAPTURED, CALL_WHOLE, Call};

use super::arguments::{Entry, RETURN_POPS, cookie, read, return_stack_pointer};
use super::array;
use super::call::{MemoryCall, begin_memory, current_memory};
use super::context;
use super::stream::{Stream, StreamKey, find};
use super::{is_watched, watched};
use crate::atomic::Word;
use crate::emit::{Outcome, Stop, count, reserve, submit, write_header};
use crate::maps::{MEMORY_CALLS, MEMORY_HISTORY};
use crate::scope::Task;

const SUCCESS: u32 = 0;
/// A call that takes longer than this did not return within our sight: what comes after it is not within it.
const LONGEST_NS: u64 = 10_000_000_000;

/// [`MEMORY_HISTORY`]: `cuInit` was seen.
const BEGAN: u64 = 1;
/// [`MEMORY_HISTORY`]: memory calls were made while the process was not watched.
const MISSED: u64 = 2;

#[inline(always)]
pub(crate) fn enter(entry: Entry) -> Outcome {
    let class = entry.class()?;
    let task = Task::current();
    if let Err(stop) = watched(task, entry.cookie.row()) {
        note(task.tgid(), MISSED);
        return Err(stop);
    }
    if is_within(task, entry.stack()) {
        return Err(Stop::Count(Counter::Nested));
    }
    let call = begin_memory(task)?;
    call.stack.set(entry.stack());
    // SAFETY: always valid.
    call.enter_ns.set(unsafe { bpf_ktime_get_ns() });
    call.row.set(u64::from(entry.cookie.row()));
    call.class.set(class as u64);
    call.is_narrow.set(u64::from(entry.cookie.flags() & FLAG_NARROW));
    call.bytes.set(entry.argument(Argument::Bytes)?);
    call.object.set(entry.argument(Argument::Object)?);
    call.other.set(entry.argument(Argument::Stream)?);
    let is_captured = match class {
        Class::AllocAsync => is_capturing(task, entry.register(2), entry.cookie.flags()),
        Class::AllocPool => is_capturing(task, entry.register(3), entry.cookie.flags()),
        Class::FreeAsync => is_capturing(task, entry.register(1), entry.cookie.flags()),
        _ => false,
    };
    call.is_captured.set(if is_captured { u64::from(CALL_CAPTURED) } else { 0 });
    describe(entry, class, call)
}

/// What is asked of the stream is collected into a graph: memory comes and goes with each launch of that.
#[inline(never)]
fn is_capturing(task: Task, handle: u64, flags: u8) -> bool {
    find(&StreamKey::new(task, handle, flags)).is_some_and(Stream::is_capturing)
}

/// `cuInit` was called: what comes is all there is.
pub(crate) fn began(tgid: u32) {
    note(tgid, BEGAN);
}

/// What was seen of the process so far.
#[inline(never)]
fn note(tgid: u32, bits: u64) {
    // SAFETY: map memory outlives the program; all of it is words.
    if let Some(history) = unsafe { MEMORY_HISTORY.get(tgid) } {
        history.or(bits);
        return;
    }
    let new: &Word = if bits == BEGAN { &FIRST_BEGAN } else { &FIRST_MISSED };
    let _ = MEMORY_HISTORY.insert(tgid, new, 0);
}

static FIRST_BEGAN: Word = Word::new(BEGAN);
static FIRST_MISSED: Word = Word::new(MISSED);

#[inline(never)]
fn is_whole(tgid: u32) -> bool {
    // SAFETY: as above.
    unsafe { MEMORY_HISTORY.get(tgid) }.is_some_and(|history| history.get() == BEGAN)
}

/// Forgets a process whose address space is gone.
pub(crate) fn forget(tgid: u32) {
    let _ = MEMORY_HISTORY.remove(tgid);
}

/// The thread is in a memory call that was entered higher in its stack.
#[inline(never)]
fn is_within(task: Task, stack: u64) -> bool {
    // SAFETY: as above.
    let Some(call) = (unsafe { MEMORY_CALLS.get(task.0) }) else { return false };
    // SAFETY: always valid.
    let age = unsafe { bpf_ktime_get_ns() }.wrapping_sub(call.enter_ns.get());
    call.stack.get() > stack && age < LONGEST_NS
}

/// What is elsewhere than in an argument of its own.
#[inline(always)]
fn describe(entry: Entry, class: Class, call: &MemoryCall) -> Outcome {
    let unreadable = Stop::Count(Counter::ArgumentUnreadable);
    match class {
        Class::AllocPitch => call.extra.set(entry.register(3)),
        Class::GetPool => call.extra.set(entry.register(2)),
        Class::SetPool => {
            call.other.set(u64::from(call.other.get() as u32));
            call.bytes.set(read(entry.register(2)).ok_or(unreadable)?);
        }
        Class::ImportAddress => {
            let at = match entry.cookie.location(Argument::Stream) {
                Loc::Stack(slot) => entry.stack() + 8 * u64::from(slot),
                _ => call.other.get(),
            };
            call.other.set(digest(at));
        }
        // Behind type and wanted handles, four bytes each.
        Class::CreatePhysical => call.other.set(read(call.other.get() + 8).ok_or(unreadable)?),
        Class::AllocArray | Class::AllocArray3D | Class::AllocMipmap => {
            call.extra.set(entry.register(2));
            array::measure(call);
        }
        _ => {}
    }
    Ok(())
}

#[inline(always)]
pub(crate) fn leave(ctx: &RetProbeContext) -> Outcome {
    let task = Task::current();
    if !is_watched(task) {
        return Err(Stop::Quiet);
    }
    let call = current_memory(task)?;
    if return_stack_pointer(ctx) != call.stack.get() + RETURN_POPS {
        // Of a call within this one.
        return Err(Stop::Quiet);
    }
    if call.row.get() != u64::from(cookie(ctx).row()) {
        return Err(Stop::Count(Counter::ReturnUnmatched));
    }
    let outcome = emit(task, call, ctx.ret());
    let _ = MEMORY_CALLS.remove(task.0);
    outcome
}

#[inline(never)]
fn emit(task: Task, call: &MemoryCall, result: u32) -> Outcome {
    resolve(call, result);
    let current = context::current(task);
    let whole = if is_whole(task.tgid()) { CALL_WHOLE } else { 0 };
    let mut entry = reserve::<Call>(Counter::DropMemory)?;
    let record = entry.as_mut_ptr();
    // SAFETY: `record` is the reserved entry; every byte of it is written here.
    unsafe {
        write_header(
            &raw mut (*record).header,
            Kind::MemoryCall,
            size_of::<Call>(),
            bpf_ktime_get_ns(),
            task,
        );
        (*record).enter_ns = call.enter_ns.get();
        (*record).context = current;
        (*record).bytes = call.bytes.get();
        (*record).address = call.object.get();
        (*record).other = call.other.get();
        (*record).row = call.row.get() as u16;
        (*record).class = call.class.get() as u8;
        (*record).flags = whole | (call.is_estimated.get() | call.is_captured.get()) as u8;
        (*record).result = result;
    }
    submit(entry);
    Ok(())
}

/// Replaces pointers to results by the results.
#[inline(never)]
fn resolve(call: &MemoryCall, result: u32) {
    let class = call.class.get();
    let is = |other: Class| class == other as u64;
    if is(Class::AllocPitch) {
        let row = if result == SUCCESS { fetch(call.other.get()) } else { call.bytes.get() };
        call.bytes.set(row.wrapping_mul(call.extra.get()));
        call.other.set(0);
    } else if is(Class::GetPool) {
        call.other.set(u64::from(call.other.get() as u32));
        call.bytes.set(if result == SUCCESS { fetch(call.extra.get()) } else { 0 });
    } else if is(Class::ExportAddress) {
        call.other.set(if result == SUCCESS { digest(call.other.get()) } else { 0 });
    } else if is(Class::MemoryInfo) {
        let (free, all) = (call.object.get(), call.other.get());
        call.bytes.set(if result == SUCCESS { fetch(free) } else { 0 });
        call.other.set(if result == SUCCESS { fetch(all) } else { 0 });
        call.object.set(0);
    }
    if class == Class::Alloc as u64
        || class >= Class::AllocPitch as u64 && class <= Class::ImportAddress as u64
    {
        call.object.set(if result == SUCCESS { fetch(call.object.get()) } else { 0 });
    }
    narrow(call);
}

/// The upper half of an argument of 32 bits means nothing, nor what stands behind a result of 32 bits.
#[inline(always)]
fn narrow(call: &MemoryCall) {
    const HALF: u64 = u32::MAX as u64;
    if call.is_narrow.get() != 0 {
        call.bytes.set(call.bytes.get() & HALF);
        if call.class.get() != Class::AllocHost as u64 {
            call.object.set(call.object.get() & HALF);
        }
    }
}

/// Words of a handle for memory that other processes may reach (`CUipcMemHandle`, `CUmemPoolPtrExportData`).
const HANDLE: u64 = 8;

/// A number that stands for such a handle (FNV-1a, by words); 0 if it cannot be read.
#[inline(never)]
fn digest(at: u64) -> u64 {
    let mut digest: u64 = 0xcbf2_9ce4_8422_2325;
    for word in 0..HANDLE {
        let Some(value) = read(at + 8 * word) else {
            count(Counter::ArgumentUnreadable);
            return 0;
        };
        digest = (digest ^ value).wrapping_mul(0x0100_0000_01b3);
    }
    digest
}

/// What the call returned there; 0 if it cannot be read.
#[inline(never)]
fn fetch(at: u64) -> u64 {
    read(at).unwrap_or_else(|| {
        count(Counter::ArgumentUnreadable);
        0
    })
}
