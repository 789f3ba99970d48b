//! A call of a TLS library in progress.

use wire::counter::Counter;
use wire::socket::{DIR_RECV, DIR_SEND};
use wire::tls::{COOKIE_COUNTED, COOKIE_SEND};

use crate::atomic::Word;
use crate::cuda::arguments::read;
use crate::cuda::zeroed;
use crate::emit::count;
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

/// A fresh entry for the thread. One that is still there belongs to a call whose return was missed.
#[inline(always)]
pub(crate) fn begin(task: Task) -> Option<&'static Call> {
    TLS_CALLS.insert(task.0, zeroed::<Call>(), 0).ok()?;
    current(task)
}

/// The call that the thread is in.
#[inline(always)]
pub(crate) fn current(task: Task) -> Option<&'static Call> {
    // SAFETY: map memory outlives the program; all of it is words.
    unsafe { TLS_CALLS.get(task.0) }
}
