//! What is shown: plain values, made once a second and shared with readers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Neighbour, Occupancy, Party, labels, process::Process};
use crate::{
    contention::{Pair, Verdict},
    placement::Known,
    role::{Evidence, Role},
};

/// Who is on the GPUs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// Processes with work, by process id; those that ended are left out.
    pub processes: Vec<ProcessOnGpu>,
    /// Who stood in whose way, by device.
    pub contention: BTreeMap<String, Vec<Contention>>,
    /// Overlap of workloads since the agent has watched.
    pub overlaps: Vec<Overlap>,
    /// Active time of workloads.
    pub active: Vec<Active>,
    /// Training jobs beside inference servers, oldest first.
    pub neighbours: Vec<Neighbour>,
}

/// A process with work on a GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessOnGpu {
    /// Who it is.
    pub party: Party,
    /// What speaks for its role.
    pub evidence: Vec<Evidence>,
    /// Steps with launches.
    pub steps: u64,
    /// Where.
    pub devices: Vec<OnDevice>,
}

/// The part of a process's work that is on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OnDevice {
    /// Which device; absent while it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// How it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<Known>,
    /// Time from the first launch of a step to its result, overlaps counted once: an upper bound.
    pub active_s: f64,
    /// Waits that found work.
    pub waits: u64,
}

/// How long two workloads had work on a device at the same time.
#[derive(Clone, Debug, PartialEq)]
pub struct Overlap {
    /// Device.
    pub device: String,
    /// Labels of the two.
    pub victim: String,
    /// Likewise.
    pub aggressor: String,
    /// That both are on the device could be otherwise.
    pub inferred: bool,
    /// Seconds.
    pub seconds: f64,
}

/// Active time of a workload on a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Active {
    /// Device, or `unknown`.
    pub device: String,
    /// Role at the time.
    pub role: Role,
    /// Service.
    pub workload: String,
    /// It could be another device.
    pub inferred: bool,
    /// Seconds.
    pub seconds: f64,
}

/// What one process did to the steps of another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contention {
    /// Whose steps are looked at.
    pub victim: Party,
    /// Who had work at the same time.
    pub aggressor: Party,
    /// How long both had work on the device.
    pub overlap_s: f64,
    /// Median time of the victim's steps in that company over that of like steps alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inflation_ratio: Option<f64>,
    /// Steps alone that it rests on, or that there are.
    pub solo_steps: u64,
    /// Steps in company, likewise.
    pub company_steps: u64,
    /// What that says.
    pub verdict: Verdict,
    /// That both are on the device could be otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inferred: bool,
    /// What the two are called in metrics.
    #[serde(skip)]
    pub labels: [String; 2],
}

impl Occupancy {
    /// Makes the view anew.
    pub(super) fn show(&mut self) {
        let living = self.processes.iter().filter(|(_, process)| process.ended_ns.is_none());
        self.view = View {
            processes: living.map(|(&pid, process)| on_gpu(pid, process)).collect(),
            contention: self.contention(),
            overlaps: self
                .overlaps
                .iter()
                .map(|((device, victim, aggressor, inferred), ns)| Overlap {
                    device: device.clone(),
                    victim: victim.clone(),
                    aggressor: aggressor.clone(),
                    inferred: *inferred,
                    seconds: seconds(*ns),
                })
                .collect(),
            active: self
                .active
                .iter()
                .map(|((device, role, workload, inferred), ns)| Active {
                    device: device.clone(),
                    role: *role,
                    workload: workload.clone(),
                    inferred: *inferred,
                    seconds: seconds(*ns),
                })
                .collect(),
            neighbours: self.neighbours.events().cloned().collect(),
        };
    }

    fn contention(&self) -> BTreeMap<String, Vec<Contention>> {
        let of = |device: &str, pairs: Vec<Pair>| {
            pairs.into_iter().filter_map(|pair| self.pair(device, &pair)).collect()
        };
        self.matrices.iter().map(|(device, matrix)| (device.clone(), of(device, matrix.pairs()))).collect()
    }

    fn pair(&self, device: &str, pair: &Pair) -> Option<Contention> {
        let of = |pid: u32| Some((pid, self.processes.get(&pid)?));
        let (victim, aggressor) = (of(pair.victim)?, of(pair.aggressor)?);
        Some(Contention {
            labels: labels([Some(victim), Some(aggressor)]),
            inferred: victim.1.is_inferred(device) || aggressor.1.is_inferred(device),
            victim: Party::of(victim.0, victim.1),
            aggressor: Party::of(aggressor.0, aggressor.1),
            overlap_s: seconds(pair.overlap_ns),
            inflation_ratio: pair.inflation,
            solo_steps: pair.solo,
            company_steps: pair.company,
            verdict: pair.verdict(),
        })
    }
}

fn on_gpu(pid: u32, process: &Process) -> ProcessOnGpu {
    let mut devices = BTreeMap::<Option<String>, OnDevice>::new();
    for lane in process.lanes.values() {
        let (device, known) = lane.place.as_ref().map(|place| (place.device.clone(), place.known)).unzip();
        let fresh = OnDevice { device: device.clone(), known, active_s: 0.0, waits: 0 };
        let on = devices.entry(device).or_insert(fresh);
        on.active_s += seconds(lane.active_ns);
        on.waits += lane.steps;
    }
    ProcessOnGpu {
        party: Party::of(pid, process),
        evidence: process.evidence.clone(),
        steps: process.steps(),
        devices: devices.into_values().collect(),
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
