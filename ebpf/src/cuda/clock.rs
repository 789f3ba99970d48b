//! What a wait proves finished: a moment of one stream, and of the streams it had waited for itself.

use core::ptr;

use super::capture::Membership;
use super::query::Polls;
use super::stream::{KIND_BLOCKING, Stream, StreamKey, Totals, find};
use crate::atomic::Word;
use crate::emit::count;
use wire::counter::Counter;

/// Other streams that are followed per stream and per event.
pub(crate) const DEPENDENCIES: usize = 4;

/// A moment of a stream.
#[repr(C)]
pub(crate) struct Mark {
    /// Unused if its `tgid` is 0.
    pub(crate) stream: StreamKey,
    pub(crate) totals: Totals,
}

impl Mark {
    #[inline(always)]
    pub(crate) fn is_used(&self) -> bool {
        self.stream.tgid != 0
    }

    #[inline(never)]
    fn copy_from(&self, other: &Self) {
        self.set_stream(&other.stream);
        if other.is_used() {
            self.totals.copy_from(&other.totals);
        }
    }

    /// Holds `other` too. What it has of the same stream may be of a later moment; that is kept, unless the stream has
    /// begun anew since.
    #[inline(never)]
    fn raise_to(&self, other: &Self) {
        let is_later = |stream: &Stream| stream.totals.operations() < self.totals.operations();
        if !self.stream.is(&other.stream) || find(&self.stream).is_none_or(is_later) {
            self.copy_from(other);
        } else {
            self.totals.raise_to(&other.totals);
        }
    }

    /// Marks live in maps, shared between threads of one process that use one stream or event at once; such use is
    /// already unordered, and every mix of two moments of a stream is below its present.
    #[inline(always)]
    fn set_stream(&self, stream: &StreamKey) {
        // SAFETY: map memory, writable; see above.
        unsafe { ptr::write_volatile((&raw const self.stream).cast_mut(), *stream) };
    }

    /// Whether all of it was part of a step already.
    #[inline(always)]
    pub(crate) fn is_claimed(&self) -> bool {
        match find(&self.stream) {
            Some(stream) => stream.claimed_operations() >= self.totals.operations(),
            None => true,
        }
    }
}

/// A moment of a stream with everything that comes before it.
#[repr(C)]
pub(crate) struct Clock {
    pub(crate) own: Mark,
    pub(crate) dependencies: [Mark; DEPENDENCIES],
    /// 1 if there were more dependencies than are kept.
    pub(crate) missed: Word,
    /// Of an event: how often it was recorded.
    pub(crate) sequence: Word,
    /// Of an event: polls since it was recorded.
    pub(crate) polls: Polls,
    /// Of an event: the capture in which it was recorded; then it holds nothing else.
    pub(crate) capture: Membership,
}

impl Clock {
    /// Takes the present of `stream`.
    #[inline(never)]
    pub(crate) fn take(&self, key: &StreamKey, stream: &Stream) {
        self.own.set_stream(key);
        stream.snapshot(&self.own.totals);
        self.missed.set(stream.missed.get());
        stream.missed.set(0);
        for (mine, theirs) in self.dependencies.iter().zip(&stream.dependencies) {
            mine.copy_from(theirs);
        }
        if stream.kind.get() == KIND_BLOCKING && !key.is_legacy() {
            self.take_legacy(&StreamKey::legacy(key.tgid, stream.context.get()));
        }
    }

    /// Takes what was asked of the legacy stream before the latest operation of this one, which waits for it.
    #[inline(never)]
    fn take_legacy(&self, key: &StreamKey) {
        let Some(legacy) = find(key) else { return };
        if legacy.is_claimed() {
            return;
        }
        let Some(slot) = slot_for(&self.dependencies, key) else {
            return self.missed.set(1);
        };
        legacy.snapshot(&slot.totals);
        let is_before = slot.totals.last_ns.get() <= self.own.totals.last_ns.get();
        slot.set_stream(if is_before { key } else { &StreamKey::NONE });
    }

    /// Holds nothing: what was recorded is part of a capture.
    #[inline(never)]
    pub(crate) fn clear(&self) {
        self.own.set_stream(&StreamKey::NONE);
        for mark in &self.dependencies {
            mark.set_stream(&StreamKey::NONE);
        }
    }

    #[inline(never)]
    pub(crate) fn copy_from(&self, other: &Self) {
        self.own.copy_from(&other.own);
        self.missed.set(other.missed.get());
        for (mine, theirs) in self.dependencies.iter().zip(&other.dependencies) {
            mine.copy_from(theirs);
        }
    }

    /// Whether any of it was not part of a step yet.
    #[inline(never)]
    pub(crate) fn is_pending(&self) -> bool {
        if self.own.is_used() && !self.own.is_claimed() {
            return true;
        }
        for mark in &self.dependencies {
            if mark.is_used() && !mark.is_claimed() {
                return true;
            }
        }
        false
    }
}

impl Stream {
    /// Everything asked of this stream from now on comes after what `clock` says.
    #[inline(never)]
    pub(crate) fn depend_on(&self, key: &StreamKey, clock: &Clock) {
        self.depend_on_mark(key, &clock.own);
        if clock.missed.get() != 0 {
            self.missed.set(1);
        }
        for mark in &clock.dependencies {
            self.depend_on_mark(key, mark);
        }
    }

    #[inline(never)]
    fn depend_on_mark(&self, key: &StreamKey, mark: &Mark) {
        if !mark.is_used() || mark.stream.is(key) {
            return;
        }
        match slot_for(&self.dependencies, &mark.stream) {
            Some(slot) => slot.raise_to(mark),
            None => {
                self.missed.set(1);
                count(Counter::DependencyFull);
            }
        }
    }
}

/// The slot for a stream: its own, or an unused one, or one whose work is done.
#[inline(never)]
fn slot_for<'a>(slots: &'a [Mark; DEPENDENCIES], stream: &StreamKey) -> Option<&'a Mark> {
    slots
        .iter()
        .find(|slot| slot.stream.is(stream))
        .or_else(|| slots.iter().find(|slot| !slot.is_used()))
        .or_else(|| slots.iter().find(|slot| slot.is_claimed()))
}
