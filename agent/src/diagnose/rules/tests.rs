//! Each rule is found where its cause is acted, as the first finding; and nothing is where nothing is wrong.

use super::RULES;
use crate::{
    coverage::RareKind,
    decode::Throttle,
    diagnose::tests::{HEALTHY, Rig, S, Shape, process},
    health::Health,
    memory::FailureClass,
    request::record::Outcome,
    role::Role,
};

/// What requests are like in an incident, by their number.
type Acted = fn(u64) -> Shape;
/// What goes on beside them.
type Disturbed = fn(&mut Rig);

#[test]
fn the_cause_comes_first_and_closes() {
    let cases: &[(&str, Acted, Disturbed)] = &[
        ("queue_buildup", |_| Shape { queue: 0.3, ..HEALTHY }, |_| {}),
        ("capacity_knee_passed", |_| Shape { queue: 0.8, ..HEALTHY }, |rig| rig.in_flight = 12),
        ("alloc_stall", |_| Shape { decode: 1.4, alloc: 0.401, ..HEALTHY }, |_| {}),
        ("input_drift", |_| Shape { prefill: 0.3, input: 2000, ..HEALTHY }, |_| {}),
        ("output_drift", |_| Shape { decode: 3.0, output: 300, ..HEALTHY }, |_| {}),
        ("host_bound", |_| Shape { decode: 1.5, host_gap: 0.52, ..HEALTHY }, |_| {}),
        ("event_loop_stall", |_| Shape { accept: 0.4, ..HEALTHY }, |_| {}),
        ("postprocess_backpressure", |_| Shape { postprocess: 0.4, ..HEALTHY }, |_| {}),
        ("slow_client", |_| Shape { network_out: 0.6, ..HEALTHY }, |_| {}),
        ("upstream_stall", |_| Shape { elsewhere: 0.6, ..HEALTHY }, |_| {}),
        (
            "prefill_blocks_decode",
            |n| match n % 8 {
                0 => Shape { prefill: 0.4, input: 220, ..HEALTHY },
                _ => Shape { decode: 1.35, stall: 0.38, output: 135, ..HEALTHY },
            },
            |_| {},
        ),
        (
            "preemption",
            |n| match n % 3 {
                0 => Shape { decode: 1.7, stall: 0.7, sat_out: 0.69, ..HEALTHY },
                _ => Shape { queue: 0.1, ..HEALTHY },
            },
            |_| {},
        ),
        (
            "timeout_share_rising",
            |n| Shape { outcome: if n % 3 == 0 { Outcome::Timeout } else { Outcome::Ok }, ..HEALTHY },
            |_| {},
        ),
        (
            "error_class_spike",
            |n| Shape { outcome: if n % 5 == 0 { Outcome::Server5xx } else { Outcome::Ok }, ..HEALTHY },
            |_| {},
        ),
        (
            "cpu_throttled",
            |_| Shape { preprocess: 0.05, host_gap: 0.3, decode: 1.3, ..HEALTHY },
            |rig| rig.throttled = 60,
        ),
        (
            "thermal_or_power_throttle",
            |_| Shape { decode: 1.6, ..HEALTHY },
            |rig| {
                rig.condition(&[Throttle::HwThermal], 900);
                rig.steps = vec![(7, 0.016)];
            },
        ),
    ];
    for (rule, acted, disturb) in cases {
        let mut rig = Rig::default();
        rig.condition(&[], 1900);
        rig.run(120, |_| HEALTHY);
        assert_eq!(rig.active(), [""; 0], "{rule}: before");
        let usual = (rig.in_flight, rig.steps.clone());
        disturb(&mut rig);
        rig.run(60, acted);
        assert_eq!(rig.active().first().map(String::as_str), Some(*rule), "{:#?}", rig.diagnosis.findings());
        (rig.in_flight, rig.steps) = usual;
        rig.throttled = 0;
        rig.condition(&[], 1900);
        rig.run(120, |_| HEALTHY);
        assert_eq!(rig.active(), [""; 0], "{rule}: after");
    }
}

