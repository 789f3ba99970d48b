//! Devices as the caller sees them.

use std::ffi::{CStr, c_char};

use crate::abi::{Out, give};
use crate::config::{CONFIG, Config};
use crate::error::Error;
use crate::shared::{self, shared};

/// Settings; `cuInit` has refused bad ones.
pub(crate) fn config() -> &'static Config {
    CONFIG.as_ref().expect("cuInit has checked the settings")
}

/// Index of a device that this process sees.
pub(crate) fn index(device: i32) -> Result<usize, Error> {
    let visible = usize::try_from(device).ok().and_then(|i| config().visible.get(i));
    visible.copied().ok_or(Error::INVALID_DEVICE)
}

/// This process's number of a device.
pub(crate) fn number(index: usize) -> Result<i32, Error> {
    let at = config().visible.iter().position(|&visible| visible == index);
    at.and_then(|at| i32::try_from(at).ok()).ok_or(Error::INVALID_DEVICE)
}

/// Identity of a device: "fakecuda", zeros, and its index.
fn uuid(index: usize) -> Result<[u8; 16], Error> {
    let mut id = *b"fakecuda\0\0\0\0\0\0\0\0";
    id[15] = u8::try_from(index).map_err(|_| Error::UNKNOWN)?;
    Ok(id)
}

/// The index in the text of an identity, `66616b65-6375-6461-0000-000000000001`.
pub(crate) fn uuid_index(text: &str) -> Option<usize> {
    text.strip_prefix("66616b65-6375-6461-0000-")?.parse().ok()
}

/// Address of a device on the PCI bus.
fn bus(index: usize) -> String {
    format!("0000:{:02X}:00.0", index + 1)
}

/// Its shared part.
pub(crate) fn shared_device(index: usize) -> &'static shared::Device {
    &shared().layout.devices[index]
}

export! {
    /// Handle of the n-th device.
    fn cuDeviceGet(device: Out<'_, i32>, ordinal: i32) {
        index(ordinal)?;
        give(device, ordinal)
    }

    /// How many devices there are.
    fn cuDeviceGetCount(count: Out<'_, i32>) {
        give(count, i32::try_from(config().visible.len()).map_err(|_| Error::UNKNOWN)?)
    }

    /// Memory of the device in bytes.
    fn cuDeviceTotalMem_v2(bytes: Out<'_, usize>, device: i32) {
        index(device)?;
        give(bytes, usize::try_from(crate::memory::total()).map_err(|_| Error::UNKNOWN)?)
    }

    /// Its identity.
    fn cuDeviceGetUuid(id: Out<'_, [u8; 16]>, device: i32) {
        give(id, uuid(index(device)?)?)
    }

    /// Its identity.
    fn cuDeviceGetUuid_v2(id: Out<'_, [u8; 16]>, device: i32) {
        give(id, uuid(index(device)?)?)
    }
}

/// Address of a device on the PCI bus.
///
/// # Safety
/// `text` is null or has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetPCIBusId(text: *mut c_char, length: i32, device: i32) -> crate::CUresult {
    crate::abi::enter(crate::Func::cuDeviceGetPCIBusId, || {
        // SAFETY: the caller promises the room.
        unsafe { give_text(text, length, &bus(index(device)?)) }
    })
}

/// The device at an address.
///
/// # Safety
/// `text` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetByPCIBusId(device: Out<'_, i32>, text: *const c_char) -> crate::CUresult {
    crate::abi::enter(crate::Func::cuDeviceGetByPCIBusId, || {
        if text.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: the caller promises a C string.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
        let found = config().visible.iter().position(|&index| text.eq_ignore_ascii_case(&bus(index)));
        let number = found.and_then(|at| i32::try_from(at).ok());
        give(device, number.ok_or(Error::INVALID_DEVICE)?)
    })
}

/// Its name.
///
/// # Safety
/// `name` is null or has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, length: i32, device: i32) -> crate::CUresult {
    crate::abi::enter(crate::Func::cuDeviceGetName, || {
        // SAFETY: the caller promises the room.
        unsafe { give_text(name, length, &format!("Fake GPU {}", index(device)?)) }
    })
}

/// As much of a text as there is room for, and a NUL.
///
/// # Safety
/// `to` is null or has room for `length` bytes.
unsafe fn give_text(to: *mut c_char, length: i32, text: &str) -> Result<(), Error> {
    let room =
        usize::try_from(length).ok().filter(|&n| n > 0 && !to.is_null()).ok_or(Error::INVALID_VALUE)?;
    let length = text.len().min(room - 1);
    // SAFETY: `length` + 1 is at most the room that the caller promises.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), length);
        to.add(length).write(0);
    }
    Ok(())
}
