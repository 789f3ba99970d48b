//! Devices as the caller sees them.

use std::ffi::c_char;

use crate::abi::{Out, give};
use crate::config::{CONFIG, Config};
use crate::error::Error;
use crate::shared::{self, shared};

/// Settings; `cuInit` has refused bad ones.
pub(crate) fn config() -> &'static Config {
    CONFIG.as_ref().expect("cuInit has checked the settings")
}

/// Index of a device that exists.
pub(crate) fn index(device: i32) -> Result<usize, Error> {
    usize::try_from(device).ok().filter(|&i| i < config().devices).ok_or(Error::INVALID_DEVICE)
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
        give(count, i32::try_from(config().devices).map_err(|_| Error::UNKNOWN)?)
    }

    /// Memory of the device in bytes.
    fn cuDeviceTotalMem_v2(bytes: Out<'_, usize>, device: i32) {
        index(device)?;
        give(bytes, usize::try_from(crate::memory::total()).map_err(|_| Error::UNKNOWN)?)
    }

    /// Its identity: "fakecuda", zeros, and the number of the device.
    fn cuDeviceGetUuid(uuid: Out<'_, [u8; 16]>, device: i32) {
        let mut id = *b"fakecuda\0\0\0\0\0\0\0\0";
        id[15] = u8::try_from(index(device)?).map_err(|_| Error::UNKNOWN)?;
        give(uuid, id)
    }
}

/// Its name.
///
/// # Safety
/// `name` is null or has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, length: i32, device: i32) -> crate::CUresult {
    crate::abi::enter(crate::Func::cuDeviceGetName, || {
        let text = format!("Fake GPU {}", index(device)?);
        let room =
            usize::try_from(length).ok().filter(|&n| n > 0 && !name.is_null()).ok_or(Error::INVALID_VALUE)?;
        let length = text.len().min(room - 1);
        // SAFETY: `length` + 1 is at most the room that the caller promises.
        unsafe {
            name.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), length);
            name.add(length).write(0);
        }
        Ok(())
    })
}
