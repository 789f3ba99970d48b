use wire::{Header, Kind, cuda, rare::Rare};

use super::*;
use crate::decode::{DeviceProcess, Stamp};

const S: u64 = 1_000_000_000;

fn header(kind: Kind, pid: u32, time_ns: u64) -> Header {
    Header { abi: wire::ABI, kind: kind as u16, len: 0, time_ns, tgid: pid, tid: pid }
}

fn observed(at_ns: u64, observation: Observation) -> Event<'static> {
    Event::Observation(Stamp { time_ns: at_ns, tgid: 0, tid: 0 }, Box::new(observation))
}

fn usage(at_ns: u64, percent: u32, pids: &[u32]) -> Event<'static> {
    let one = |&pid: &u32| DeviceProcess {
        pid,
        does: DeviceUse::Compute,
        start_ticks: None,
        comm: Some("train".into()),
        container: None,
        used_memory: None,
    };
    observed(
        at_ns,
        Observation::Nvml(NvmlSeen::Usage(DeviceUsage {
            uuid: "GPU-a".into(),
            valid_ms: 3000,
            utilization_percent: Some(percent),
            processes: Some(pids.iter().map(one).collect()),
            ..DeviceUsage::default()
        })),
    )
}

fn step(at_ns: u64, pid: u32) -> Event<'static> {
    let step = cuda::Step {
        context: 0,
        header: header(Kind::Step, pid, at_ns),
        work: cuda::Work::default(),
        enter_ns: 0,
        first_ns: 0,
        last_ns: 0,
        stream: 0,
        event: 0,
        graph: 0,
        row: 0,
        flags: 0,
        result: 0,
    };
    Event::Step(cuda::CountedStep { step, fresh: step.work })
}

/// Feeds the events and says for which seconds process 7 was blind.
fn blind(events: impl IntoIterator<Item = Event<'static>>, at: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let (mut coverage, mut health) = (Coverage::default(), Health::default());
    for event in events {
        coverage.observe(&event, &mut health);
    }
    at.into_iter().filter(|at| coverage.get(7).is_some_and(|one| one.blind_since(at * S).is_some())).collect()
}

#[test]
fn work_without_a_call_is_blind_and_nothing_else_is() {
    let busy = |pids: &'static [u32], percent| (1..=10).map(move |at| usage(at * S, percent, pids));
    assert_eq!(blind(busy(&[7], 90), [10]), [10]);
    assert_eq!(blind((1..=5).map(|at| usage(at * S, 90, &[7])), [5, 8]), [8], "after five seconds");
    assert!(blind(busy(&[7], 0), [10]).is_empty(), "nothing runs");
    assert_eq!(blind(busy(&[7, 8], 90), [10]), [10], "one of the two");
    assert!(blind([step(S, 8)].into_iter().chain(busy(&[7, 8], 90)), [10]).is_empty(), "the other's work");
    assert!(blind(busy(&[8], 90), [10]).is_empty(), "another's work");
    assert!(blind(busy(&[7], 90), [20]).is_empty(), "a word that counts no more");
    assert!(blind(busy(&[7], 90).chain([step(10 * S, 7)]), [10, 13]).is_empty(), "it is seen");
    let drawn = (1..=10).map(|at| {
        let Event::Observation(stamp, mut observation) = usage(at * S, 20, &[7, 8]) else { unreachable!() };
        if let Observation::Nvml(NvmlSeen::Usage(usage)) = &mut *observation {
            usage.processes.as_mut().unwrap()[1].does = DeviceUse::Graphics;
        }
        Event::Observation(stamp, observation)
    });
    assert!(blind(drawn, [10]).is_empty(), "it may be what is drawn");
    let left = busy(&[7], 90).chain([usage(11 * S, 0, &[])]);
    assert!(blind(left, [11]).is_empty(), "it is gone");
    let paused = [usage(S, 90, &[7]), usage(2 * S, 0, &[7]), usage(8 * S, 90, &[7])];
    assert!(blind(paused, [9]).is_empty(), "it has only begun again");
}

#[test]
fn a_process_that_was_seen_may_be_quiet_for_longer() {
    let events = (1..=700).map(|at| usage(at * S, 90, &[7])).chain([step(30 * S, 7)]);
    assert_eq!(blind(events, [60, 100, 629, 630, 700]), [630, 700]);
}

