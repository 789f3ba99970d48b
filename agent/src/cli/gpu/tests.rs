use expect_test::expect;

use super::*;
use crate::{
    contention::Verdict,
    decode::{DeviceUse, NvmlSource, Throttle},
    export::{
        coverage::{Covered, Sight},
        gpus::Activity,
    },
    occupancy::{Contention, Neighbour, Party},
    placement::Known,
    probe::status::Path,
    role::Role,
};

fn text(gpus: &Gpus) -> String {
    // Once through JSON, as on the way from the daemon.
    let again: Gpus = serde_json::from_str(&serde_json::to_string(gpus).unwrap()).unwrap();
    assert_eq!(&again, gpus);
    lines(gpus).into_iter().map(|line| line + "\n").collect()
}

fn on() -> Nvml {
    let source = NvmlSource {
        state: NvmlState::On,
        driver_version: Some("580.65.06".into()),
        cuda_version: Some("13.0".into()),
        ..NvmlSource::default()
    };
    Nvml { source, ..Nvml::default() }
}

#[test]
fn a_device_shows_what_is_known_of_it() {
    let covered = Covered {
        pid: 4711,
        comm: None,
        service: None,
        state: Sight::Blind,
        paths: vec![Path::Driver, Path::Inner],
        missing: vec!["its driver".into()],
        last_s: None,
        rare: None,
    };
    let process = GpuProcess {
        pid: 4711,
        does: DeviceUse::Compute,
        comm: Some("python3".into()),
        service: Some("vllm".into()),
        container: None,
        coverage: Some(covered),
        memory_used_bytes: Some(60 << 30),
        activity: None,
    };
    let unknown = GpuProcess {
        pid: 12,
        comm: None,
        service: None,
        coverage: None,
        memory_used_bytes: None,
        ..process.clone()
    };
    let full = Gpu {
        uuid: "GPU-1".into(),
        name: Some("NVIDIA H200".into()),
        architecture: Some("Hopper".into()),
        mig_enabled: Some(false),
        mig_pending: Some(true),
        utilization_ratio: Some(0.87),
        memory_total_bytes: Some(141 << 30),
        memory_used_bytes: Some(60 << 30),
        temperature_celsius: Some(61.0),
        power_watts: Some(512.4),
        power_limit_watts: Some(700.0),
        sm_clock_hertz: Some(1.98e9),
        throttle: Some(vec![Throttle::SwPowerCap, Throttle::HwThermal]),
        xids: [(31, 2)].into(),
        processes: Some(vec![process, unknown]),
        ..Gpu::default()
    };
    let divided = Gpu { uuid: "GPU-2".into(), index: 1, mig_enabled: Some(true), ..Gpu::default() };
    let instance = Gpu {
        uuid: "MIG-3".into(),
        index: 1,
        parent: Some("GPU-2".into()),
        instance_index: Some(0),
        gpu_instance: Some(9),
        compute_instance: Some(0),
        refused: [("utilization".to_owned(), Refusal::NotSupported)].into(),
        ..Gpu::default()
    };
    let lost = Gpu { uuid: "GPU-4".into(), index: 2, lost: Some("off the bus".into()), ..Gpu::default() };
    let gpus = Gpus { nvml: on(), gpus: vec![full, divided, instance, lost], ..Gpus::default() };
    expect![[r"
        NVML on, driver 580.65.06, CUDA 13.0
        GPU 0 GPU-1, NVIDIA H200, Hopper, divided after its next reset
          87 % busy, 60.0 GiB of 141.0 GiB, 61 °C, 512 of 700 W, SM 1980 MHz, held back by sw_power_cap and hw_thermal, XID 31 x2
               4711  60.0 GiB compute   python3  vllm  calls blind by driver and inner
            not seen: its driver
                 12         - compute
        GPU 1 GPU-2, divided
          MIG 1.0 MIG-3, GPU instance 9, compute instance 0
            not supported: utilization
        GPU 2 GPU-4, LOST: off the bus
    "]]
    .assert_eq(&text(&gpus));
}

#[test]
fn where_there_are_no_numbers_it_says_why() {
    let unavailable = NvmlSource {
        state: NvmlState::Unavailable,
        reason: Some("NVIDIA driver is not loaded".into()),
        ..NvmlSource::default()
    };
    let hanging =
        Nvml { hanging_function: Some("nvmlDeviceGetPowerUsage".into()), hanging_s: Some(12.3), ..on() };
    let cases = [
        (Nvml::default(), "NVML off\n"),
        (on(), "NVML on, driver 580.65.06, CUDA 13.0\nno GPUs\n"),
        (Nvml { source: unavailable, ..Nvml::default() }, "NVML unavailable, NVIDIA driver is not loaded\n"),
        (
            hanging,
            "NVML on, driver 580.65.06, CUDA 13.0, nvmlDeviceGetPowerUsage has not returned for 12 s\nno GPUs\n",
        ),
    ];
    for (nvml, want) in cases {
        assert_eq!(text(&Gpus { nvml, ..Gpus::default() }), want);
    }
}

#[test]
fn who_stands_in_whose_way_is_said_in_words() {
    let party = |pid: u32, workload: &str, role: Role| Party {
        pid,
        workload: workload.to_owned(),
        comm: None,
        container: None,
        pod: None,
        role,
    };
    let (server, job) = (party(7, "vllm:8000", Role::Inference), party(8, "train.py", Role::Training));
    let pair = |victim: &Party, aggressor: &Party, inflation_ratio, verdict| Contention {
        victim: victim.clone(),
        aggressor: aggressor.clone(),
        overlap_s: 12.34,
        inflation_ratio,
        solo_steps: 3,
        company_steps: 400,
        verdict,
        inferred: false,
        labels: Default::default(),
    };
    let activity = Activity {
        role: Role::Training,
        active_s: 20.0,
        known: Some(Known::Environment),
        inferred: true,
        ..Activity::default()
    };
    let process = GpuProcess {
        pid: 8,
        does: DeviceUse::Compute,
        comm: Some("python3".into()),
        service: Some("train.py".into()),
        container: None,
        coverage: None,
        memory_used_bytes: None,
        activity: Some(activity),
    };
    let gpu = Gpu {
        uuid: "GPU-1".into(),
        unlisted: true,
        processes: Some(vec![process.clone()]),
        contention: vec![
            pair(&server, &job, Some(1.87), Verdict::Contended),
            pair(&job, &server, Some(1.01), Verdict::NoEffect),
            pair(&job, &server, None, Verdict::InsufficientData),
        ],
        ..Gpu::default()
    };
    let neighbour = Neighbour {
        first_ns: 1_800_000_000 * 1_000_000_000,
        last_ns: 1_800_000_012 * 1_000_000_000,
        device: "GPU-1".into(),
        inference: server,
        training: Party { pod: Some("01234567".into()), ..job },
    };
    let unplaced = vec![GpuProcess { activity: None, ..process }];
    let gpus =
        Gpus { nvml: on(), gpus: vec![gpu], unplaced, neighbours: vec![neighbour], memory: Vec::new() };
    expect![[r"
        NVML on, driver 580.65.06, CUDA 13.0
        GPU ? GPU-1
                  8         - compute   python3  train.py  training, active 20.0 s, on this device by environment
          beside train.py (training, pid 8) for 12.3 s: steps of vllm:8000 (inference, pid 7) take x1.87
          beside vllm:8000 (inference, pid 7) for 12.3 s: steps of train.py (training, pid 8) take as long as alone (x1.01)
          beside vllm:8000 (inference, pid 7) for 12.3 s: not enough steps of train.py (training, pid 8) to tell what it does (3 alone, 400 in company)
        on a GPU that is not known
                  8         - compute   python3  train.py
        train.py (training, pid 8, pod 01234567) works on GPU-1 beside vllm:8000 (inference, pid 7), seen from 2027-01-15T08:00:00Z to 2027-01-15T08:00:12Z
    "]]
    .assert_eq(&text(&gpus));
}
