use expect_test::expect;

use super::*;
use crate::{
    contention::Verdict,
    coverage::Coverage,
    decode::{
        DeviceCondition, DeviceMemory, DeviceSeen, DeviceUsage, Event, MigMode, NvmlSeen, NvmlState,
        Observation, Stamp,
    },
    device::Devices,
    export::{
        prometheus::{Format, Metrics, Settings},
        snapshot::Recording,
    },
    health::{CallHealth, HangingCall, Health, NvmlHealth},
    occupancy::{Active, OnDevice, Overlap, Party, ProcessOnGpu, View},
    placement::Known,
    probe,
    role::{Evidence, Role},
};

const MS: u64 = 1_000_000;

/// Takes everything at one second.
fn devices(told: Vec<NvmlSeen>) -> Devices {
    let mut devices = Devices::default();
    for seen in told {
        let at = Stamp { time_ns: 1000 * MS, tgid: 0, tid: 0 };
        let event = Event::Observation(at, Box::new(Observation::Nvml(seen)));
        devices.observe(&event, &mut Health::default());
    }
    devices
}

fn told() -> Vec<NvmlSeen> {
    let process = DeviceProcess {
        pid: 7,
        does: DeviceUse::Compute,
        start_ticks: Some(1),
        comm: Some("python3".into()),
        container: None,
        used_memory: Some(60),
    };
    let (uuid, valid_ms) = ("GPU-a".to_owned(), 3000);
    vec![
        NvmlSeen::Source(NvmlSource {
            state: NvmlState::On,
            driver_version: Some("580".into()),
            ..NvmlSource::default()
        }),
        NvmlSeen::Device(DeviceSeen {
            uuid: uuid.clone(),
            name: Some("H200".into()),
            architecture: Some("Hopper".into()),
            mig: Some(MigMode { enabled: false, pending: false }),
            refused: [("memory_clock".to_owned(), Refusal::NotSupported)].into(),
            ..DeviceSeen::default()
        }),
        NvmlSeen::Usage(DeviceUsage {
            uuid: uuid.clone(),
            valid_ms,
            utilization_percent: Some(87),
            memory: Some(DeviceMemory { total: 100, used: 60, free: 30, reserved: 10 }),
            processes: Some(vec![process]),
            ..DeviceUsage::default()
        }),
        NvmlSeen::Condition(DeviceCondition {
            uuid: uuid.clone(),
            valid_ms: 30_000,
            power_milliwatts: Some(512_500),
            sm_clock_mhz: Some(1980),
            throttle: Some(vec![Throttle::HwThermal]),
            ..DeviceCondition::default()
        }),
        NvmlSeen::Xid { uuid, xid: 31 },
    ]
}

pub(super) fn snapshot(taken_ns: u64) -> Snapshot {
    let service = probe::status::ServiceStatus {
        name: "vllm".into(),
        pids: vec![6, 7],
        ..probe::status::ServiceStatus::default()
    };
    let call = CallHealth { calls: 3, errors: [("timeout", 1)].into(), seconds: 0.5, longest_seconds: 0.25 };
    Snapshot {
        occupancy: View::default(),
        taken_ns,
        health: Health::default(),
        probes: probe::Status { services: vec![service], ..probe::Status::default() },
        nvml: NvmlHealth { calls: [("nvmlF", call)].into(), ..NvmlHealth::default() },
        devices: devices(told()),
        memory: Vec::new(),
        coverage: Coverage::default(),
        diagnosed: std::sync::Arc::default(),
        in_flight: BTreeMap::new(),
        waiting: BTreeMap::new(),
        tls: BTreeMap::new(),
        older: BTreeMap::new(),
        traffic: BTreeMap::new(),
        lag_ns: 0,
        recording: Recording::default(),
    }
}

pub(super) fn families(metrics: &Metrics) -> String {
    let text = metrics.encode(Format::Prometheus).unwrap();
    let ours = |line: &&str| line.starts_with("gpu_") || line.starts_with("stagelens_nvml_");
    text.lines().filter(ours).map(|line| line.to_owned() + "\n").collect()
}

