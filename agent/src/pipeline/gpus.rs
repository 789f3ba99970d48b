//! What the record of a request tells of the GPUs beside its stages: those its services worked on, and the kernels that
//! were loaded meanwhile.

use std::collections::BTreeSet;

use crate::{
    coverage::Coverage,
    device::Devices,
    occupancy::Occupancy,
    request::{Busy, RequestRecord},
};

/// Fills it in; `services` are the keys of those that the request went to.
pub(super) fn fill(
    record: &mut RequestRecord,
    services: [Option<&str>; 2],
    occupancy: &Occupancy,
    coverage: &Coverage,
    devices: &Devices,
) {
    let (Some(from), Some(to)) = (record.t_first_byte_in_ns, record.t_last_byte_out_ns) else { return };
    let keys: BTreeSet<&str> = services.into_iter().flatten().collect();
    let pids: BTreeSet<u32> = keys.into_iter().flat_map(|key| occupancy.of_service(key)).collect();
    if record.steps.is_some_and(|steps| steps > 0) {
        let uuids: BTreeSet<&str> = pids.iter().flat_map(|pid| occupancy.devices(*pid, from)).collect();
        let there = devices.iter().filter(|device| uuids.contains(&*device.seen().uuid));
        record.devices = there.map(|device| device.seen().index).collect();
    }
    let calls = pids.iter().filter_map(|pid| coverage.get(*pid));
    let loads: Vec<(u64, u64)> = calls.flat_map(|process| process.rare.loads(from, to)).collect();
    if loads.is_empty() {
        return;
    }
    let mut busy = Busy::default();
    for (begin, end) in &loads {
        busy.add(*begin, *end);
    }
    record.module_loads = Some(loads.len() as u64);
    record.module_load_s = Some(busy.measure(from, to) as f64 / 1e9);
}

#[cfg(test)]
mod tests {
    use wire::{Header, Kind, cookie::Class, cuda, rare::Rare};

    use super::*;
    use crate::{
        decode::{DeviceSeen, Event, GpuProcessSeen, NvmlSeen, Observation, ProcessSeen, Stamp},
        health::Health,
    };

    const MS: u64 = 1_000_000;

    fn header(kind: Kind, pid: u32, time_ns: u64) -> Header {
        Header { abi: wire::ABI, kind: kind as u16, len: 0, time_ns, tgid: pid, tid: pid }
    }

    #[derive(Default)]
    struct Rig {
        occupancy: Occupancy,
        coverage: Coverage,
        devices: Devices,
    }

    impl Rig {
        fn take(&mut self, event: &Event<'_>) {
            let mut health = Health::default();
            self.devices.observe(event, &mut health);
            self.occupancy.observe(event, &mut health);
            self.coverage.observe(event, &mut health);
        }

        fn tell(&mut self, observation: Observation) {
            self.take(&Event::Observation(Stamp { time_ns: 1, tgid: 0, tid: 0 }, Box::new(observation)));
        }

        fn load(&mut self, pid: u32, begin_ms: u64, end_ms: u64) {
            self.take(&Event::Rare(Rare {
                header: header(Kind::Rare, pid, end_ms * MS),
                enter_ns: begin_ms * MS,
                bytes: 0,
                row: 0,
                class: Class::ModuleLoad as u8,
                reserved: 0,
                result: 0,
            }));
        }

        /// What the process was told of its device, so that it is certain.
        fn context(&mut self, pid: u32) {
            let mut context = cuda::Context {
                header: header(Kind::Context, pid, 1),
                context: 0,
                device: 0,
                ordinal: -1,
                row: 0,
                class: Class::DeviceUuid as u8,
                reserved: [0; 5],
                text: [0; 32],
            };
            context.text[..16].copy_from_slice(&[0x11; 16]);
            self.take(&Event::Context(context));
            self.take(&Event::Context(cuda::Context {
                context: 64,
                class: Class::ContextCreate as u8,
                ..context
            }));
        }

        fn step(&mut self, pid: u32, service: &str, end_ms: u64) {
            let step = cuda::Step {
                header: header(Kind::Step, pid, end_ms * MS),
                work: cuda::Work { launches: 1, ..cuda::Work::default() },
                enter_ns: end_ms * MS,
                first_ns: (end_ms - 5) * MS,
                last_ns: 0,
                stream: 1,
                event: 0,
                graph: 0,
                row: 0,
                flags: 0,
                result: 0,
                context: 64,
            };
            self.occupancy.step([service; 2], false, &step, &mut Health::default());
        }
    }

    fn process(pid: u32, service: &str) -> Observation {
        Observation::Process(ProcessSeen {
            pid,
            start_ticks: 1,
            comm: "a".into(),
            service: service.into(),
            service_name: service.into(),
            container: None,
            cuda: true,
            ports: Vec::new(),
        })
    }

    #[test]
    fn a_record_has_the_devices_and_the_loads_of_its_own_services() {
        let mut rig = Rig::default();
        let uuid = "GPU-11111111-1111-1111-1111-111111111111".to_owned();
        let device = DeviceSeen { uuid, index: 3, ..DeviceSeen::default() };
        rig.tell(Observation::Nvml(NvmlSeen::Device(device)));
        for (pid, service) in [(7, "ours"), (8, "ours"), (9, "other")] {
            rig.tell(process(pid, service));
            rig.context(pid);
            rig.tell(Observation::GpuProcess(GpuProcessSeen { pid, ..GpuProcessSeen::default() }));
            rig.step(pid, service, 120);
        }
        rig.occupancy.tick(130 * MS, None, &rig.devices, &mut Health::default());
        rig.load(7, 50, 110);
        rig.load(8, 105, 115);
        rig.load(8, 300, 400);
        rig.load(9, 100, 200);
        let of = |steps, service| {
            let mut record = RequestRecord {
                t_first_byte_in_ns: Some(100 * MS),
                t_last_byte_out_ns: Some(150 * MS),
                steps,
                ..RequestRecord::default()
            };
            fill(&mut record, [Some(service), None], &rig.occupancy, &rig.coverage, &rig.devices);
            (record.devices, record.module_loads, record.module_load_s)
        };
        assert_eq!(of(Some(2), "ours"), (vec![3], Some(2), Some(0.015)));
        assert_eq!(of(None, "ours").0, Vec::<u32>::new(), "it had no steps");
        assert_eq!(of(Some(1), "nobody"), (Vec::new(), None, None));
    }
}
