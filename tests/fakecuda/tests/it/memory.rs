//! Memory: fragmentation, ownership, copies.

use std::io::{BufRead as _, BufReader};
use std::time::{Duration, Instant};

use cuda::*;

use crate::isolated::*;

const MIB: usize = 1 << 20;
const SMALL: (&str, &str) = ("FAKECUDA_MEM_BYTES", "8388608");
const OUT_OF_MEMORY: CUresult = 2;

fn free_bytes() -> usize {
    let (mut free, mut total) = (0, 0);
    ok(cuMemGetInfo_v2(Some(&mut free), Some(&mut total)));
    assert_eq!(total, 8 * MIB);
    free
}

#[test]
fn no_hole_although_enough_is_free() {
    let body = || {
        Gpu::new();
        let blocks: Vec<u64> = (0..8).map(|_| get(|out| cuMemAlloc_v2(out, MIB))).collect();
        let mut none = 0;
        assert_eq!(cuMemAlloc_v2(Some(&mut none), 1), OUT_OF_MEMORY);
        for &block in blocks.iter().step_by(2) {
            ok(cuMemFree_v2(block));
        }
        assert_eq!(free_bytes(), 4 * MIB);
        assert_eq!(cuMemAlloc_v2(Some(&mut none), 2 * MIB), OUT_OF_MEMORY);
        ok(cuMemFree_v2(blocks[1]));
        assert_eq!(get(|out| cuMemAlloc_v2(out, 3 * MIB)), blocks[0]);
        assert_eq!(cuMemFree_v2(blocks[2]), 1, "freed already");
        assert_eq!(cuMemAlloc_v2(Some(&mut none), 0), 1);
        ok(cuMemFree_v2(0));
    };
    isolated_then("memory::no_hole_although_enough_is_free", &[SMALL], body, |truth| {
        assert_eq!((&truth["allocs"], &truth["frees"]), (&9.into(), &5.into()));
        assert_eq!(truth["alloc_bytes"], 11 * MIB);
        assert_eq!(truth["failures"]["cuMemAlloc_v2"]["CUDA_ERROR_OUT_OF_MEMORY"], 2);
        assert_eq!(truth["calls"]["cuMemAlloc_v2"], 12);
    });
}

#[test]
fn memory_of_a_killed_process_comes_back() {
    isolated("memory::memory_of_a_killed_process_comes_back", &[SMALL], || {
        Gpu::new();
        if is_peer() {
            get(|out| cuMemAlloc_v2(out, 7 * MIB));
            println!("allocated");
            loop {
                std::thread::park();
            }
        }
        let mut peer = peer();
        let lines = BufReader::new(peer.stdout.take().unwrap()).lines();
        assert!(lines.map(Result::unwrap).any(|line| line.contains("allocated")));
        let mut address = 0;
        assert_eq!((cuMemAlloc_v2(Some(&mut address), 2 * MIB), free_bytes()), (OUT_OF_MEMORY, MIB));
        peer.kill().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        // Not waited for: a zombie owns nothing either.
        while cuMemAlloc_v2(Some(&mut address), 8 * MIB) != 0 {
            assert!(Instant::now() < deadline);
        }
        peer.wait().unwrap();
    });
}

#[test]
fn a_process_that_exits_leaves_nothing() {
    isolated("memory::a_process_that_exits_leaves_nothing", &[SMALL], || {
        Gpu::new();
        if is_peer() {
            get(|out| cuMemAlloc_v2(out, 5 * MIB));
            return;
        }
        assert!(peer().wait_with_output().unwrap().status.success());
        get(|out| cuMemAlloc_v2(out, 8 * MIB));
    });
}

#[test]
fn memory_goes_with_its_context() {
    isolated("memory::memory_goes_with_its_context", &[SMALL], || {
        Gpu::new();
        let shared = get(|out| cuMemAlloc_v2(out, MIB));
        let context = get(|out| cuCtxCreate_v2(out, 0, 0));
        let own = get(|out| cuMemAlloc_v2(out, 6 * MIB));
        let s = stream(0);
        ok(cuCtxDestroy_v2(context));
        assert_eq!((free_bytes(), cuMemFree_v2(own), cuStreamQuery(s)), (7 * MIB, 1, 400));
        ok(cuMemFree_v2(shared));
        assert_eq!(cuCtxSetCurrent(context), 201);
    });
}

#[test]
fn copies_are_checked_and_counted_by_direction() {
    let body = || {
        Gpu::new();
        let s = stream(1);
        let (a, b) = (get(|out| cuMemAlloc_v2(out, MIB)), get(|out| cuMemAlloc_v2(out, MIB)));
        let mut host = std::ptr::null_mut();
        ok(cuMemHostAlloc(Some(&mut host), MIB, 0));
        let h = host.addr() as u64;
        ok(cuMemcpyHtoD_v2(a, host, 1));
        ok(cuMemcpyHtoD_v2_ptds(a, host, 2));
        ok(cuMemcpyHtoDAsync_v2(a + 100, host, 4, s));
        ok(cuMemcpyHtoDAsync_v2_ptsz(a, host, 8, s));
        ok(cuMemcpyAsync(a, h, 16, s));
        ok(cuMemcpyDtoH_v2(host, a, 1));
        ok(cuMemcpyDtoH_v2_ptds(host, a, 2));
        ok(cuMemcpyDtoHAsync_v2(host, a, 4, s));
        ok(cuMemcpyDtoHAsync_v2_ptsz(host, a, 8, s));
        ok(cuMemcpyAsync_ptsz(h, a, 16, s));
        ok(cuMemcpyDtoD_v2(b, a, 1));
        ok(cuMemcpyDtoD_v2_ptds(b, a, 2));
        ok(cuMemcpyDtoDAsync_v2(b, a, 4, s));
        ok(cuMemcpyDtoDAsync_v2_ptsz(b, a, 8, s));
        ok(cuMemcpy(b, a, MIB));
        ok(cuMemcpy_ptds(h, h + 64, 32));
        assert_eq!(cuMemcpyHtoD_v2(a + 1, host, MIB), 1, "runs out of its block");
        assert_eq!(cuMemcpyDtoHAsync_v2(host, h, 1, s), 1, "not device memory");
        ok(cuCtxSynchronize());
        ok(cuMemFreeHost(host.addr()));
        assert_eq!(cuMemFreeHost(host.addr()), 1);
    };
    isolated_then("memory::copies_are_checked_and_counted_by_direction", &[], body, |truth| {
        let copies = |kind: &str| {
            let copies = &truth["copies"][kind];
            (copies["count"].as_u64().unwrap(), copies["bytes"].as_u64().unwrap())
        };
        assert_eq!((copies("h2d"), copies("d2h")), ((5, 31), (5, 31)));
        assert_eq!((copies("d2d"), copies("h2h")), ((5, 15 + MIB as u64), (1, 32)));
    });
}
