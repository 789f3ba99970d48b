use wire::{Header, Kind};

use super::*;
use crate::decode::{
    DeviceProcess, DeviceSeen, DeviceUsage, DeviceUse, MigInstance, MigMode, NvmlSeen, Stamp,
};

const PID: u32 = 7;
const CONTEXT: u64 = 0x1000;
const UUID: [&str; 3] = [
    "GPU-66616b65-6375-6461-0000-000000000000",
    "GPU-66616b65-6375-6461-0000-000000000001",
    "GPU-66616b65-6375-6461-0000-000000000002",
];

#[derive(Default)]
struct Rig {
    placements: Placements,
    devices: Devices,
    health: Health,
}

fn uuid(last: u8) -> [u8; 32] {
    let mut text = [0; 32];
    text[..8].copy_from_slice(b"fakecuda");
    text[15] = last;
    text
}

fn padded(bytes: &[u8]) -> [u8; 32] {
    let mut text = [0; 32];
    text[..bytes.len()].copy_from_slice(bytes);
    text
}

impl Rig {
    /// A node with so many GPUs, NVML on, and nobody on them.
    fn with(gpus: u32) -> Self {
        let mut rig = Self::default();
        for index in 0..gpus {
            let seen = DeviceSeen {
                uuid: UUID[index as usize].to_owned(),
                index,
                pci_bus_id: Some(format!("00000000:{:02X}:00.0", index + 1)),
                ..DeviceSeen::default()
            };
            rig.nvml(NvmlSeen::Device(seen));
        }
        rig
    }

    fn nvml(&mut self, seen: NvmlSeen) {
        let at = Stamp { time_ns: 1, tgid: 0, tid: 0 };
        let event = Event::Observation(at, Box::new(Observation::Nvml(seen)));
        self.devices.observe(&event, &mut self.health);
    }

    fn lists(&mut self, uuid: &str, pids: &[u32]) {
        let process = |pid: &u32| DeviceProcess {
            pid: *pid,
            does: DeviceUse::Compute,
            start_ticks: None,
            comm: None,
            container: None,
            used_memory: None,
        };
        let processes = Some(pids.iter().map(process).collect());
        self.nvml(NvmlSeen::Usage(DeviceUsage {
            uuid: uuid.into(),
            valid_ms: 3000,
            processes,
            ..DeviceUsage::default()
        }));
    }

    fn call(&mut self, class: Class, context: u64, device: i32, text: [u8; 32]) {
        let header =
            Header { abi: wire::ABI, kind: Kind::Context as u16, len: 80, time_ns: 1, tgid: PID, tid: PID };
        let call = cuda::Context {
            header,
            context,
            device,
            ordinal: device,
            row: 0,
            class: class as u8,
            reserved: [0; 5],
            text,
        };
        self.placements.observe(&Event::Context(call), &mut self.health);
    }

    fn proc(&mut self, seen: GpuProcessSeen) {
        let at = Stamp { time_ns: 1, tgid: 0, tid: 0 };
        let seen = Observation::GpuProcess(GpuProcessSeen { pid: PID, ..seen });
        self.placements.observe(&Event::Observation(at, Box::new(seen)), &mut self.health);
    }

    fn place(&self, context: u64) -> Option<(String, Known)> {
        let place = self.placements.place(PID, context, &self.devices, 2);
        place.map(|place| (place.device, place.known))
    }
}

#[expect(clippy::unnecessary_wraps, reason = "what it is compared with")]
fn on(index: usize, known: Known) -> Option<(String, Known)> {
    Some((UUID[index].to_owned(), known))
}

#[test]
fn what_the_process_was_told_by_its_driver_is_certain() {
    let mut rig = Rig::with(3);
    // CUDA's 0 is NVML's 2.
    rig.call(Class::ContextRetain, CONTEXT, 0, [0; 32]);
    assert_eq!(rig.place(CONTEXT), None, "three devices, and nothing that tells them apart");
    rig.call(Class::DeviceUuid, 0, 0, uuid(2));
    assert_eq!(rig.place(CONTEXT), on(2, Known::Driver));
    // A second context on another device, known by its address.
    rig.call(Class::ContextCreate, 0x2000, 1, [0; 32]);
    rig.call(Class::DeviceBus, 0, 1, padded(b"0000:01:00.0"));
    assert_eq!(rig.place(0x2000), on(0, Known::Driver));
    assert_eq!(rig.place(CONTEXT), on(2, Known::Driver));
    assert_eq!(rig.place(0), None, "it could be either");
    rig.call(Class::ContextDestroy, 0x2000, -1, [0; 32]);
    assert_eq!(rig.place(0), on(2, Known::Driver), "there is only one context left");
}

