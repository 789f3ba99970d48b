//! Steps: taking finished work off the streams, exactly once.

use wire::cuda::{CountedStep, STEP_FIRST_BOUNDED, STEP_MULTI_STREAM, STEP_WORK_MISSED, Work};

use super::clock::{Clock, Mark};
use super::stream::{Stream, Totals, field, find};
use crate::atomic::Word;

/// Attempts before work is left to the next marker: other threads are claiming the same stream.
const ATTEMPTS: u32 = 3;

pub(crate) const NO_WORK: Work =
    Work { launches: 0, graphs: 0, copies: 0, h2d_bytes: 0, d2h_bytes: 0, other_bytes: 0 };

/// A step that is being filled.
#[derive(Clone, Copy)]
pub(crate) struct Claim(*mut CountedStep);

impl Claim {
    /// Begins with no work.
    ///
    /// # Safety
    /// `step` must be a reserved record; its work, times, graph and flags are written through it from here on.
    #[inline(always)]
    pub(crate) unsafe fn begin(step: *mut CountedStep) -> Self {
        // SAFETY: the caller's record.
        unsafe {
            (*step).step.work = NO_WORK;
            (*step).fresh = NO_WORK;
            (*step).step.first_ns = 0;
            (*step).step.last_ns = 0;
            (*step).step.graph = 0;
            (*step).step.flags = 0;
        }
        Self(step)
    }

    /// Whether nothing was found.
    #[inline(always)]
    pub(crate) fn is_empty(self) -> bool {
        self.amount() == 0
    }

    /// How much was found, of whatever: the bytes of a copy are asked of the stream before the copy itself, and a wait
    /// that begins in between takes them alone.
    #[inline(never)]
    fn amount(self) -> u64 {
        // SAFETY: the record of `begin`.
        let work = unsafe { &(*self.0).step.work };
        work.launches + work.graphs + work.copies + work.h2d_bytes + work.d2h_bytes + work.other_bytes
    }

    /// Takes all that a wait proved finished.
    #[inline(never)]
    pub(crate) fn take_clock(self, clock: &Clock) {
        if clock.missed.get() != 0 {
            self.flag(STEP_WORK_MISSED);
        }
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
            stream.leave_former(&mark.totals);
            self.take(stream, &mark.totals);
        }
    }

    /// Takes a stream's work up to a moment.
    #[inline(never)]
    pub(crate) fn take(self, stream: &Stream, until: &Totals) {
        let (start, before) = (stream.claimed_operations(), self.amount());
        self.take_fields(stream, until);
        if self.amount() == before {
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
        // SAFETY: the record of `begin`.
        unsafe {
            let (work, fresh) = (&raw mut (*self.0).step.work, &raw mut (*self.0).fresh);
            (*work).launches += take_field(stream, until, field::LAUNCHES, &raw mut (*fresh).launches);
            (*work).copies += take_field(stream, until, field::COPIES, &raw mut (*fresh).copies);
            (*work).h2d_bytes += take_field(stream, until, field::H2D, &raw mut (*fresh).h2d_bytes);
            (*work).d2h_bytes += take_field(stream, until, field::D2H, &raw mut (*fresh).d2h_bytes);
            (*work).other_bytes += take_field(stream, until, field::OTHER, &raw mut (*fresh).other_bytes);
            let graphs = take_field(stream, until, field::GRAPHS, &raw mut (*fresh).graphs);
            (*work).graphs += graphs;
            if graphs != 0 {
                (*self.0).step.graph = until.graph.get();
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
            let step = &raw mut (*self.0).step;
            if first != 0 && first <= last && ((*step).first_ns == 0 || first < (*step).first_ns) {
                (*step).first_ns = first;
            }
            if last > (*step).last_ns {
                (*step).last_ns = last;
            }
        }
    }

    #[inline(always)]
    pub(crate) fn flag(self, flag: u16) {
        // SAFETY: the record of `begin`.
        unsafe { (*self.0).step.flags |= flag };
    }
}

/// Claims one field, and adds to `fresh` what of it was not counted before. `counted` can run ahead of `claimed`, by
/// tallies, and other threads may claim and count in another order than this one: each unit is counted by whoever
/// moves `counted` over it, once.
#[inline(always)]
unsafe fn take_field(stream: &Stream, until: &Totals, field: usize, fresh: *mut u64) -> u64 {
    let until = &until.work[field];
    let claimed = claim(&stream.claimed[field], until);
    if claimed != 0 {
        // SAFETY: the caller's record.
        unsafe { *fresh += claim(&stream.counted[field], until) };
    }
    claimed
}

/// Moves `claimed` up to `until` and returns by how much: 0 if it is there already, or if others keep moving it.
#[inline(never)]
pub(crate) fn claim(claimed: &Word, until: &Word) -> u64 {
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
