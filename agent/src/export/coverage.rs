//! Whose work on a GPU is seen, for people and machines.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{metrics::Id, prometheus::Metrics, snapshot::Snapshot};
use crate::{
    coverage::{Because, Process, RareKind},
    export::json,
    probe::status::{Path, Reach},
};

/// Service of a process that belongs to none.
const NO_SERVICE: &str = "unknown";

/// Whether the calls of a process are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sight {
    /// Calls came.
    Seen,
    /// None came yet: which way they would take is not known.
    Unknown,
    /// NVML shows work and no call comes.
    Blind,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Covered {
    /// Process id.
    pub pid: u32,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
    /// Its service, when it belongs to one that is watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Whether its calls are seen.
    pub state: Sight,
    /// Ways by which they came.
    pub paths: Vec<Path>,
    /// What is not seen, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// How long ago the last work was seen, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_s: Option<f64>,
    /// Loads, compilations and such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rare: Option<Rare>,
}

/// Calls of a process that are rare and take long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rare {
    /// How many there were.
    pub count: u64,
    /// Time in them, seconds.
    pub seconds: f64,
    /// The last ones.
    pub last: Vec<RareCall>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RareCall {
    /// What it did.
    pub call: RareKind,
    /// When it began, `CLOCK_MONOTONIC` ns.
    pub begin_ns: u64,
    /// How long it took.
    pub seconds: f64,
    /// Its return code (`CUresult`).
    pub result: u32,
}

/// Every process that uses a GPU, as far as one can tell.
pub fn of(snapshot: &Snapshot, now_ns: u64) -> Vec<Covered> {
    let reach: BTreeMap<u32, &Reach> = snapshot.probes.reach.iter().map(|one| (one.pid, one)).collect();
    let services = super::gpus::services(snapshot);
    let seen = snapshot.coverage.iter().map(|(pid, _)| pid);
    let pids: BTreeSet<u32> = reach.keys().copied().chain(seen).collect();
    let one = |pid| covered(pid, reach.get(&pid).copied(), snapshot.coverage.get(pid), now_ns);
    pids.into_iter()
        .map(|pid| Covered { service: services.get(&pid).map(|&name| name.to_owned()), ..one(pid) })
        .collect()
}

fn covered(pid: u32, reach: Option<&Reach>, process: Option<&Process>, now_ns: u64) -> Covered {
    let paths = reach.map(|reach| reach.paths.clone()).unwrap_or_default();
    let mut missing = reach.map(|reach| reach.missing.clone()).unwrap_or_default();
    let last_ns = process.and_then(|process| process.last_ns);
    let age_s = |at_ns: u64| now_ns.saturating_sub(at_ns) as f64 / 1e9;
    let blind = process.and_then(|process| process.blind_since(now_ns));
    let state = match blind {
        Some((since_ns, device, because)) => {
            missing.push(blind_sentence(age_s(since_ns), device, because));
            Sight::Blind
        }
        None if last_ns.is_some() || !paths.is_empty() => Sight::Seen,
        None => Sight::Unknown,
    };
    let comm = process.and_then(|process| process.comm.clone());
    let rare = process.filter(|process| process.rare.count > 0).map(rare);
    Covered { pid, comm, service: None, state, paths, missing, last_s: last_ns.map(age_s), rare }
}

fn blind_sentence(seconds: f64, device: &str, because: Because) -> String {
    let shown = match because {
        Because::Alone => {
            format!("NVML shows work on {device} for {seconds:.0} s and no call of it was seen")
        }
        Because::OneOf(processes) => format!(
            "NVML shows work on {device} for {seconds:.0} s and no call of any of the {processes} processes there was \
             seen"
        ),
        Because::Grew => format!(
            "NVML showed its memory on {device} grow, and for {seconds:.0} s and before that no call of it was seen"
        ),
    };
    shown + ": its driver has another name, or is built in"
}

fn rare(process: &Process) -> Rare {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let last = process.rare.last.iter().map(|call| RareCall {
        call: call.kind,
        begin_ns: call.begin_ns,
        seconds: seconds(call.end_ns.saturating_sub(call.begin_ns)),
        result: call.result,
    });
    Rare { count: process.rare.count, seconds: seconds(process.rare.total_ns), last: last.collect() }
}

/// Writes how many processes are in each state.
pub(super) fn write(snapshot: &Snapshot, metrics: &Metrics) {
    let mut counts = BTreeMap::<(String, Sight), u64>::new();
    for one in of(snapshot, snapshot.taken_ns) {
        let service = one.service.unwrap_or_else(|| NO_SERVICE.to_owned());
        *counts.entry((service, one.state)).or_default() += 1;
    }
    metrics.clear(Id::Coverage);
    for ((service, state), n) in &counts {
        metrics.set(Id::Coverage, &[service, &json::name(*state)], *n as f64);
    }
    let scan = &snapshot.probes.scan;
    metrics.set(Id::InnerPlaces, &["attached"], scan.inner_places as f64);
    metrics.set(Id::InnerPlaces, &["refused"], scan.inner_refused as f64);
}
