//! One call of each function that no other script calls.

use super::host_memory;
use crate::driver::{Driver, address};

/// What is made is not used: calls are counted, and that is all.
pub(super) fn rest(driver: &Driver) {
    modules(driver);
    captures(driver);
    events(driver);
    memory(driver);
    devices(driver);
    contexts(driver);
}

fn modules(driver: &Driver) {
    let image = address(c"image".as_ptr());
    for name in ["cuModuleLoad", "cuModuleLoadDataEx", "cuModuleLoadFatBinary", "cuLibraryLoadData"] {
        driver.made(name, &[image]);
    }
    let mut link = 0_u64;
    driver.call("cuLinkCreate_v2", &[0, 0, 0, address(&raw mut link)]);
    driver.call("cuLinkAddData_v2", &[link, 0, image, 6]);
    let (mut linked, mut size) = (0_u64, 0_u64);
    driver.call("cuLinkComplete", &[link, address(&raw mut linked), address(&raw mut size)]);
    driver.call("cuLinkDestroy", &[link]);
}

/// Captures in a stream that may be the thread's own, each made executable in another way.
fn captures(driver: &Driver) {
    let stream = driver.stream(1);
    for (begin, instantiate) in [
        ("cuStreamBeginCapture_ptsz", "cuGraphInstantiate_v2"),
        ("cuStreamBeginCapture_v2_ptsz", "cuGraphInstantiateWithParams"),
        ("cuStreamBeginCaptureToGraph_ptsz", "cuGraphInstantiateWithParams_ptsz"),
    ] {
        if begin.contains("ToGraph") {
            let graph = driver.made("cuGraphCreate", &[0]);
            driver.call(begin, &[stream, graph, 0, 0, 0, 0]);
        } else {
            driver.call(begin, &[stream, 0]);
        }
        driver.launch(1, stream);
        let mut graph = 0_u64;
        driver.call("cuStreamEndCapture_ptsz", &[stream, address(&raw mut graph)]);
        driver.made(instantiate, &[graph, 0]);
    }
}

fn events(driver: &Driver) {
    let (stream, event) = (driver.stream(1), driver.event());
    for record in ["cuEventRecordWithFlags", "cuEventRecordWithFlags_ptsz", "cuEventRecord_ptsz"] {
        driver.call(record, &[event, stream, 0]);
        driver.call("cuStreamWaitEvent_ptsz", &[stream, event, 0]);
    }
}

fn memory(driver: &Driver) {
    const THRESHOLD: u64 = 4;
    let pool = driver.made("cuMemPoolCreate", &[0]);
    let value = host_memory();
    driver.call("cuMemPoolSetAttribute", &[pool, THRESHOLD, value]);
    driver.call("cuMemPoolGetAttribute", &[pool, THRESHOLD, value]);
    // `CUDA_ARRAY3D_DESCRIPTOR`: width, height, depth, format and channels.
    let mut deep = [16_u64, 2, 1, 0x10 | 1 << 32, 0];
    let array = driver.made("cuMipmappedArrayCreate", &[address(deep.as_mut_ptr()), 2]);
    driver.call("cuMipmappedArrayDestroy", &[array]);
}

fn devices(driver: &Driver) {
    driver.made("cuDeviceGetUuid", &[0]);
    let text = host_memory();
    driver.call("cuDeviceGetPCIBusId", &[text, 32, 0]);
    driver.made("cuDeviceGetByPCIBusId", &[text]);
}

/// Afterwards there is no context any more.
fn contexts(driver: &Driver) {
    for (name, rest) in [("cuCtxCreate_v3", &[0, 0, 0, 0][..]), ("cuCtxCreate_v4", &[0, 0, 0])] {
        let context = driver.made(name, rest);
        let mut popped = 0_u64;
        driver.call("cuCtxPopCurrent_v2", &[address(&raw mut popped)]);
        driver.call("cuCtxPushCurrent_v2", &[context]);
        driver.call("cuCtxDestroy_v2", &[context]);
    }
    driver.made("cuDevicePrimaryCtxRetain", &[0]);
    driver.call("cuDevicePrimaryCtxRelease_v2", &[0]);
    driver.call("cuDevicePrimaryCtxReset_v2", &[0]);
}
