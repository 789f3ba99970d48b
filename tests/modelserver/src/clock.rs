//! The server's only clock: `CLOCK_MONOTONIC`, the clock in which the truth is written.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Nanoseconds of `CLOCK_MONOTONIC` read before and after a call: the true moment lies between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp(pub(crate) u64, pub(crate) u64);

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or_default()
}

/// Runs `call` between two readings of the clock.
pub(crate) fn stamped<T>(call: impl FnOnce() -> T) -> (Stamp, T) {
    let before = now();
    let value = call();
    (Stamp(before, now()), value)
}

/// Keeps the processor busy for `us` microseconds: stands for host work such as tokenizing.
pub(crate) fn spin(us: u64) {
    if us == 0 {
        return;
    }
    let end = now() + us * 1000;
    while now() < end {
        std::hint::spin_loop();
    }
}
