//! Counters and the ring buffer.

use aya_ebpf::bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP, BPF_RB_RING_SIZE};
use aya_ebpf::maps::ring_buf::RingBufEntry;
use wire::counter::Counter;
use wire::{ABI, Header, Kind};

use crate::maps::{COUNTERS, EVENTS};
use crate::scope::Task;

/// The agent is woken when this part of the ring is full.
const WAKE_AT: u64 = 8;

/// Why a program ended early.
#[derive(Clone, Copy)]
pub(crate) enum Stop {
    /// Nothing to report: not watched, or nothing happened.
    Quiet,
    /// Something was lost or could not be known.
    Count(Counter),
}

impl From<Counter> for Stop {
    #[inline(always)]
    fn from(counter: Counter) -> Self {
        Self::Count(counter)
    }
}

/// What every program's body returns.
pub(crate) type Outcome = Result<(), Stop>;

/// Ends a program: counts what its body reports.
#[inline(always)]
pub(crate) fn finish(outcome: Outcome) -> u32 {
    if let Err(Stop::Count(counter)) = outcome {
        count(counter);
    }
    0
}

/// Adds one to a counter. Atomic, although the slot is this CPU's own: uprobe programs are preemptible.
#[inline(never)]
pub(crate) fn count(counter: Counter) {
    count_by(counter, 1);
}

/// Adds to a counter.
#[inline(always)]
pub(crate) fn count_by(counter: Counter, number: u64) {
    if let Some(slot) = COUNTERS.get(counter as u32) {
        slot.add(number);
    }
}

/// Room for a record, or the counter of its loss.
#[inline(always)]
pub(crate) fn reserve<T: 'static>(lost: Counter) -> Result<RingBufEntry<T>, Stop> {
    EVENTS.reserve::<T>(0).ok_or(Stop::Count(lost))
}

/// Hands a record to the agent, which comes for it in its own time: to wake it for every record would cost each of
/// them more than all the rest, in the server as well. Where much comes at once, it is woken before the ring is full.
#[inline(always)]
pub(crate) fn submit<T>(entry: RingBufEntry<T>) {
    let (size, filled) = (EVENTS.query(BPF_RB_RING_SIZE.into()), EVENTS.query(BPF_RB_AVAIL_DATA.into()));
    let is_late = filled >= size / WAKE_AT;
    entry.submit(u64::from(if is_late { BPF_RB_FORCE_WAKEUP } else { BPF_RB_NO_WAKEUP }));
    count(Counter::Submitted);
}

/// Hands over a record for which discovery waits, and wakes the agent.
#[inline(always)]
pub(crate) fn submit_now<T>(entry: RingBufEntry<T>) {
    entry.submit(BPF_RB_FORCE_WAKEUP.into());
    count(Counter::Submitted);
}

/// Fills a record's header. Ring memory is not zeroed, so every field must be written.
///
/// # Safety
/// `header` must point to a reserved record.
#[inline(always)]
pub(crate) unsafe fn write_header(header: *mut Header, kind: Kind, len: usize, time_ns: u64, task: Task) {
    // SAFETY: the caller reserved it. Field by field: a whole `Header` would pass through the stack.
    unsafe {
        (*header).abi = ABI;
        (*header).kind = kind as u16;
        (*header).len = len as u32;
        (*header).time_ns = time_ns;
        (*header).tgid = task.tgid();
        (*header).tid = task.tid();
    }
}
