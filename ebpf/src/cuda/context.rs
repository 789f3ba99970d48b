//! Contexts: which one is current in each thread, and what processes are told of their devices.
//!
//! Both of every process that calls a probed driver, watched or not: a process makes its contexts in its first calls,
//! before anybody can have decided to watch it.

use core::ffi::c_void;

use aya_ebpf::helpers::{bpf_ktime_get_ns, generated};
use aya_ebpf::programs::RetProbeContext;
use wire::Kind;
use wire::cookie::{Argument, Class};
use wire::counter::Counter;
use wire::cuda::Context;

use super::arguments::{Entry, cookie, read};
use super::stream::{StreamKey, find};
use super::{list, watched, zeroed};
use crate::atomic::Word;
use crate::emit::{Outcome, Stop, count, reserve, submit, write_header};
use crate::maps::{CONTEXT_CALLS, CONTEXTS, CONTEXTS_SAID, IMAGES};
use crate::scope::Task;

const SUCCESS: u32 = 0;
/// Contexts on top of each other that are kept.
const HELD: u64 = 4;
/// The same is not said again for so long.
const SAID_NS: u64 = 1_000_000_000;

/// The contexts of a thread. Only the thread itself changes it.
#[repr(C)]
pub(crate) struct Contexts {
    /// How many there are.
    depth: Word,
    /// How many of the lowest are forgotten.
    forgotten: Word,
    /// The others; the place of each is its number modulo [`HELD`].
    held: [Word; HELD as usize],
}

impl Contexts {
    #[inline(always)]
    fn place(&self, number: u64) -> &Word {
        &self.held[(number % HELD) as usize]
    }

    /// The top, 0 when there is none or it is forgotten.
    #[inline(always)]
    fn top(&self) -> u64 {
        let depth = self.depth.get();
        if depth <= self.forgotten.get() { 0 } else { self.place(depth - 1).get() }
    }

    #[inline(always)]
    fn push(&self, context: u64) {
        let depth = self.depth.get();
        if depth - self.forgotten.get() >= HELD {
            count(Counter::ContextStackFull);
            self.forgotten.set(depth + 1 - HELD);
        }
        self.place(depth).set(context);
        self.depth.set(depth + 1);
    }

    #[inline(always)]
    fn pop(&self) {
        let depth = self.depth.get();
        if depth > 0 {
            self.depth.set(depth - 1);
        }
        if depth <= self.forgotten.get() {
            self.forgotten.set(depth.saturating_sub(1));
        }
    }
}

/// A call that says something of contexts or devices.
#[repr(C)]
pub(crate) struct ContextCall {
    row: Word,
    class: Word,
    /// Where the result will be, or the context.
    object: Word,
    /// The device, the ordinal, or where the text is.
    number: Word,
}

/// The context that is current in the thread; 0 when there is none or it is not known.
#[inline(never)]
pub(crate) fn current(task: Task) -> u64 {
    // SAFETY: map memory outlives the program; all of it is words.
    match unsafe { CONTEXTS.get(task.0) } {
        Some(contexts) => contexts.top(),
        None => 0,
    }
}

/// Ends the default streams that a thread had of its own, in each context it is known to have used: the next tally tells
/// what they have to tell and drops them.
#[inline(never)]
pub(crate) fn end_streams(task: Task) {
    set_ended(task, 0, 1);
    // SAFETY: as in `current`.
    let Some(contexts) = (unsafe { CONTEXTS.get(task.0) }) else { return };
    for place in &contexts.held {
        if place.get() != 0 {
            set_ended(task, place.get(), 1);
        }
    }
}

#[inline(never)]
fn set_ended(task: Task, context: u64, is_ended: u64) {
    if let Some(stream) = find(&StreamKey::own(task, context)) {
        stream.is_ended.set(is_ended);
    }
}

/// When the process's number last went to another process or image of which anything was said, ns; 0 for never.
#[inline(never)]
fn image_of(tgid: u32) -> u64 {
    // SAFETY: a single aligned word.
    unsafe { IMAGES.get(tgid) }.copied().unwrap_or(0)
}

