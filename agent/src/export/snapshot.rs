//! What the live loop publishes ten times a second: everything that is not a request or a metric value.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
};

use serde::Serialize;

use super::{coverage, findings::Diagnosed, gpus, json, metrics::Id, process, prometheus::Metrics, services};
use crate::{
    coverage::Coverage,
    device::Devices,
    health::{Health, NvmlHealth},
    memory::ProcessMemory,
    occupancy::View,
    probe,
    request::Waiting,
    track::{TlsCounts, Traffic},
};

/// After this long without a snapshot the pipeline is not ready.
const STALE_NS: u64 = 5_000_000_000;
/// After this long without a snapshot the agent is not alive.
const DEAD_NS: u64 = 60_000_000_000;

/// How the recording of a run stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordingState {
    /// None was asked for.
    #[default]
    Off,
    /// It goes on.
    Recording,
    /// It reached its allowed size and stopped.
    Full,
    /// It could not be written and stopped.
    Failed,
}

/// The recording of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recording {
    /// How it stands.
    pub state: RecordingState,
    /// Its file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Size, bytes.
    pub bytes: u64,
    /// Records.
    pub records: u64,
    /// Errors that ended it: 0 or 1.
    pub errors: u64,
    /// Why it stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// One state of the run; never changed once published.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// When it was taken, `CLOCK_MONOTONIC` ns.
    pub taken_ns: u64,
    /// Counters of the pipeline.
    pub health: Health,
    /// State of the probes and of discovery.
    pub probes: probe::Status,
    /// The thread that asks NVML.
    pub nvml: NvmlHealth,
    /// The GPUs.
    pub devices: Devices,
    /// What processes hold of their memory.
    pub memory: Vec<ProcessMemory>,
    /// Who is on them.
    pub occupancy: View,
    /// Whose work on them is seen.
    pub coverage: Coverage,
    /// What was found, and what changed.
    pub diagnosed: Arc<Diagnosed>,
    /// Requests that run, by service.
    pub in_flight: BTreeMap<String, u64>,
    /// Of those, which wait for an engine.
    pub waiting: BTreeMap<String, Waiting>,
    /// TLS as far as it was seen, by service.
    pub tls: BTreeMap<String, TlsCounts>,
    /// Connections that are older than the agent, as found so far, by the services' keys.
    pub older: BTreeMap<String, u64>,
    /// Network use, by service.
    pub traffic: BTreeMap<String, Traffic>,
    /// Age of the oldest record of the last interval when it was taken from the source, ns.
    pub lag_ns: u64,
    /// The recording.
    pub recording: Recording,
}

/// The newest snapshot, shared with readers.
#[derive(Debug)]
pub struct Shared {
    started_ns: u64,
    current: RwLock<Option<Arc<Snapshot>>>,
}

impl Default for Shared {
    fn default() -> Self {
        Self { started_ns: process::monotonic_ns(), current: RwLock::new(None) }
    }
}

impl Shared {
    /// Replaces the newest one.
    pub fn publish(&self, snapshot: Snapshot) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(snapshot));
    }

    /// The newest one; `None` before the pipeline runs.
    pub fn get(&self) -> Option<Arc<Snapshot>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Seconds since the agent started, as of `now_ns`.
    pub fn uptime_seconds(&self, now_ns: u64) -> f64 {
        now_ns.saturating_sub(self.started_ns) as f64 / 1e9
    }

    /// What is missing before the agent is ready, as sentences; empty when it is.
    pub fn missing(&self, now_ns: u64) -> Vec<String> {
        let Some(snapshot) = self.get() else {
            return vec!["the pipeline has not started yet".into()];
        };
        let age = now_ns.saturating_sub(snapshot.taken_ns);
        let mut missing = snapshot.probes.missing.clone();
        if !snapshot.probes.ready && missing.is_empty() {
            missing.push("the probes are not ready yet".into());
        }
        if age > STALE_NS {
            missing.push(format!("the pipeline has not reported for {} s", age / 1_000_000_000));
        }
        missing
    }

    /// Whether the pipeline moves: what a liveness probe wants to know.
    pub fn alive(&self, now_ns: u64) -> bool {
        let last = self.get().map_or(self.started_ns, |snapshot| snapshot.taken_ns);
        now_ns.saturating_sub(last) <= DEAD_NS
    }

    /// Writes everything that is only known at a scrape into the families.
    pub fn refresh(&self, metrics: &Metrics, now_ns: u64) {
        metrics.set(Id::BuildInfo, &[env!("CARGO_PKG_VERSION"), &wire::ABI.to_string()], 1.0);
        metrics.set(Id::Uptime, &[], self.uptime_seconds(now_ns));
        metrics.set(Id::Ready, &[], f64::from(u8::from(self.missing(now_ns).is_empty())));
        metrics.set(Id::ProcessCpu, &[], process::cpu_seconds());
        if let Some(bytes) = process::resident_bytes() {
            metrics.set(Id::ProcessRss, &[], bytes as f64);
        }
        if let Some(snapshot) = self.get() {
            snapshot.write_to(metrics);
        }
    }
}

