//! What a wait proves, and what it does not: of other streams, of other contexts, of streams that came after, and
//! nothing at all where it is refused.

use std::fs;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

use super::Asked;
use crate::driver::{Driver, address};
use crate::report::{Report, around};

/// Nanoseconds, since a unit is one.
const SHORT: u64 = 1000;
const LONG: u64 = 100_000_000;

/// One after the other; each takes all that it asked for.
pub(crate) fn waits(driver: &Driver) -> Report {
    let mut report = Report::default();
    // So that whoever watches knows the context.
    driver.enter();
    other_thread(driver, &mut report);
    older_event(driver, &mut report);
    refused(driver, &mut report);
    other_context(driver, &mut report);
    same_handle(driver, &mut report);
    after_legacy(driver, &mut report);
    at_once(driver, &mut report);
    own_streams(driver, &mut report);
    report
}

fn wait(driver: &Driver, report: &mut Report, asked: Asked, name: &str, object: u64) {
    let result = around(|| driver.call(name, &[object]));
    report.steps.push(asked.result(result));
}

/// One thread launches, until the queue is full and its launches wait, and another one waits for the work.
fn other_thread(driver: &Driver, report: &mut Report) {
    let stream = driver.stream(1);
    let mut asked = Asked::new();
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            driver.enter();
            asked.launches(driver, 3000, SHORT, stream);
        });
        thread.join().expect("it does not panic");
    });
    wait(driver, report, asked, "cuStreamSynchronize", stream);
}

/// A stream waits for the newer of two events, and then for the older one: that takes nothing back.
fn older_event(driver: &Driver, report: &mut Report) {
    let (work, side) = (driver.stream(1), driver.stream(1));
    let (older, newer) = (driver.event(), driver.event());
    let mut asked = Asked::new();
    asked.launches(driver, 1, SHORT, work);
    driver.call("cuEventRecord", &[older, work]);
    asked.launches(driver, 2, SHORT, work);
    driver.call("cuEventRecord", &[newer, work]);
    driver.call("cuStreamWaitEvent", &[side, newer, 0]);
    driver.call("cuStreamWaitEvent", &[side, older, 0]);
    asked.launches(driver, 1, SHORT, side);
    wait(driver, report, asked, "cuStreamSynchronize", side);
}

/// A thread without a context waits for all that there is, and is refused.
fn refused(driver: &Driver, report: &mut Report) {
    let stream = driver.stream(1);
    let mut asked = Asked::new();
    asked.launches(driver, 2, SHORT, stream);
    let result = thread::scope(|scope| {
        let thread = scope.spawn(|| driver.function("cuCtxSynchronize").result(&[]));
        thread.join().expect("it does not panic")
    });
    assert_ne!(result, 0, "there is no context to wait for");
    wait(driver, report, asked, "cuStreamSynchronize", stream);
}

/// A wait for a context that is not the current one.
fn other_context(driver: &Driver, report: &mut Report) {
    let stream = driver.stream(1);
    let context = driver.made("cuCtxCreate_v2", &[0, 0]);
    let there = driver.stream(1);
    let (mut theirs, mut ours) = (Asked::new(), Asked::new());
    theirs.launches(driver, 3, SHORT, there);
    let mut popped = 0_u64;
    driver.call("cuCtxPopCurrent_v2", &[address(&raw mut popped)]);
    ours.launches(driver, 1, SHORT, stream);
    wait(driver, report, theirs, "cuCtxSynchronize_v2", context);
    wait(driver, report, ours, "cuCtxSynchronize_v2", 0);
    driver.call("cuCtxDestroy_v2", &[context]);
}

/// The handle of a stream that was destroyed with work in it comes again: a wait for the new one is none for that work.
fn same_handle(driver: &Driver, report: &mut Report) {
    let old = driver.stream(1);
    Asked::new().launches(driver, 2, SHORT, old);
    driver.call("cuStreamDestroy_v2", &[old]);
    let new = driver.stream(1);
    assert_eq!(new, old, "handles come again");
    let mut asked = Asked::new();
    asked.launches(driver, 1, SHORT, new);
    wait(driver, report, asked, "cuStreamSynchronize", new);
}

/// What a stream in order with the legacy one is asked comes after what that was asked.
fn after_legacy(driver: &Driver, report: &mut Report) {
    let blocking = driver.stream(0);
    let mut asked = Asked::new();
    asked.launches(driver, 2, SHORT, 0);
    asked.launches(driver, 1, SHORT, blocking);
    wait(driver, report, asked, "cuStreamSynchronize", blocking);
}

/// Two threads wait for all streams at once: the one that began first proves nothing of what came in between.
fn at_once(driver: &Driver, report: &mut Report) {
    let (first, second) = (driver.stream(1), driver.stream(1));
    let (mut ours, mut others) = (Asked::new(), Asked::new());
    ours.launches(driver, 1, LONG, first);
    let waiting = AtomicI32::new(0);
    let all = || {
        driver.enter();
        waiting.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Release);
        around(|| driver.call("cuCtxSynchronize", &[]))
    };
    let results = thread::scope(|scope| {
        let one = scope.spawn(all);
        await_sleep(&waiting);
        others.launches(driver, 1, LONG, second);
        let other = scope.spawn(all);
        [one.join(), other.join()].map(|result| result.expect("it does not panic"))
    });
    report.steps.push(ours.result(results[0]));
    report.steps.push(others.result(results[1]));
}

/// Until the thread sleeps in its wait.
fn await_sleep(thread: &AtomicI32) {
    loop {
        let stat = fs::read_to_string(format!("/proc/self/task/{}/stat", thread.load(Ordering::Acquire)));
        if stat.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))) {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Many threads, one after the other, each with a default stream of its own.
fn own_streams(driver: &Driver, report: &mut Report) {
    for _ in 0..100 {
        thread::scope(|scope| {
            scope.spawn(|| {
                driver.enter();
                let mut asked = Asked::new();
                asked.does(
                    |work| work.launches += 1,
                    || driver.call("cuLaunchKernel_ptsz", &[driver.kernel, SHORT, 1, 1, 1, 1, 1, 0, 0, 0, 0]),
                );
                wait(driver, report, asked, "cuStreamSynchronize_ptsz", 0);
            });
        });
    }
}
