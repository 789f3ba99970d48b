//! Kinds of memory beside plain blocks: pools, physical memory, arrays, managed and host memory, other processes'.

use cuda::*;

use crate::isolated::*;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const SMALL: (&str, &str) = ("FAKECUDA_MEM_BYTES", "8388608");
const OUT_OF_MEMORY: CUresult = 2;

fn free_bytes() -> usize {
    let (mut free, mut total) = (0, 0);
    ok(cuMemGetInfo_v2(Some(&mut free), Some(&mut total)));
    free
}

#[test]
fn pools_keep_what_they_get_back() {
    isolated_then("kinds::pools_keep_what_they_get_back", &[SMALL], body_of_pools, |truth| {
        assert_eq!(truth["memory"]["pool"]["allocs"], 5);
        assert_eq!(truth["memory"]["pool"]["frees"], 3);
        assert_eq!(truth["no_room"][0]["function"], "cuMemAlloc_v2");
        assert_eq!(truth["no_room"][0]["free"], 2 * MIB);
    });
}

fn body_of_pools() {
    Gpu::new();
    let pool = get(|out| cuMemPoolCreate(out, std::ptr::null()));
    let a: u64 = get(|out| cuMemAllocFromPoolAsync(out, 2 * MIB, pool, 0));
    let own = get(|out| cuMemAllocAsync_ptsz(out, 4 * MIB, 0));
    ok(cuMemFreeAsync(own, 0));
    assert_eq!(free_bytes(), 2 * MIB, "the device's pool keeps it");
    let mut none = 0;
    assert_eq!(cuMemAlloc_v2(Some(&mut none), 3 * MIB), OUT_OF_MEMORY);
    let again = get(|out| cuMemAllocAsync(out, 4 * MIB, 0));
    assert_eq!(again, own);
    ok(cuMemFree_v2(again));
    // No room, unless the pool gives back what it keeps.
    let more: u64 = get(|out| cuMemAllocAsync(out, 5 * MIB, 0));
    assert_eq!(free_bytes(), MIB);
    ok(cuMemFreeAsync_ptsz(more, 0));
    let default = get(|out| cuDeviceGetDefaultMemPool(out, 0));
    assert_eq!(get(|out| cuMemPoolGetAttribute(default, 5, out)), 5 * MIB as u64);
    ok(cuMemPoolTrimTo(default, 0));
    assert_eq!(free_bytes(), 6 * MIB);
    ok(cuMemPoolDestroy(pool));
    assert_eq!(cuMemPoolTrimTo(pool, 0), 1);
    get(|out| cuMemAllocAsync(out, MIB, 0));
    assert_eq!(
        (cuMemFreeAsync(a + 1, 0), free_bytes()),
        (1, 5 * MIB),
        "what was taken from a pool outlives it"
    );
}

#[test]
fn physical_memory_lives_until_nothing_holds_it() {
    isolated("kinds::physical_memory_lives_until_nothing_holds_it", &[SMALL], || {
        Gpu::new();
        let range = get(|out| cuMemAddressReserve(out, 1 << 40, 0, 0, 0));
        assert_eq!(free_bytes(), 8 * MIB, "addresses are no memory");
        let mut on = CUmemAllocationProp { kind: 1, handle_types: 0, location_type: 1, location_id: 0 };
        let handle = get(|out| cuMemCreate(out, 2 * MIB, Some(&mut on), 0));
        assert_eq!(cuMemMap(range, MIB, 0, handle, 0), 1, "not all of it");
        ok(cuMemMap(range, 2 * MIB, 0, handle, 0));
        assert_eq!(cuMemMap(range + MIB as u64, 2 * MIB, 0, handle, 0), 1, "something is mapped there");
        assert_eq!(get(|out| cuMemRetainAllocationHandle(out, range + 5)), handle);
        ok(cuMemRelease(handle));
        ok(cuMemRelease(handle));
        assert_eq!((cuMemRelease(handle), free_bytes()), (1, 6 * MIB));
        ok(cuMemSetAccess(range, 2 * MIB, 0, 0));
        ok(cuMemUnmap(range, 2 * MIB));
        assert_eq!((cuMemUnmap(range, 2 * MIB), free_bytes()), (1, 8 * MIB));
        ok(cuMemAddressFree(range, 1 << 40));
        let mut none = 0;
        assert_eq!(cuMemCreate(Some(&mut none), 9 * MIB, Some(&mut on), 0), OUT_OF_MEMORY);
        assert_eq!(cuMemCreate(Some(&mut none), KIB, Some(&mut on), 0), 1);
    });
}

#[test]
fn everything_else_takes_what_it_should() {
    let body = || {
        Gpu::new();
        let mut pitch = 0;
        let rows = get(|out| cuMemAllocPitch_v2(out, Some(&mut pitch), 700, 10, 4));
        assert_eq!((pitch, free_bytes()), (1024, 8 * MIB - 10 * KIB));
        let managed = get(|out| cuMemAllocManaged(out, 100 * MIB, 1));
        let mut flat = CUDA_ARRAY_DESCRIPTOR { width: 256, height: 4, format: 0x20, channels: 4 };
        let array = get(|out| cuArrayCreate_v2(out, Some(&mut flat)));
        let mut deep =
            CUDA_ARRAY3D_DESCRIPTOR { width: 512, height: 0, depth: 0, format: 0x10, channels: 1, flags: 0 };
        let mipmap = get(|out| cuMipmappedArrayCreate(out, Some(&mut deep), 2));
        assert_eq!(free_bytes(), 8 * MIB - 10 * KIB - 16 * KIB - KIB);
        assert_eq!(cuMemFree_v2(array), 1, "an array is no block");
        for done in [
            cuMemFree_v2(rows),
            cuMemFree_v2(managed),
            cuArrayDestroy(array),
            cuMipmappedArrayDestroy(mipmap),
        ] {
            ok(done);
        }
        let own = get(|out| cuMemAlloc_v2(out, MIB));
        let handle = {
            let mut handle = CUipcMemHandle { address: 0, rest: [0; 7] };
            ok(cuIpcGetMemHandle(Some(&mut handle), own));
            handle
        };
        let theirs = get(|out| cuIpcOpenMemHandle_v2(out, handle, 1));
        ok(cuIpcCloseMemHandle(theirs));
        assert_eq!((cuIpcCloseMemHandle(theirs), free_bytes()), (1, 7 * MIB));
        let buffer = [0_u8; 100];
        ok(cuMemHostRegister_v2(buffer.as_ptr().addr(), 100, 0));
        assert_eq!(cuMemHostRegister_v2(buffer.as_ptr().addr(), 100, 0), 1);
        ok(cuMemHostUnregister(buffer.as_ptr().addr()));
    };
    isolated_then("kinds::everything_else_takes_what_it_should", &[SMALL], body, |truth| {
        let memory = &truth["memory"];
        assert_eq!(memory["array"]["alloc_bytes"], 17 * KIB);
        assert_eq!(memory["managed"]["freed_bytes"], 100 * MIB);
        assert_eq!((&memory["host"]["allocs"], &memory["host"]["frees"]), (&1.into(), &1.into()));
        assert_eq!((&truth["allocs"], &truth["frees"]), (&6.into(), &5.into()));
    });
}