impl Snapshot {
    fn write_to(&self, metrics: &Metrics) {
        self.write_health(metrics);
        self.write_probes(metrics);
        self.write_recording(metrics);
        gpus::write(self, metrics);
        coverage::write(self, metrics);
        services::write(self, metrics);
        self.diagnosed.write(metrics);
        metrics.set(Id::EventLag, &[], self.lag_ns as f64 / 1e9);
        self.write_tls(metrics);
        self.write_older(metrics);
        metrics.clear(Id::InFlight);
        for (service, &requests) in &self.in_flight {
            metrics.set(Id::InFlight, &[service], requests as f64);
        }
        metrics.clear(Id::QueueLength);
        for (service, waiting) in &self.waiting {
            let labels = [service, &*json::name(waiting.confidence)];
            metrics.set(Id::QueueLength, &labels, waiting.requests as f64);
        }
    }

    /// Services of one name are added up.
    fn write_older(&self, metrics: &Metrics) {
        let mut by_name = BTreeMap::<&str, u64>::new();
        for service in &self.probes.services {
            let found = self.older.get(&service.service).copied().unwrap_or_default();
            *by_name.entry(&service.name).or_default() += found;
        }
        metrics.clear(Id::OlderConnections);
        for (service, found) in by_name {
            metrics.set(Id::OlderConnections, &[service], found as f64);
        }
    }

    fn write_tls(&self, metrics: &Metrics) {
        for (service, tls) in &self.tls {
            let states = [
                ("seen", tls.connections),
                ("linked", tls.linked),
                ("opaque", tls.opaque),
                ("contradicted", tls.contradicted),
                ("unframed", tls.unframed),
            ];
            for (state, n) in states {
                metrics.set_total(Id::TlsConnections, &[service, state], n);
            }
            metrics.set_total(Id::TlsUnlinkedBytes, &[service], tls.unlinked_bytes);
        }
    }

    fn write_health(&self, metrics: &Metrics) {
        let health = &self.health;
        metrics.set_total(Id::Events, &["seen"], health.seen);
        metrics.set_total(Id::Events, &["decoded"], health.decoded);
        for (reason, &n) in &health.failed {
            metrics.set_total(Id::EventsFailed, &[reason], n);
        }
        for (reason, &n) in &health.ignored {
            metrics.set_total(Id::EventsIgnored, &[reason], n);
        }
        for (table, &n) in &health.limits {
            metrics.set_total(Id::Limits, &[table], n);
        }
        for (kind, &n) in &health.requests {
            metrics.set_total(Id::Exchanges, &[kind], n);
        }
        for (counter, &n) in &health.kernel {
            match counter.strip_prefix("drop_") {
                Some(reason) => metrics.set_total(Id::EventsDropped, &[reason], n),
                None => metrics.set_total(Id::KernelEvents, &[counter], n),
            }
        }
    }

    fn write_probes(&self, metrics: &Metrics) {
        metrics.set(Id::RingSize, &[], f64::from(self.probes.ring_bytes));
        metrics.set(Id::Services, &[], self.probes.services.len() as f64);
        let scan = &self.probes.scan;
        metrics.set_total(Id::ScanPasses, &[], scan.passes);
        metrics.set(Id::ScanSeconds, &[], scan.last_pass_cpu_us as f64 / 1e6);
        metrics.set_total(Id::ScanDropped, &["hints"], scan.hints_dropped);
        metrics.set_total(Id::ScanDropped, &["observations"], scan.observations_dropped);
        let mut probes = BTreeMap::<[String; 3], u64>::new();
        for verdict in &self.probes.probes {
            let cost = verdict.cost_class.map_or("none".into(), json::name);
            *probes.entry([verdict.program.clone(), json::name(verdict.state), cost]).or_default() += 1;
        }
        metrics.clear(Id::Probes);
        for ([program, state, cost], n) in &probes {
            metrics.set(Id::Probes, &[program, state, cost], *n as f64);
        }
    }

