//! What the program did, as it knows it.

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// Work, in the words of the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Work {
    pub(crate) launches: u64,
    pub(crate) graphs: u64,
    pub(crate) copies: u64,
    pub(crate) h2d: u64,
    pub(crate) d2h: u64,
    pub(crate) other: u64,
}

/// What one wait proved.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Step {
    pub(crate) work: Work,
    /// The clock around the first operation of it.
    pub(crate) first: [u64; 2],
    /// The clock just before the result can have been known, and just after.
    pub(crate) result: [u64; 2],
    /// Graph that it launched last, 0 for none.
    pub(crate) graph: u64,
}

/// All of it.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    /// Waits that proved something, in order.
    pub(crate) steps: Vec<Step>,
    /// Bytes of copies of which the call does not tell the direction, that went to the device and to the host.
    pub(crate) untold: [u64; 2],
}

/// `CLOCK_MONOTONIC`, ns.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// The clock around a call.
pub(crate) fn around(call: impl FnOnce()) -> [u64; 2] {
    let before = now();
    call();
    [before, now()]
}
