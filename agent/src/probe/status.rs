//! What the attaching side tells of itself, for `/api/v1/status`, `/readyz` and `check`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wire::names;

use super::{
    tier::Tier,
    verdict::{ProbeVerdict, State},
};

/// Programs without which the product does not work.
const ESSENTIAL: [&str; 5] = [
    names::PROG_SOCK_RECV,
    names::PROG_SOCK_SEND,
    names::PROG_SOCK_EXIT,
    names::PROG_SYNC_ENTER,
    names::PROG_SYNC_RETURN,
];

/// State of the attaching side at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Programs are loaded and the first look at all processes is done.
    pub ready: bool,
    /// What is missing while it is not, as sentences.
    pub missing: Vec<String>,
    /// Every program on every target.
    pub probes: Vec<ProbeVerdict>,
    /// Services found.
    pub services: Vec<ServiceStatus>,
    /// What their processes use, by name.
    pub usage: BTreeMap<String, Usage>,
    /// How far the CUDA calls of processes are within reach.
    pub reach: Vec<Reach>,
    /// How socket calls are seen.
    pub socket: SocketStatus,
    /// Size of the ring buffer.
    pub ring_bytes: u32,
    /// Instructions the kernel's verifier walked, by loaded program.
    pub verified_instructions: BTreeMap<String, u32>,
    /// The search for processes.
    pub scan: ScanStatus,
}

/// A way that CUDA calls take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Path {
    /// Exported functions of a driver.
    Driver,
    /// Functions of a driver without a name, by addresses that it gave out.
    Inner,
    /// The runtime, in the place of a driver that is not attached to.
    Runtime,
}

/// How far the CUDA calls of a process are within reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reach {
    /// The process.
    pub pid: u32,
    /// Ways by which calls came.
    pub paths: Vec<Path>,
    /// What is known not to be seen, as sentences.
    pub missing: Vec<String>,
}

/// How socket calls are seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SocketStatus {
    /// Which hooks.
    pub tier: Tier,
    /// What they cost.
    pub cost: &'static str,
    /// What they do not see.
    pub not_seen: &'static str,
}

impl From<Tier> for SocketStatus {
    fn from(tier: Tier) -> Self {
        Self { tier, cost: tier.cost(), not_seen: tier.blind_spots() }
    }
}

/// One service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServiceStatus {
    /// Unique key.
    pub service: String,
    /// Name for people.
    pub name: String,
    /// Container id, when in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Its processes.
    pub pids: Vec<u32>,
    /// Those of them that use the GPU.
    pub gpu_pids: Vec<u32>,
    /// Its listening ports.
    pub ports: Vec<u16>,
    /// The inference server that it is, as `vllm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_version: Option<String>,
}

/// What the processes of services of one name use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// CPU time since they started, those that have ended included, ms.
    pub cpu_ms: u64,
    /// Resident memory, bytes; absent when none runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

/// The search for processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScanStatus {
    /// Full looks so far.
    pub passes: u64,
    /// Processor time that the last one took, microseconds (attaching not counted).
    pub last_pass_cpu_us: u64,
    /// Processes seen by it.
    pub processes: usize,
    /// Hints that came too fast.
    pub hints_dropped: u64,
    /// Observations that the pipeline did not take in time.
    pub observations_dropped: u64,
    /// Functions without a name that are attached to, because somebody was given their address.
    pub inner_places: usize,
    /// Those that are not, although somebody was.
    pub inner_refused: u64,
}

impl Status {
    /// Sets `ready` and `missing` from the rest.
    pub fn judge_readiness(&mut self) {
        // One library that cannot be probed, whoever brought it, does not make the agent useless for the others.
        let works =
            |program: &str| self.probes.iter().any(|probe| probe.program == program && probe.attached > 0);
        let broken = self.probes.iter().filter(|probe| {
            ESSENTIAL.contains(&probe.program.as_str())
                && probe.state != State::Attached
                && !works(&probe.program)
        });
        self.missing = broken
            .map(|probe| {
                let reason = probe.reason.as_deref().unwrap_or("not attached");
                format!("{} on {}: {reason}", probe.program, probe.target)
            })
            .collect();
        if self.scan.passes == 0 {
            self.missing.push("the first look at all processes is not done".to_owned());
        }
        self.ready = self.missing.is_empty();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(program: &str, state: State) -> ProbeVerdict {
        let attached = usize::from(state == State::Attached);
        ProbeVerdict {
            program: program.to_owned(),
            target: "t".to_owned(),
            state,
            reason: (attached == 0).then(|| "why".to_owned()),
            cost_class: None,
            attached,
        }
    }

    #[test]
    fn readiness_names_what_is_missing() {
        let cases = [
            (vec![], 0, vec!["the first look at all processes is not done"]),
            (vec![], 1, vec![]),
            (vec![probe("sock_recv", State::Attached), probe("cuda_copy", State::Broken)], 1, vec![]),
            (vec![probe("sock_recv", State::Unsupported)], 1, vec!["sock_recv on t: why"]),
            (vec![probe("cuda_sync_return", State::Skipped)], 1, vec!["cuda_sync_return on t: why"]),
            (
                vec![
                    probe("cuda_sync_return", State::Unsupported),
                    probe("cuda_sync_return", State::Attached),
                ],
                1,
                vec![],
            ),
        ];
        for (probes, passes, missing) in cases {
            let mut status =
                Status { probes, scan: ScanStatus { passes, ..ScanStatus::default() }, ..Status::default() };
            status.judge_readiness();
            assert_eq!(status.missing, missing);
            assert_eq!(status.ready, missing.is_empty());
        }
    }
}