/// What was said to a process does not hold for what gets its number, or for its next image.
pub(crate) fn forget_process(tgid: u32) {
    forget(Task::leader(tgid));
    // SAFETY: always valid.
    let _ = IMAGES.insert(tgid, unsafe { bpf_ktime_get_ns() }, 0);
}

/// Drops what is known of a thread: it ends, or its process has a new image.
pub(crate) fn forget(task: Task) {
    let _ = CONTEXTS.remove(task.0);
    let _ = CONTEXT_CALLS.remove(task.0);
}

/// Takes the change at its entry. One that the driver refuses is of a context that is none, and leads to no device.
#[inline(always)]
pub(crate) fn change(entry: Entry) -> Outcome {
    let task = Task::current();
    report(task, entry.cookie.row());
    let class = entry.class()?;
    let contexts = find_or_make(task)?;
    if !matches!(class, Class::ContextPush) {
        contexts.pop();
    }
    if !matches!(class, Class::ContextPop) {
        let context = entry.argument(Argument::Object)?;
        if context != 0 {
            contexts.push(context);
            // Of an earlier thread with this number, it may be the stream of this one now.
            set_ended(task, context, 0);
        }
    }
    Ok(())
}

#[inline(always)]
pub(crate) fn enter(entry: Entry) -> Outcome {
    let task = Task::current();
    report(task, entry.cookie.row());
    let class = entry.class()?;
    CONTEXT_CALLS.insert(task.0, zeroed::<ContextCall>(), 0).map_err(|_| Counter::MapFull)?;
    // SAFETY: as in `current`.
    let call = unsafe { CONTEXT_CALLS.get(task.0) }.ok_or(Stop::Count(Counter::MapFull))?;
    call.row.set(u64::from(entry.cookie.row()));
    call.class.set(class as u64);
    call.object.set(entry.argument(Argument::Object)?);
    call.number.set(entry.argument(Argument::Bytes)?);
    Ok(())
}

#[inline(always)]
pub(crate) fn leave(context: &RetProbeContext) -> Outcome {
    let task = Task::current();
    let row = u64::from(cookie(context).row());
    // SAFETY: as in `current`.
    let call = unsafe { CONTEXT_CALLS.get(task.0) };
    let call = call.filter(|call| call.row.get() == row).ok_or(Stop::Count(Counter::ReturnUnmatched))?;
    let outcome = if context.ret::<u32>() == SUCCESS { succeeded(task, call) } else { Ok(()) };
    let _ = CONTEXT_CALLS.remove(task.0);
    outcome
}

/// Whoever is not watched is reported, and its contexts are followed all the same.
#[inline(never)]
fn report(task: Task, row: u16) {
    let _ = watched(task, row);
}

#[inline(never)]
fn find_or_insert(task: Task) -> Option<&'static Contexts> {
    const NO_EXIST: u64 = 1;
    let _ = CONTEXTS.insert(task.0, zeroed::<Contexts>(), NO_EXIST);
    // SAFETY: as in `current`.
    unsafe { CONTEXTS.get(task.0) }
}

#[inline(always)]
fn find_or_make(task: Task) -> Result<&'static Contexts, Stop> {
    find_or_insert(task).ok_or(Stop::Count(Counter::MapFull))
}

/// What a call gave.
struct Given {
    context: u64,
    device: i32,
    ordinal: i32,
}

#[inline(never)]
fn succeeded(task: Task, call: &ContextCall) -> Outcome {
    let class = call.class.get();
    let mut given = Given { context: 0, device: -1, ordinal: -1 };
    if is(class, Class::ContextCreate) || is(class, Class::ContextRetain) {
        given.context = pointed(call)?;
        given.device = call.number.get() as i32;
    } else if is(class, Class::ContextDestroy) {
        given.context = call.object.get();
    } else if is(class, Class::DeviceGet) {
        given.device = pointed(call)? as i32;
        given.ordinal = call.number.get() as i32;
    } else if is(class, Class::DeviceByBus) {
        given.device = pointed(call)? as i32;
    } else {
        given.device = call.number.get() as i32;
    }
    if is(class, Class::ContextCreate) {
        find_or_make(task)?.push(given.context);
    }
    if is(class, Class::ContextDestroy) {
        destroyed(task, given.context);
    }
    let key = said_key(task, class, given.device);
    if was_said(key, class, given.context) {
        return Ok(());
    }
    let outcome = emit(task, call, &given);
    if outcome.is_err() {
        // Not said after all.
        let _ = CONTEXTS_SAID.remove(key);
    }
    outcome
}

