//! Counters and the ring buffer.

use aya_ebpf::maps::ring_buf::RingBufEntry;
use wire::counter::Counter;
use wire::{ABI, Header, Kind};

use crate::maps::{COUNTERS, EVENTS};
use crate::scope::Task;

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
    if let Some(slot) = COUNTERS.get(counter as u32) {
        slot.add(1);
    }
}

/// Room for a record, or the counter of its loss.
#[inline(always)]
pub(crate) fn reserve<T: 'static>(lost: Counter) -> Result<RingBufEntry<T>, Stop> {
    EVENTS.reserve::<T>(0).ok_or(Stop::Count(lost))
}

/// Hands a record to the agent.
#[inline(always)]
pub(crate) fn submit<T>(entry: RingBufEntry<T>) {
    entry.submit(0);
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