    fn write_recording(&self, metrics: &Metrics) {
        use RecordingState::{Failed, Full, Off, Recording};
        let now = &self.recording;
        for (state, name) in [(Off, "off"), (Recording, "recording"), (Full, "full"), (Failed, "failed")] {
            metrics.set(Id::Recording, &[name], f64::from(u8::from(now.state == state)));
        }
        metrics.set_total(Id::RecordingBytes, &[], now.bytes);
        metrics.set_total(Id::RecordingRecords, &[], now.records);
        metrics.set_total(Id::RecordingErrors, &[], now.errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        export::prometheus::{Format, Settings},
        request::record::Confidence,
    };

    fn snapshot(taken_ns: u64, ready: bool, missing: &[&str]) -> Snapshot {
        let missing = missing.iter().map(|&sentence| sentence.to_owned()).collect();
        let service = probe::status::ServiceStatus {
            service: "key".into(),
            name: "svc".into(),
            engine: Some("vllm".into()),
            engine_version: Some("0.33.0".into()),
            ..probe::status::ServiceStatus::default()
        };
        let usage = probe::status::Usage { cpu_ms: 1500, memory_bytes: Some(4096) };
        let usage = [
            ("svc".to_owned(), usage),
            ("gone".to_owned(), probe::status::Usage { cpu_ms: 250, memory_bytes: None }),
        ];
        let (services, usage) = (vec![service], usage.into());
        let probes = probe::Status { ready, missing, services, usage, ..probe::Status::default() };
        let mut health = Health { seen: 7, decoded: 5, ..Health::default() };
        health.fail("short");
        health.ignore("probe");
        health.limit("steps");
        health.count("exact");
        health.kernel = [("drop_step_ring_full".to_owned(), 3), ("map_full".to_owned(), 4)].into();
        let in_flight = [("svc".to_owned(), 2)].into();
        let tls =
            [("svc".to_owned(), TlsCounts { opaque: 3, unlinked_bytes: 70, ..TlsCounts::default() })].into();
        Snapshot {
            taken_ns,
            health,
            probes,
            nvml: NvmlHealth::default(),
            devices: Devices::default(),
            memory: Vec::new(),
            occupancy: View::default(),
            coverage: Coverage::default(),
            diagnosed: Arc::default(),
            in_flight,
            waiting: [("svc".to_owned(), Waiting { requests: 1, confidence: Confidence::Estimated })].into(),
            tls,
            older: [("key".to_owned(), 4)].into(),
            traffic: [("svc".to_owned(), Traffic { connections: 4, bytes_in: 5, bytes_out: 6 })].into(),
            lag_ns: 500_000_000,
            recording: Recording::default(),
        }
    }

    #[test]
    fn readiness_says_what_is_missing() {
        let shared = Shared::default();
        assert_eq!(shared.missing(0), ["the pipeline has not started yet"]);
        let cases: [(bool, &[&str], u64, &[&str]); 4] = [
            (true, &[], 0, &[]),
            (false, &["first discovery pass"], 0, &["first discovery pass"]),
            (false, &[], 0, &["the probes are not ready yet"]),
            (true, &[], 7_000_000_000, &["the pipeline has not reported for 7 s"]),
        ];
        for (ready, missing, age, want) in cases {
            shared.publish(snapshot(1_000, ready, missing));
            assert_eq!(shared.missing(1_000 + age), want);
        }
    }

    #[test]
    fn a_pipeline_that_stands_still_is_dead_at_last() {
        let shared = Shared::default();
        assert!(shared.alive(shared.started_ns + DEAD_NS));
        assert!(!shared.alive(shared.started_ns + DEAD_NS + 1));
        shared.publish(snapshot(shared.started_ns + DEAD_NS, true, &[]));
        assert!(shared.alive(shared.started_ns + DEAD_NS + 1));
    }

    #[test]
    fn a_scrape_shows_the_snapshot() {
        let metrics = Metrics::new(&Settings { max_series: 100, ..Settings::default() });
        let shared = Shared::default();
        shared.publish(snapshot(process::monotonic_ns(), true, &[]));
        shared.refresh(&metrics, process::monotonic_ns());
        let text = metrics.encode(Format::Prometheus).unwrap();
        for line in [
            r#"stagelens_events_total{state="seen"} 7"#,
            r#"stagelens_events_total{state="decoded"} 5"#,
            r#"stagelens_events_failed_total{reason="short"} 1"#,
            r#"stagelens_events_ignored_total{reason="probe"} 1"#,
            r#"stagelens_events_dropped_total{reason="step_ring_full"} 3"#,
            r#"stagelens_limits_total{table="steps"} 1"#,
            r#"stagelens_exchanges_total{kind="exact"} 1"#,
            r#"stagelens_kernel_events_total{counter="map_full"} 4"#,
            r#"stagelens_recording_state{state="off"} 1.0"#,
            r#"inference_requests_in_flight{service="svc"} 2.0"#,
            r#"inference_queue_length{service="svc",confidence="estimated"} 1.0"#,
            r#"stagelens_tls_connections_total{service="svc",state="opaque"} 3"#,
            r#"stagelens_tls_unlinked_bytes_total{service="svc"} 70"#,
            r#"stagelens_older_connections{service="svc"} 4.0"#,
            r#"inference_service_info{service="svc",engine="vllm",engine_version="0.33.0",gpu_model="unknown"} 1.0"#,
            r#"inference_service_cpu_seconds_total{service="svc"} 1.5"#,
            r#"inference_service_cpu_seconds_total{service="gone"} 0.25"#,
            r#"inference_service_memory_bytes{service="svc"} 4096.0"#,
            r#"inference_service_network_bytes_total{service="svc",dir="in"} 5"#,
            r#"inference_service_network_bytes_total{service="svc",dir="out"} 6"#,
            r#"inference_connections_active{service="svc"} 4.0"#,
            "stagelens_event_lag_seconds 0.5",
            "stagelens_ready 1.0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert!(text.contains("stagelens_build_info{version="), "{text}");
        assert!(text.contains("stagelens_process_resident_memory_bytes "), "{text}");
    }
}
