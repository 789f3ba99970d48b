//! Time.

use std::thread;
use std::time::Duration;

use rustix::time::ClockId;

/// `CLOCK_MONOTONIC` in nanoseconds.
pub(crate) fn now() -> u64 {
    let t = rustix::time::clock_gettime(ClockId::Monotonic);
    t.tv_sec.cast_unsigned() * 1_000_000_000 + t.tv_nsec.cast_unsigned()
}

/// `duration` after `start`, for limits: saturates.
pub(crate) fn after(start: u64, duration: Duration) -> u64 {
    start.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

/// From now to `target`; zero when it has passed.
pub(crate) fn until(target: u64) -> Duration {
    Duration::from_nanos(target.saturating_sub(now()))
}

/// Sleeps until `target`.
pub(crate) fn sleep_until(target: u64) {
    thread::sleep(until(target));
}
