//! The GPUs for people and machines: `/api/v1/gpus`, `stagelens gpu` and the metrics `gpu_*`.

mod activity;
mod families;
pub(super) mod memory;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    coverage::{self, Covered},
    snapshot::Snapshot,
};
use crate::{
    decode::{DeviceProcess, DeviceUse, NvmlSource, Refusal, Throttle},
    device::Device,
    memory::ProcessMemory,
    occupancy::{Contention, Neighbour},
};

pub use activity::Activity;
pub(super) use families::write;

/// All that is known of the GPUs. What is not known is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Gpus {
    /// Where it is known from.
    pub nvml: Nvml,
    /// GPUs in NVML's order, each instance of a divided one behind it; then those that only their processes tell of.
    pub gpus: Vec<Gpu>,
    /// Processes with work of which it is not known on which device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unplaced: Vec<GpuProcess>,
    /// Training jobs that worked beside an inference server, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub neighbours: Vec<Neighbour>,
    /// Memory that processes allocated, as their calls tell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<ProcessMemory>,
}

/// Where it is known from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Nvml {
    /// Whether NVML is asked, and of what version it is.
    #[serde(flatten)]
    pub source: NvmlSource,
    /// Function of NVML whose call does not return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hanging_function: Option<String>,
    /// How long ago it was called, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hanging_s: Option<f64>,
}

/// A GPU or an instance of one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpu {
    /// Identity; `index-N` for a GPU that was lost before it gave one.
    pub uuid: String,
    /// NVML's number of the GPU.
    pub index: u32,
    /// Only its processes tell of it, and it has no number.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unlisted: bool,
    /// Name of the product.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Architecture, as `Hopper`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Address on the PCI bus.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci_bus_id: Option<String>,
    /// It is divided into instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mig_enabled: Option<bool>,
    /// It will be after its next reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mig_pending: Option<bool>,
    /// It is an instance of this GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Its place among the instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_index: Option<u32>,
    /// Its GPU instance, known once a process runs on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_instance: Option<u32>,
    /// Its compute instance, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_instance: Option<u32>,
    /// It cannot be reached any more; why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// How old use, memory and processes are, or would be if they were still told, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_s: Option<f64>,
    /// Share of the driver's last sampling period in which any kernel ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization_ratio: Option<f64>,
    /// Share of it in which memory was read or written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_utilization_ratio: Option<f64>,
    /// Memory: used, free, and the driver's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_total_bytes: Option<u64>,
    /// Held by processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used_bytes: Option<u64>,
    /// Left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_free_bytes: Option<u64>,
    /// The driver's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_reserved_bytes: Option<u64>,
    /// Temperature of the chip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_celsius: Option<f64>,
    /// Power drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_watts: Option<f64>,
    /// Power allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_watts: Option<f64>,
    /// Clock of the multiprocessors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_clock_hertz: Option<f64>,
    /// Clock of the memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_clock_hertz: Option<f64>,
    /// What holds the clocks back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttle: Option<Vec<Throttle>>,
    /// Errors that the driver reported since the agent has watched, by XID.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub xids: BTreeMap<u64, u64>,
    /// What the device does not tell, and why.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, Refusal>,
    /// Who is on it; absent for a divided GPU, whose instances tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<Vec<GpuProcess>>,
    /// Who had work on it at the same time as whom, and what that did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub contention: Vec<Contention>,
}

/// A process on a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuProcess {
    /// Process id.
    pub pid: u32,
    /// What it does there.
    #[serde(rename = "type")]
    pub does: DeviceUse,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
    /// The service it belongs to, when it is one that is watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Whether its CUDA calls are seen, and by which ways.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<Covered>,
    /// Its memory on the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_used_bytes: Option<u64>,
    /// What it does there, when it is one that is watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<Activity>,
}