#[test]
fn a_uuid_that_nvml_does_not_tell_of_is_one_still() {
    let mut rig = Rig::default();
    rig.call(Class::ContextRetain, CONTEXT, 0, [0; 32]);
    rig.call(Class::DeviceUuid, 0, 0, uuid(1));
    assert_eq!(rig.place(CONTEXT), on(1, Known::Driver));
}

#[test]
fn late_it_is_inferred_from_one_thing_after_the_other() {
    let mut rig = Rig::with(2);
    assert_eq!(rig.place(0), None);
    rig.proc(GpuProcessSeen { open_devices: vec!["0000:02:00.0".into()], ..GpuProcessSeen::default() });
    assert_eq!(rig.place(0), on(1, Known::OpenFile));
    let visible = |list: &[&str]| Some(list.iter().map(|&name| name.to_owned()).collect());
    rig.proc(GpuProcessSeen { visible_devices: visible(&["0"]), ..GpuProcessSeen::default() });
    assert_eq!(rig.place(0), on(0, Known::Environment));
    rig.proc(GpuProcessSeen { visible_devices: visible(&[&UUID[1][..12]]), ..GpuProcessSeen::default() });
    assert_eq!(rig.place(0), None, "both begin so");
    rig.proc(GpuProcessSeen { visible_devices: visible(&[UUID[1]]), ..GpuProcessSeen::default() });
    assert_eq!(rig.place(0), on(1, Known::Environment));
    rig.lists(UUID[0], &[PID, 9]);
    assert_eq!(rig.place(0), on(0, Known::Nvml), "NVML knows better");
    rig.lists(UUID[1], &[PID]);
    assert_eq!(rig.place(0), on(1, Known::Environment), "on both: NVML does not say which context is where");
    assert_eq!(Rig::with(1).place(0), on(0, Known::OnlyDevice));
}

#[test]
fn open_files_are_believed_before_the_numbers_of_an_environment() {
    let mut rig = Rig::with(3);
    let seen = |open: &[&str]| GpuProcessSeen {
        visible_devices: Some(vec!["0".to_owned()]),
        open_devices: open.iter().map(|&address| address.to_owned()).collect(),
        ..GpuProcessSeen::default()
    };
    rig.proc(seen(&["0000:02:00.0"]));
    assert_eq!(rig.place(0), on(1, Known::OpenFile), "in a container, 0 is its first");
    rig.proc(seen(&["0000:02:00.0", "0000:03:00.0"]));
    assert_eq!(rig.place(0), None, "it has not even opened the node's first");
    rig.proc(seen(&["0000:01:00.0", "0000:02:00.0"]));
    assert_eq!(rig.place(0), on(0, Known::Environment));
}

#[test]
fn late_word_of_the_end_is_not_of_the_next_with_that_number() {
    let exit = || {
        let kind = Kind::Exit as u16;
        let header = Header { abi: wire::ABI, kind, len: 48, time_ns: 1, tgid: PID, tid: PID };
        Event::Exit(wire::process::Process { header, child: 0, row: 0, comm: [0; 16] })
    };
    let at = Stamp { time_ns: 1, tgid: 0, tid: 0 };
    let gone =
        |start_ticks| Event::Observation(at, Box::new(Observation::ProcessGone { pid: PID, start_ticks }));
    let start = |start_ticks| GpuProcessSeen { start_ticks, ..GpuProcessSeen::default() };
    for first in [Some(5), None] {
        let mut rig = Rig::with(2);
        rig.call(Class::ContextRetain, CONTEXT, 1, [0; 32]);
        if let Some(ticks) = first {
            rig.proc(start(ticks));
        }
        rig.placements.observe(&exit(), &mut rig.health);
        rig.call(Class::ContextRetain, CONTEXT, 0, [0; 32]);
        rig.call(Class::DeviceUuid, 0, 0, uuid(1));
        rig.placements.observe(&gone(5), &mut rig.health);
        rig.proc(start(6));
        rig.proc(start(6));
        assert_eq!(rig.place(CONTEXT), on(1, Known::Driver), "{first:?}");
        rig.proc(start(7));
        assert_eq!(rig.place(CONTEXT), None, "another one, and nothing told of the end");
    }
}

