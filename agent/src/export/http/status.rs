//! `/api/v1/status`: what the agent watches, and how well.

use std::collections::BTreeMap;

use axum::{Json, extract::State};
use serde::Serialize;

use super::Context;
use crate::export::{
    coverage::{self, Covered},
    process,
    snapshot::{Recording, Snapshot},
};
use crate::{health, probe, track::TlsCounts};

#[derive(Debug, Serialize)]
pub(super) struct Status {
    version: &'static str,
    ready: bool,
    /// What is missing before it is ready, as sentences.
    missing: Vec<String>,
    uptime_s: f64,
    services: Vec<Service>,
    /// How socket calls are seen.
    socket: probe::status::SocketStatus,
    probes: Vec<probe::ProbeVerdict>,
    /// Instructions that the kernel's verifier walked, by program.
    verified_instructions: BTreeMap<String, u32>,
    /// The search for processes.
    scan: probe::status::ScanStatus,
    /// Whose work on a GPU is seen.
    coverage: Vec<Covered>,
    health: Health,
    ring: Ring,
    requests: Requests,
    /// TLS as far as it was seen, by service; absent where none was.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tls: BTreeMap<String, TlsCounts>,
    recording: Recording,
}

#[derive(Debug, Serialize)]
struct Service {
    #[serde(flatten)]
    service: probe::status::ServiceStatus,
    /// Connections that it had accepted before it was watched, as found so far.
    connections_before: u64,
}

#[derive(Debug, Default, Serialize)]
struct Health {
    seen: u64,
    decoded: u64,
    failed: BTreeMap<&'static str, u64>,
    ignored: BTreeMap<&'static str, u64>,
    limits: BTreeMap<&'static str, u64>,
    requests: BTreeMap<&'static str, u64>,
    kernel: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize)]
struct Ring {
    size_bytes: u32,
    /// Records lost because it was full.
    dropped: u64,
}

#[derive(Debug, Serialize)]
struct Requests {
    /// Number of the newest one: how many there were.
    last_seq: u64,
    in_flight: BTreeMap<String, u64>,
    /// Clients that follow.
    followers: usize,
}

impl From<health::Health> for Health {
    fn from(health: health::Health) -> Self {
        let health::Health { seen, decoded, failed, ignored, limits, requests, kernel } = health;
        Self { seen, decoded, failed, ignored, limits, requests, kernel }
    }
}

pub(super) async fn get(State(context): State<Context>) -> Json<Status> {
    let now_ns = process::monotonic_ns();
    let (shared, store) = (&context.export.snapshot, &context.export.store);
    let missing = shared.missing(now_ns);
    let covered = shared.get().map(|snapshot| coverage::of(&snapshot, now_ns)).unwrap_or_default();
    let snapshot = shared.get().map(|snapshot| (*snapshot).clone());
    let Snapshot { health, probes, in_flight, tls, older, recording, .. } = snapshot.unwrap_or_default();
    let connections_before = |service: &str| older.get(service).copied().unwrap_or_default();
    let services = probes.services.into_iter();
    let dropped = health.kernel.iter().filter(|(name, _)| name.starts_with("drop_")).map(|(_, n)| n).sum();
    Json(Status {
        version: env!("CARGO_PKG_VERSION"),
        ready: missing.is_empty(),
        missing,
        uptime_s: shared.uptime_seconds(now_ns),
        services: services
            .map(|service| Service { connections_before: connections_before(&service.service), service })
            .collect(),
        socket: probes.socket,
        probes: probes.probes,
        verified_instructions: probes.verified_instructions,
        scan: probes.scan,
        coverage: covered,
        ring: Ring { size_bytes: probes.ring_bytes, dropped },
        health: health.into(),
        requests: Requests { last_seq: store.before_newest(0), in_flight, followers: store.followers() },
        tls,
        recording,
    })
}