#[test]
fn memory_in_pieces_comes_before_what_follows_from_it() {
    for (class, rule) in [
        (FailureClass::Fragmented, "memory_fragmentation"),
        (FailureClass::ExhaustedSelf, "memory_exhaustion"),
        (FailureClass::ExhaustedOthers, "memory_exhaustion"),
    ] {
        let mut rig = Rig::default();
        rig.run(120, |_| HEALTHY);
        for _ in 0..6 {
            rig.fail(class);
            rig.run(10, |_| Shape { queue: 0.3, decode: 1.8, alloc: 0.8, ..HEALTHY });
        }
        let active = rig.active();
        assert_eq!(active[0], rule, "{active:?}");
        assert!(active.contains(&"queue_buildup".to_owned()), "{active:?}");
        rig.run(120, |_| HEALTHY);
        assert_eq!(rig.active(), [""; 0]);
    }
}

#[test]
fn a_neighbour_is_named() {
    let mut rig = Rig::default();
    rig.view.processes.push(process(9, "train", Role::Training));
    rig.company(0.0, 1.6);
    rig.run(120, |_| HEALTHY);
    assert_eq!(rig.active(), [""; 0], "no work of both at the same time lately");
    for n in 1..=30 {
        rig.company(f64::from(n), 1.6);
        rig.run(2, |_| Shape { queue: 0.4, decode: 1.6, ..HEALTHY });
    }
    let found = rig.diagnosis.findings().remove(0);
    assert_eq!(found.rule, "gpu_contention");
    assert!(found.summary.contains("train-main (process 9, training, of train)"), "{}", found.summary);
    rig.run(120, |_| HEALTHY);
    assert_eq!(rig.active(), [""; 0]);
}

#[test]
fn compiling_is_a_cold_start_or_a_recompile() {
    let load = |rig: &mut Rig| {
        let now_ns = rig.now_s * S;
        rig.diagnosis.loaded("svc", RareKind::ModuleLoad, 0.5, now_ns, &mut Health::default());
    };
    let compiling = Shape { prefill: 0.5, load: 0.47, ..HEALTHY };
    let mut warm = Rig::default();
    warm.run(120, |_| HEALTHY);
    load(&mut warm);
    warm.run(40, |_| compiling);
    assert_eq!(warm.active()[0], "kernel_recompile");
    let mut cold = Rig::default();
    cold.diagnosis.met("svc", [1, 1], cold.now_s * S, &mut Health::default());
    cold.run(120, |_| HEALTHY);
    cold.diagnosis.met("svc", [2, 2], cold.now_s * S, &mut Health::default());
    load(&mut cold);
    cold.run(20, |_| compiling);
    assert_eq!(cold.active()[0], "cold_start");
}

#[test]
fn the_slow_rank_is_the_one_that_has_changed() {
    let mut rig = Rig::default();
    rig.steps = vec![(7, 0.010), (8, 0.011), (9, 0.010)];
    rig.run(120, |_| HEALTHY);
    rig.steps[1].1 = 0.016;
    // The GPUs of the others wait for it, and so for the host.
    rig.run(60, |_| Shape { decode: 1.5, host_gap: 0.5, ..HEALTHY });
    let found = rig.diagnosis.findings().remove(0);
    assert!(found.rule == "rank_straggler" && found.summary.starts_with("process 8"), "{found:?}");
    rig.steps[1].1 = 0.011;
    rig.run(120, |_| HEALTHY);
    assert_eq!(rig.active(), [""; 0], "after");
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    let quiet: &[(&str, Acted)] = &[
        ("as ever", |_| HEALTHY),
        ("a little longer queue", |_| Shape { queue: 0.02, ..HEALTHY }),
        (
            "one slow request of fifty",
            |n| if n % 50 == 0 { Shape { queue: 0.9, ..HEALTHY } } else { HEALTHY },
        ),
        ("a few client errors", |n| Shape {
            outcome: if n % 60 == 0 { Outcome::Client4xx } else { Outcome::Ok },
            ..HEALTHY
        }),
        ("shorter answers", |_| Shape { decode: 0.5, output: 50, ..HEALTHY }),
    ];
    for (name, shape) in quiet {
        let mut rig = Rig::default();
        rig.run(120, |_| HEALTHY);
        rig.run(120, shape);
        assert_eq!(rig.diagnosis.findings(), [], "{name}");
    }
}

#[test]
fn every_rule_has_its_own_name_and_says_where_to_look() {
    let names: std::collections::BTreeSet<&str> = RULES.iter().map(|rule| rule.name).collect();
    assert_eq!(names.len(), RULES.len());
    assert!(RULES.iter().all(|rule| !rule.help.is_empty() && !rule.next.is_empty()));
}
