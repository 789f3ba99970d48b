//! What the file says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::fakecuda::{Held, held};

/// Everything there is.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct State {
    /// Version of the driver.
    pub driver: String,
    /// Version of CUDA, as 13000 for 13.0.
    pub cuda: i32,
    /// The devices.
    pub devices: Vec<Device>,
    /// File of the simulated CUDA devices (`FAKECUDA_SHM`): what processes hold there is on the device of the same place,
    /// beside what stands here.
    pub fakecuda: Option<PathBuf>,
    /// Result codes by function, for every device: the call does nothing else.
    pub errors: BTreeMap<String, u32>,
    /// Functions that do not return while they stand here.
    pub hang: Vec<String>,
    /// Functions that take so many milliseconds longer.
    pub delay_ms: BTreeMap<String, u64>,
}

/// A device: a GPU, or an instance of one.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Device {
    /// Its identity.
    pub uuid: String,
    /// Its name.
    pub name: String,
    /// Number of its architecture in `nvml.h`.
    pub architecture: u32,
    /// As in `nvidia-smi`.
    pub pci_bus_id: String,
    /// Every call on it says that it is lost.
    pub lost: bool,
    /// Result codes by function.
    pub errors: BTreeMap<String, u32>,
    /// Memory, bytes; what is not in use is free.
    pub memory: Memory,
    /// Percent of the time in which something ran on it.
    pub utilization: u32,
    /// Percent of the time in which its memory was read or written.
    pub memory_utilization: u32,
    /// Degrees Celsius.
    pub temperature: u32,
    /// Milliwatts.
    pub power: u32,
    /// Milliwatts.
    pub power_limit: u32,
    /// MHz.
    pub sm_clock: u32,
    /// MHz.
    pub memory_clock: u32,
    /// Bits of `nvmlClocksEventReason…`.
    pub throttle: u64,
    /// XID errors, oldest first: the list only grows.
    pub xids: Vec<u64>,
    /// What runs on it.
    pub processes: Vec<Process>,
    /// Absent where the device cannot do it.
    pub mig: Option<Mig>,
}

/// Memory of a device, bytes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// All of it.
    pub total: u64,
    /// The driver's own.
    pub reserved: u64,
    /// Allocated.
    pub used: u64,
}

/// A process on a device.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its memory on the device, bytes; not available when absent.
    pub memory: Option<u64>,
    /// It draws; otherwise it computes.
    #[serde(default)]
    pub graphics: bool,
    /// Its instances (GPU, compute) where the device is divided.
    pub instance: Option<(u32, u32)>,
}

/// How a GPU is divided.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mig {
    /// It is divided now.
    pub enabled: bool,
    /// It will be after the next reset.
    pub pending: bool,
    /// The instances by index; an empty place is null.
    pub instances: Vec<Option<Device>>,
}

impl State {
    /// The file as it is now, or the sentence that says what is wrong with it.
    pub fn read(path: &Path) -> Result<Self, String> {
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| named(&error))?;
        let mut state: Self = serde_json::from_str(&text).map_err(|error| named(&error))?;
        if let Some(shm) = &state.fakecuda {
            let held = held(shm).map_err(|error| format!("{}: {error}", shm.display()))?;
            for (device, held) in state.devices.iter_mut().zip(held) {
                device.hold(held);
            }
        }
        Ok(state)
    }
}

impl Device {
    fn hold(&mut self, held: Held) {
        for (pid, bytes) in held {
            self.memory.used += bytes;
            self.processes.push(Process { pid, memory: Some(bytes), graphics: false, instance: None });
        }
    }
}

/// Where the file is: `FAKENVML_STATE`, or beside this library.
pub(crate) fn path() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("FAKENVML_STATE") {
        return Some(path.into());
    }
    Some(library()?.with_file_name("fakenvml.json"))
}

/// The file this code was loaded from.
fn library() -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt as _;
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let here: fn() -> Option<PathBuf> = library;
    // SAFETY: dladdr writes the struct it is given; any address may be asked for.
    let found = unsafe { libc::dladdr(here as *const libc::c_void, info.as_mut_ptr()) } != 0;
    // SAFETY: all zeros is a valid value, and so is what dladdr wrote.
    let info = unsafe { info.assume_init() };
    if !found || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a C string that lives as long as the library is loaded.
    let name = unsafe { std::ffi::CStr::from_ptr(info.dli_fname) };
    Some(std::ffi::OsStr::from_bytes(name.to_bytes()).into())
}
