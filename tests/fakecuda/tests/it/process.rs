//! Several processes, forks, scripts and settings.

use std::ffi::{CStr, c_char, c_void};
use std::io::{BufRead as _, BufReader};

use cuda::*;

use crate::isolated::*;

#[test]
fn processes_contend_for_the_engine_and_death_blocks_nobody() {
    isolated("process::processes_contend_for_the_engine_and_death_blocks_nobody", &[], || {
        let gpu = Gpu::new();
        let s = stream(1);
        if is_peer() {
            let before = monotonic_ns();
            gpu.launch(300_000, s);
            println!("launched after {before}");
            std::process::abort();
        }
        let mut peer = peer();
        let lines = BufReader::new(peer.stdout.take().unwrap()).lines();
        let before: u64 = lines
            .map(Result::unwrap)
            .find_map(|line| line.split_once("launched after ")?.1.parse().ok())
            .expect("the peer says when");
        gpu.launch(1, s);
        ok(cuStreamSynchronize(s));
        assert!(monotonic_ns() - before >= 300_000_000, "first come, first served");
        assert!(!peer.wait().unwrap().success());
    });
}

#[test]
fn a_forked_child_cannot_use_the_driver() {
    isolated_then(
        "process::a_forked_child_cannot_use_the_driver",
        &[],
        || {
            Gpu::new();
            let address = get(|out| cuMemAlloc_v2(out, 4096));
            // SAFETY: the child calls one function that only reads a flag, then exits with the handlers run.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: ends the child.
                unsafe { libc::exit(i32::try_from(cuCtxSynchronize()).unwrap()) };
            }
            let mut status = 0;
            // SAFETY: waits for the child just made; `status` is writable.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(libc::WEXITSTATUS(status), 3, "CUDA_ERROR_NOT_INITIALIZED");
            ok(cuMemFree_v2(address));
        },
        |truth| assert_eq!(truth["frees"], 1),
    );
}

#[test]
fn scripted_calls_fail() {
    let env = [("FAKECUDA_FAIL", "cuMemAlloc_v2:after=2:times=1,cuGraphLaunch:code=700")];
    let body = || {
        Gpu::new();
        let results: Vec<CUresult> = (0..4).map(|_| cuMemAlloc_v2(Some(&mut 0), 512)).collect();
        assert_eq!(results, [0, 0, 2, 0]);
        assert_eq!(cuGraphLaunch(0, 0), 700);
    };
    isolated_then("process::scripted_calls_fail", &env, body, |truth| {
        assert_eq!(truth["failures"]["cuMemAlloc_v2"]["CUDA_ERROR_OUT_OF_MEMORY"], 1);
        assert_eq!(truth["failures"]["cuGraphLaunch"]["CUDA_ERROR_ILLEGAL_ADDRESS"], 1);
        assert_eq!(truth["allocs"], 3);
    });
}

#[test]
fn wrong_settings_are_refused() {
    let name = "process::wrong_settings_are_refused";
    for env in [("FAKECUDA_UNIT_NS", "fast"), ("FAKECUDA_DEVICES", "0"), ("FAKECUDA_FAIL", "cuNothing")] {
        isolated(name, &[env], || assert_eq!((cuInit(0), cuCtxSynchronize()), (999, 3)));
    }
}

#[test]
fn devices_are_apart() {
    isolated("process::devices_are_apart", &[("FAKECUDA_DEVICES", "2")], || {
        let gpu = Gpu::new();
        assert_eq!(get(|out| cuDeviceGetCount(out)), 2);
        let first = get(|out| cuMemAlloc_v2(out, 512));
        gpu.launch(300_000, 0);
        let second = get(|out| cuDevicePrimaryCtxRetain(out, 1));
        ok(cuCtxPushCurrent_v2(second));
        assert_eq!(get(|out| cuCtxGetDevice(out)), 1);
        assert_ne!(get(|out| cuMemAlloc_v2(out, 512)), first);
        gpu.launch(1, 0);
        ok(cuCtxSynchronize());
        let mut popped = 0;
        ok(cuCtxPopCurrent_v2(Some(&mut popped)));
        assert_eq!((popped, cuStreamQuery(0)), (second, NOT_READY), "the first is still busy");
        assert_ne!(
            get::<[u8; 16]>(|out| cuDeviceGetUuid(out, 0)),
            get::<[u8; 16]>(|out| cuDeviceGetUuid(out, 1))
        );
        let mut name = [1_u8; 7];
        // SAFETY: seven bytes.
        ok(unsafe { cuDeviceGetName(name.as_mut_ptr().cast::<c_char>(), 7, 1) });
        assert_eq!(&name, b"Fake G\0");
    });
}

#[test]
fn functions_and_errors_are_found_by_name() {
    isolated("process::functions_and_errors_are_found_by_name", &[], || {
        let find = |name: &CStr, flags| {
            let (mut at, mut status): (*const c_void, u32) = (std::ptr::null(), 9);
            // SAFETY: a C string.
            ok(unsafe {
                cuGetProcAddress_v2(name.as_ptr(), Some(&mut at), 13_000, flags, Some(&mut status))
            });
            (at, status)
        };
        assert_eq!(find(c"cuLaunchKernel", 0), (cuLaunchKernel as *const c_void, 0));
        assert_eq!(find(c"cuLaunchKernel", 2), (cuLaunchKernel_ptsz as *const c_void, 0));
        assert_eq!(find(c"cuMemAlloc", 2), (cuMemAlloc_v2 as *const c_void, 0));
        assert_eq!(find(c"cuNothing", 0), (std::ptr::null(), 1));
        let mut text = std::ptr::null();
        ok(cuGetErrorName(2, Some(&mut text)));
        // SAFETY: the library gives a static C string.
        assert_eq!(unsafe { CStr::from_ptr(text) }, c"CUDA_ERROR_OUT_OF_MEMORY");
        assert_eq!(cuGetErrorString(12345, Some(&mut text)), 1);
    });
}
