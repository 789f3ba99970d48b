//! What the environment says, read once.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::LazyLock;

use crate::device;
pub(crate) use crate::layout::MAX_DEVICES;

/// Settings of this process.
pub(crate) struct Config {
    /// Shared file.
    pub shm: PathBuf,
    /// Devices there are.
    pub devices: usize,
    /// Of those the ones this process sees, in its own order.
    pub visible: Vec<usize>,
    /// Memory per device, bytes.
    pub mem_bytes: u64,
    /// Kernel duration per unit of `gridDimX`, ns.
    pub unit_ns: u64,
    /// Fixed part of every copy, ns.
    pub copy_latency_ns: u64,
    /// Host-device bandwidth, bytes per µs.
    pub copy_bytes_per_us: u64,
    /// Addresses of functions without a name are given out.
    pub inner: u8,
}

/// Settings, or the sentence that says which variable is wrong.
pub(crate) static CONFIG: LazyLock<Result<Config, String>> = LazyLock::new(Config::from_env);

impl Config {
    fn from_env() -> Result<Self, String> {
        let devices = number("FAKECUDA_DEVICES", 1, 1, MAX_DEVICES)?;
        let default_shm = || format!("/dev/shm/fakecuda-{}", rustix::process::getuid().as_raw()).into();
        Ok(Self {
            shm: std::env::var_os("FAKECUDA_SHM").map_or_else(default_shm, PathBuf::from),
            devices,
            visible: visible(std::env::var("CUDA_VISIBLE_DEVICES").ok().as_deref(), devices),
            mem_bytes: number("FAKECUDA_MEM_BYTES", 16 << 30, 1 << 20, 1 << 39)?,
            unit_ns: number("FAKECUDA_UNIT_NS", 1000, 0, 1_000_000_000)?,
            copy_latency_ns: number("FAKECUDA_COPY_LATENCY_NS", 4000, 0, 1_000_000_000)?,
            inner: number("FAKECUDA_INNER", 0, 0, 1)?,
            copy_bytes_per_us: number("FAKECUDA_COPY_BYTES_PER_US", 12_000, 1, 1 << 40)?,
        })
    }
}

/// The devices in the order of the list, by number or by UUID (that of a GPU or of a MIG instance); as the real driver
/// does, up to the first that is none.
fn visible(list: Option<&str>, devices: usize) -> Vec<usize> {
    let Some(list) = list else { return (0..devices).collect() };
    let number = |name: &str| {
        let by_uuid = || device::uuid_index(name.strip_prefix("GPU-").or(name.strip_prefix("MIG-"))?);
        name.parse().ok().or_else(by_uuid).filter(|&index| index < devices)
    };
    list.split(',').map_while(|name| number(name.trim())).collect()
}

fn number<T>(name: &str, default: T, min: T, max: T) -> Result<T, String>
where
    T: Copy + FromStr + PartialOrd + std::fmt::Display,
{
    let Ok(text) = std::env::var(name) else { return Ok(default) };
    match text.parse() {
        Ok(n) if n >= min && n <= max => Ok(n),
        _ => Err(format!("{name}={text:?}: want a whole number from {min} to {max}")),
    }
}
