//! What devices are and how they fare, against the file that says so.

use agent::{
    decode::{DeviceMemory, DeviceUse, MigMode, NvmlState, Throttle},
    pipeline::{self, Pipeline},
    source::recording::{Reader, Writer},
};
use serde_json::json;

use crate::rig::{Rig, gpu, host, with};

#[test]
fn every_number_of_a_device_is_what_the_driver_says() {
    let mut rig = Rig::start(&host(&[gpu("GPU-a")]));
    rig.until("numbers", |rig, now| {
        let device = rig.device("GPU-a");
        device.is_some_and(|device| device.usage(now).is_some() && device.condition(now).is_some())
    });
    let source = rig.devices().nvml();
    assert_eq!(source.state, NvmlState::On);
    assert_eq!(
        (source.driver_version.as_deref(), source.cuda_version.as_deref()),
        (Some("580.65.06"), Some("13.0"))
    );
    assert_eq!(source.library.as_deref(), rig.library.path().to_str());

    let device = rig.device("GPU-a").unwrap();
    let seen = device.seen();
    assert_eq!(
        (seen.index, seen.name.as_deref(), seen.architecture.as_deref()),
        (0, Some("NVIDIA H200"), Some("Hopper"))
    );
    assert_eq!(seen.pci_bus_id.as_deref(), Some("00000000:1B:00.0"));
    assert_eq!(seen.mig, Some(MigMode { enabled: false, pending: false }));
    assert!(seen.instance.is_none() && seen.lost.is_none() && seen.refused.is_empty());

    let usage = device.usage(device.told_ns().unwrap()).unwrap();
    assert_eq!((usage.utilization_percent, usage.memory_utilization_percent), (Some(87), Some(41)));
    let (total, used, reserved) = (150_000_000_000, 90_000_000_000, 700_000_000);
    assert_eq!(usage.memory, Some(DeviceMemory { total, used, free: total - used - reserved, reserved }));
    let processes = usage.processes.as_ref().unwrap();
    let (me, unknown, graphics) = (&processes[0], &processes[1], &processes[2]);
    assert_eq!(
        (me.pid, me.does, me.used_memory),
        (std::process::id(), DeviceUse::Compute, Some(60_000_000_000))
    );
    assert!(me.comm.is_some() && me.start_ticks.is_some());
    assert_eq!((unknown.comm.as_ref(), unknown.used_memory), (None, None));
    assert_eq!(
        (graphics.pid, graphics.does, graphics.used_memory),
        (1, DeviceUse::Graphics, Some(5_000_000))
    );

    let condition = device.condition(device.told_ns().unwrap()).unwrap();
    assert_eq!((condition.temperature_celsius, condition.power_milliwatts), (Some(61), Some(512_345)));
    assert_eq!((condition.power_limit_milliwatts, condition.sm_clock_mhz), (Some(700_000), Some(1980)));
    assert_eq!(condition.memory_clock_mhz, Some(3201));
    assert_eq!(condition.throttle.as_deref(), Some(&[Throttle::SwPowerCap][..]));
}

#[test]
fn a_recording_replays_to_the_same_devices() {
    let mut rig = Rig::start(&host(&[gpu("GPU-a"), gpu("GPU-b")]));
    rig.until("numbers", |rig, now| rig.device("GPU-b").is_some_and(|gpu| gpu.usage(now).is_some()));
    rig.library.write(&with(&host(&[gpu("GPU-a"), gpu("GPU-b")]), "/devices/0/xids", json!([13])));
    rig.until("an XID", |rig, _| !rig.device("GPU-a").unwrap().xids().is_empty());

    let mut recording = Vec::new();
    let mut writer = Writer::new(&mut recording, u64::MAX).unwrap();
    for record in &rig.records {
        writer.write(record).unwrap();
    }
    writer.flush().unwrap();
    let (mut reader, mut record, mut out) = (Reader::new(&*recording).unwrap(), Vec::new(), Vec::new());
    let mut replay = Pipeline::new(pipeline::Settings {});
    while reader.read(&mut record).unwrap() {
        replay.process(&mut record, &mut out);
    }
    assert_eq!(replay.devices(), rig.devices());
}

#[test]
fn errors_of_devices_are_counted_from_when_the_agent_watches() {
    let state = |a: &[u64], b: &[u64]| {
        let host = host(&[gpu("GPU-a"), gpu("GPU-b")]);
        with(&with(&host, "/devices/0/xids", json!(a)), "/devices/1/xids", json!(b))
    };
    let mut rig = Rig::start(&state(&[48], &[]));
    rig.rounds(1);
    rig.library.write(&state(&[48, 31, 31, 999], &[79]));
    rig.until("all XIDs", |rig, _| {
        let counts = |uuid| rig.device(uuid).map(|gpu| gpu.xids().clone()).unwrap_or_default();
        counts("GPU-a") == [(31, 2), (999, 1)].into() && counts("GPU-b") == [(79, 1)].into()
    });
}

fn divided(instances: &serde_json::Value) -> serde_json::Value {
    let host = host(&[gpu("GPU-a"), gpu("GPU-b")]);
    with(&host, "/devices/0/mig", json!({"enabled": true, "pending": true, "instances": instances}))
}

#[test]
fn instances_of_a_divided_gpu_are_devices_with_their_own_processes() {
    let first = json!({
        "uuid": "MIG-1", "name": "NVIDIA H200 MIG 1g.18gb", "memory": {"total": 18, "used": 5},
        "processes": [{"pid": 7, "memory": 5, "instance": [9, 0]}],
        "errors": {"nvmlDeviceGetUtilizationRates": 3},
    });
    let second = json!({"uuid": "MIG-2", "name": "NVIDIA H200 MIG 3g.71gb"});
    let mut rig = Rig::start(&divided(&json!([first, null, second])));
    rig.until("instances", |rig, now| rig.device("MIG-2").is_some_and(|device| device.usage(now).is_some()));
    rig.rounds(1);
    let order: Vec<_> = rig.devices().iter().map(|device| &*device.seen().uuid).collect();
    assert_eq!(order, ["GPU-a", "MIG-1", "MIG-2", "GPU-b"]);

    let usage = |uuid| {
        let device = rig.device(uuid).unwrap();
        device.usage(device.told_ns().unwrap()).unwrap()
    };
    assert_eq!(usage("GPU-a").processes, None, "they would be counted twice");
    assert_eq!(usage("MIG-1").processes.as_ref().unwrap()[0].pid, 7);
    assert_eq!(usage("MIG-2").processes, Some(Vec::new()));
    assert_eq!((usage("MIG-1").utilization_percent, usage("MIG-1").memory.unwrap().total), (None, 18));
    let instance = rig.device("MIG-1").unwrap().seen().instance.clone().unwrap();
    assert_eq!((&*instance.parent, instance.index), ("GPU-a", 0));
    assert_eq!((instance.gpu_instance, instance.compute_instance), (Some(9), Some(0)));
    let instance = rig.device("MIG-2").unwrap().seen().instance.clone().unwrap();
    assert_eq!((instance.index, instance.gpu_instance), (2, None));

    // Divided anew, while it is watched.
    rig.library.write(&divided(&json!([{"uuid": "MIG-3", "name": "NVIDIA H200 MIG 7g.141gb"}])));
    rig.until("the new instance", |rig, _| rig.device("MIG-3").is_some() && rig.device("MIG-1").is_none());
}
