//! Many threads: every call is counted once, under its own name.

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt as _;

use cuda::*;
use serde_json::Value;

use crate::isolated::*;

const THREADS: u64 = 4;
const ROUNDS: u64 = 25_000;

/// Four launches, each through another variant.
fn round(gpu: &Gpu, s: u64) {
    let none = std::ptr::null_mut();
    let mut config = CUlaunchConfig {
        grid_x: 1,
        grid_y: 1,
        grid_z: 1,
        block_x: 1,
        block_y: 1,
        block_z: 1,
        shared_bytes: 0,
        stream: s,
        attributes: std::ptr::null(),
        attribute_count: 0,
    };
    gpu.launch(1, s);
    ok(cuLaunchKernel_ptsz(gpu.function, 1, 1, 1, 1, 1, 1, 0, 0, none, none));
    ok(cuLaunchKernelEx(Some(&mut config), gpu.function, none, none));
    ok(cuLaunchCooperativeKernel_ptsz(gpu.function, 1, 1, 1, 1, 1, 1, 0, s, none));
}

fn body() {
    let gpu = Gpu::new();
    let (s, context) = (stream(1), get(|out| cuCtxGetCurrent(out)));
    let before = monotonic_ns();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                ok(cuCtxSetCurrent(context));
                (0..ROUNDS).for_each(|_| round(&gpu, s));
            });
        }
    });
    let per_call = (monotonic_ns() - before) / (THREADS * ROUNDS * 4);
    println!("{per_call} ns per launch and second, {THREADS} threads on one stream");
    ok(cuCtxSynchronize());
    let path = CString::new(dir().join("now.json").into_os_string().into_vec()).unwrap();
    // SAFETY: a C string.
    assert_eq!(unsafe { fakecuda_dump_truth(path.as_ptr()) }, 0);
    let now: Value = serde_json::from_slice(&std::fs::read(dir().join("now.json")).unwrap()).unwrap();
    assert_eq!(now["launches"], THREADS * ROUNDS * 4);
}

#[test]
fn four_hundred_thousand_launches_are_counted_exactly() {
    let name = "threads::four_hundred_thousand_launches_are_counted_exactly";
    isolated_then(name, &[("FAKECUDA_UNIT_NS", "1")], body, |truth| {
        assert_eq!(truth["launches"], THREADS * ROUNDS * 4);
        assert_eq!(truth["threads"], THREADS + 1);
        for (function, factor) in [
            ("cuLaunchKernel", 1),
            ("cuLaunchKernel_ptsz", 1),
            ("cuLaunchKernelEx", 1),
            ("cuLaunchCooperativeKernel_ptsz", 1),
        ] {
            assert_eq!(truth["calls"][function], THREADS * ROUNDS * factor, "{function}");
        }
        assert_eq!(
            (truth["calls"]["cuCtxSynchronize"].as_u64(), truth["syncs"].as_u64()),
            (Some(1), Some(1))
        );
        assert_eq!(truth["failures"], Value::Object(serde_json::Map::new()));
    });
}
