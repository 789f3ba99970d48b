//! What the simulation itself costs and how exact its waits are: prints a few lines.
//!
//! `FAKECUDA_UNIT_NS=1 cargo run --release -p fakecuda --example cost` (kernels of 1 ns, so that launches never meet
//! a full queue)

use std::ffi::c_void;
use std::io::{Write as _, stdout};

use cuda::{
    CUresult, cuCtxSetCurrent, cuCtxSynchronize, cuDevicePrimaryCtxRetain, cuInit, cuLaunchKernel,
    cuModuleGetFunction, cuModuleLoadData, cuStreamSynchronize, monotonic_ns,
};

const CALLS: u64 = 200_000;
const WAITS: usize = 500;

fn main() -> std::io::Result<()> {
    assert_eq!(std::env::var("FAKECUDA_UNIT_NS").as_deref(), Ok("1"), "see the usage");
    check(cuInit(0));
    let (mut context, mut module, mut function) = (0, 0, 0);
    check(cuDevicePrimaryCtxRetain(Some(&mut context), 0));
    check(cuCtxSetCurrent(context));
    check(cuModuleLoadData(Some(&mut module), c"image".as_ptr().cast::<c_void>()));
    // SAFETY: a C string.
    check(unsafe { cuModuleGetFunction(Some(&mut function), module, c"kernel".as_ptr()) });
    let kernel = Kernel { context, function };

    let mut out = stdout().lock();
    writeln!(out, "clock read: {} ns", each(1, || assert_ne!(monotonic_ns(), 0)))?;
    for threads in [1, 4] {
        let ns = each(threads, || kernel.launch(1, 2));
        writeln!(out, "launch on own stream, {threads} thread(s): {ns} ns per call and thread")?;
    }
    for us in [100, 1000, 8000] {
        let mut late: Vec<u64> = (0..WAITS).map(|_| kernel.wait(us * 1000)).collect();
        late.sort_unstable();
        let at = |percent: usize| late[(late.len() - 1) * percent / 100];
        let (p50, p90, p99, max) = (at(50), at(90), at(99), at(100));
        writeln!(out, "wait of {us} us returns late by: p50 {p50} p90 {p90} p99 {p99} max {max} ns")?;
    }
    Ok(())
}

struct Kernel {
    context: u64,
    function: u64,
}

impl Kernel {
    fn launch(&self, units: u32, stream: u64) {
        let none = std::ptr::null_mut();
        thread_local!(static READY: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
        if !READY.replace(true) {
            check(cuCtxSetCurrent(self.context));
        }
        check(cuLaunchKernel(self.function, units, 1, 1, 1, 1, 1, 0, stream, none, none));
    }

    /// How much later than the end of the kernel the wait returns, at most: the clock is read before the launch.
    fn wait(&self, units: u32) -> u64 {
        check(cuCtxSynchronize());
        let before = monotonic_ns();
        self.launch(units, 0);
        check(cuStreamSynchronize(0));
        monotonic_ns() - before - u64::from(units)
    }
}

/// Nanoseconds per call when so many threads call at once. `FAKECUDA_UNIT_NS=0` keeps the queue from filling.
fn each(threads: u64, call: impl Fn() + Sync) -> u64 {
    let before = monotonic_ns();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..CALLS).for_each(|_| call()));
        }
    });
    (monotonic_ns() - before) / CALLS
}

fn check(result: CUresult) {
    assert_eq!(result, 0, "a call failed");
}
