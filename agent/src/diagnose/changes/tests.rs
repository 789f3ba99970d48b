//! What is a change, and what was there before.

use wire::{Header, Kind, process};

use super::*;
use crate::decode::{DeviceCondition, DeviceSeen, MigMode, NvmlSource, Stamp};

const S: u64 = 1_000_000_000;
const WALL: u64 = 1_000_000 * S;

#[derive(Default)]
struct Rig {
    changes: Changes,
    health: Health,
}

impl Rig {
    /// One that has looked around.
    fn settled() -> Self {
        let mut rig = Self::default();
        rig.observe(0, Observation::Clock { wall_ns: WALL });
        rig
    }

    fn observe(&mut self, at_s: u64, observation: Observation) {
        let event = Event::Observation(Stamp { time_ns: at_s * S, tgid: 0, tid: 0 }, Box::new(observation));
        self.changes.observe(&event, &mut self.health);
    }

    fn process(&mut self, at_s: u64, pid: u32, cuda: bool) {
        let seen = ProcessSeen {
            pid,
            start_ticks: u64::from(pid),
            comm: "python".into(),
            service: "key".into(),
            service_name: "svc".into(),
            container: None,
            cuda,
            ports: Vec::new(),
        };
        self.observe(at_s, Observation::Process(seen));
    }

    fn nvml(&mut self, at_s: u64, seen: NvmlSeen) {
        self.observe(at_s, Observation::Nvml(seen));
    }

    fn line(&self) -> Vec<(u64, What)> {
        self.changes.iter().map(|change| ((change.at_ns - WALL) / S, change.what)).collect()
    }
}

#[test]
fn what_is_found_at_first_was_there_before() {
    let mut rig = Rig::settled();
    rig.process(1, 1, true);
    rig.process(2, 2, false);
    rig.process(10, 2, false);
    assert_eq!(rig.line(), []);
    rig.process(11, 3, false);
    rig.process(12, 3, true);
    rig.process(13, 3, true);
    rig.process(14, 4, true);
    assert_eq!(
        rig.line(),
        [(11, What::ProcessStarted), (12, What::NeighbourCame), (14, What::NeighbourCame)]
    );
}

#[test]
fn an_end_is_told_once() {
    let mut rig = Rig::settled();
    rig.process(1, 1, true);
    rig.process(1, 2, false);
    let header = Header { abi: wire::ABI, kind: Kind::Exit as u16, len: 0, time_ns: 10 * S, tgid: 1, tid: 1 };
    let exit = process::Process { header, ..zerocopy::FromZeros::new_zeroed() };
    rig.changes.observe(&Event::Exit(exit), &mut rig.health);
    rig.observe(11, Observation::ProcessGone { pid: 1, start_ticks: 1 });
    rig.observe(12, Observation::ProcessGone { pid: 2, start_ticks: 99 });
    rig.observe(13, Observation::ProcessGone { pid: 2, start_ticks: 2 });
    assert_eq!(rig.line(), [(10, What::NeighbourLeft), (13, What::ProcessEnded)]);
}

#[test]
fn devices_and_their_driver() {
    let mut rig = Rig::settled();
    let source = |version: &str| {
        NvmlSeen::Source(NvmlSource { driver_version: Some(version.into()), ..NvmlSource::default() })
    };
    let device = |enabled| {
        let mig = Some(MigMode { enabled, pending: enabled });
        NvmlSeen::Device(DeviceSeen { uuid: "GPU-1".into(), mig, ..DeviceSeen::default() })
    };
    let condition = |throttle: &[Throttle]| {
        let throttle = Some(throttle.to_vec());
        NvmlSeen::Condition(DeviceCondition { uuid: "GPU-1".into(), throttle, ..DeviceCondition::default() })
    };
    let list = |uuids: &[&str]| NvmlSeen::Devices { uuids: uuids.iter().map(|&uuid| uuid.into()).collect() };
    let told = [
        (10, source("580.1")),
        (11, source("580.1")),
        (12, source("580.2")),
        (20, device(false)),
        (21, device(true)),
        (30, condition(&[])),
        (31, condition(&[Throttle::HwThermal])),
        (32, condition(&[Throttle::HwThermal])),
        (33, condition(&[])),
        (40, list(&["GPU-1"])),
        (41, list(&["GPU-1", "GPU-2"])),
        (42, list(&["GPU-1"])),
        (50, NvmlSeen::Xid { uuid: "GPU-1".into(), xid: 79 }),
    ];
    for (at_s, seen) in told {
        rig.nvml(at_s, seen);
    }
    let want = [
        (12, What::DriverVersion),
        (21, What::MigChanged),
        (31, What::ThrottleChanged),
        (33, What::ThrottleChanged),
        (41, What::DeviceChanged),
        (42, What::DeviceChanged),
        (50, What::DeviceChanged),
    ];
    assert_eq!(rig.line(), want);
    assert_eq!(rig.changes.iter().nth(2).unwrap().text, "the clocks are held back by hw thermal");
}

#[test]
fn loads_soon_after_each_other_are_one_change() {
    let mut rig = Rig::settled();
    for at_s in [10, 11, 12, 100] {
        rig.changes.loaded("svc", RareKind::ModuleLoad, 0.5, at_s * S);
    }
    rig.changes.loaded("svc", RareKind::Init, 0.5, 101 * S);
    assert_eq!(rig.line(), [(10, What::KernelsLoaded), (100, What::KernelsLoaded)]);
    assert!(rig.changes.iter().next().unwrap().text.starts_with("3 calls"), "{:?}", rig.changes);
}

#[test]
fn a_finding_is_told_what_may_have_to_do_with_it() {
    let mut rig = Rig::settled();
    rig.changes.model("svc", "m", 10 * S);
    rig.changes.model("other", "m", 11 * S);
    rig.process(12, 5, true);
    let of = |rig: &Rig, service| -> Vec<What> {
        rig.changes.before(service, WALL, WALL + 60 * S).iter().map(|change| change.what).collect()
    };
    assert_eq!(of(&rig, "svc"), [What::NeighbourCame, What::ModelAppeared]);
    assert_eq!(of(&rig, "third"), [What::NeighbourCame], "whoever comes to the GPUs");
    assert_eq!(rig.changes.before("svc", WALL + 20 * S, WALL + 60 * S), []);
}

#[test]
fn the_line_is_bounded() {
    let mut rig = Rig::settled();
    for n in 0..600 {
        rig.changes.model("svc", &n.to_string(), 10 * S);
    }
    assert_eq!((rig.line().len(), rig.changes.gone()), (KEPT, 600 - KEPT as u64));
}
