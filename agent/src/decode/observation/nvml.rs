//! What NVML told of the GPUs, in NVML's own units, so that nothing is rounded on the way.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Whether NVML is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NvmlState {
    /// Not at all: `gpu.nvml = "off"`.
    #[default]
    Off,
    /// It answers.
    On,
    /// It cannot be used, and is tried again.
    Unavailable,
    /// Closed on request, until it is resumed: nothing of the driver is held.
    Released,
}

/// Whether NVML is asked, and of what version it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NvmlSource {
    /// Whether it is asked.
    pub state: NvmlState,
    /// Why it is not on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The library's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library: Option<String>,
    /// Version of the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_version: Option<String>,
    /// Newest version of CUDA that the driver knows, as `13.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda_version: Option<String>,
}

/// Why a number is not there, and will not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// This device does not have it, or this driver not the function.
    NotSupported,
    /// The agent may not ask.
    NoPermission,
}

/// Whether a GPU is divided into instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigMode {
    /// It is.
    pub enabled: bool,
    /// It will be after its next reset.
    pub pending: bool,
}

/// Which instance a MIG device is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigInstance {
    /// UUID of the GPU.
    pub parent: String,
    /// Place among the instances of that GPU.
    pub index: u32,
    /// Id of the GPU instance; known once a process runs on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_instance: Option<u32>,
    /// Id of the compute instance; likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_instance: Option<u32>,
}

/// What a device is: a GPU, or an instance of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSeen {
    /// Its identity, the same over restarts. For a GPU that was lost before it gave one: `index-N`.
    pub uuid: String,
    /// NVML's number of the GPU (of an instance's GPU); not always the number in CUDA.
    pub index: u32,
    /// Name of the product.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Architecture, as `Hopper`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Address on the PCI bus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci_bus_id: Option<String>,
    /// Whether it is divided; absent where it cannot be, and for an instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<MigMode>,
    /// It is an instance, this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<MigInstance>,
    /// It cannot be reached any more; why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// Numbers it does not give, by name, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, Refusal>,
}

/// Memory of a device, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceMemory {
    /// All of it.
    pub total: u64,
    /// Held by processes.
    pub used: u64,
    /// Left.
    pub free: u64,
    /// The driver's own.
    pub reserved: u64,
}

/// What a process does on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceUse {
    /// It has a CUDA context.
    Compute,
    /// It draws.
    Graphics,
}

/// A process on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceProcess {
    /// Process id: NVML tells the host's.
    pub pid: u32,
    /// What it does there.
    pub does: DeviceUse,
    /// Start time (clock ticks), when /proc told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ticks: Option<u64>,
    /// Its name, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
    /// Its container, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Its memory on the device, bytes; not known under MPS and in some virtual machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_memory: Option<u64>,
}

/// How a device is used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceUsage {
    /// Which device.
    pub uuid: String,
    /// How long this can be taken for the present, milliseconds.
    pub valid_ms: u64,
    /// Percent of the driver's last sampling period (1/6 s to 1 s) in which any kernel ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization_percent: Option<u32>,
    /// Percent of it in which memory was read or written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_utilization_percent: Option<u32>,
    /// Its memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<DeviceMemory>,
    /// Before and after that was asked for, `CLOCK_MONOTONIC` ns: what moved in between may be in it or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_asked_ns: Option<[u64; 2]>,
    /// Who is on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<Vec<DeviceProcess>>,
}

/// What holds the clocks of a device back. Being idle does not, nor does a clock that somebody chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Throttle {
    /// The power limit.
    SwPowerCap,
    /// The hardware, for its temperature, its power or an outer signal; also for a moment when clocks change.
    HwSlowdown,
    /// Another GPU of its group.
    SyncBoost,
    /// The driver, for its temperature.
    SwThermal,
    /// The hardware, for its temperature.
    HwThermal,
    /// An outer signal, as of the power supply.
    HwPowerBrake,
}

impl Throttle {
    /// All there are.
    pub const ALL: [Self; 6] = [
        Self::SwPowerCap,
        Self::HwSlowdown,
        Self::SyncBoost,
        Self::SwThermal,
        Self::HwThermal,
        Self::HwPowerBrake,
    ];
}

/// How a device fares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceCondition {
    /// Which device.
    pub uuid: String,
    /// How long this can be taken for the present, milliseconds.
    pub valid_ms: u64,
    /// Temperature of the chip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_celsius: Option<u32>,
    /// Power drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_milliwatts: Option<u32>,
    /// Power allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_limit_milliwatts: Option<u32>,
    /// Clock of the multiprocessors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_clock_mhz: Option<u32>,
    /// Clock of the memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_clock_mhz: Option<u32>,
    /// What holds the clocks back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle: Option<Vec<Throttle>>,
}

/// Something that NVML told, or that it tells nothing. The last word on each device counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum NvmlSeen {
    /// Whether it is asked.
    Source(NvmlSource),
    /// The devices there are, by UUID: what is not among them is gone.
    Devices {
        /// In NVML's order, each instance behind its GPU.
        uuids: Vec<String>,
    },
    /// What a device is.
    Device(DeviceSeen),
    /// How it is used.
    Usage(DeviceUsage),
    /// How it fares.
    Condition(DeviceCondition),
    /// The driver reported an error of a device.
    Xid {
        /// Which device.
        uuid: String,
        /// Number of the error, as in NVIDIA's list of XIDs.
        xid: u64,
    },
}
