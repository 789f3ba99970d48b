//! The GPUs as metrics.

use std::collections::BTreeMap;

use super::{Gpu, Gpus, memory};
use crate::{
    decode::{NvmlState, Throttle},
    export::{json, metrics::Id, observe::label, prometheus::Metrics, snapshot::Snapshot},
    health::NvmlHealth,
    occupancy::{Contention, View},
};

/// Families whose devices can go.
const GAUGES: [Id; 10] = [
    Id::GpuContentionInflation,
    Id::GpuInfo,
    Id::GpuUtilization,
    Id::GpuMemoryTotal,
    Id::GpuMemoryUsed,
    Id::GpuMemoryFree,
    Id::GpuTemperature,
    Id::GpuPower,
    Id::GpuClock,
    Id::GpuThrottle,
];

/// Writes what is known of the GPUs at the time of the snapshot, and what it cost to know it.
pub(in crate::export) fn write(snapshot: &Snapshot, metrics: &Metrics) {
    let gpus = Gpus::of(snapshot, snapshot.taken_ns);
    for id in GAUGES {
        metrics.clear(id);
    }
    let driver = gpus.nvml.source.driver_version.as_deref().unwrap_or("");
    for gpu in gpus.gpus.iter().filter(|gpu| !gpu.unlisted) {
        write_gpu(gpu, driver, metrics);
    }
    write_occupancy(&snapshot.occupancy, metrics);
    memory::write(snapshot, &gpus.gpus, metrics);
    let state = gpus.nvml.source.state;
    for is in [NvmlState::Off, NvmlState::On, NvmlState::Unavailable, NvmlState::Released] {
        metrics.set(Id::NvmlState, &[&json::name(is)], f64::from(u8::from(is == state)));
    }
    if state != NvmlState::Off {
        write_health(&snapshot.nvml, metrics);
    }
}

fn write_gpu(gpu: &Gpu, driver: &str, metrics: &Metrics) {
    let device = &*gpu.uuid;
    write_info(gpu, driver, metrics);
    let bytes = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64);
    let numbers = [
        (Id::GpuUtilization, gpu.utilization_ratio),
        (Id::GpuMemoryTotal, bytes(gpu.memory_total_bytes)),
        (Id::GpuMemoryUsed, bytes(gpu.memory_used_bytes)),
        (Id::GpuMemoryFree, bytes(gpu.memory_free_bytes)),
        (Id::GpuTemperature, gpu.temperature_celsius),
        (Id::GpuPower, gpu.power_watts),
    ];
    for (id, value) in numbers {
        if let Some(value) = value {
            metrics.set(id, &[device], value);
        }
    }
    for (clock, hertz) in [("sm", gpu.sm_clock_hertz), ("memory", gpu.memory_clock_hertz)] {
        if let Some(hertz) = hertz {
            metrics.set(Id::GpuClock, &[device, clock], hertz);
        }
    }
    for reason in gpu.throttle.iter().flat_map(|_| Throttle::ALL) {
        let active = gpu.throttle.as_ref().is_some_and(|active| active.contains(&reason));
        metrics.set(Id::GpuThrottle, &[device, &json::name(reason)], f64::from(u8::from(active)));
    }
    for (xid, &n) in &gpu.xids {
        metrics.set_total(Id::GpuXid, &[device, &xid.to_string()], n);
    }
}

fn write_occupancy(view: &View, metrics: &Metrics) {
    for one in &view.active {
        let role = json::name(one.role);
        let labels = [&*one.device, &*role, label(Some(&one.workload)), truth(one.inferred)];
        metrics.set(Id::GpuProcessActive, &labels, one.seconds);
    }
    for one in &view.overlaps {
        let (victim, aggressor) = (label(Some(&one.victim)), label(Some(&one.aggressor)));
        let labels = [&*one.device, victim, aggressor, truth(one.inferred)];
        metrics.set(Id::GpuContentionOverlap, &labels, one.seconds);
    }
    for (device, pairs) in &view.contention {
        for ((victim, aggressor, inferred), ratio) in inflation(pairs) {
            let labels = [device, label(Some(victim)), label(Some(aggressor)), truth(inferred)];
            metrics.set(Id::GpuContentionInflation, &labels, ratio);
        }
    }
}

/// A label for what is so or not.
const fn truth(is_so: bool) -> &'static str {
    if is_so { "true" } else { "false" }
}

/// By workload, and whether it is inferred: of several processes of one, weighted by their steps.
fn inflation(pairs: &[Contention]) -> BTreeMap<(&str, &str, bool), f64> {
    let mut sums = BTreeMap::<(&str, &str, bool), (f64, f64)>::new();
    for pair in pairs {
        let Some(ratio) = pair.inflation_ratio else { continue };
        let weight = pair.company_steps as f64;
        let [victim, aggressor] = &pair.labels;
        let sum = sums.entry((victim, aggressor, pair.inferred)).or_default();
        *sum = (sum.0 + ratio * weight, sum.1 + weight);
    }
    sums.into_iter().map(|(labels, (sum, weight))| (labels, sum / weight)).collect()
}

fn write_info(gpu: &Gpu, driver: &str, metrics: &Metrics) {
    let mig = match (&gpu.parent, gpu.mig_enabled) {
        (Some(_), _) => "instance",
        (None, Some(true)) => "enabled",
        (None, Some(false)) => "disabled",
        (None, None) => "",
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (model, architecture, parent) = (text(&gpu.name), text(&gpu.architecture), text(&gpu.parent));
    let labels = [&gpu.uuid, &*gpu.index.to_string(), &model, &architecture, mig, &parent, driver];
    metrics.set(Id::GpuInfo, &labels, 1.0);
}

fn write_health(health: &NvmlHealth, metrics: &Metrics) {
    for (function, call) in &health.calls {
        metrics.set_total(Id::NvmlCalls, &[function], call.calls);
        metrics.set(Id::NvmlSeconds, &[function], call.seconds);
        for (error, &n) in &call.errors {
            metrics.set_total(Id::NvmlErrors, &[function, error], n);
        }
    }
    metrics.set(Id::NvmlHanging, &[], health.hanging.map_or(0.0, |call| call.age_seconds));
    metrics.set_total(Id::NvmlDropped, &[], health.observations_dropped);
}