#[inline(always)]
fn said_key(task: Task, class: u64, device: i32) -> u64 {
    u64::from(task.tgid()) << 32 | (class & 0xff) << 24 | (device as u64 & 0xff_ffff)
}

/// What was said last.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Said {
    /// When, ns.
    at_ns: u64,
    /// The context: a primary one that is made again may be another.
    context: u64,
    /// When the process began, as far as its number was seen to go to another: what an earlier one was told does not
    /// count.
    image_ns: u64,
}

#[inline(always)]
fn is(number: u64, class: Class) -> bool {
    number == class as u64
}

/// What the call wrote through its pointer.
#[inline(always)]
fn pointed(call: &ContextCall) -> Result<u64, Stop> {
    read(call.object.get()).ok_or(Stop::Count(Counter::ArgumentUnreadable))
}

/// It leaves the calling thread's stack if it is on top, and its streams end with it.
#[inline(never)]
fn destroyed(task: Task, context: u64) {
    // SAFETY: as in `current`.
    if let Some(contexts) = unsafe { CONTEXTS.get(task.0) }
        && contexts.top() == context
    {
        contexts.pop();
    }
    list::for_each(task.tgid(), |_, stream| {
        if stream.context.get() == context {
            stream.is_ended.set(1);
        }
    });
}

/// Whether the process was told the same of the device just now. Some ask for every launch; contexts are made and
/// destroyed rarely, and each of them counts.
#[inline(never)]
fn was_said(key: u64, class: u64, context: u64) -> bool {
    if is(class, Class::ContextCreate) || is(class, Class::ContextDestroy) {
        return false;
    }
    // SAFETY: always valid.
    let at_ns = unsafe { bpf_ktime_get_ns() };
    let image_ns = image_of((key >> 32) as u32);
    // SAFETY: what two threads write at once is the same but for its time.
    if let Some(last) = unsafe { CONTEXTS_SAID.get(key) }
        && last.context == context
        && last.image_ns == image_ns
        && at_ns - last.at_ns < SAID_NS
    {
        return true;
    }
    let _ = CONTEXTS_SAID.insert(key, Said { at_ns, context, image_ns }, 0);
    false
}

#[inline(never)]
fn emit(task: Task, call: &ContextCall, given: &Given) -> Outcome {
    let mut entry = reserve::<Context>(Counter::DropContext)?;
    let record = entry.as_mut_ptr();
    // SAFETY: `record` is the reserved entry; every byte of it is written here or by `write_text`.
    unsafe {
        write_header(
            &raw mut (*record).header,
            Kind::Context,
            size_of::<Context>(),
            bpf_ktime_get_ns(),
            task,
        );
        (*record).context = given.context;
        (*record).device = given.device;
        (*record).ordinal = given.ordinal;
        (*record).row = call.row.get() as u16;
        (*record).class = call.class.get() as u8;
        (*record).reserved = [0; 5];
        write_text(record, call);
    }
    submit(entry);
    Ok(())
}

/// # Safety
/// `record` must point to a reserved record.
#[inline(always)]
unsafe fn write_text(record: *mut Context, call: &ContextCall) {
    let class = call.class.get();
    // SAFETY: the caller's record; reads of user memory are checked.
    unsafe {
        (*record).text = [0; 32];
        let to = (&raw mut (*record).text).cast::<c_void>();
        let read = if is(class, Class::DeviceUuid) {
            generated::bpf_probe_read_user(to, 16, call.object.get() as *const c_void)
        } else if is(class, Class::DeviceBus) {
            generated::bpf_probe_read_user_str(to, 32, call.object.get() as *const c_void)
        } else if is(class, Class::DeviceByBus) {
            generated::bpf_probe_read_user_str(to, 32, call.number.get() as *const c_void)
        } else {
            0
        };
        if read < 0 {
            count(Counter::ArgumentUnreadable);
        }
    }
}
