//! Opened, closed, hanging, and not there at all.

use std::{
    sync::mpsc::sync_channel,
    time::{Duration, Instant},
};

use agent::{
    decode::NvmlState,
    source::nvml::{Nvml, NvmlUnavailable},
};
use serde_json::json;

use crate::rig::{Library, Rig, gpu, host, is_found_below, with};

#[test]
fn a_library_that_is_not_there_is_waited_for() {
    let library = Library::new(&host(&[gpu("GPU-a")]));
    let root = tempfile::tempdir().unwrap();
    assert!(is_found_below(root.path(), &library));

    let mut settings = library.settings();
    let late = root.path().join("late.so");
    settings.library = Some(late.clone());
    let mut rig = Rig::with(library, settings).unwrap();
    rig.until("a reason", |rig, _| rig.state() == NvmlState::Unavailable);
    let reason = rig.devices().nvml().reason.clone().unwrap();
    assert!(reason.contains("late.so"), "{reason}");
    // Made under another name first: a half-written library is none.
    std::fs::copy(rig.library.path(), root.path().join("new")).unwrap();
    std::fs::write(root.path().join("fakenvml.json"), host(&[gpu("GPU-late")]).to_string()).unwrap();
    std::fs::rename(root.path().join("new"), late).unwrap();
    rig.until("it", |rig, _| rig.state() == NvmlState::On && rig.device("GPU-late").is_some());
}

#[test]
fn where_it_is_required_a_failed_start_says_why() {
    let refused = |state: &serde_json::Value| {
        let library = Library::new(state);
        let mut settings = library.settings();
        settings.required = true;
        Rig::with(library, settings).err().map(|error| error.to_string())
    };
    let whole = host(&[gpu("GPU-a")]);
    assert_eq!(refused(&whole), None);
    let message = refused(&with(&whole, "/errors", json!({"nvmlInit_v2": 9}))).unwrap();
    assert!(message.contains("NVIDIA driver is not loaded") && message.contains("gpu.nvml"), "{message}");
    let message = refused(&with(&whole, "/errors", json!({"nvmlInit_v2": 18}))).unwrap();
    assert!(message.contains("version mismatch"), "{message}");

    let library = Library::new(&with(&whole, "/hang", json!(["nvmlInit_v2"])));
    let mut settings = library.settings();
    settings.required = true;
    let error = Nvml::start(settings, sync_channel(16).0).unwrap_err();
    assert!(matches!(error, NvmlUnavailable::Silent { .. }), "{error}");
    library.write(&whole);
    library.until_closed();
}

#[test]
fn a_call_that_hangs_is_named_makes_numbers_absent_and_holds_up_nobody() {
    let whole = host(&[gpu("GPU-a")]);
    let mut rig = Rig::start(&whole);
    rig.until("numbers", |rig, now| rig.device("GPU-a").is_some_and(|device| device.usage(now).is_some()));
    assert_eq!(rig.nvml.health().hanging, None);
    rig.library.write(&with(&whole, "/hang", json!(["nvmlDeviceGetPowerUsage"])));
    rig.until("the hang", |rig, _| rig.nvml.health().hanging.is_some());
    let hanging = rig.nvml.health().hanging.unwrap();
    assert_eq!(hanging.function, "nvmlDeviceGetPowerUsage");
    assert!(hanging.age_seconds >= 0.3);
    rig.until("absence", |rig, now| rig.device("GPU-a").unwrap().usage(now).is_none());
    assert!(rig.nvml.health().hanging.unwrap().age_seconds > hanging.age_seconds);

    rig.library.write(&whole);
    rig.until("its return", |rig, now| {
        rig.nvml.health().hanging.is_none() && rig.device("GPU-a").unwrap().usage(now).is_some()
    });

    // And at the end, when it hangs again.
    rig.library.write(&with(&whole, "/hang", json!(["nvmlDeviceGetPowerUsage"])));
    rig.until("another hang", |rig, _| rig.nvml.health().hanging.is_some());
    let Rig { nvml, library, .. } = rig;
    let before = Instant::now();
    drop(nvml);
    assert!(before.elapsed() < Duration::from_secs(5), "{:?}", before.elapsed());
    library.write(&whole);
    library.until_closed();
}

#[test]
fn released_it_holds_nothing_and_asks_nothing_until_it_is_resumed() {
    let mut rig = Rig::start(&host(&[gpu("GPU-a")]));
    rig.until("numbers", |rig, now| rig.device("GPU-a").is_some_and(|device| device.usage(now).is_some()));
    let control = rig.nvml.control();
    control.release();
    rig.until("release", |rig, _| rig.state() == NvmlState::Released);
    let calls = rig.library.calls();
    assert_eq!(calls.last().map(String::as_str), Some("nvmlShutdown"));
    assert_eq!(rig.library.count("nvmlEventSetCreate"), rig.library.count("nvmlEventSetFree"));
    let device = rig.device("GPU-a").unwrap();
    assert!(device.usage(0).is_none() && device.seen().name.is_some());

    // Released again is no different, and it says several times that it is.
    control.release();
    let told = rig.records.len();
    rig.until("silence", |rig, _| rig.records.len() > told + 3);
    assert_eq!(rig.library.calls(), calls);

    control.resume();
    rig.until("numbers again", |rig, now| {
        rig.state() == NvmlState::On && rig.device("GPU-a").is_some_and(|device| device.usage(now).is_some())
    });
}

#[test]
fn what_cannot_be_had_is_released_and_stopped_too() {
    let broken = with(&host(&[]), "/errors", json!({"nvmlInit_v2": 9}));
    let mut rig = Rig::start(&broken);
    rig.until("a reason", |rig, _| rig.state() == NvmlState::Unavailable);
    rig.nvml.control().release();
    rig.until("release", |rig, _| rig.state() == NvmlState::Released);
    let before = Instant::now();
    let Rig { nvml, .. } = rig;
    drop(nvml);
    assert!(before.elapsed() < Duration::from_secs(1), "it waits for nothing");
}

#[test]
fn observations_that_nobody_takes_are_counted_and_wait_for_nobody() {
    let library = Library::new(&host(&[gpu("GPU-a")]));
    let (to, observations) = sync_channel(1);
    let nvml = Nvml::start(library.settings(), to).unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    while nvml.health().observations_dropped < 20 {
        assert!(Instant::now() < end, "{:?}", nvml.health());
        std::thread::yield_now();
    }
    drop(nvml);
    assert_eq!(library.calls().last().map(String::as_str), Some("nvmlShutdown"), "it ended as it should");
    assert_eq!(observations.iter().count(), 1);
}
