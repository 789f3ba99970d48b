use super::*;
use crate::decode::{DeviceMemory, DeviceProcess, DeviceUse, MigMode, Refusal, Throttle, decode};

const MS: u64 = 1_000_000;

/// Takes each through a record, as the live loop and a replay do.
fn observe(devices: &mut Devices, seen: &[(u64, NvmlSeen)]) -> Health {
    let mut health = Health::default();
    for (ms, seen) in seen {
        let mut record = Observation::Nvml(seen.clone()).to_record(ms * MS);
        devices.observe(&decode(&mut record).unwrap(), &mut health);
    }
    health
}

fn source(state: NvmlState) -> NvmlSeen {
    NvmlSeen::Source(NvmlSource { state, ..NvmlSource::default() })
}

fn list(uuids: &[&str]) -> NvmlSeen {
    NvmlSeen::Devices { uuids: uuids.iter().map(|&uuid| uuid.to_owned()).collect() }
}

fn seen(uuid: &str, lost: Option<&str>) -> NvmlSeen {
    let lost = lost.map(str::to_owned);
    NvmlSeen::Device(DeviceSeen { uuid: uuid.into(), index: 3, lost, ..DeviceSeen::default() })
}

fn usage(uuid: &str, percent: u32) -> NvmlSeen {
    let usage = DeviceUsage {
        uuid: uuid.into(),
        valid_ms: 3000,
        utilization_percent: Some(percent),
        ..DeviceUsage::default()
    };
    NvmlSeen::Usage(usage)
}

fn percent(devices: &Devices, uuid: &str, ms: u64) -> Option<u32> {
    let device = devices.iter().find(|device| device.seen().uuid == uuid)?;
    device.usage(ms * MS)?.utilization_percent
}

#[test]
fn every_form_survives_a_record() {
    let full = DeviceSeen {
        uuid: "GPU-1".into(),
        name: Some("NVIDIA H200".into()),
        mig: Some(MigMode { enabled: true, pending: false }),
        refused: [("power".to_owned(), Refusal::NoPermission)].into(),
        ..DeviceSeen::default()
    };
    let process = DeviceProcess {
        pid: 7,
        does: DeviceUse::Compute,
        start_ticks: Some(9),
        comm: Some("python3".into()),
        container: None,
        used_memory: Some(u64::MAX - 1),
    };
    let used = DeviceUsage {
        uuid: "GPU-1".into(),
        valid_ms: 1,
        memory: Some(DeviceMemory { total: 4, used: 3, free: 1, reserved: 0 }),
        processes: Some(vec![process]),
        ..DeviceUsage::default()
    };
    let condition = DeviceCondition {
        uuid: "GPU-1".into(),
        valid_ms: 1,
        throttle: Some(vec![Throttle::SwPowerCap]),
        ..DeviceCondition::default()
    };
    let forms = [
        source(NvmlState::Released),
        list(&["GPU-1"]),
        NvmlSeen::Device(full),
        NvmlSeen::Usage(used),
        NvmlSeen::Condition(condition),
        NvmlSeen::Xid { uuid: "GPU-1".into(), xid: 79 },
    ];
    for form in forms {
        let mut record = Observation::Nvml(form.clone()).to_record(5);
        let Event::Observation(at, got) = decode(&mut record).unwrap() else { panic!("{form:?}") };
        assert_eq!((at.time_ns, *got), (5, Observation::Nvml(form)));
    }
}

#[test]
fn a_number_counts_for_as_long_as_it_says() {
    let mut devices = Devices::default();
    observe(&mut devices, &[(0, source(NvmlState::On)), (1000, usage("a", 40))]);
    assert_eq!(percent(&devices, "a", 4000), Some(40));
    assert_eq!(percent(&devices, "a", 4001), None);
    let device = devices.iter().next().unwrap();
    assert_eq!(device.told_ns(), Some(1000 * MS));
}

#[test]
fn a_lost_device_has_no_numbers_and_the_others_keep_theirs() {
    let mut devices = Devices::default();
    let told =
        [(0, list(&["a", "b"])), (1, usage("a", 40)), (1, usage("b", 50)), (2, seen("a", Some("gone")))];
    observe(&mut devices, &told);
    assert_eq!((percent(&devices, "a", 2), percent(&devices, "b", 2)), (None, Some(50)));
    observe(&mut devices, &[(3, seen("a", None)), (4, usage("a", 60))]);
    assert_eq!(percent(&devices, "a", 4), Some(60));
}

#[test]
fn a_source_that_is_not_on_leaves_what_devices_are_and_no_numbers() {
    for state in [NvmlState::Released, NvmlState::Unavailable, NvmlState::Off] {
        let mut devices = Devices::default();
        let told =
            [(0, seen("a", None)), (1, usage("a", 40)), (1, NvmlSeen::Xid { uuid: "a".into(), xid: 31 })];
        observe(&mut devices, &told);
        observe(&mut devices, &[(2, source(state))]);
        assert_eq!(percent(&devices, "a", 2), None, "{state:?}");
        let device = devices.iter().next().unwrap();
        assert_eq!((device.seen().index, device.xids()), (3, &[(31, 1)].into()));
    }
}

#[test]
fn what_is_not_listed_is_gone() {
    let mut devices = Devices::default();
    observe(&mut devices, &[(0, list(&["b", "a"])), (1, usage("a", 40)), (1, usage("b", 50))]);
    let order = |devices: &Devices| devices.iter().map(|d| d.seen().uuid.clone()).collect::<Vec<_>>();
    assert_eq!(order(&devices), ["b", "a"]);
    observe(&mut devices, &[(2, list(&["a"]))]);
    assert_eq!(order(&devices), ["a"]);
}

#[test]
fn tables_are_bounded_and_what_is_beyond_is_counted() {
    let mut devices = Devices::default();
    let names: Vec<String> = (0..=MAX_DEVICES).map(|n| n.to_string()).collect();
    let all: Vec<_> = names.iter().map(|uuid| (0, usage(uuid, 1))).collect();
    assert_eq!(observe(&mut devices, &all).limits["devices"], 1);
    assert_eq!(devices.iter().count(), MAX_DEVICES);

    let xids: Vec<_> =
        (0..MAX_XIDS as u64 + 5).map(|xid| (0, NvmlSeen::Xid { uuid: "0".into(), xid })).collect();
    assert_eq!(observe(&mut devices, &xids).limits["xids"], 5);
    let device = devices.iter().next().unwrap();
    assert_eq!((device.xids().len(), device.xids()[&OTHER_XID]), (MAX_XIDS + 1, 5));

    let process = DeviceProcess {
        pid: 7,
        does: DeviceUse::Graphics,
        start_ticks: None,
        comm: None,
        container: None,
        used_memory: None,
    };
    let processes = Some(vec![process; MAX_PROCESSES + 2]);
    let many = DeviceUsage { uuid: "0".into(), valid_ms: 9, processes, ..DeviceUsage::default() };
    assert_eq!(observe(&mut devices, &[(0, NvmlSeen::Usage(many))]).limits["device_processes"], 2);
}
