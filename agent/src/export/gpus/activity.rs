//! What the watched processes do on the GPUs, beside what NVML tells of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Gpu, GpuProcess, Gpus};
use crate::{
    decode::DeviceUse,
    export::coverage::Covered,
    occupancy::{OnDevice, ProcessOnGpu, View},
    placement::Known,
    role::{Evidence, Role},
};

/// What a process does on a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Activity {
    /// What it is for.
    pub role: Role,
    /// What speaks for that.
    pub evidence: Vec<Evidence>,
    /// Time from the first launch of a step to its result, overlaps counted once: an upper bound.
    pub active_s: f64,
    /// Waits for results that found work there.
    pub waits: u64,
    /// How it is known that it is on this device; absent where it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<Known>,
    /// It could be on another device.
    pub inferred: bool,
    /// UID of its pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
}

impl Gpus {
    /// Adds what the watched processes do.
    pub(super) fn add(&mut self, view: &View, covered: &BTreeMap<u32, Covered>) {
        for process in &view.processes {
            for on in &process.devices {
                self.add_process(process, on, covered.get(&process.party.pid));
            }
        }
        for (device, pairs) in view.contention.iter().filter(|(_, pairs)| !pairs.is_empty()) {
            self.gpu(device).contention.clone_from(pairs);
        }
        self.neighbours.clone_from(&view.neighbours);
    }

    fn add_process(&mut self, process: &ProcessOnGpu, on: &OnDevice, covered: Option<&Covered>) {
        let activity = Activity {
            role: process.party.role,
            evidence: process.evidence.clone(),
            active_s: on.active_s,
            waits: on.waits,
            known: on.known,
            inferred: on.known.is_some_and(Known::is_inferred),
            pod: process.party.pod.clone(),
        };
        let list = match &on.device {
            Some(device) => self.gpu(device).processes.get_or_insert_default(),
            None => &mut self.unplaced,
        };
        let is_it =
            |other: &&mut GpuProcess| other.pid == process.party.pid && other.does == DeviceUse::Compute;
        if let Some(known) = list.iter_mut().find(is_it) {
            known.activity = Some(activity);
            return;
        }
        list.push(GpuProcess {
            pid: process.party.pid,
            does: DeviceUse::Compute,
            comm: process.party.comm.clone(),
            service: Some(process.party.workload.clone()),
            container: process.party.container.clone(),
            coverage: covered.cloned(),
            memory_used_bytes: None,
            activity: Some(activity),
        });
    }

    /// The device, which NVML need not tell of.
    fn gpu(&mut self, uuid: &str) -> &mut Gpu {
        let at = self.gpus.iter().position(|gpu| gpu.uuid == uuid).unwrap_or_else(|| {
            self.gpus.push(Gpu { uuid: uuid.to_owned(), unlisted: true, ..Gpu::default() });
            self.gpus.len() - 1
        });
        &mut self.gpus[at]
    }
}
