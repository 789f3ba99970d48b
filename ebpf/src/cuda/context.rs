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
use super::{watched, zeroed};
use crate::atomic::Word;
use crate::emit::{Outcome, Stop, count, reserve, submit, write_header};
use crate::maps::{CONTEXT_CALLS, CONTEXTS, CONTEXTS_SAID};
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
    if was_said(task, class, given.device) {
        return Ok(());
    }
    emit(task, call, &given)
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

/// It leaves the calling thread's stack if it is on top.
#[inline(never)]
fn destroyed(task: Task, context: u64) {
    // SAFETY: as in `current`.
    if let Some(contexts) = unsafe { CONTEXTS.get(task.0) }
        && contexts.top() == context
    {
        contexts.pop();
    }
}

/// Whether the process was told the same of the device just now. Some ask for every launch; contexts are made and
/// destroyed rarely, and each of them counts.
#[inline(never)]
fn was_said(task: Task, class: u64, device: i32) -> bool {
    if is(class, Class::ContextCreate) || is(class, Class::ContextDestroy) {
        return false;
    }
    let key = u64::from(task.tgid()) << 32 | (class & 0xff) << 24 | (device as u64 & 0xff_ffff);
    // SAFETY: a single aligned word.
    let last = unsafe { CONTEXTS_SAID.get(key) }.copied().unwrap_or(0);
    // SAFETY: always valid.
    let now = unsafe { bpf_ktime_get_ns() };
    if last != 0 && now - last < SAID_NS {
        return true;
    }
    let _ = CONTEXTS_SAID.insert(key, now, 0);
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
