//! Every way to launch, and to set memory.

use crate::copies::Place;
use crate::driver::{Arguments, Driver, address};

/// Calls a variant, for a kernel of one unit.
pub(crate) type Launch = (&'static str, fn(&Driver, &Place) -> Arguments);

fn plain(driver: &Driver, p: &Place) -> Arguments {
    [driver.kernel, 1, 1, 1, 1, 1, 1, 0, p.stream, 0, 0]
}

fn asynchronous(driver: &Driver, p: &Place) -> Arguments {
    [driver.kernel, 1, 1, p.stream, 0, 0, 0, 0, 0, 0, 0]
}

/// `CUlaunchConfig`: three and three sizes and the shared memory in four words, then the stream.
fn configured(driver: &Driver, p: &Place) -> Arguments {
    const ONE_ONE: u64 = 1 << 32 | 1;
    let words: &[u64; 7] = Box::leak(Box::new([ONE_ONE, ONE_ONE, ONE_ONE, 0, p.stream, 0, 0]));
    [address(words.as_ptr()), driver.kernel, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}

/// Two entries of `CUDA_LAUNCH_PARAMS`: the function, sizes and the shared memory in four words, the stream, arguments.
fn multiple(driver: &Driver, p: &Place) -> Arguments {
    const ONE_ONE: u64 = 1 << 32 | 1;
    let one = [driver.kernel, ONE_ONE, ONE_ONE, ONE_ONE, 0, p.stream, 0];
    let words: &[[u64; 7]; 2] = Box::leak(Box::new([one, one]));
    [address(words.as_ptr()), 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}

/// All of them.
pub(crate) const LAUNCHES: &[Launch] = &[
    ("cuLaunchKernel", plain),
    ("cuLaunchKernel_ptsz", plain),
    ("cuLaunchCooperativeKernel", plain),
    ("cuLaunchCooperativeKernel_ptsz", plain),
    ("cuLaunchKernelEx", configured),
    ("cuLaunchKernelEx_ptsz", configured),
    ("cuLaunchCooperativeKernelMultiDevice", multiple),
    ("cuLaunch", asynchronous),
    ("cuLaunchGrid", asynchronous),
    ("cuLaunchGridAsync", asynchronous),
];

/// Functions that set memory.
pub(crate) const MEMSETS: &[&str] = &[
    "cuMemsetD8_v2",
    "cuMemsetD8_v2_ptds",
    "cuMemsetD16_v2",
    "cuMemsetD16_v2_ptds",
    "cuMemsetD32_v2",
    "cuMemsetD32_v2_ptds",
    "cuMemsetD8Async",
    "cuMemsetD8Async_ptsz",
    "cuMemsetD16Async",
    "cuMemsetD16Async_ptsz",
    "cuMemsetD32Async",
    "cuMemsetD32Async_ptsz",
    "cuMemsetD2D8_v2",
    "cuMemsetD2D8_v2_ptds",
    "cuMemsetD2D16_v2",
    "cuMemsetD2D16_v2_ptds",
    "cuMemsetD2D32_v2",
    "cuMemsetD2D32_v2_ptds",
    "cuMemsetD2D8Async",
    "cuMemsetD2D8Async_ptsz",
    "cuMemsetD2D16Async",
    "cuMemsetD2D16Async_ptsz",
    "cuMemsetD2D32Async",
    "cuMemsetD2D32Async_ptsz",
];

/// Sets 64 elements, or eight rows of eight.
pub(crate) fn set(driver: &Driver, name: &str, p: &Place) {
    if name.contains("D2D") {
        driver.call(name, &[p.device, 64, 7, 8, 8, p.stream]);
    } else {
        driver.call(name, &[p.device, 7, 64, p.stream]);
    }
}
