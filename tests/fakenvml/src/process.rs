//! Processes on a device.

use crate::enter::{INSUFFICIENT_SIZE, INVALID_ARGUMENT, Out, Return, on_device};
use crate::handle::Handle;
use crate::state::Device;

/// `nvmlProcessInfo_t` of the third version of the functions.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ProcessInfo {
    /// Process.
    pub pid: u32,
    /// Bytes, or all ones.
    pub used_memory: u64,
    /// Of a divided GPU, or all ones.
    pub gpu_instance: u32,
    /// Of a divided GPU, or all ones.
    pub compute_instance: u32,
}

const _: () = assert!(size_of::<ProcessInfo>() == 24);

/// Processes that compute.
///
/// # Safety
/// `infos` is null or has room for as many as `count` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: Handle,
    count: Out<'_, u32>,
    infos: *mut ProcessInfo,
) -> Return {
    // SAFETY: the caller promises the room.
    on_device("nvmlDeviceGetComputeRunningProcesses_v3", device, |device| unsafe {
        list(device, false, count, infos)
    })
}

/// Processes that draw.
///
/// # Safety
/// `infos` is null or has room for as many as `count` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    device: Handle,
    count: Out<'_, u32>,
    infos: *mut ProcessInfo,
) -> Return {
    // SAFETY: the caller promises the room.
    on_device("nvmlDeviceGetGraphicsRunningProcesses_v3", device, |device| unsafe {
        list(device, true, count, infos)
    })
}

/// # Safety
/// `infos` is null or has room for as many as `count` says.
unsafe fn list(
    device: &Device,
    graphics: bool,
    count: Out<'_, u32>,
    infos: *mut ProcessInfo,
) -> Result<(), Return> {
    let count = count.ok_or(INVALID_ARGUMENT)?;
    let found: Vec<ProcessInfo> = device
        .processes
        .iter()
        .filter(|process| process.graphics == graphics)
        .map(|process| {
            let (gpu_instance, compute_instance) = process.instance.unwrap_or((u32::MAX, u32::MAX));
            let used_memory = process.memory.unwrap_or(u64::MAX);
            ProcessInfo { pid: process.pid, used_memory, gpu_instance, compute_instance }
        })
        .collect();
    let room = std::mem::replace(count, u32::try_from(found.len()).map_err(|_| INVALID_ARGUMENT)?);
    if found.len() > room as usize {
        return Err(INSUFFICIENT_SIZE);
    }
    if !found.is_empty() {
        if infos.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        // SAFETY: there is room for `room` of them, and there are no more than that.
        unsafe { infos.copy_from_nonoverlapping(found.as_ptr(), found.len()) };
    }
    Ok(())
}
