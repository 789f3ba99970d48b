//! Streams: running totals of the work asked of each, and where its pieces begin.

use wire::cookie::FLAG_PER_THREAD;
use wire::counter::Counter;

use super::capture::Membership;
use super::claim::claim;
use super::clock::{DEPENDENCIES, Mark};
use super::list::{WAITS, enlist};
use super::query::Polls;
use super::{context, zeroed};
use crate::atomic::Word;
use crate::emit::Stop;
use crate::maps::{STREAM_KINDS, STREAMS};
use crate::scope::Task;

/// `CU_STREAM_LEGACY`; handle 0 means the same.
const LEGACY: u64 = 1;
/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: u64 = 2;
/// Handles of streams and contexts are addresses of objects: these bits are free.
const LOW_BITS: u64 = 7;

/// A stream of a process.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct StreamKey {
    /// 0 in an unused slot.
    pub(crate) tgid: u32,
    /// The thread, for its own default stream; 0 otherwise.
    tid: u32,
    /// Unique in the process. Default streams have the same handle in every context, so theirs is the context's, with
    /// the handle in its low bits.
    handle: u64,
}

impl StreamKey {
    /// The stream that `handle` means in a call of `task` with cookie flags `flags`.
    #[inline(always)]
    pub(crate) fn new(task: Task, handle: u64, flags: u8) -> Self {
        let tgid = task.tgid();
        let default = if handle == 0 && flags & FLAG_PER_THREAD != 0 { PER_THREAD } else { handle };
        match default {
            PER_THREAD => Self::own(task, context::current(task)),
            0 | LEGACY => Self { tgid, tid: 0, handle: context::current(task) | LEGACY },
            _ => Self { tgid, tid: 0, handle },
        }
    }

    /// The default stream that the thread has of its own in a context.
    #[inline(always)]
    pub(crate) const fn own(task: Task, context: u64) -> Self {
        Self { tgid: task.tgid(), tid: task.tid(), handle: context | PER_THREAD }
    }

    /// The legacy stream of the context that a stream's own default one, or another, belongs to.
    #[inline(always)]
    pub(crate) const fn legacy(tgid: u32, context: u64) -> Self {
        Self { tgid, tid: 0, handle: context | LEGACY }
    }

    /// No stream.
    pub(crate) const NONE: Self = Self { tgid: 0, tid: 0, handle: 0 };

    /// Waiting for it waits for every stream of its context but those that were made to be independent of it.
    #[inline(always)]
    pub(crate) fn is_legacy(&self) -> bool {
        self.handle & LOW_BITS == LEGACY
    }

    /// The handle as the driver knows it.
    #[inline(always)]
    pub(crate) fn handle(&self) -> u64 {
        match self.handle & LOW_BITS {
            0 => self.handle,
            default => default,
        }
    }

    #[inline(always)]
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.handle == other.handle && self.tgid == other.tgid && self.tid == other.tid
    }
}

/// An event of a process.
#[repr(C)]
pub(crate) struct EventKey {
    pub(crate) tgid: u32,
    pub(crate) reserved: u32,
    pub(crate) handle: u64,
}

/// Fields of [`Totals::work`], in the order of [`wire::cuda::Work`].
pub(crate) mod field {
    pub(crate) const LAUNCHES: usize = 0;
    pub(crate) const GRAPHS: usize = 1;
    pub(crate) const COPIES: usize = 2;
    pub(crate) const H2D: usize = 3;
    pub(crate) const D2H: usize = 4;
    pub(crate) const OTHER: usize = 5;
    pub(crate) const COUNT: usize = 6;
}

/// Work asked of a stream since it was first seen. Only ever grows, so that a copy of it is a moment in its history.
#[repr(C)]
pub(crate) struct Totals {
    pub(crate) work: [Word; field::COUNT],
    /// Last launch or copy, ns.
    pub(crate) last_ns: Word,
    /// Graph launched last.
    pub(crate) graph: Word,
}

impl Totals {
    /// Launches and copies: the stream's own clock.
    #[inline(always)]
    pub(crate) fn operations(&self) -> u64 {
        operations(&self.work)
    }

    #[inline(never)]
    pub(crate) fn copy_from(&self, other: &Self) {
        for index in 0..field::COUNT {
            self.work[index].set(other.work[index].get());
        }
        self.last_ns.set(other.last_ns.get());
        self.graph.set(other.graph.get());
    }

