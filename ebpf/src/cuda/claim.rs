//! Steps: taking finished work off the streams, exactly once.

use wire::cuda::{STEP_FIRST_BOUNDED, STEP_MULTI_STREAM, Step, Work};

use super::clock::{Clock, Mark};
use super::stream::{Stream, Totals, field, find};
use crate::atomic::Word;

/// Attempts before work is left to the next marker: other threads are claiming the same stream.
const ATTEMPTS: u32 = 3;

/// A step that is being filled.
#[derive(Clone, Copy)]
pub(crate) struct Claim(*mut Step);

impl Claim {
    /// Begins with no work.
    ///
    /// # Safety
    /// `step` must be a reserved record; its work, times, graph and flags are written through it from here on.
    #[inline(always)]
    pub(crate) unsafe fn begin(step: *mut Step) -> Self {
        // SAFETY: the caller's record.
        unsafe {
            (*step).work =
                Work { launches: 0, graphs: 0, copies: 0, h2d_bytes: 0, d2h_bytes: 0, other_bytes: 0 };
            (*step).first_ns = 0;
            (*step).last_ns = 0;
            (*step).graph = 0;
            (*step).flags = 0;
        }
        Self(step)
    }

    /// Whether nothing was found.
    #[inline(always)]
    pub(crate) fn is_empty(self) -> bool {
        self.operations() == 0
    }

    #[inline(always)]
    fn operations(self) -> u64 {
        // SAFETY: the record of `begin`.
        let work = unsafe { &(*self.0).work };
        work.launches + work.graphs + work.copies
    }

    /// Takes all that a wait proved finished.
    #[inline(never)]
    pub(crate) fn take_clock(self, clock: &Clock) {
        self.take_mark(&clock.own);
        for mark in &clock.dependencies {
            self.take_mark(mark);
        }
    }

    #[inline(never)]
    fn take_mark(self, mark: &Mark) {
        if !mark.is_used() {
            return;
        }
        if let Some(stream) = find(&mark.stream) {
            self.take(stream, &mark.totals);
        }
    }

    /// Takes a stream's work up to a moment.
    #[inline(never)]
    pub(crate) fn take(self, stream: &Stream, until: &Totals) {
        let (start, before) = (stream.claimed_operations(), self.operations());
        self.take_fields(stream, until);
        if self.operations() == before {
            return;
        }
        if before != 0 {
            self.flag(STEP_MULTI_STREAM);
        }
        self.widen(stream, start, until);
        stream.put_aside(until.operations());
    }

    #[inline(never)]
    fn take_fields(self, stream: &Stream, until: &Totals) {
        let graphs = claim(&stream.claimed[field::GRAPHS], &until.work[field::GRAPHS]);
        // SAFETY: the record of `begin`.
        unsafe {
            let work = &raw mut (*self.0).work;
            (*work).launches += claim(&stream.claimed[field::LAUNCHES], &until.work[field::LAUNCHES]);
            (*work).graphs += graphs;
            (*work).copies += claim(&stream.claimed[field::COPIES], &until.work[field::COPIES]);
            (*work).h2d_bytes += claim(&stream.claimed[field::H2D], &until.work[field::H2D]);
            (*work).d2h_bytes += claim(&stream.claimed[field::D2H], &until.work[field::D2H]);
            (*work).other_bytes += claim(&stream.claimed[field::OTHER], &until.work[field::OTHER]);
            if graphs != 0 {
                (*self.0).graph = until.graph.get();
            }
        }
    }

    /// Extends the step's times to those of a stream's work after the first `start` operations.
    #[inline(never)]
    fn widen(self, stream: &Stream, start: u64, until: &Totals) {
        let mut first = stream.first_after(start);
        if first == 0 {
            first = stream.oldest_after(start);
            self.flag(STEP_FIRST_BOUNDED);
        }
        let last = until.last_ns.get();
        // SAFETY: the record of `begin`.
        unsafe {
            let step = self.0;
            if first != 0 && first <= last && ((*step).first_ns == 0 || first < (*step).first_ns) {
                (*step).first_ns = first;
            }
            if last > (*step).last_ns {
                (*step).last_ns = last;
            }
        }
    }

    #[inline(always)]
    fn flag(self, flag: u16) {
        // SAFETY: the record of `begin`.
        unsafe { (*self.0).flags |= flag };
    }
}

/// Moves `claimed` up to `until` and returns by how much: 0 if it is there already, or if others keep moving it.
#[inline(never)]
fn claim(claimed: &Word, until: &Word) -> u64 {
    let until = until.get();
    for _ in 0..ATTEMPTS {
        let current = claimed.get();
        if current >= until {
            return 0;
        }
        if claimed.replace(current, until) {
            return until - current;
        }
    }
    0
}
