//! Devices that are divided into instances.

use crate::enter::{INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, Out, Return, give, on_device};
use crate::handle::Handle;
use crate::state::{Device, Mig};

fn mig(device: &Device) -> Result<&Mig, Return> {
    device.mig.as_ref().ok_or(NOT_SUPPORTED)
}

/// Whether a GPU is divided, and will be after its next reset.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMigMode(
    device: Handle,
    current: Out<'_, u32>,
    pending: Out<'_, u32>,
) -> Return {
    on_device("nvmlDeviceGetMigMode", device, |device| {
        let mig = mig(device)?;
        give(current, mig.enabled.into())?;
        give(pending, mig.pending.into())
    })
}

/// How many places for instances there are; some may be empty.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMaxMigDeviceCount(device: Handle, count: Out<'_, u32>) -> Return {
    on_device("nvmlDeviceGetMaxMigDeviceCount", device, |device| {
        let places = device.mig.as_ref().map_or(0, |mig| mig.instances.len());
        give(count, u32::try_from(places).map_err(|_| INVALID_ARGUMENT)?)
    })
}

/// The instance at a place.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: Handle,
    index: u32,
    instance: Out<'_, Handle>,
) -> Return {
    on_device("nvmlDeviceGetMigDeviceHandleByIndex", device, |found| {
        let mig = mig(found)?;
        let place = index as usize;
        if !mig.enabled || mig.instances.get(place).is_none_or(Option::is_none) {
            return Err(NOT_FOUND);
        }
        give(instance, device.instance(place))
    })
}