impl Gpus {
    /// The GPUs of a snapshot, as of `now_ns`.
    pub fn of(snapshot: &Snapshot, now_ns: u64) -> Self {
        let services = services(snapshot);
        let hanging = snapshot.nvml.hanging;
        let nvml = Nvml {
            source: snapshot.devices.nvml().clone(),
            hanging_function: hanging.map(|call| call.function.to_owned()),
            hanging_s: hanging.map(|call| call.age_seconds),
        };
        let covered = coverage::of(snapshot, now_ns).into_iter().map(|one| (one.pid, one)).collect();
        let context = Context { services, covered, now_ns };
        let gpus = snapshot.devices.iter().map(|device| gpu(device, &context)).collect();
        let mut gpus = Self { nvml, gpus, memory: snapshot.memory.clone(), ..Self::default() };
        gpus.add(&snapshot.occupancy, &context.covered);
        gpus
    }
}

/// Names of services by process.
pub(super) fn services(snapshot: &Snapshot) -> BTreeMap<u32, &str> {
    let services = snapshot.probes.services.iter();
    services.flat_map(|service| service.pids.iter().map(|&pid| (pid, &*service.name))).collect()
}

/// What is known of processes beside what NVML tells.
struct Context<'a> {
    services: BTreeMap<u32, &'a str>,
    covered: BTreeMap<u32, Covered>,
    now_ns: u64,
}

fn gpu(device: &Device, context: &Context<'_>) -> Gpu {
    let now_ns = context.now_ns;
    let seen = device.seen().clone();
    let instance = seen.instance.as_ref();
    let identity = Gpu {
        mig_enabled: seen.mig.map(|mig| mig.enabled),
        mig_pending: seen.mig.map(|mig| mig.pending),
        parent: instance.map(|instance| instance.parent.clone()),
        instance_index: instance.map(|instance| instance.index),
        gpu_instance: instance.and_then(|instance| instance.gpu_instance),
        compute_instance: instance.and_then(|instance| instance.compute_instance),
        uuid: seen.uuid,
        index: seen.index,
        name: seen.name,
        architecture: seen.architecture,
        pci_bus_id: seen.pci_bus_id,
        lost: seen.lost,
        age_s: device.told_ns().map(|at| now_ns.saturating_sub(at) as f64 / 1e9),
        xids: device.xids().clone(),
        refused: seen.refused,
        ..Gpu::default()
    };
    with_condition(with_usage(identity, device, context), device, now_ns)
}

fn with_usage(gpu: Gpu, device: &Device, context: &Context<'_>) -> Gpu {
    let Some(usage) = device.usage(context.now_ns) else { return gpu };
    let ratio = |percent: u32| f64::from(percent) / 100.0;
    let process = |process: &DeviceProcess| GpuProcess {
        pid: process.pid,
        does: process.does,
        comm: process.comm.clone(),
        service: context.services.get(&process.pid).map(|&name| name.to_owned()),
        container: process.container.clone(),
        coverage: context.covered.get(&process.pid).cloned(),
        memory_used_bytes: process.used_memory,
        activity: None,
    };
    Gpu {
        utilization_ratio: usage.utilization_percent.map(ratio),
        memory_utilization_ratio: usage.memory_utilization_percent.map(ratio),
        memory_total_bytes: usage.memory.map(|memory| memory.total),
        memory_used_bytes: usage.memory.map(|memory| memory.used),
        memory_free_bytes: usage.memory.map(|memory| memory.free),
        memory_reserved_bytes: usage.memory.map(|memory| memory.reserved),
        processes: usage.processes.as_ref().map(|list| list.iter().map(process).collect()),
        ..gpu
    }
}

fn with_condition(gpu: Gpu, device: &Device, now_ns: u64) -> Gpu {
    let Some(condition) = device.condition(now_ns) else { return gpu };
    let watts = |milliwatts: u32| f64::from(milliwatts) / 1e3;
    let hertz = |mhz: u32| f64::from(mhz) * 1e6;
    Gpu {
        temperature_celsius: condition.temperature_celsius.map(f64::from),
        power_watts: condition.power_milliwatts.map(watts),
        power_limit_watts: condition.power_limit_milliwatts.map(watts),
        sm_clock_hertz: condition.sm_clock_mhz.map(hertz),
        memory_clock_hertz: condition.memory_clock_mhz.map(hertz),
        throttle: condition.throttle.clone(),
        ..gpu
    }
}

#[cfg(test)]
mod tests;
