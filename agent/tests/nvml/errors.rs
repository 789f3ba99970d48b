//! Every error of NVML, each in its own way.

use agent::decode::{NvmlState, Refusal};
use serde_json::json;

use crate::rig::{Rig, gpu, host, with};

/// A host of two, the first of which fails a function.
fn failing(function: &str, code: u32) -> serde_json::Value {
    with(&host(&[gpu("GPU-a"), gpu("GPU-b")]), "/devices/0/errors", json!({function: code}))
}

#[test]
fn what_a_device_does_not_have_is_asked_once_and_absent() {
    let cases = [
        ("nvmlDeviceGetPowerUsage", 3, "power", Refusal::NotSupported),
        ("nvmlDeviceGetTemperature", 4, "temperature", Refusal::NoPermission),
        ("nvmlDeviceGetCurrentClocksThrottleReasons", 13, "throttle", Refusal::NotSupported),
        ("nvmlDeviceGetMemoryInfo_v2", 25, "memory", Refusal::NotSupported),
        ("nvmlDeviceGetUtilizationRates", 17, "utilization", Refusal::NoPermission),
        ("nvmlDeviceRegisterEvents", 3, "xid", Refusal::NotSupported),
    ];
    for (function, code, name, why) in cases {
        let mut rig = Rig::start(&failing(function, code));
        let (a, b) = (format!("{function} GPU-a"), format!("{function} GPU-b"));
        // Devices are registered for XIDs once, all the others are asked again and again.
        let asked = if name == "xid" { 1 } else { 3 };
        rig.until("questions to the other", |rig, _| rig.library.count(&b) >= asked);
        rig.rounds(1);
        assert_eq!(
            rig.device("GPU-a").unwrap().seen().refused,
            [(name.to_owned(), why)].into(),
            "{function}"
        );
        assert!(rig.device("GPU-b").unwrap().seen().refused.is_empty(), "{function}");
        assert_eq!(rig.library.count(&a), 1, "{function}");
    }
}

#[test]
fn a_number_that_fails_once_comes_back_and_is_counted() {
    for (code, label) in
        [(10, "timeout"), (999, "unknown"), (2, "invalid_argument"), (7, "insufficient_size")]
    {
        let mut rig = Rig::start(&failing("nvmlDeviceGetUtilizationRates", code));
        rig.until("memory", |rig, now| {
            let usage = rig.device("GPU-a").and_then(|device| device.usage(now));
            usage.is_some_and(|usage| usage.memory.is_some() && usage.utilization_percent.is_none())
        });
        let errors = &rig.nvml.health().calls["nvmlDeviceGetUtilizationRates"].errors;
        assert!(errors[label] >= 1, "{code}: {errors:?}");
        rig.library.write(&host(&[gpu("GPU-a"), gpu("GPU-b")]));
        rig.until("utilization", |rig, now| {
            let usage = rig.device("GPU-a").and_then(|device| device.usage(now));
            usage.is_some_and(|usage| usage.utilization_percent == Some(87))
        });
    }
}

#[test]
fn processes_that_are_not_found_are_none_and_not_unknown() {
    for code in [6, 21] {
        let mut rig = Rig::start(&failing("nvmlDeviceGetComputeRunningProcesses_v3", code));
        rig.until("an empty list", |rig, now| {
            let usage = rig.device("GPU-a").and_then(|device| device.usage(now));
            // The one that draws is told by another function.
            usage.and_then(|usage| usage.processes.as_ref()).is_some_and(|list| list.len() == 1)
        });
    }
    let mut rig = Rig::start(&failing("nvmlDeviceGetComputeRunningProcesses_v3", 999));
    rig.rounds(2);
    let device = rig.device("GPU-a").unwrap();
    assert_eq!(device.usage(device.told_ns().unwrap()).unwrap().processes, None);
}

#[test]
fn a_lost_gpu_is_marked_and_the_others_go_on_until_it_is_back() {
    for code in [15, 16] {
        let whole = host(&[gpu("GPU-a"), gpu("GPU-b")]);
        let mut rig = Rig::start(&whole);
        rig.until("both", |rig, now| rig.device("GPU-b").is_some_and(|device| device.usage(now).is_some()));
        let lost = json!({
            "nvmlDeviceGetUtilizationRates": code, "nvmlDeviceGetMemoryInfo_v2": code, "nvmlDeviceGetPowerUsage": code,
        });
        rig.library.write(&with(&whole, "/devices/0/errors", lost));
        rig.until("the loss", |rig, now| {
            let device = rig.device("GPU-a").unwrap();
            device.seen().lost.is_some() && device.usage(now).is_none() && device.condition(now).is_none()
        });
        let asked = rig.library.count("nvmlDeviceGetUtilizationRates GPU-a");
        rig.rounds(2);
        assert_eq!(rig.library.count("nvmlDeviceGetUtilizationRates GPU-a"), asked, "it is left alone");
        rig.until("the other", |rig, now| {
            rig.device("GPU-b").is_some_and(|device| device.usage(now).is_some())
        });
        assert_eq!(rig.state(), NvmlState::On);
        assert_eq!(rig.device("GPU-b").unwrap().seen().lost, None);

        rig.library.write(&whole);
        rig.until("the return", |rig, now| {
            rig.device("GPU-a")
                .is_some_and(|device| device.seen().lost.is_none() && device.usage(now).is_some())
        });
    }
}

#[test]
fn a_gpu_that_was_lost_before_it_had_a_name_is_there_all_the_same() {
    let mut rig = Rig::start(&with(&host(&[gpu("GPU-a"), gpu("GPU-b")]), "/devices/0/lost", json!(true)));
    rig.until("the other", |rig, now| rig.device("GPU-b").is_some_and(|device| device.usage(now).is_some()));
    assert!(rig.device("index-0").unwrap().seen().lost.is_some());
    rig.library.write(&host(&[gpu("GPU-a"), gpu("GPU-b")]));
    rig.until("its name", |rig, _| rig.device("GPU-a").is_some() && rig.device("index-0").is_none());
}

#[test]
fn a_driver_that_goes_is_waited_for() {
    for code in [1, 9, 12, 18] {
        let whole = host(&[gpu("GPU-a")]);
        let mut rig = Rig::start(&whole);
        rig.until("numbers", |rig, now| {
            rig.device("GPU-a").is_some_and(|device| device.usage(now).is_some())
        });
        // Both, or it would be on and off in turn.
        let gone = json!({"nvmlDeviceGetUtilizationRates": code, "nvmlInit_v2": code});
        rig.library.write(&with(&whole, "/errors", gone));
        rig.until("its end", |rig, now| {
            rig.state() == NvmlState::Unavailable && rig.device("GPU-a").unwrap().usage(now).is_none()
        });
        assert!(rig.devices().nvml().reason.is_some());
        assert!(rig.library.count("nvmlShutdown") >= 1, "{code}: nothing of it is held");
        let tries = rig.library.count("nvmlInit_v2");
        rig.until("more tries", |rig, _| rig.library.count("nvmlInit_v2") >= tries + 2);
        rig.library.write(&whole);
        rig.until("its return", |rig, now| {
            rig.state() == NvmlState::On && rig.device("GPU-a").unwrap().usage(now).is_some()
        });
    }
}
