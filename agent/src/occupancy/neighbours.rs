//! Training jobs beside inference servers, on one device.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::process::Process;
use crate::role::Role;

/// Events that are kept.
const KEPT: usize = 64;
/// A process that has had no step for so long is not there.
const ACTIVE_NS: u64 = 10_000_000_000;

/// A process, named as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Party {
    /// Process id.
    pub pid: u32,
    /// Its service.
    pub workload: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
    /// Its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// UID of its pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// What it is for.
    pub role: Role,
}

impl Party {
    pub(super) fn of(pid: u32, process: &Process) -> Self {
        Self {
            pid,
            workload: process.workload.clone(),
            comm: process.comm.clone(),
            container: process.container.clone(),
            pod: process.pod.clone(),
            role: process.role,
        }
    }
}

/// A training job that works on the device of an inference server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// When both were first seen there, ns since the Unix epoch; 0 when the wall clock was not known.
    pub first_ns: u64,
    /// When both were last seen there.
    pub last_ns: u64,
    /// The device.
    pub device: String,
    /// The server.
    pub inference: Party,
    /// The training job.
    pub training: Party,
}

/// The last of them.
#[derive(Debug, Default)]
pub struct Neighbours {
    events: VecDeque<Neighbour>,
}

impl Neighbours {
    /// Looks who is where.
    pub(super) fn look(&mut self, processes: &BTreeMap<u32, Process>, wall_ns: u64, now_ns: u64) {
        let is_there = |process: &&Process| process.last_ns.saturating_add(ACTIVE_NS) > now_ns;
        let of = |role| {
            let there = processes.iter().filter(move |(_, process)| process.role == role);
            there.filter(move |(_, process)| is_there(process))
        };
        for (&server, inference) in of(Role::Inference) {
            for (&job, training) in of(Role::Training) {
                for device in
                    inference.devices().filter(|device| training.devices().any(|other| other == *device))
                {
                    self.beside(device, Party::of(server, inference), Party::of(job, training), wall_ns);
                }
            }
        }
    }

    /// Oldest first.
    pub(super) fn events(&self) -> impl Iterator<Item = &Neighbour> {
        self.events.iter()
    }

    fn beside(&mut self, device: &str, inference: Party, training: Party, wall_ns: u64) {
        let same = |event: &&mut Neighbour| {
            event.device == device
                && event.inference.pid == inference.pid
                && event.training.pid == training.pid
        };
        if let Some(known) = self.events.iter_mut().find(same) {
            known.last_ns = wall_ns;
            return;
        }
        if self.events.len() >= KEPT {
            self.events.pop_front();
        }
        let (device, first_ns) = (device.to_owned(), wall_ns);
        self.events.push_back(Neighbour { first_ns, last_ns: wall_ns, device, inference, training });
    }
}

impl Process {
    /// Devices on which it had work.
    fn devices(&self) -> impl Iterator<Item = &str> {
        self.lanes.values().filter_map(|lane| lane.place.as_ref()).map(|place| &*place.device)
    }
}
