//! Waits by polling, and polls that are no waits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::{Asked, device_memory, host_memory};
use crate::driver::Driver;
use crate::report::{Report, now};

const NOT_READY: u32 = 600;
const STEPS: u64 = 100;
/// Nanoseconds, since a unit is one.
const KERNEL: u64 = 2_000_000;
/// As long as the watchdog of `PyTorch`'s collectives sleeps.
const WATCHDOG: Duration = Duration::from_millis(100);

/// Steps that end in a poll of an event or of a stream, while a watchdog looks at an event in the middle of them and
/// a third thread asks again and again about an event that is long done.
pub(crate) fn polls(driver: &Driver) -> Report {
    let (over, watched) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| watchdog(driver, &over, &watched));
        scope.spawn(|| storm(driver, &over));
        let report = steps(driver, &watched);
        over.store(true, Ordering::Relaxed);
        report
    })
}

fn watchdog(driver: &Driver, over: &AtomicBool, watched: &AtomicU64) {
    driver.enter();
    let query = driver.function("cuEventQuery");
    while !over.load(Ordering::Relaxed) {
        let event = watched.load(Ordering::Acquire);
        if event != 0 {
            query.result(&[event]);
        }
        thread::sleep(WATCHDOG);
    }
}

fn storm(driver: &Driver, over: &AtomicBool) {
    driver.enter();
    let (stream, event) = (driver.stream(1), driver.event());
    driver.call("cuEventRecord", &[event, stream]);
    let (query, idle) = (driver.function("cuEventQuery"), driver.function("cuStreamQuery"));
    while !over.load(Ordering::Relaxed) {
        query.call(&[event]);
        idle.call(&[stream]);
        // Two cores are few for a thread that never rests.
        thread::sleep(Duration::from_micros(100));
    }
}

fn steps(driver: &Driver, watched: &AtomicU64) -> Report {
    let (stream, device, host) = (driver.stream(1), device_memory(driver), host_memory());
    let (middle, end) = (driver.event(), driver.event());
    let mut report = Report::default();
    for number in 0..STEPS {
        let mut asked = Asked::new();
        asked.launches(driver, 1 + number % 3, KERNEL, stream);
        driver.call("cuEventRecord", &[middle, stream]);
        watched.store(middle, Ordering::Release);
        asked.does(
            |work| {
                work.copies += 1;
                work.d2h += 64;
            },
            || driver.call("cuMemcpyDtoHAsync_v2", &[host, device, 64, stream]),
        );
        driver.call("cuEventRecord", &[end, stream]);
        let result = match number % 3 {
            0 => poll(driver, "cuEventQuery", end),
            1 => poll(driver, "cuStreamQuery", stream),
            _ => poll(driver, "cuStreamQuery_ptsz", stream),
        };
        report.steps.push(asked.result(result));
    }
    report
}

/// Asks until it is done: that is known between the last poll and its end.
fn poll(driver: &Driver, name: &str, handle: u64) -> [u64; 2] {
    let query = driver.function(name);
    loop {
        let before = now();
        let answer = query.result(&[handle]);
        if answer == 0 {
            return [before, now()];
        }
        assert_eq!(answer, NOT_READY);
        thread::sleep(Duration::from_micros(50));
    }
}
