//! What a device is, and how it fares.

use std::ffi::c_char;

use crate::enter::{ARGUMENT_VERSION_MISMATCH, INVALID_ARGUMENT, Out, Return, give, on_device};
use crate::handle::Handle;
use crate::state::Device;
use crate::system::give_text;

/// `nvmlMemory_v2_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Size of the struct and version of its layout.
    pub version: u32,
    /// All of it, bytes.
    pub total: u64,
    /// The driver's own.
    pub reserved: u64,
    /// Neither.
    pub free: u64,
    /// Allocated.
    pub used: u64,
}

/// `nvmlUtilization_t`: percent.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Utilization {
    /// Of the time in which something ran.
    pub gpu: u32,
    /// Of the time in which memory was read or written.
    pub memory: u32,
}

/// `nvmlPciInfo_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PciInfo {
    /// Not filled.
    pub bus_id_legacy: [c_char; 16],
    /// Domain.
    pub domain: u32,
    /// Bus.
    pub bus: u32,
    /// Device.
    pub device: u32,
    /// Vendor and model.
    pub pci_device_id: u32,
    /// Vendor and model of the board.
    pub pci_subsystem_id: u32,
    /// All of the address as text.
    pub bus_id: [u8; 32],
}

const _: () = assert!(size_of::<Memory>() == 40 && size_of::<PciInfo>() == 68);

/// A function that gives one number of a device.
macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident: $ty:ty = $value:expr;)+) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(device: Handle, out: Out<'_, $ty>) -> Return {
            let value: fn(&Device) -> $ty = $value;
            on_device(stringify!($name), device, |device| give(out, value(device)))
        }
    )+};
}

numbers! {
    /// Number of the architecture.
    nvmlDeviceGetArchitecture: u32 = |device| device.architecture;
    /// Power drawn, milliwatts.
    nvmlDeviceGetPowerUsage: u32 = |device| device.power;
    /// Power allowed, milliwatts.
    nvmlDeviceGetEnforcedPowerLimit: u32 = |device| device.power_limit;
    /// Bits of what holds the clocks back.
    nvmlDeviceGetCurrentClocksThrottleReasons: u64 = |device| device.throttle;
    /// Percent of the last sampling period.
    nvmlDeviceGetUtilizationRates: Utilization =
        |device| Utilization { gpu: device.utilization, memory: device.memory_utilization };
}

/// Temperature of the chip, the only sensor (0).
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetTemperature(device: Handle, sensor: u32, out: Out<'_, u32>) -> Return {
    on_device("nvmlDeviceGetTemperature", device, |device| {
        if sensor != 0 {
            return Err(INVALID_ARGUMENT);
        }
        give(out, device.temperature)
    })
}

/// Clock of the multiprocessors (1) or of the memory (2), MHz.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetClockInfo(device: Handle, clock: u32, out: Out<'_, u32>) -> Return {
    on_device("nvmlDeviceGetClockInfo", device, |device| match clock {
        1 => give(out, device.sm_clock),
        2 => give(out, device.memory_clock),
        _ => Err(INVALID_ARGUMENT),
    })
}

/// Memory, in the layout that the caller asks for: only version 2.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: Handle, out: Out<'_, Memory>) -> Return {
    on_device("nvmlDeviceGetMemoryInfo_v2", device, |device| {
        let out = out.ok_or(INVALID_ARGUMENT)?;
        if out.version as usize != size_of::<Memory>() | 2 << 24 {
            return Err(ARGUMENT_VERSION_MISMATCH);
        }
        let have = &device.memory;
        let free = have.total.saturating_sub(have.reserved + have.used);
        let (total, reserved, used) = (have.total, have.reserved, have.used);
        *out = Memory { version: out.version, total, reserved, free, used };
        Ok(())
    })
}

/// Where it is on the bus.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetPciInfo_v3(device: Handle, out: Out<'_, PciInfo>) -> Return {
    on_device("nvmlDeviceGetPciInfo_v3", device, |device| {
        let text = device.pci_bus_id.as_bytes();
        let mut bus_id = [0; 32];
        // The last byte stays 0: the text is a C string.
        bus_id[..31].get_mut(..text.len()).ok_or(INVALID_ARGUMENT)?.copy_from_slice(text);
        let none = PciInfo {
            bus_id_legacy: [0; 16],
            domain: 0,
            bus: 0,
            device: 0,
            pci_device_id: 0,
            pci_subsystem_id: 0,
            bus_id,
        };
        give(out, none)
    })
}

/// Its name.
///
/// # Safety
/// `text` is null or has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetName(device: Handle, text: *mut c_char, length: u32) -> Return {
    // SAFETY: the caller promises the room.
    on_device("nvmlDeviceGetName", device, |device| unsafe { give_text(text, length, &device.name) })
}

/// Its identity.
///
/// # Safety
/// `text` is null or has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUUID(device: Handle, text: *mut c_char, length: u32) -> Return {
    // SAFETY: the caller promises the room.
    on_device("nvmlDeviceGetUUID", device, |device| unsafe { give_text(text, length, &device.uuid) })
}
