//! Start, end, versions, and the list of devices.

use std::ffi::c_char;
use std::sync::atomic::Ordering;

use crate::enter::{INVALID_ARGUMENT, Out, Return, UNINITIALIZED, USERS, enter, give, on_device};
use crate::handle::Handle;

/// Starts NVML.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> Return {
    enter("nvmlInit_v2", |_| {
        USERS.fetch_add(1, Ordering::AcqRel);
        Ok(())
    })
}

/// Ends it.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> Return {
    enter("nvmlShutdown", |_| {
        let one_less = USERS.fetch_update(Ordering::AcqRel, Ordering::Acquire, |users| users.checked_sub(1));
        one_less.map(|_| ()).map_err(|_| UNINITIALIZED)
    })
}

/// Version of CUDA that the driver knows.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: Out<'_, i32>) -> Return {
    enter("nvmlSystemGetCudaDriverVersion_v2", |state| give(version, state.cuda))
}

/// How many GPUs there are.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetCount_v2(count: Out<'_, u32>) -> Return {
    enter("nvmlDeviceGetCount_v2", |state| {
        give(count, u32::try_from(state.devices.len()).map_err(|_| INVALID_ARGUMENT)?)
    })
}

/// Handle of a GPU by its place.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: u32, device: Out<'_, Handle>) -> Return {
    let handle = Handle::gpu(index as usize);
    on_device("nvmlDeviceGetHandleByIndex_v2", handle, |_| give(device, handle))
}

/// Version of the driver.
///
/// # Safety
/// `text` is null or has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(text: *mut c_char, length: u32) -> Return {
    // SAFETY: the caller promises the room.
    enter("nvmlSystemGetDriverVersion", |state| unsafe { give_text(text, length, &state.driver) })
}

/// Writes a C string.
///
/// # Safety
/// `to` is null or has room for `length` bytes.
pub(crate) unsafe fn give_text(to: *mut c_char, length: u32, text: &str) -> Result<(), Return> {
    if to.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    if text.len() >= length as usize {
        return Err(crate::enter::INSUFFICIENT_SIZE);
    }
    // SAFETY: the text and its NUL fit.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        to.add(text.len()).write(0);
    }
    Ok(())
}
