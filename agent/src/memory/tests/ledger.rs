//! The ledger against calls made by hand.

use super::*;

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
fn memory_of_another_process_is_as_large_as_that_made_it() {
    let mut rig = Rig::new();
    rig.alloc(100, 5);
    rig.call(PID, Class::ExportAddress, 100, 0, 77, 0);
    rig.call(OTHER, Class::ImportAddress, 900, 0, 77, 0);
    rig.call(OTHER, Class::ImportAddress, 901, 0, 78, 0);
    let other = rig.of(OTHER);
    assert_eq!((other.live_bytes[&Kind::Imported], other.counts.unsized_imports), (5 * MIB, 1));
    assert_eq!((other.held_bytes(), other.counts.allocations, rig.live(Kind::Device)), (0, 0, 5));
    // Opened again it is the same; given up by either way it is no memory that came back.
    rig.call(OTHER, Class::ImportAddress, 900, 0, 77, 0);
    assert_eq!(rig.of(OTHER).live_bytes[&Kind::Imported], 5 * MIB);
    rig.call(OTHER, Class::CloseImport, 900, 0, 0, 0);
    rig.call(OTHER, Class::FreeAsync, 901, 0, 0, 0);
    assert!(rig.of(OTHER).live_bytes.is_empty());
    // A handle that could not be read stands for nothing.
    rig.call(PID, Class::ExportAddress, 100, 0, 0, 0);
    rig.call(OTHER, Class::ImportAddress, 900, 0, 0, 0);
    assert_eq!(rig.of(OTHER).counts.unsized_imports, 2);
}

#[test]
fn what_goes_into_a_graph_is_no_memory() {
    let mut rig = Rig::new();
    rig.flags |= CALL_CAPTURED;
    rig.call(PID, Class::AllocAsync, 100, 4 * MIB, 0, 0);
    rig.call(PID, Class::FreeAsync, 100, 0, 0, 0);
    let memory = rig.of(PID);
    assert_eq!((memory.counts.captured, memory.counts.allocations, memory.counts.unknown_frees), (2, 0, 0));
    assert_eq!((memory.held_bytes(), memory.peak_bytes, memory.pool_cached_bytes), (0, 0, 0));
}

#[test]
fn contexts_of_one_device_share_its_own_pool() {
    let mut rig = Rig::new();
    rig.call(PID, Class::AllocAsync, 100, 4 * MIB, 0, 0);
    rig.call(PID, Class::FreeAsync, 100, 0, 0, 0);
    rig.context = 8;
    rig.call(PID, Class::AllocAsync, 200, 3 * MIB, 0, 0);
    let memory = rig.of(PID);
    assert_eq!((rig.live(Kind::Pool), memory.pool_cached_bytes, memory.peak_bytes), (3, MIB, 4 * MIB));
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
    rig.exit(PID);
    assert_eq!(rig.of(PID), ProcessMemory::default());
    rig.wait(1000);
    rig.usage(100 * MIB, 100 * MIB, &[]);
    let failure = {
        rig.call(OTHER, Class::Alloc, 0, 90 * MIB, 0, OUT_OF_MEMORY);
        rig.wait(500);
        rig.usage(100 * MIB, 100 * MIB, &[])
    };
    let Some(Incident::Failure(failure)) = failure.first() else { panic!("{failure:?}") };
    assert_eq!((failure.class, failure.free_bytes), (FailureClass::Fragmented, Some(100 * MIB)));
}

#[test]
fn a_pool_used_from_another_context_is_counted_once() {
    let mut rig = Rig::new();
    rig.call(PID, Class::CreatePool, 50, 0, 0, 0);
    rig.context = 8;
    rig.call(PID, Class::AllocPool, 100, 6 * MIB, 50, 0);
    assert_eq!((rig.live(Kind::Pool), rig.of(PID).pool_cached_bytes), (6, 0));
    rig.call(PID, Class::FreeAsync, 100, 0, 0, 0);
    rig.context = 7;
    rig.call(PID, Class::TrimPool, 50, 0, 0, 0);
    assert_eq!((rig.live(Kind::Pool), rig.of(PID).pool_cached_bytes), (0, 0));
}

#[test]
fn the_end_of_an_earlier_process_with_the_same_id_ends_no_other() {
    let mut rig = Rig::new();
    rig.alloc(100, 5);
    rig.observe(Observation::ProcessGone { pid: PID, start_ticks: 3 });
    assert_eq!(rig.live(Kind::Device), 5);
    rig.scanned(PID, 4);
    rig.observe(Observation::ProcessGone { pid: PID, start_ticks: 4 });
    assert_eq!(rig.of(PID), ProcessMemory::default());
    // Those whose end was missed, and that nobody has found, make room.
    for pid in 0..=u32::try_from(MAX_PROCESSES).unwrap() {
        rig.call(100 + pid, Class::Alloc, 1, 1, 0, 0);
    }
    rig.now_ms += SILENT_NS / MS;
    rig.alloc(100, 5);
    assert_eq!((rig.live(Kind::Device), rig.ledgers.processes.len()), (5, MAX_PROCESSES));
    assert_eq!(rig.health.limits["memory_processes"], 1);
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