#[test]
fn a_list_that_reorders_is_followed() {
    let mut rig = Rig::with(2);
    let visible_devices = Some(vec!["1".to_owned(), "0".to_owned()]);
    rig.proc(GpuProcessSeen { visible_devices, ..GpuProcessSeen::default() });
    rig.call(Class::ContextRetain, CONTEXT, 0, [0; 32]);
    rig.call(Class::ContextRetain, 0x2000, 1, [0; 32]);
    assert_eq!(rig.place(CONTEXT), on(1, Known::Environment));
    assert_eq!(rig.place(0x2000), on(0, Known::Environment));
    // Of different models, CUDA puts the fastest first unless it is told otherwise.
    let other =
        DeviceSeen { uuid: UUID[1].into(), index: 1, name: Some("other".into()), ..DeviceSeen::default() };
    rig.nvml(NvmlSeen::Device(other));
    assert_eq!(rig.place(CONTEXT), None);
}

#[test]
fn instances_are_devices_and_the_gpu_that_is_divided_is_none() {
    let mut rig = Rig::with(1);
    let gpu = UUID[0].to_owned();
    rig.nvml(NvmlSeen::Device(DeviceSeen {
        uuid: gpu.clone(),
        mig: Some(MigMode { enabled: true, pending: true }),
        ..DeviceSeen::default()
    }));
    for (index, last) in [(0, 8), (1, 9)] {
        let instance = MigInstance { parent: gpu.clone(), index, gpu_instance: None, compute_instance: None };
        let uuid = format!("MIG-66616b65-6375-6461-0000-00000000000{last}");
        rig.nvml(NvmlSeen::Device(DeviceSeen { uuid, instance: Some(instance), ..DeviceSeen::default() }));
    }
    let mig = |last: u8| format!("MIG-66616b65-6375-6461-0000-00000000000{last}");
    rig.call(Class::ContextRetain, CONTEXT, 0, [0; 32]);
    rig.call(Class::DeviceUuid, 0, 0, uuid(9));
    assert_eq!(rig.place(CONTEXT), Some((mig(9), Known::Driver)));
    // The older function tells the GPU of an instance.
    rig.call(Class::DeviceUuid, 0, 0, uuid(0));
    assert_eq!(rig.place(CONTEXT), None);
    rig.lists(&mig(8), &[PID]);
    assert_eq!(rig.place(CONTEXT), Some((mig(8), Known::Driver)));
}

#[test]
fn another_process_under_the_same_number_starts_anew() {
    let mut rig = Rig::with(2);
    rig.call(Class::ContextRetain, CONTEXT, 0, [0; 32]);
    rig.call(Class::DeviceUuid, 0, 0, uuid(1));
    let at = Stamp { time_ns: 1, tgid: 0, tid: 0 };
    let gone = Observation::ProcessGone { pid: PID, start_ticks: 1 };
    rig.placements.observe(&Event::Observation(at, Box::new(gone)), &mut rig.health);
    assert_eq!(rig.place(CONTEXT), on(1, Known::Driver), "its last steps may still come");
    rig.call(Class::ContextRetain, CONTEXT, 0, [0; 32]);
    assert_eq!(rig.place(CONTEXT), None);
}

#[test]
fn processes_are_bounded() {
    let mut rig = Rig::default();
    for pid in 0..u32::try_from(MAX_PROCESSES + 10).unwrap() {
        let at = Stamp { time_ns: u64::from(pid), tgid: 0, tid: 0 };
        let seen = Observation::GpuProcess(GpuProcessSeen { pid, ..GpuProcessSeen::default() });
        rig.placements.observe(&Event::Observation(at, Box::new(seen)), &mut rig.health);
    }
    assert_eq!((rig.placements.by_pid.len(), rig.health.limits["gpu_processes"]), (MAX_PROCESSES, 10));
}
