//! Memory of GPU processes.

use std::collections::BTreeMap;

use super::{Gpu, services};
use crate::{
    export::{json, metrics::Id, prometheus::Metrics, snapshot::Snapshot},
    memory::{Kind, ProcessMemory},
    role::Role,
};

/// Label value of what is not known.
const UNKNOWN: &str = "unknown";

/// Writes what processes hold, summed up by device and service.
pub(super) fn write(snapshot: &Snapshot, gpus: &[Gpu], metrics: &Metrics) {
    metrics.clear(Id::GpuProcessMemory);
    let services = services(snapshot);
    let processes = snapshot.occupancy.processes.iter();
    let roles: BTreeMap<u32, Role> =
        processes.map(|process| (process.party.pid, process.party.role)).collect();
    let mut sums: BTreeMap<(&str, Role, &str, String), u64> = BTreeMap::new();
    for process in &snapshot.memory {
        let device = process.device.as_deref().unwrap_or(UNKNOWN);
        let workload = services.get(&process.pid).copied().unwrap_or(UNKNOWN);
        let role = roles.get(&process.pid).copied().unwrap_or_default();
        for (kind, bytes) in kinds(process, gpus) {
            *sums.entry((device, role, workload, kind)).or_default() += bytes;
        }
    }
    for ((device, role, workload, kind), bytes) in sums {
        metrics.set(Id::GpuProcessMemory, &[device, &json::name(role), workload, &kind], bytes as f64);
    }
}

fn kinds(process: &ProcessMemory, gpus: &[Gpu]) -> Vec<(String, u64)> {
    let mut kinds: Vec<(String, u64)> =
        process.live_bytes.iter().map(|(kind, bytes)| (json::name(kind), *bytes)).collect();
    if process.pool_cached_bytes > 0 {
        kinds.push(("pool_cached".into(), process.pool_cached_bytes));
    }
    kinds.extend(overhead(process, gpus).map(|bytes| ("overhead".into(), bytes)));
    kinds
}

/// What NVML shows beyond all that the process's calls tell: what pools may keep and managed memory are told apart
/// already, and the sum of kinds on the device is no more than NVML shows.
pub(in crate::export) fn overhead(process: &ProcessMemory, gpus: &[Gpu]) -> Option<u64> {
    let gpu = gpus.iter().find(|gpu| Some(&gpu.uuid) == process.device.as_ref())?;
    let listed = gpu.processes.as_ref()?.iter().find(|listed| listed.pid == process.pid)?;
    let managed = process.live_bytes.get(&Kind::Managed).copied().unwrap_or_default();
    let told = process.held_bytes() + process.pool_cached_bytes + managed;
    Some(listed.memory_used_bytes?.saturating_sub(told))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        export::{
            gpus::tests::{families, snapshot},
            prometheus::Settings,
        },
        occupancy::{Party, ProcessOnGpu, View},
    };

    fn inference(pid: u32) -> ProcessOnGpu {
        let (workload, comm, container, pod) = ("vllm".into(), None, None, None);
        ProcessOnGpu {
            party: Party { pid, workload, comm, container, pod, role: Role::Inference },
            evidence: Vec::new(),
            steps: 0,
            devices: Vec::new(),
        }
    }

    #[test]
    fn processes_of_a_service_are_added_up_by_kind() {
        let metrics = Metrics::new(&Settings { max_series: 100, ..Settings::default() });
        let of = |pid, kind, bytes| ProcessMemory {
            pid,
            device: (pid < 9).then(|| "GPU-a".into()),
            live_bytes: [(kind, bytes)].into(),
            ..ProcessMemory::default()
        };
        let mut snapshot = snapshot(2_000_000_000);
        let managed = ProcessMemory {
            live_bytes: [(Kind::Pool, 40), (Kind::Managed, 7)].into(),
            pool_cached_bytes: 3,
            ..of(7, Kind::Pool, 0)
        };
        snapshot.memory = vec![of(6, Kind::Pool, 5), managed, of(9, Kind::Vmm, 1)];
        snapshot.occupancy = View { processes: [6, 7].map(inference).into(), ..View::default() };
        super::super::write(&snapshot, &metrics);
        let text = families(&metrics);
        for line in [
            r#"gpu_process_memory_bytes{device="GPU-a",role="inference",workload="vllm",kind="pool"} 45.0"#,
            r#"gpu_process_memory_bytes{device="GPU-a",role="inference",workload="vllm",kind="pool_cached"} 3.0"#,
            // NVML shows 60 of process 7.
            r#"gpu_process_memory_bytes{device="GPU-a",role="inference",workload="vllm",kind="overhead"} 10.0"#,
            r#"gpu_process_memory_bytes{device="unknown",role="unknown",workload="unknown",kind="vmm"} 1.0"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
    }
}
