//! Why allocations failed.

use super::*;

fn failure(incidents: &[Incident]) -> &Failure {
    match incidents {
        [Incident::Failure(failure)] => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn enough_was_free_and_not_in_one_piece() {
    let mut rig = Rig::new();
    rig.usage(100 * MIB, 100 * MIB, &[]);
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
fn a_neighbour_from_before_the_agent_holds_what_nvml_says() {
    for later_mib in [0, 5] {
        let mut rig = Rig::new();
        rig.scanned(OTHER, 1);
        rig.usage(100 * MIB, 25 * MIB, &[(PID, 5 * MIB), (OTHER, 70 * MIB)]);
        if later_mib > 0 {
            rig.call(OTHER, Class::Alloc, 100, later_mib * MIB, 0, 0);
        }
        rig.fail(40);
        let told = rig.wait(3000);
        let failure = failure(&told);
        assert_eq!(
            (failure.class, failure.others_bytes),
            (FailureClass::ExhaustedOthers, (70 + later_mib) * MIB)
        );
        assert_eq!(failure.holders.first().map(|holder| holder.pid), Some(OTHER));
    }
}

#[test]
fn one_look_is_not_enough_to_say_that_there_was_room() {
    // What was free by the look before and by the one after, and whether that tells.
    for (before, after, want) in [
        (60, None, FailureClass::Unknown),
        (60, Some(60), FailureClass::Fragmented),
        (90, Some(45), FailureClass::Unknown),
        (42, Some(41), FailureClass::Fragmented),
        (41, Some(40), FailureClass::Unknown),
    ] {
        let mut rig = Rig::new();
        rig.usage(100 * MIB, before * MIB, &[]);
        rig.fail(40);
        rig.now_ms += 500;
        let told = match after {
            Some(after) => rig.usage(100 * MIB, after * MIB, &[]),
            None => rig.wait(3000),
        };
        assert_eq!(failure(&told).class, want, "{before} and {after:?}");
    }
    // The limit may be the pool's, or the host's.
    for class in [Class::AllocPool, Class::AllocManaged] {
        let mut rig = Rig::new();
        rig.usage(100 * MIB, 60 * MIB, &[]);
        rig.call(PID, class, 0, 40 * MIB, 50, OUT_OF_MEMORY);
        rig.now_ms += 500;
        assert_eq!(failure(&rig.usage(100 * MIB, 60 * MIB, &[])).class, FailureClass::Unknown);
    }
}

#[test]
fn a_pool_may_have_given_back_what_it_gives_again() {
    let mut rig = Rig::new();
    rig.usage(80 * MIB, 80 * MIB, &[]);
    rig.call(PID, Class::AllocAsync, 1, 40 * MIB, 0, 0);
    rig.call(PID, Class::FreeAsync, 1, 0, 0, 0);
    // A wait for work follows, and what was kept goes back.
    rig.now_ms += 10;
    rig.usage(80 * MIB, 80 * MIB, &[(PID, 0)]);
    rig.call(PID, Class::AllocAsync, 2, 40 * MIB, 0, 0);
    rig.fail(50);
    rig.now_ms += 500;
    let told = rig.usage(80 * MIB, 40 * MIB, &[(PID, 40 * MIB)]);
    let failure = failure(&told);
    assert_eq!((failure.class, failure.free_bytes), (FailureClass::ExhaustedSelf, Some(40 * MIB)));
}

#[test]
fn who_ends_without_memory_blurs_no_look() {
    let mut rig = Rig::new();
    rig.call(OTHER, Class::Free, 100, 0, 0, 0);
    rig.usage(100 * MIB, 30 * MIB, &[]);
    rig.exit(OTHER);
    rig.alloc(100, 5);
    rig.fail(40);
    assert_eq!(failure(&rig.wait(3000)).free_bytes, Some(25 * MIB));
}

#[test]
fn failures_and_storms_follow_their_process_to_its_device() {
    let mut rig = Rig::bare();
    (100..103).for_each(|address| drop(rig.alloc(address, 10)));
    rig.fail(40);
    (100..103).for_each(|address| drop(rig.free(address)));
    rig.nvml(NvmlSeen::Device(DeviceSeen { uuid: "GPU-a".into(), ..DeviceSeen::default() }));
    let told = rig.usage(100 * MIB, 10 * MIB, &[]);
    assert_eq!(failure(&told).device.as_deref(), Some("GPU-a"));
    assert_eq!(rig.alloc(200, 40).len(), 1);
    let memory = rig.of(PID);
    assert_eq!(
        (memory.device.as_deref(), memory.retry_storms, memory.peak_bytes),
        (Some("GPU-a"), 1, 40 * MIB)
    );
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
