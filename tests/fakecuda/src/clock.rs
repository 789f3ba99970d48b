//! Time: `CLOCK_MONOTONIC`, and waits that end close to their target.

use std::cell::Cell;
use std::num::NonZeroU64;

use rustix::thread::ClockId;
use rustix::time::Timespec;

/// A wait sleeps until this long before its target and spins the rest: about the time a timer needs to wake a thread.
const SPIN_NS: u64 = 30_000;

const SECOND_NS: u64 = 1_000_000_000;

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn now() -> u64 {
    let t = rustix::time::clock_gettime(ClockId::Monotonic);
    t.tv_sec.cast_unsigned() * SECOND_NS + t.tv_nsec.cast_unsigned()
}

/// Returns at `target` (`CLOCK_MONOTONIC`, ns) or as soon after it as the scheduler permits.
pub fn sleep_until(target: u64) {
    loop {
        let left = target.saturating_sub(now());
        if left == 0 {
            return;
        }
        if left > SPIN_NS {
            sleep_kernel(target - SPIN_NS);
        } else {
            std::hint::spin_loop();
        }
    }
}

fn sleep_kernel(until: u64) {
    precise_timers();
    let until =
        Timespec { tv_sec: (until / SECOND_NS).cast_signed(), tv_nsec: (until % SECOND_NS).cast_signed() };
    // A signal ends the sleep early; the caller's loop looks at the clock again.
    let _ = rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &until);
}

/// The default timer slack of 50 µs would be most of a short kernel. It is a property of the thread, set once.
fn precise_timers() {
    thread_local!(static DONE: Cell<bool> = const { Cell::new(false) });
    if !DONE.replace(true) {
        // Refused only where a sandbox forbids prctl; waits are then later, not wrong.
        let _ = rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN));
    }
}
