//! Calls to be counted, whoever waits for them or not.

use std::sync::Mutex;
use std::thread;

use super::{ROOM, device_memory, host_memory, rows};
use crate::calls::{LAUNCHES, MEMSETS, set};
use crate::copies::{COPIES, Place, Way};
use crate::driver::Driver;
use crate::report::Report;

const THREADS: u64 = 6;
const ROUNDS: u64 = 20;

/// Every variant of everything, from several threads in streams of all kinds; half of the threads never wait. Then one call
/// of each function that is left.
pub(crate) fn variants(driver: &Driver) -> Report {
    let untold = Mutex::new([0, 0]);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let untold = &untold;
            scope.spawn(move || {
                driver.enter();
                let [to_device, to_host] = all_variants(driver, number);
                let mut sum = untold.lock().expect("nobody panics with it");
                sum[0] += to_device;
                sum[1] += to_host;
            });
        }
    });
    rows::rest(driver);
    let untold = *untold.lock().expect("nobody panics with it");
    Report { untold, ..Report::default() }
}

/// Returns the bytes that went to the device, and to the host, in calls that do not say so.
fn all_variants(driver: &Driver, number: u64) -> [u64; 2] {
    let stream = match number {
        0 => 0,
        1 => 2,
        2 => driver.made("cuStreamCreateWithPriority", &[1, 0]),
        _ => driver.stream(number % 2),
    };
    let place = Place { device: device_memory(driver), host: host_memory(), stream };
    let graph = graph(driver, driver.stream(1));
    let mut untold = [0, 0];
    for round in 0..ROUNDS {
        for (name, arguments) in LAUNCHES {
            driver.call(name, &arguments(driver, &place));
        }
        driver.call("cuGraphLaunch", &[graph, stream]);
        driver.call("cuGraphLaunch_ptsz", &[graph, stream]);
        for (at, (name, way, arguments)) in (0..).zip(COPIES) {
            let bytes = 4 * (1 + (at * 37 + round * 11 + number) % (ROOM as u64 / 64));
            driver.call(name, &arguments(&place, bytes));
            match way {
                Way::UntoldIn => untold[0] += bytes,
                Way::UntoldOut => untold[1] += bytes,
                Way::In | Way::Out | Way::Within => {}
            }
        }
        for name in MEMSETS {
            set(driver, name, &place);
        }
        if number.is_multiple_of(2) {
            wait(driver, round, stream);
        }
    }
    untold
}

fn wait(driver: &Driver, round: u64, stream: u64) {
    match round % 5 {
        0 => driver.call("cuStreamSynchronize", &[stream]),
        1 => driver.call("cuStreamSynchronize_ptsz", &[stream]),
        2 => driver.call("cuCtxSynchronize", &[]),
        3 => driver.call("cuCtxSynchronize_v2", &[0]),
        _ => {
            let event = driver.event();
            driver.call("cuEventRecord", &[event, stream]);
            driver.call("cuEventSynchronize", &[event]);
            driver.call("cuEventDestroy_v2", &[event]);
        }
    }
}

/// An executable graph of two kernels.
fn graph(driver: &Driver, stream: u64) -> u64 {
    driver.call("cuStreamBeginCapture_v2", &[stream, 0]);
    driver.launch(1, stream);
    driver.launch(1, stream);
    let graph = {
        let mut graph = 0_u64;
        driver.call("cuStreamEndCapture", &[stream, crate::driver::address(&raw mut graph)]);
        graph
    };
    driver.made("cuGraphInstantiateWithFlags", &[graph, 0])
}

/// A million launches from four threads; two of them wait now and then.
pub(crate) fn million(driver: &Driver) -> Report {
    const EACH: u64 = 250_000;
    thread::scope(|scope| {
        for number in 0..4 {
            scope.spawn(move || {
                driver.enter();
                let stream = driver.stream(1);
                let launch = driver.function("cuLaunchKernel");
                for count in 1..=EACH {
                    launch.call(&[driver.kernel, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0]);
                    if number < 2 && count % 5000 == 0 {
                        driver.call("cuStreamSynchronize", &[stream]);
                    }
                }
            });
        }
    });
    Report::default()
}

/// Work that nobody waits for.
pub(crate) fn unwaited(driver: &Driver) -> Report {
    let (stream, device, host) = (driver.stream(1), device_memory(driver), host_memory());
    for _ in 0..1000 {
        driver.launch(1, stream);
        driver.call("cuMemcpyHtoDAsync_v2", &[device, host, 64, stream]);
    }
    Report::default()
}

/// More streams than a process's list takes, more dependencies than a stream's, streams that are destroyed with work
/// in them, and handles that come again.
pub(crate) fn streams(driver: &Driver) -> Report {
    const MANY: usize = 50;
    for _ in 0..3 {
        let streams: Vec<u64> = (0..MANY).map(|_| driver.stream(1)).collect();
        let last = streams[MANY - 1];
        for &stream in &streams {
            driver.launch(1, stream);
            let event = driver.event();
            driver.call("cuEventRecord", &[event, stream]);
            driver.call("cuStreamWaitEvent", &[last, event, 0]);
            driver.call("cuEventDestroy_v2", &[event]);
        }
        driver.launch(1, last);
        driver.call("cuStreamSynchronize", &[last]);
        streams.iter().step_by(2).for_each(|&stream| driver.launch(1, stream));
        driver.call("cuCtxSynchronize", &[]);
        for &stream in &streams {
            driver.launch(1, stream);
            driver.call("cuStreamDestroy_v2", &[stream]);
        }
    }
    Report::default()
}
