//! Steps whose work must be told apart.

use super::{Asked, device_memory, host_memory};
use crate::driver::{Driver, address};
use crate::report::{Report, around};

const STEPS: u64 = 200;
/// Nanoseconds, since a unit is one.
const KERNEL: u64 = 100_000;

/// As engines with asynchronous scheduling do: step N is waited for once step N + 1 was launched, by an event in a
/// stream for copies. Events and the stream for copies come and go, so that their handles come again.
pub(crate) fn in_flight(driver: &Driver) -> Report {
    let (main, device, host) = (driver.stream(1), device_memory(driver), host_memory());
    let mut report = Report::default();
    let mut side = driver.stream(1);
    let mut flying: Option<(Asked, u64)> = None;
    for number in 0..STEPS {
        let mut asked = Asked::new();
        asked.launches(driver, 1 + number % 7, KERNEL, main);
        let (done, copied) = (driver.event(), driver.event());
        driver.call("cuEventRecord", &[done, main]);
        driver.call("cuStreamWaitEvent", &[side, done, 0]);
        driver.call("cuEventDestroy_v2", &[done]);
        let bytes = 4 * (1 + number % 64);
        asked.does(
            |work| {
                work.copies += 1;
                work.d2h += bytes;
            },
            || driver.call("cuMemcpyDtoHAsync_v2", &[host, device, bytes, side]),
        );
        driver.call("cuEventRecord", &[copied, side]);
        if number % 10 == 9 {
            driver.call("cuStreamDestroy_v2", &[side]);
            side = driver.stream(1);
        }
        if let Some((asked, event)) = flying.replace((asked, copied)) {
            finish(driver, &mut report, asked, event);
        }
    }
    if let Some((asked, event)) = flying {
        finish(driver, &mut report, asked, event);
    }
    report
}

fn finish(driver: &Driver, report: &mut Report, asked: Asked, event: u64) {
    let result = around(|| driver.call("cuEventSynchronize", &[event]));
    report.steps.push(asked.result(result));
    driver.call("cuEventDestroy_v2", &[event]);
}

/// A capture that forks and joins, and steps that launch its graph many times between kernels, as piecewise graphs do.
pub(crate) fn graphs(driver: &Driver) -> Report {
    let (main, side) = (driver.stream(1), driver.stream(1));
    let mut report = Report::default();
    for round in 0..20 {
        let begin = ["cuStreamBeginCapture_v2", "cuStreamBeginCapture", "cuStreamBeginCaptureToGraph"];
        let graph = captured(driver, begin[round % begin.len()], main, side);
        let executable = driver.made("cuGraphInstantiateWithFlags", &[graph, 0]);
        let mut asked = Asked::new();
        for _ in 0..=round {
            asked.does(|work| work.graphs += 1, || driver.call("cuGraphLaunch", &[executable, main]));
            asked.launches(driver, 2, 1000, main);
        }
        // The stream of the fork works again for itself.
        asked.graph = executable;
        let result = around(|| driver.call("cuStreamSynchronize", &[main]));
        report.steps.push(asked.result(result));
        let mut asked = Asked::new();
        asked.launches(driver, 3, 1000, side);
        let result = around(|| driver.call("cuStreamSynchronize", &[side]));
        report.steps.push(asked.result(result));
    }
    report
}

/// Five kernels, two of them in the other stream, and a graph within the graph.
fn captured(driver: &Driver, begin: &str, main: u64, side: u64) -> u64 {
    let (fork, join) = (driver.event(), driver.event());
    let inner = inner(driver, main);
    if begin.ends_with("ToGraph") {
        let graph = driver.made("cuGraphCreate", &[0]);
        driver.call(begin, &[main, graph, 0, 0, 0, 0]);
    } else {
        driver.call(begin, &[main, 0]);
    }
    (0..3).for_each(|_| driver.launch(1000, main));
    driver.call("cuEventRecord", &[fork, main]);
    driver.call("cuStreamWaitEvent", &[side, fork, 0]);
    (0..2).for_each(|_| driver.launch(1000, side));
    driver.call("cuGraphLaunch", &[inner, side]);
    driver.call("cuEventRecord", &[join, side]);
    driver.call("cuStreamWaitEvent", &[main, join, 0]);
    let mut graph = 0_u64;
    driver.call("cuStreamEndCapture", &[main, address(&raw mut graph)]);
    for event in [fork, join] {
        driver.call("cuEventDestroy_v2", &[event]);
    }
    graph
}

fn inner(driver: &Driver, stream: u64) -> u64 {
    driver.call("cuStreamBeginCapture_v2", &[stream, 0]);
    driver.launch(1000, stream);
    let mut graph = 0_u64;
    driver.call("cuStreamEndCapture", &[stream, address(&raw mut graph)]);
    // One that fails leaves nothing behind that would take later launches for captured.
    assert_ne!(driver.function("cuStreamBeginCapture_v2").result(&[0, 0]), 0);
    driver.made("cuGraphInstantiateWithFlags", &[graph, 0])
}

/// The legacy stream is in order with blocking streams and not with the others; each thread's own stream is its own.
pub(crate) fn legacy(driver: &Driver) -> Report {
    let (blocking, free) = (driver.stream(0), driver.stream(1));
    let mut report = Report::default();
    for _ in 0..50 {
        let (mut ours, mut others) = (Asked::new(), Asked::new());
        others.launches(driver, 2, 1000, free);
        ours.launches(driver, 3, 1000, blocking);
        ours.launches(driver, 1, 1000, 0);
        let result = around(|| driver.call("cuStreamSynchronize", &[0]));
        report.steps.push(ours.result(result));
        let result = around(|| driver.call("cuStreamSynchronize", &[free]));
        report.steps.push(others.result(result));
        let mut own = Asked::new();
        own.does(
            |work| work.launches += 1,
            || driver.call("cuLaunchKernel_ptsz", &[driver.kernel, 1000, 1, 1, 1, 1, 1, 0, 0, 0, 0]),
        );
        // Nothing is asked of the legacy stream: no step.
        let result = around(|| driver.call("cuStreamSynchronize", &[2]));
        report.steps.push(own.result(result));
        driver.call("cuStreamSynchronize", &[0]);
    }
    report
}
