//! What the agent itself saw, as an event: it enters the pipeline, and a recording, like any kernel record.

mod gpu;
mod nvml;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wire::{Header, Kind};
use zerocopy::IntoBytes;

pub use gpu::{GpuProcessSeen, Sign};
pub use nvml::{
    DeviceCondition, DeviceMemory, DeviceProcess, DeviceSeen, DeviceUsage, DeviceUse, MigInstance, MigMode,
    NvmlSeen, NvmlSource, NvmlState, Refusal, Throttle,
};

/// A listening TCP port of a process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ListenPort {
    /// Network namespace (inode number).
    pub netns: u32,
    /// Port.
    pub port: u16,
}

/// A process that belongs to a service, or a change of what is known of it. The last word counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSeen {
    /// Process id in the agent's PID namespace.
    pub pid: u32,
    /// Start time (field 22 of /proc/PID/stat, clock ticks): tells a reused pid.
    pub start_ticks: u64,
    /// Name of the process.
    pub comm: String,
    /// Key of its service: the same for all its processes, unique on the node.
    pub service: String,
    /// Name of its service for people: what is exported as label `service`.
    pub service_name: String,
    /// Container id (64 hex digits), when in a container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// It maps a CUDA driver library that is probed.
    pub cuda: bool,
    /// Its listening ports.
    #[serde(default)]
    pub ports: Vec<ListenPort>,
}

/// What the processes of a service have used, in all, as of this record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceUse {
    /// Name of the service.
    pub service: String,
    /// CPU time, milliseconds.
    pub cpu_ms: u64,
    /// Periods of its CPU quota, and those of them in which it was stopped; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub periods: Option<[u64; 2]>,
}

/// Something the agent saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Observation {
    /// First of a run: who writes this.
    Start {
        /// Version of the agent.
        agent: String,
        /// Kernel release.
        kernel: String,
        /// Names of the rows of the CUDA table, by row number.
        rows: Vec<String>,
    },
    /// The wall clock at this record's monotonic time; written about ten times a second, so it is the core's
    /// only heartbeat as well.
    Clock {
        /// Nanoseconds since the Unix epoch.
        wall_ns: u64,
    },
    /// A process of a service.
    Process(ProcessSeen),
    /// A process of a service ended, seen from /proc.
    ProcessGone {
        /// Process id.
        pid: u32,
        /// Its start time.
        start_ticks: u64,
    },
    /// What `/proc` tells of a process that uses a GPU.
    GpuProcess(GpuProcessSeen),
    /// What the processes of a service have used.
    ServiceUse(ServiceUse),
    /// The kernel side's counters, totals since load, by name.
    KernelCounters {
        /// Name to value.
        counters: BTreeMap<String, u64>,
    },
    /// What NVML told of the GPUs.
    Nvml(NvmlSeen),
    /// Regular end of a run: whatever is provisional becomes final.
    End,
}

impl Observation {
    /// The record that carries it, as of `time_ns` (`CLOCK_MONOTONIC`).
    pub fn to_record(&self, time_ns: u64) -> Vec<u8> {
        let json = serde_json::to_vec(self).unwrap_or_default();
        let len = u32::try_from(size_of::<Header>() + json.len()).unwrap_or(u32::MAX);
        let header = Header { abi: wire::ABI, kind: Kind::Observation as u16, len, time_ns, tgid: 0, tid: 0 };
        let mut record = header.as_bytes().to_vec();
        record.extend_from_slice(&json);
        record
    }
}
