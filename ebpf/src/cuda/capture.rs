//! Captures: work that is collected into a graph and not run.
//!
//! A capture spreads from the stream where it began, by events that are recorded in it and streams that wait for
//! them, and ends for all of them where it began. So each stream only notes which capture it joined, and asks the
//! origin whether that one is still going on.

use core::ptr;

use super::stream::{Stream, StreamKey, find};
use crate::atomic::Word;

/// A capture that a stream or an event is part of.
#[repr(C)]
pub(crate) struct Membership {
    /// Which capture: the time at which it began; 0 for none.
    number: Word,
    /// Stream in which it began.
    origin: StreamKey,
}

impl Membership {
    #[inline(always)]
    fn set(&self, number: u64, origin: &StreamKey) {
        // SAFETY: map memory, writable. Threads that use one stream in two captures at once have no order themselves.
        unsafe { ptr::write_volatile((&raw const self.origin).cast_mut(), *origin) };
        self.number.set(number);
    }

    #[inline(always)]
    pub(crate) fn is_any(&self) -> bool {
        self.number.get() != 0
    }

    /// It is part of nothing any more.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        self.number.set(0);
    }

    /// It becomes part of what `other` is part of.
    #[inline(never)]
    pub(crate) fn join(&self, other: &Self) {
        self.set(other.number.get(), &other.origin);
    }
}

impl Stream {
    /// A capture begins here.
    #[inline(never)]
    pub(crate) fn begin_capture(&self, key: &StreamKey, now: u64) {
        self.capture.set(now, key);
    }

    /// The capture ends, if it began here.
    #[inline(never)]
    pub(crate) fn end_capture(&self, key: &StreamKey) {
        if self.capture.origin.is(key) {
            self.capture.leave();
        }
    }

    /// Whether what is asked of it now is collected.
    #[inline(always)]
    pub(crate) fn is_capturing(&self) -> bool {
        self.capture.is_any() && self.is_going_on()
    }

    #[inline(never)]
    fn is_going_on(&self) -> bool {
        let own = &self.capture;
        let number = own.number.get();
        let goes_on = find(&own.origin).is_some_and(|origin| origin.capture.number.get() == number);
        if !goes_on {
            own.leave();
        }
        goes_on
    }
}