    /// Becomes the later of two moments.
    #[inline(never)]
    pub(crate) fn raise_to(&self, other: &Self) {
        if self.work[field::GRAPHS].get() <= other.work[field::GRAPHS].get() {
            self.graph.set(other.graph.get());
        }
        for index in 0..field::COUNT {
            raise(&self.work[index], other.work[index].get());
        }
        raise(&self.last_ns, other.last_ns.get());
    }
}

/// A subprogram of its own, for the sake of the stack.
#[inline(never)]
fn raise(word: &Word, value: u64) {
    if word.get() < value {
        word.set(value);
    }
}

#[inline(always)]
fn operations(work: &[Word; field::COUNT]) -> u64 {
    work[field::LAUNCHES].get() + work[field::GRAPHS].get() + work[field::COPIES].get()
}

/// Pieces of a stream's work whose first time is kept.
const SEGMENTS: usize = 8;

/// A piece of a stream's work, between two moments at which somebody may wait for it.
#[repr(C)]
struct Segment {
    /// Operations before it.
    start: Word,
    /// Its first operation, ns; 0 while it has none.
    first_ns: Word,
}

impl Segment {
    #[inline(always)]
    fn copy_from(&self, other: &Self) {
        self.start.set(other.start.get());
        self.first_ns.set(other.first_ns.get());
    }
}

/// A stream.
#[repr(C)]
pub(crate) struct Stream {
    pub(crate) totals: Totals,
    /// How much of `totals` was part of a step already.
    pub(crate) claimed: [Word; field::COUNT],
    /// How much of `totals` was asked of streams that were destroyed before this one got their handle.
    former: [Word; field::COUNT],
    /// `totals` when each of the waits for all streams that are going on began, see [`super::list::take_slot`].
    pub(crate) wide: [Totals; WAITS],
    /// Work of other streams that comes before everything asked of this one from now on.
    pub(crate) dependencies: [Mark; DEPENDENCIES],
    /// Number of the newest segment; its place is this modulo [`SEGMENTS`].
    newest: Word,
    segments: [Segment; SEGMENTS],
    /// The segment after the claimed ones, kept here in case its place is needed before it is claimed itself.
    aside: Segment,
    /// How much of `totals` was told as a count already, by a step or by a tally.
    pub(crate) counted: [Word; field::COUNT],
    /// Launches that went into a capture, and how many of them were told.
    pub(crate) captured: Word,
    pub(crate) captured_told: Word,
    /// The capture that the stream takes part in.
    pub(crate) capture: Membership,
    /// `KIND_*`.
    pub(crate) kind: Word,
    /// 1 once it was destroyed with work that nobody had waited for.
    pub(crate) is_ended: Word,
    /// 1 while a dependency could not be kept.
    pub(crate) missed: Word,
    pub(crate) polls: Polls,
    /// Its context; 0 when not known.
    pub(crate) context: Word,
}

/// Made before the agent was there, so that it is not known.
pub(crate) const KIND_UNKNOWN: u64 = 0;
/// In order with the legacy stream.
pub(crate) const KIND_BLOCKING: u64 = 1;
/// Not in order with it.
pub(crate) const KIND_FREE: u64 = 2;

impl Stream {
    /// Whether a wait for all streams of a context covers it: what is not known may be the same.
    #[inline(always)]
    pub(crate) fn is_of(&self, context: u64) -> bool {
        let own = self.context.get();
        context == 0 || own == 0 || own == context
    }

    /// Notes the time of an operation.
    #[inline(always)]
    pub(crate) fn touch(&self, now: u64) {
        self.totals.last_ns.set(now);
        let segment = self.newest_segment();
        if segment.first_ns.get() == 0 {
            segment.first_ns.set(now);
        }
    }

    /// Ends the current segment at this moment; an empty one stays current.
    #[inline(always)]
    fn cut(&self) {
        if self.newest_segment().first_ns.get() == 0 {
            return;
        }
        let number = self.newest.get() + 1;
        let next = &self.segments[number as usize % SEGMENTS];
        if next.start.get() == self.claimed_operations() {
            self.aside.copy_from(next);
        }
        next.start.set(self.totals.operations());
        next.first_ns.set(0);
        self.newest.set(number);
    }