#[test]
fn what_is_known_is_there_and_what_is_not_is_absent() {
    let gpus = Gpus::of(&snapshot(0), 1500 * MS);
    let json = serde_json::to_string_pretty(&gpus).unwrap();
    expect![[r#"
        {
          "nvml": {
            "state": "on",
            "driver_version": "580"
          },
          "gpus": [
            {
              "uuid": "GPU-a",
              "index": 0,
              "name": "H200",
              "architecture": "Hopper",
              "mig_enabled": false,
              "mig_pending": false,
              "age_s": 0.5,
              "utilization_ratio": 0.87,
              "memory_total_bytes": 100,
              "memory_used_bytes": 60,
              "memory_free_bytes": 30,
              "memory_reserved_bytes": 10,
              "power_watts": 512.5,
              "sm_clock_hertz": 1980000000.0,
              "throttle": [
                "hw_thermal"
              ],
              "xids": {
                "31": 1
              },
              "refused": {
                "memory_clock": "not_supported"
              },
              "processes": [
                {
                  "pid": 7,
                  "type": "compute",
                  "comm": "python3",
                  "service": "vllm",
                  "memory_used_bytes": 60
                }
              ]
            }
          ]
        }"#]]
    .assert_eq(&json);
    assert_eq!(serde_json::from_str::<Gpus>(&json).unwrap(), gpus);
}

#[test]
fn a_scrape_has_a_sample_for_every_number_that_is_known() {
    let metrics = Metrics::new(&Settings { max_series: 100, ..Settings::default() });
    write(&snapshot(2000 * MS), &metrics);
    expect![[r#"
        gpu_info{device="GPU-a",index="0",model="H200",architecture="Hopper",mig="disabled",driver_version="580"} 1.0
        gpu_utilization_ratio{device="GPU-a"} 0.87
        gpu_memory_total_bytes{device="GPU-a"} 100.0
        gpu_memory_used_bytes{device="GPU-a"} 60.0
        gpu_memory_free_bytes{device="GPU-a"} 30.0
        gpu_power_watts{device="GPU-a"} 512.5
        gpu_clock_hertz{device="GPU-a",clock="sm"} 1980000000.0
        gpu_throttle_active{device="GPU-a",reason="hw_power_brake"} 0.0
        gpu_throttle_active{device="GPU-a",reason="hw_slowdown"} 0.0
        gpu_throttle_active{device="GPU-a",reason="hw_thermal"} 1.0
        gpu_throttle_active{device="GPU-a",reason="sw_power_cap"} 0.0
        gpu_throttle_active{device="GPU-a",reason="sw_thermal"} 0.0
        gpu_throttle_active{device="GPU-a",reason="sync_boost"} 0.0
        gpu_xid_errors_total{device="GPU-a",xid="31"} 1
        stagelens_nvml_state{state="off"} 0.0
        stagelens_nvml_state{state="on"} 1.0
        stagelens_nvml_state{state="released"} 0.0
        stagelens_nvml_state{state="unavailable"} 0.0
        stagelens_nvml_calls_total{function="nvmlF"} 3
        stagelens_nvml_errors_total{function="nvmlF",error="timeout"} 1
        stagelens_nvml_call_seconds_total{function="nvmlF"} 0.5
        stagelens_nvml_hanging_seconds 0.0
        stagelens_nvml_observations_dropped_total 0
    "#]]
    .assert_eq(&families(&metrics));
}

#[test]
fn numbers_that_are_old_and_a_source_that_is_off_leave_no_samples() {
    let metrics = Metrics::new(&Settings { max_series: 100, ..Settings::default() });
    write(&snapshot(2000 * MS), &metrics);
    let mut later = snapshot(5000 * MS);
    later.nvml.hanging = Some(HangingCall { function: "nvmlF", age_seconds: 12.5 });
    write(&later, &metrics);
    let text = families(&metrics);
    assert!(!text.contains("gpu_utilization_ratio") && !text.contains("gpu_memory_"), "{text}");
    assert!(text.contains("gpu_info{") && text.contains("gpu_power_watts{"), "{text}");
    assert!(text.contains("stagelens_nvml_hanging_seconds 12.5"), "{text}");

    let metrics = Metrics::new(&Settings { max_series: 100, ..Settings::default() });
    let off = Snapshot { devices: Devices::default(), nvml: NvmlHealth::default(), ..snapshot(0) };
    write(&off, &metrics);
    let text = families(&metrics);
    assert!(text.contains("stagelens_nvml_state{state=\"off\"} 1.0"), "{text}");
    assert!(!text.contains("gpu_") && !text.contains("hanging"), "{text}");
}

fn party(pid: u32, workload: &str, role: Role) -> Party {
    Party { pid, workload: workload.to_owned(), comm: Some("p".into()), container: None, pod: None, role }
}

/// A process that NVML lists, one that it does not, and one of which the device is not known.
fn view() -> View {
    let on = |device: Option<&str>, known| OnDevice {
        device: device.map(str::to_owned),
        known,
        active_s: 1.5,
        waits: 3,
    };
    let process = |pid, workload, role, on| ProcessOnGpu {
        party: party(pid, workload, role),
        evidence: vec![Evidence::Listens],
        steps: 3,
        devices: vec![on],
    };
    let pair = |victim: Party, aggressor: Party, inflation_ratio| Contention {
        labels: [victim.workload.clone(), aggressor.workload.clone()],
        inferred: true,
        victim,
        aggressor,
        overlap_s: 2.5,
        inflation_ratio,
        solo_steps: 30,
        company_steps: 40,
        verdict: inflation_ratio.map_or(Verdict::InsufficientData, |_| Verdict::Contended),
    };
    let (server, job) = (party(7, "vllm", Role::Inference), party(8, "job", Role::Training));
    View {
        processes: vec![
            process(7, "vllm", Role::Inference, on(Some("GPU-a"), Some(Known::Driver))),
            process(8, "job", Role::Training, on(Some("GPU-b"), Some(Known::Environment))),
            process(9, "lost", Role::Unknown, on(None, None)),
        ],
        contention: [(
            "GPU-b".to_owned(),
            vec![pair(server.clone(), job.clone(), Some(2.0)), pair(job, server, None)],
        )]
        .into(),
        overlaps: vec![Overlap {
            device: "GPU-b".into(),
            victim: "vllm".into(),
            aggressor: "job".into(),
            inferred: true,
            seconds: 2.5,
        }],
        active: vec![Active {
            device: "GPU-a".into(),
            role: Role::Inference,
            workload: "vllm".into(),
            inferred: false,
            seconds: 1.5,
        }],
        neighbours: Vec::new(),
    }
}

#[test]
fn what_processes_do_stands_beside_what_nvml_tells() {
    let snapshot = Snapshot { occupancy: view(), ..snapshot(1000 * MS) };
    let gpus = Gpus::of(&snapshot, 1000 * MS);
    let shown: Vec<_> =
        gpus.gpus.iter().map(|gpu| (&*gpu.uuid, gpu.unlisted, gpu.contention.len())).collect();
    assert_eq!(shown, [("GPU-a", false, 0), ("GPU-b", true, 2)]);
    let first = &gpus.gpus[0].processes.as_ref().unwrap()[0];
    assert_eq!((first.pid, first.memory_used_bytes), (7, Some(60)), "as NVML tells it");
    let activity = first.activity.as_ref().unwrap();
    assert_eq!((activity.role, activity.active_s, activity.inferred), (Role::Inference, 1.5, false));
    let second = &gpus.gpus[1].processes.as_ref().unwrap()[0];
    assert_eq!((second.pid, second.service.as_deref()), (8, Some("job")));
    assert!(second.activity.as_ref().unwrap().inferred);
    assert_eq!(gpus.unplaced[0].pid, 9);
}

#[test]
fn contention_and_active_time_are_metrics() {
    let metrics = Metrics::new(&Settings { max_series: 100, ..Settings::default() });
    write(&Snapshot { occupancy: view(), ..snapshot(1000 * MS) }, &metrics);
    let text = metrics.encode(Format::Prometheus).unwrap();
    for line in [
        r#"gpu_process_active_seconds_total{device="GPU-a",role="inference",workload="vllm",inferred="false"} 1.5"#,
        r#"gpu_contention_overlap_seconds_total{device="GPU-b",victim="vllm",aggressor="job",inferred="true"} 2.5"#,
        r#"gpu_contention_inflation_ratio{device="GPU-b",victim="vllm",aggressor="job",inferred="true"} 2.0"#,
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    assert!(
        !text.contains(r#"gpu_info{device="GPU-b""#),
        "nothing is made up for a device that is not listed"
    );
}
