//! Metrics of services: what they are, and what their processes take.

use std::collections::{BTreeMap, BTreeSet};

use super::{metrics::Id, observe::label, prometheus::Metrics, snapshot::Snapshot};
use crate::{device::Device, probe::status::ServiceStatus};

/// Label value of what is not known.
const UNKNOWN: &str = "unknown";

/// Writes those that are only known at a scrape. Services of one name are one; their totals never fall when a process
/// of them leaves.
pub(super) fn write(snapshot: &Snapshot, metrics: &Metrics) {
    for id in [Id::ServiceInfo, Id::ServiceMemory, Id::Connections] {
        metrics.clear(id);
    }
    let models = models(snapshot);
    for service in &snapshot.probes.services {
        info(metrics, service, models.get(service.name.as_str()));
    }
    for (name, usage) in &snapshot.probes.usage {
        let name = label(Some(name));
        metrics.set(Id::ServiceCpu, &[name], usage.cpu_ms as f64 / 1e3);
        if let Some(bytes) = usage.memory_bytes {
            metrics.set(Id::ServiceMemory, &[name], bytes as f64);
        }
    }
    for (name, traffic) in &snapshot.traffic {
        let name = label(Some(name));
        metrics.set_total(Id::ServiceBytes, &[name, "in"], traffic.bytes_in);
        metrics.set_total(Id::ServiceBytes, &[name, "out"], traffic.bytes_out);
        metrics.set(Id::Connections, &[name], traffic.connections as f64);
    }
}

fn info(metrics: &Metrics, service: &ServiceStatus, models: Option<&BTreeSet<&str>>) {
    let engine = label(service.engine.as_deref());
    let version = label(service.engine_version.as_deref());
    let name = label(Some(&service.name));
    let unknown = BTreeSet::from([UNKNOWN]);
    for &model in models.unwrap_or(&unknown) {
        metrics.set(Id::ServiceInfo, &[name, engine, version, label(Some(model))], 1.0);
    }
}

/// Models of the GPUs that each service's processes work on, as far as it is known which those are.
fn models(snapshot: &Snapshot) -> BTreeMap<&str, BTreeSet<&str>> {
    let seen = snapshot.devices.iter().map(Device::seen);
    let model: BTreeMap<&str, &str> = seen.filter_map(|it| Some((&*it.uuid, it.name.as_deref()?))).collect();
    let mut models: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for process in &snapshot.occupancy.processes {
        let devices = process.devices.iter().filter_map(|on| on.device.as_deref());
        let known = devices.filter_map(|device| model.get(device).copied());
        models.entry(process.party.workload.as_str()).or_default().extend(known);
    }
    models.retain(|_, known| !known.is_empty());
    models
}
