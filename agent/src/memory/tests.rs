//! Calls made by hand, and what they come to.

mod causes;
mod ledger;

use wire::{
    Header, Kind as RecordKind,
    memory::{CALL_CAPTURED, CALL_WHOLE, PLACE_DEVICE, POOL_RESERVED},
    process,
};

use super::*;
use crate::decode::{DeviceMemory, DeviceProcess, DeviceSeen, DeviceUse, Stamp};

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;
const PID: u32 = 10;
const OTHER: u32 = 11;

/// A device, processes and time.
struct Rig {
    ledgers: Ledgers,
    devices: Devices,
    placements: Placements,
    health: Health,
    now_ms: u64,
    /// When the next call began, if not a moment ago.
    enter_ns: Option<u64>,
    /// Of the calls that follow.
    context: u64,
    flags: u8,
}

impl Rig {
    fn new() -> Self {
        let mut rig = Self::bare();
        rig.nvml(NvmlSeen::Device(DeviceSeen { uuid: "GPU-a".into(), ..DeviceSeen::default() }));
        rig
    }

    /// Before any device was found.
    fn bare() -> Self {
        Self {
            ledgers: Ledgers::default(),
            devices: Devices::default(),
            placements: Placements::default(),
            health: Health::default(),
            now_ms: 1000,
            enter_ns: None,
            context: 7,
            flags: CALL_WHOLE,
        }
    }

    fn take(&mut self, event: &Event<'_>) -> Vec<Incident> {
        self.devices.observe(event, &mut self.health);
        self.placements.observe(event, &mut self.health);
        let from = Sources { devices: &self.devices, placements: &self.placements };
        self.ledgers.observe(event, from, &mut self.health);
        self.ledgers.take_incidents().collect()
    }

    fn observe(&mut self, observation: Observation) -> Vec<Incident> {
        let at = Stamp { time_ns: self.now_ms * MS, tgid: 0, tid: 0 };
        self.take(&Event::Observation(at, Box::new(observation)))
    }

    fn nvml(&mut self, seen: NvmlSeen) -> Vec<Incident> {
        self.observe(Observation::Nvml(seen))
    }

    /// NVML tells what is free, and who holds what.
    fn usage(&mut self, total: u64, free: u64, held: &[(u32, u64)]) -> Vec<Incident> {
        let process = |&(pid, used)| DeviceProcess {
            pid,
            does: DeviceUse::Compute,
            start_ticks: None,
            comm: None,
            container: None,
            used_memory: Some(used),
        };
        self.nvml(NvmlSeen::Usage(DeviceUsage {
            uuid: "GPU-a".into(),
            valid_ms: 3000,
            memory: Some(DeviceMemory { total, used: total - free, free, reserved: 0 }),
            memory_asked_ns: Some([self.now_ms * MS, self.now_ms * MS]),
            processes: Some(held.iter().map(process).collect()),
            ..DeviceUsage::default()
        }))
    }

    /// A call of one millisecond.
    fn call(
        &mut self,
        pid: u32,
        class: Class,
        address: u64,
        bytes: u64,
        other: u64,
        result: u32,
    ) -> Vec<Incident> {
        self.now_ms += 1;
        let time_ns = self.now_ms * MS;
        let kind = RecordKind::MemoryCall as u16;
        let header = Header { abi: wire::ABI, kind, len: 72, time_ns, tgid: pid, tid: pid };
        let class = class as u8;
        let (enter_ns, flags) = (self.enter_ns.take().unwrap_or(time_ns - MS), self.flags);
        let context = self.context;
        let call = Call { header, enter_ns, context, bytes, address, other, row: 0, class, flags, result };
        self.take(&Event::Memory(call))
    }

    fn alloc(&mut self, address: u64, mib: u64) -> Vec<Incident> {
        self.call(PID, Class::Alloc, address, mib * MIB, 0, 0)
    }

    fn fail(&mut self, mib: u64) -> Vec<Incident> {
        self.call(PID, Class::Alloc, 0, mib * MIB, 0, OUT_OF_MEMORY)
    }

    fn free(&mut self, address: u64) -> Vec<Incident> {
        self.call(PID, Class::Free, address, 0, 0, 0)
    }

    /// The scanner found a process that uses CUDA.
    fn scanned(&mut self, pid: u32, start_ticks: u64) {
        let seen = ProcessSeen {
            pid,
            start_ticks,
            comm: "job".into(),
            service: "job".into(),
            service_name: "job".into(),
            container: None,
            cuda: true,
            ports: Vec::new(),
        };
        self.observe(Observation::Process(seen));
    }

    fn exit(&mut self, pid: u32) {
        let (kind, time_ns) = (RecordKind::Exit as u16, self.now_ms * MS);
        let header = Header { abi: wire::ABI, kind, len: 48, time_ns, tgid: pid, tid: pid };
        self.take(&Event::Exit(process::Process { header, child: 0, row: 0, comm: [0; 16] }));
    }

    fn wait(&mut self, ms: u64) -> Vec<Incident> {
        self.now_ms += ms;
        self.observe(Observation::Clock { wall_ns: 1 })
    }

    fn of(&self, pid: u32) -> ProcessMemory {
        self.ledgers.view().into_iter().find(|process| process.pid == pid).unwrap_or_default()
    }

    fn live(&self, kind: Kind) -> u64 {
        self.of(PID).live_bytes.get(&kind).copied().unwrap_or_default() / MIB
    }
}