    /// Another stream has its handle from now on: what was asked of the one before is a piece of its own, and not proved
    /// by a wait for this one. Waits for events that were recorded in it still prove it.
    #[inline(never)]
    pub(crate) fn begin_anew(&self) {
        self.cut();
        for (former, asked) in self.former.iter().zip(&self.totals.work) {
            former.set(asked.get());
        }
    }

    /// Leaves out of all steps what was asked of the streams before this one, once a wait for a moment after them ends: it
    /// was told as a count.
    #[inline(never)]
    pub(crate) fn leave_former(&self, until: &Totals) {
        let former = operations(&self.former);
        if self.claimed_operations() >= former || until.operations() <= former {
            return;
        }
        for (claimed, former) in self.claimed.iter().zip(&self.former) {
            claim(claimed, former);
        }
    }

    #[inline(always)]
    fn newest_segment(&self) -> &Segment {
        &self.segments[self.newest.get() as usize % SEGMENTS]
    }

    /// First operation after the first `start` ones, ns: of the segment that begins there, 0 if it is not kept.
    #[inline(never)]
    pub(crate) fn first_after(&self, start: u64) -> u64 {
        if self.aside.start.get() == start && self.aside.first_ns.get() != 0 {
            return self.aside.first_ns.get();
        }
        for segment in &self.segments {
            if segment.start.get() == start && segment.first_ns.get() != 0 {
                return segment.first_ns.get();
            }
        }
        0
    }

    /// Keeps the segment that begins after the first `start` operations.
    #[inline(never)]
    pub(crate) fn put_aside(&self, start: u64) {
        let first = self.first_after(start);
        if first != 0 {
            self.aside.start.set(start);
            self.aside.first_ns.set(first);
        }
    }

    /// Oldest first operation that is still known among the ones after the first `start`, ns; 0 if none is.
    #[inline(never)]
    pub(crate) fn oldest_after(&self, start: u64) -> u64 {
        let mut oldest = 0;
        for segment in &self.segments {
            let first = segment.first_ns.get();
            if segment.start.get() >= start && first != 0 && (oldest == 0 || first < oldest) {
                oldest = first;
            }
        }
        oldest
    }

    /// Copies this moment of the stream to `totals`, and begins a new segment.
    #[inline(never)]
    pub(crate) fn snapshot(&self, totals: &Totals) {
        self.cut();
        totals.copy_from(&self.totals);
    }

    /// All of it was part of a step already.
    #[inline(always)]
    pub(crate) fn is_claimed(&self) -> bool {
        self.claimed_operations() >= self.totals.operations()
    }

    /// Operations that were part of a step already.
    #[inline(always)]
    pub(crate) fn claimed_operations(&self) -> u64 {
        operations(&self.claimed)
    }
}

/// The stream, if it is known.
#[inline(always)]
pub(crate) fn find(key: &StreamKey) -> Option<&'static Stream> {
    // SAFETY: map memory outlives the program; all of it is atomics.
    unsafe { STREAMS.get(key) }
}

/// The stream, made now if need be. The caller has checked that its process is watched.
#[inline(always)]
pub(crate) fn find_or_make(key: &StreamKey) -> Result<&'static Stream, Stop> {
    find_or_insert(key).ok_or(Stop::Count(Counter::MapFull))
}

#[inline(never)]
fn find_or_insert(key: &StreamKey) -> Option<&'static Stream> {
    const NO_EXIST: u64 = 1;
    let known = find(key);
    if known.is_some() {
        return known;
    }
    let is_new = STREAMS.insert(key, zeroed::<Stream>(), NO_EXIST).is_ok();
    let stream = find(key)?;
    if is_new {
        stream.kind.set(kind_of(key));
        enlist(key);
    }
    // A stream is used where its context is current.
    stream.context.set(context::current(Task::current()));
    Some(stream)
}

#[inline(never)]
fn kind_of(key: &StreamKey) -> u64 {
    if key.handle & LOW_BITS != 0 {
        return KIND_BLOCKING;
    }
    // SAFETY: a single aligned word.
    unsafe { STREAM_KINDS.get(key) }.map_or(KIND_UNKNOWN, Word::get)
}