#[test]
fn late_word_of_the_end_is_not_of_the_next_with_that_number() {
    let (mut coverage, mut health) = (Coverage::default(), Health::default());
    let seen = |start_ticks| {
        Observation::Process(ProcessSeen {
            pid: 7,
            start_ticks,
            comm: "a".into(),
            service: "a".into(),
            service_name: "a".into(),
            container: None,
            cuda: true,
            ports: Vec::new(),
        })
    };
    let exit =
        wire::process::Process { header: header(Kind::Exit, 7, 2 * S), child: 0, row: 0, comm: [0; 16] };
    coverage.observe(&observed(S, seen(5)), &mut health);
    coverage.observe(&Event::Exit(exit), &mut health);
    assert_eq!((coverage.iter().count(), coverage.get(7)), (0, None));
    coverage.observe(&observed(2 * S, seen(5)), &mut health);
    assert_eq!(coverage.get(7), None, "it was looked at before its end");
    coverage.observe(&step(3 * S, 7), &mut health);
    let gone = |start_ticks| observed(4 * S, Observation::ProcessGone { pid: 7, start_ticks });
    coverage.observe(&gone(5), &mut health);
    assert_eq!(coverage.get(7).and_then(|one| one.last_ns), Some(3 * S), "the old one is gone, not this");
    coverage.observe(&gone(6), &mut health);
    assert_eq!(coverage.get(7), None);
}

#[test]
fn processes_that_are_gone_are_forgotten() {
    let (mut coverage, mut health) = (Coverage::default(), Health::default());
    for pid in 0..10_000 {
        coverage.observe(&step(S, pid), &mut health);
        coverage.observe(&observed(S, Observation::ProcessGone { pid, start_ticks: 5 }), &mut health);
    }
    assert_eq!((coverage.iter().count(), health.limits.len()), (0, 0));
    for pid in 0..10_000 {
        coverage.observe(&step(S, pid), &mut health);
    }
    assert_eq!((coverage.iter().count(), health.limits["coverage"]), (MAX_PROCESSES, 10_000 - 4096));
}

#[test]
fn rare_calls_are_counted_and_the_last_are_kept() {
    let (mut coverage, mut health) = (Coverage::default(), Health::default());
    for n in 1..=20 {
        let rare = Rare {
            header: header(Kind::Rare, 7, n * S + 500),
            enter_ns: n * S,
            bytes: 0,
            row: 0,
            class: wire::cookie::Class::Link as u8,
            reserved: 0,
            result: 0,
        };
        coverage.observe(&Event::Rare(rare), &mut health);
    }
    let rare = &coverage.get(7).unwrap().rare;
    assert_eq!((rare.count, rare.total_ns, rare.last.len()), (20, 10_000, 8));
    assert_eq!((rare.last[0].begin_ns, rare.last[7].kind), (13 * S, RareKind::Link));
}

#[test]
fn where_a_device_does_not_say_whether_it_works_memory_that_grows_without_a_call_tells() {
    let told = |at_ns: u64, bytes: u64| {
        let Event::Observation(stamp, mut observation) = usage(at_ns, 0, &[7]) else { unreachable!() };
        if let Observation::Nvml(NvmlSeen::Usage(usage)) = &mut *observation {
            usage.utilization_percent = None;
            usage.processes.as_mut().unwrap()[0].used_memory = Some(bytes);
        }
        Event::Observation(stamp, observation)
    };
    let mapped = || {
        Observation::Process(ProcessSeen {
            pid: 7,
            start_ticks: 5,
            comm: "a".into(),
            service: "a".into(),
            service_name: "a".into(),
            container: None,
            cuda: true,
            ports: Vec::new(),
        })
    };
    let run = |grows_at: u64, extra: Option<Event<'static>>| {
        let words = (1..=30).map(move |at| told(at * S, if at >= grows_at { 200 } else { 100 }));
        blind([observed(S / 2, mapped())].into_iter().chain(extra).chain(words), [30])
    };
    assert_eq!(run(20, None), [30]);
    assert!(run(40, None).is_empty(), "it never grew");
    assert!(run(3, None).is_empty(), "its driver was attached to a moment before");
    assert!(run(20, Some(step(S, 7))).is_empty(), "its calls are seen");
}
