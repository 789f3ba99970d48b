//! Calls of a TLS library in progress: of each thread up to [`DEEPEST`], one within the other.
//!
//! A library calls its program back, which may use another TLS connection then (TLS within TLS, a memory buffer that is
//! filled when it is read). Which of them returns is told by where its frame is on the stack.

use wire::counter::Counter;
use wire::socket::{DIR_RECV, DIR_SEND};
use wire::tls::{COOKIE_COUNTED, COOKIE_SEND};

/// Calls within calls that are followed.
const DEEPEST: u64 = 3;
/// Places for them: one more, so that a mask keeps an index within.
const PLACES: usize = 4;

use crate::atomic::Word;
use crate::cuda::arguments::read;
use crate::cuda::zeroed;
use crate::emit::{Stop, count};
use crate::maps::TLS_CALLS;
use crate::scope::Task;

/// A call, as its caller made it.
#[repr(C)]
pub(crate) struct Call {
    /// `COOKIE_*`.
    pub(crate) kind: Word,
    pub(crate) ssl: Word,
    pub(crate) buffer: Word,
    pub(crate) requested: Word,
    /// Where the number of bytes will be, with `COOKIE_COUNTED`.
    pub(crate) count: Word,
    /// Socket that was used within it, in its direction; 0 for none.
    pub(crate) sock: Word,
    pub(crate) sock_birth_ns: Word,
    /// What is known at its return. Kept here and not on the stack, of which a uprobe program has little.
    pub(crate) now_ns: Word,
    pub(crate) len: Word,
    pub(crate) offset: Word,
    pub(crate) ssl_birth_ns: Word,
    /// Stack pointer at its entry.
    stack: Word,
}

/// The calls that a thread is in.
#[repr(C)]
pub(crate) struct Calls {
    depth: Word,
    /// Stack pointer of a call within the deepest one that is followed; 0 if there is none.
    beyond: Word,
    calls: [Call; PLACES],
}

impl Calls {
    #[inline(always)]
    fn at(&self, depth: u64) -> &Call {
        &self.calls[depth as usize & (PLACES - 1)]
    }

    /// Forgets calls that began below a stack pointer: their returns were missed, or are this one.
    #[inline(always)]
    fn unwind(&self, stack: u64) {
        if self.beyond.get() < stack {
            self.beyond.set(0);
        }
        for depth in (0..DEEPEST).rev() {
            if self.depth.get() > depth && self.at(depth).stack.get() < stack {
                self.depth.set(depth);
            }
        }
    }
}

impl Call {
    /// Direction of its bytes.
    #[inline(always)]
    pub(crate) fn dir(&self) -> u8 {
        if self.kind.get() & COOKIE_SEND != 0 { DIR_SEND } else { DIR_RECV }
    }

    /// Bytes moved, by what the function returned.
    #[inline(always)]
    pub(crate) fn moved(&self, returned: i32) -> u32 {
        if returned <= 0 {
            return 0;
        }
        if self.kind.get() & COOKIE_COUNTED == 0 {
            return returned as u32;
        }
        let moved = read(self.count.get()).unwrap_or(u64::MAX);
        if moved > self.requested.get() {
            count(Counter::PlaintextUnreadable);
            return 0;
        }
        moved as u32
    }
}

/// A fresh entry for a call that begins at `stack`, unless it is within too many others.
#[inline(always)]
pub(crate) fn begin(task: Task, stack: u64) -> Result<&'static Call, Stop> {
    if calls(task).is_none() {
        TLS_CALLS.insert(task.0, zeroed::<Calls>(), 0).map_err(|_| Counter::MapFull)?;
    }
    let calls = calls(task).ok_or(Counter::MapFull)?;
    // One at the same place has ended too.
    calls.unwind(stack + 1);
    let depth = calls.depth.get();
    if depth >= DEEPEST {
        if calls.beyond.get() == 0 {
            calls.beyond.set(stack);
        }
        return Err(Stop::Count(Counter::TlsCallTooDeep));
    }
    let call = calls.at(depth);
    call.kind.set(0);
    call.sock.set(0);
    call.sock_birth_ns.set(0);
    call.stack.set(stack);
    calls.depth.set(depth + 1);
    Ok(call)
}

/// The call that began at `stack` and has returned.
#[inline(always)]
pub(crate) fn returned(task: Task, stack: u64) -> Result<&'static Call, Stop> {
    let calls = calls(task).ok_or(Counter::ReturnUnmatched)?;
    let (beyond, depth) = (calls.beyond.get(), calls.depth.get());
    calls.unwind(stack + 1);
    let left = calls.depth.get();
    let call = calls.at(left);
    if left < depth && call.stack.get() == stack {
        return Ok(call);
    }
    // The entry of one that is within too many was counted.
    Err(if stack <= beyond { Stop::Quiet } else { Stop::Count(Counter::ReturnUnmatched) })
}

/// Lets go of what was kept for a thread that is in no call any more.
#[inline(always)]
pub(crate) fn end(task: Task) {
    if calls(task).is_some_and(|calls| calls.depth.get() == 0) {
        let _ = TLS_CALLS.remove(task.0);
    }
}

/// The call that the thread is in; `None` also while it is in one that is not followed.
#[inline(always)]
pub(crate) fn current(task: Task) -> Option<&'static Call> {
    let calls = calls(task)?;
    let depth = calls.depth.get();
    (depth > 0 && calls.beyond.get() == 0).then(|| calls.at(depth - 1))
}

#[inline(always)]
fn calls(task: Task) -> Option<&'static Calls> {
    // SAFETY: map memory outlives the program; all of it is words.
    unsafe { TLS_CALLS.get(task.0) }
}
