//! Memory of a process on the simulated CUDA devices, as NVML tells it. One test: it sets the environment.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use nvidia_ml::{
    Handle, Memory, ProcessInfo, nvmlDeviceGetComputeRunningProcesses_v3, nvmlDeviceGetHandleByIndex_v2,
    nvmlDeviceGetMemoryInfo_v2, nvmlInit_v2,
};

const INSUFFICIENT_SIZE: u32 = 7;

#[test]
fn what_a_process_allocates_is_its_memory_on_the_device() {
    let dir = tempfile::tempdir().unwrap();
    let (shm, state) = (dir.path().join("shm"), dir.path().join("state.json"));
    // SAFETY: the only test of this program, before anything else runs.
    unsafe {
        std::env::set_var("FAKECUDA_SHM", &shm);
        std::env::set_var("FAKENVML_STATE", &state);
    }
    let device =
        serde_json::json!({"uuid": "GPU-a", "memory": {"total": 16_u64 << 30, "reserved": 0, "used": 0}});
    std::fs::write(&state, serde_json::json!({"devices": [device], "fakecuda": shm}).to_string()).unwrap();

    let (mut context, mut first, mut second) = (0, 0, 0);
    assert_eq!(cuda::cuInit(0), 0);
    assert_eq!(cuda::cuDevicePrimaryCtxRetain(Some(&mut context), 0), 0);
    assert_eq!(cuda::cuCtxSetCurrent(context), 0);
    assert_eq!(nvmlInit_v2(), 0);
    assert_eq!(used(), (0, Vec::new()));
    assert_eq!(cuda::cuMemAlloc_v2(Some(&mut first), 3 << 20), 0);
    assert_eq!(cuda::cuMemAlloc_v2(Some(&mut second), 5 << 20), 0);
    let own = std::process::id();
    assert_eq!(used(), (8 << 20, vec![(own, 8 << 20)]));
    assert_eq!(cuda::cuMemFree_v2(first), 0);
    assert_eq!(used(), (5 << 20, vec![(own, 5 << 20)]));
    let (mut free, mut total) = (0, 0);
    assert_eq!(cuda::cuMemGetInfo_v2(Some(&mut free), Some(&mut total)), 0);
    assert_eq!(total - free, 5 << 20);
}

/// Memory in use on the first device, and the processes that use it.
fn used() -> (u64, Vec<(u32, u64)>) {
    let mut handle = Handle::NONE;
    assert_eq!(nvmlDeviceGetHandleByIndex_v2(0, Some(&mut handle)), 0);
    let version = u32::try_from(size_of::<Memory>()).unwrap() | 2 << 24;
    let mut memory = Memory { version, total: 0, reserved: 0, free: 0, used: 0 };
    assert_eq!(nvmlDeviceGetMemoryInfo_v2(handle, Some(&mut memory)), 0);
    assert_eq!(memory.total, memory.free + memory.used + memory.reserved);

    let none = ProcessInfo { pid: 0, used_memory: 0, gpu_instance: 0, compute_instance: 0 };
    let (mut infos, mut count) = ([none; 4], 0);
    // SAFETY: a count of zero asks for the number alone; afterwards there is room for four.
    unsafe {
        let asked = nvmlDeviceGetComputeRunningProcesses_v3(handle, Some(&mut count), std::ptr::null_mut());
        assert_eq!(asked, if count == 0 { 0 } else { INSUFFICIENT_SIZE });
        count = 4;
        assert_eq!(nvmlDeviceGetComputeRunningProcesses_v3(handle, Some(&mut count), infos.as_mut_ptr()), 0);
    }
    let seen = infos[..count as usize].iter().map(|info| (info.pid, info.used_memory));
    (memory.used, seen.collect())
}
