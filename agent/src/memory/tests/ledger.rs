//! The ledger against calls made by hand.

use wire::{
    Header, Kind as RecordKind,
    memory::{CALL_WHOLE, PLACE_DEVICE, POOL_RESERVED},
    process,
};

use super::super::*;
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
}

impl Rig {
    fn new() -> Self {
        let mut rig = Self {
            ledgers: Ledgers::default(),
            devices: Devices::default(),
            placements: Placements::default(),
            health: Health::default(),
            now_ms: 1000,
            enter_ns: None,
        };
        rig.nvml(NvmlSeen::Device(DeviceSeen { uuid: "GPU-a".into(), ..DeviceSeen::default() }));
        rig
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
        let (enter_ns, flags) = (self.enter_ns.take().unwrap_or(time_ns - MS), CALL_WHOLE);
        let call = Call { header, enter_ns, context: 7, bytes, address, other, row: 0, class, flags, result };
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

fn failure(incidents: &[Incident]) -> &Failure {
    match incidents {
        [Incident::Failure(failure)] => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_free_that_is_told_after_its_address_was_given_again_is_of_the_older_block() {
    let mut rig = Rig::new();
    rig.alloc(100, 5);
    let began_ns = rig.now_ms * MS + 1;
    // Another thread was given the address before the free returned, ...
    rig.alloc(100, 3);
    // ... and a third one, after the second freed it.
    rig.free(100);
    rig.alloc(100, 2);
    rig.enter_ns = Some(began_ns);
    rig.free(100);
    let memory = rig.of(PID);
    assert_eq!((rig.live(Kind::Device), memory.counts.frees, memory.counts.unknown_frees), (2, 2, 0));
    rig.free(100);
    assert_eq!(
        (rig.live(Kind::Device), rig.of(PID).counts.unknown_frees, rig.of(PID).partial),
        (0, 0, false)
    );
}

#[test]
fn what_is_allocated_is_held_until_it_is_freed_by_whatever_thread() {
    let mut rig = Rig::new();
    rig.alloc(100, 5);
    rig.alloc(200, 3);
    rig.call(PID, Class::AllocManaged, 300, MIB, 0, 0);
    rig.call(PID, Class::AllocHost, 400, 2 * MIB, 0, 0);
    rig.call(PID, Class::RegisterHost, 500, 4 * MIB, 0, 0);
    rig.free(100);
    let memory = rig.of(PID);
    assert_eq!((rig.live(Kind::Device), rig.live(Kind::Managed), rig.live(Kind::Host)), (3, 1, 6));
    assert_eq!((memory.held_bytes(), memory.peak_bytes), (3 * MIB, 8 * MIB));
    assert_eq!((memory.counts.allocations, memory.counts.frees, memory.counts.alloc_ns), (5, 1, 5 * MS));
    assert_eq!(memory.device.as_deref(), Some("GPU-a"), "the only one there is");
    rig.call(PID, Class::UnregisterHost, 500, 0, 0, 0);
    rig.call(PID, Class::FreeHost, 400, 0, 0, 0);
    assert_eq!((rig.live(Kind::Host), rig.of(PID).partial), (0, false));
}

#[test]
fn frees_of_the_unknown_and_frees_that_are_refused_are_told_apart() {
    let mut rig = Rig::new();
    rig.alloc(100, 5);
    rig.free(100);
    rig.call(PID, Class::Free, 100, 0, 0, 1);
    rig.free(999);
    rig.free(0);
    let counts = rig.of(PID).counts;
    assert_eq!((counts.frees, counts.failed_frees, counts.unknown_frees), (2, 1, 1));
    assert_eq!(rig.of(PID).held_bytes(), 0);
}

#[test]
fn addresses_are_no_memory_and_mappings_are_the_memory_behind_them() {
    let mut rig = Rig::new();
    let device = u64::from(PLACE_DEVICE);
    rig.call(PID, Class::ReserveRange, 1 << 40, 1000 * MIB, 0, 0);
    assert_eq!((rig.of(PID).held_bytes(), rig.of(PID).reserved_address_bytes), (0, 1000 * MIB));
    rig.call(PID, Class::CreatePhysical, 7, 20 * MIB, device, 0);
    rig.call(PID, Class::MapRange, 1 << 40, 20 * MIB, 7, 0);
    rig.call(PID, Class::RetainPhysical, 7, 0, 1 << 40, 0);
    assert_eq!(rig.live(Kind::Vmm), 20);
    rig.call(PID, Class::ReleasePhysical, 7, 0, 0, 0);
    rig.call(PID, Class::ReleasePhysical, 7, 0, 0, 0);
    assert_eq!(rig.live(Kind::Vmm), 20, "still mapped");
    rig.call(PID, Class::UnmapRange, 1 << 40, 20 * MIB, 0, 0);
    rig.call(PID, Class::FreeRange, 1 << 40, 1000 * MIB, 0, 0);
    assert_eq!((rig.live(Kind::Vmm), rig.of(PID).reserved_address_bytes), (0, 0));
    // On the host.
    rig.call(PID, Class::CreatePhysical, 8, MIB, 2, 0);
    assert_eq!((rig.live(Kind::Host), rig.of(PID).held_bytes()), (1, 0));
}

#[test]
fn memory_of_another_process_is_not_held() {
    let mut rig = Rig::new();
    rig.call(PID, Class::ImportAddress, 100, 0, 0, 0);
    rig.call(PID, Class::ImportPhysical, 9, 0, 0, 0);
    rig.call(PID, Class::MapRange, 1 << 40, 6 * MIB, 9, 0);
    assert_eq!((rig.live(Kind::Imported), rig.of(PID).held_bytes()), (6, 0));
    rig.call(PID, Class::CloseImport, 100, 0, 0, 0);
    rig.call(PID, Class::ReleasePhysical, 9, 0, 0, 0);
    rig.call(PID, Class::UnmapRange, 1 << 40, 6 * MIB, 0, 0);
    assert_eq!((rig.live(Kind::Imported), rig.of(PID).counts.unknown_frees), (0, 0));
}

#[test]
fn pools_keep_what_was_given_back_until_they_are_trimmed_or_asked() {
    let mut rig = Rig::new();
    rig.call(PID, Class::CreatePool, 50, 0, 0, 0);
    rig.call(PID, Class::AllocPool, 100, 4 * MIB, 50, 0);
    rig.call(PID, Class::AllocPool, 200, 6 * MIB, 50, 0);
    rig.call(PID, Class::AllocAsync, 300, MIB, 0, 0);
    rig.call(PID, Class::FreeAsync, 200, 0, 0, 0);
    let memory = rig.of(PID);
    assert_eq!((rig.live(Kind::Pool), memory.pool_cached_bytes / MIB, memory.peak_bytes / MIB), (5, 6, 11));
    rig.call(PID, Class::TrimPool, 50, 5 * MIB, 0, 0);
    assert_eq!(rig.of(PID).pool_cached_bytes, MIB);
    rig.call(PID, Class::GetPool, 50, 4 * MIB, POOL_RESERVED, 0);
    assert_eq!(rig.of(PID).pool_cached_bytes, 0);
    // Destroyed: what is in use lives on, and a new one of the same handle is another.
    rig.call(PID, Class::DestroyPool, 50, 0, 0, 0);
    rig.call(PID, Class::CreatePool, 50, 0, 0, 0);
    rig.call(PID, Class::AllocPool, 400, 2 * MIB, 50, 0);
    rig.call(PID, Class::FreeAsync, 100, 0, 0, 0);
    assert_eq!((rig.live(Kind::Pool), rig.of(PID).pool_cached_bytes), (3, 0));
}

#[test]
fn a_process_that_ends_holds_nothing_and_its_number_is_another_then() {
    let mut rig = Rig::new();
    rig.usage(100 * MIB, 100 * MIB, &[]);
    rig.alloc(100, 60);
    let header = Header {
        abi: wire::ABI,
        kind: RecordKind::Exit as u16,
        len: 48,
        time_ns: rig.now_ms * MS,
        tgid: PID,
        tid: PID,
    };
    rig.take(&Event::Exit(process::Process { header, child: 0, row: 0, comm: [0; 16] }));
    assert_eq!(rig.of(PID), ProcessMemory::default());
    rig.wait(1000);
    rig.usage(100 * MIB, 100 * MIB, &[]);
    let failure = {
        rig.call(OTHER, Class::Alloc, 0, 90 * MIB, 0, OUT_OF_MEMORY);
        rig.wait(4000)
    };
    let Some(Incident::Failure(failure)) = failure.first() else { panic!("{failure:?}") };
    assert_eq!((failure.class, failure.free_bytes), (FailureClass::Fragmented, Some(100 * MIB)));
}

#[test]
fn enough_was_free_and_not_in_one_piece() {
    let mut rig = Rig::new();
    rig.alloc(100, 30);
    rig.alloc(200, 30);
    rig.alloc(300, 30);
    rig.free(200);
    assert!(rig.fail(40).is_empty(), "somebody may tell what was free");
    rig.alloc(400, 8);
    // It asks right afterwards, with 8 MiB less free than at the failure.
    let told = rig.call(PID, Class::MemoryInfo, 0, 32 * MIB, 100 * MIB, 0);
    let failure = failure(&told);
    assert_eq!((failure.class, failure.free_bytes), (FailureClass::Fragmented, Some(40 * MIB)));
    assert_eq!((failure.requested_bytes, failure.own_bytes), (40 * MIB, 60 * MIB));
    assert_eq!((failure.largest_success_bytes, failure.smallest_failure_bytes), (Some(30 * MIB), 40 * MIB));
    assert_eq!((failure.free_source, failure.free_age_s), (Some(Source::Process), Some(0.002)));
    assert_eq!(rig.of(PID).failures_by_class, [(FailureClass::Fragmented, 1)].into());
}

#[test]
fn who_holds_what_is_missing() {
    // Alone.
    let mut rig = Rig::new();
    rig.usage(100 * MIB, 100 * MIB, &[]);
    rig.alloc(100, 70);
    rig.fail(40);
    let told = rig.wait(3000);
    assert_eq!(failure(&told).class, FailureClass::ExhaustedSelf);
    assert_eq!((failure(&told).free_bytes, failure(&told).others_bytes), (Some(30 * MIB), 0));

    // A neighbour that is watched, and one that only NVML knows.
    for watched in [true, false] {
        let mut rig = Rig::new();
        rig.usage(100 * MIB, 100 * MIB, &[]);
        rig.alloc(100, 20);
        if watched {
            rig.call(OTHER, Class::Alloc, 100, 60 * MIB, 0, 0);
        } else {
            rig.usage(100 * MIB, 20 * MIB, &[(PID, 20 * MIB), (OTHER, 60 * MIB)]);
        }
        rig.fail(40);
        let told = rig.wait(3000);
        let failure = failure(&told);
        assert_eq!((failure.class, failure.free_bytes), (FailureClass::ExhaustedOthers, Some(20 * MIB)));
        assert_eq!((failure.own_bytes, failure.others_bytes), (20 * MIB, 60 * MIB));
        assert_eq!(failure.holders, [Holder { pid: OTHER, bytes: 60 * MIB, comm: None }]);
    }
}

#[test]
fn without_numbers_no_cause_is_named() {
    let mut rig = Rig::new();
    rig.fail(40);
    let told = rig.wait(3000);
    assert_eq!(failure(&told).class, FailureClass::Unknown);
    let refused = rig.call(PID, Class::Alloc, 0, MIB, 0, 900);
    assert_eq!(failure(&refused).class, FailureClass::Error, "at once");
}

#[test]
fn a_storm_ends_with_the_retry() {
    let mut rig = Rig::new();
    rig.usage(100 * MIB, 0, &[]);
    for address in 1..=5 {
        rig.alloc(address, 10);
    }
    rig.fail(25);
    for address in 1..=3 {
        rig.free(address);
    }
    let told = rig.alloc(9, 25);
    let [Incident::Storm(storm)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((storm.frees, storm.freed_bytes, storm.retries, storm.succeeded), (3, 30 * MIB, 1, true));
    assert!((storm.duration_s - 0.004).abs() < 1e-9);
    assert_eq!(rig.of(PID).retry_storms, 1);
}

/// The same again, and what is undecided at the end is decided then.
#[test]
fn the_end_decides() {
    let mut rig = Rig::new();
    rig.fail(40);
    assert_eq!(failure(&rig.observe(Observation::End)).class, FailureClass::Unknown);
}

#[test]
fn two_hundred_quiet_runs_raise_nothing() {
    for run in 0..200_u64 {
        let mut rig = Rig::new();
        let mut seed = run;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut live = Vec::new();
        for n in 0..500 {
            let told = match next(4) {
                0 | 1 => {
                    live.push(n + 1);
                    rig.alloc(n + 1, 1 + next(64))
                }
                2 if !live.is_empty() => {
                    let at = usize::try_from(next(live.len() as u64)).unwrap();
                    rig.free(live.swap_remove(at))
                }
                _ => rig.wait(50),
            };
            assert_eq!(told, [], "run {run}");
        }
        assert_eq!(rig.wait(10_000), []);
        let memory = rig.of(PID);
        assert_eq!(memory.counts.allocations - memory.counts.frees, live.len() as u64);
        assert!(!memory.partial && !memory.capped && rig.health.limits.is_empty());
    }
}

#[test]
fn what_is_kept_is_bounded_and_sums_go_on() {
    let mut rig = Rig::new();
    let many = blocks::PER_PROCESS as u64 + 100;
    for address in 1..=many {
        rig.alloc(address, 2);
    }
    let memory = rig.of(PID);
    assert!(memory.capped);
    assert_eq!((memory.held_bytes(), rig.health.limits["memory_blocks"]), (many * 2 * MIB, 1));
    for address in 1..=many {
        rig.free(address);
    }
    assert_eq!((rig.of(PID).held_bytes(), rig.of(PID).counts.unknown_frees), (0, 0));

    for pid in 0..=u32::try_from(MAX_PROCESSES).unwrap() {
        rig.call(100 + pid, Class::Alloc, 1, 1, 0, 0);
    }
    assert_eq!(rig.health.limits["memory_processes"], 2);
}

#[test]
fn a_lost_record_makes_every_ledger_partial() {
    let mut rig = Rig::new();
    rig.alloc(1, 1);
    let counters = [("drop_memory_ring_full".to_owned(), 1)].into();
    rig.observe(Observation::KernelCounters { counters });
    assert!(rig.of(PID).partial);
}

#[test]
fn a_context_takes_its_memory_with_it() {
    let mut rig = Rig::new();
    rig.alloc(1, 5);
    rig.call(PID, Class::AllocAsync, 2, 3 * MIB, 0, 0);
    rig.ledgers.processes.get_mut(&PID).unwrap().destroy_context(7);
    let memory = rig.of(PID);
    assert_eq!((memory.live_bytes, memory.pool_cached_bytes), (BTreeMap::new(), 0));
}
