use wire::{Header, Kind, cuda::Work};

use super::*;

const MS: u64 = 1_000_000;

fn step(pid: u32, begin: u64, end: u64, launches: u64) -> cuda::Step {
    let header =
        Header { abi: wire::ABI, kind: Kind::Step as u16, len: 0, time_ns: end, tgid: pid, tid: pid };
    cuda::Step {
        header,
        work: Work { launches, d2h_bytes: 4, ..Work::default() },
        enter_ns: end - 1,
        first_ns: begin,
        last_ns: begin,
        stream: 1,
        event: 0,
        graph: 0,
        row: 0,
        flags: 0,
        result: 0,
        context: 1,
    }
}

/// A device and its counters.
#[derive(Default)]
struct Rig {
    matrix: Matrix,
    health: Health,
}

impl Rig {
    fn add(&mut self, pid: u32, begin: u64, end: u64) -> u64 {
        self.matrix.add(pid, begin, &step(pid, begin, end, 10), &mut self.health)
    }

    /// Steps of process 1, one after the other, of this length, from a time on.
    fn steps(&mut self, from: u64, count: u64, length: u64) -> u64 {
        for i in 0..count {
            self.add(1, from + i * length, from + (i + 1) * length - MS / 2);
        }
        from + count * length
    }

    fn all(&mut self) -> Vec<(u32, u32, u64)> {
        self.matrix.evaluate_until(u64::MAX / 2, &mut self.health)
    }

    fn pair(&self, victim: u32, aggressor: u32) -> Pair {
        let pairs = self.matrix.pairs();
        pairs.into_iter().find(|pair| (pair.victim, pair.aggressor) == (victim, aggressor)).expect("the pair")
    }
}

#[test]
fn a_slower_victim_is_found_with_numbers() {
    let mut rig = Rig::default();
    let from = rig.steps(0, 50, 4 * MS);
    let to = rig.steps(from, 60, 10 * MS);
    rig.add(2, from, to);
    let overlaps = rig.all();
    // Each step ends half a millisecond before the next begins.
    assert_eq!(overlaps, [(1, 2, 60 * (10 * MS - MS / 2))]);
    let pair = rig.pair(1, 2);
    assert_eq!((pair.solo, pair.company, pair.verdict()), (50, 60, Verdict::Contended));
    let ratio = pair.inflation.unwrap();
    assert!((ratio - 9.5 / 3.5).abs() < 0.05, "{ratio}");
    // Nothing is known of the other's steps alone.
    assert_eq!(rig.pair(2, 1).verdict(), Verdict::InsufficientData);
}

#[test]
fn company_that_costs_nothing_is_no_finding() {
    let mut rig = Rig::default();
    let from = rig.steps(0, 50, 4 * MS);
    let to = rig.steps(from, 50, 4 * MS);
    rig.add(2, from, to);
    rig.all();
    assert_eq!(rig.pair(1, 2).verdict(), Verdict::NoEffect);
}

#[test]
fn too_few_steps_alone_give_no_answer() {
    let mut rig = Rig::default();
    let from = rig.steps(0, MIN_STEPS - 1, 4 * MS);
    let to = rig.steps(from, 100, 10 * MS);
    rig.add(2, from, to);
    rig.all();
    let pair = rig.pair(1, 2);
    assert_eq!((pair.inflation, pair.solo, pair.verdict()), (None, MIN_STEPS - 1, Verdict::InsufficientData));
}

#[test]
fn processes_that_take_turns_have_nothing_to_do_with_each_other() {
    let mut rig = Rig::default();
    for i in 0..100 {
        rig.add(1, i * 10 * MS, i * 10 * MS + 4 * MS);
        rig.add(2, i * 10 * MS + 5 * MS, i * 10 * MS + 9 * MS);
    }
    assert_eq!(rig.all(), []);
    assert_eq!(rig.matrix.pairs(), []);
}

#[test]
fn the_longest_step_says_how_long_to_wait() {
    let mut rig = Rig::default();
    let second = 1_000 * MS;
    // A step of five seconds is told at its end, when those it overlapped are long over.
    rig.steps(0, 100, 40 * MS);
    rig.add(2, 6 * second, 11 * second);
    rig.matrix.evaluate(12 * second, &mut rig.health);
    assert_eq!(rig.matrix.done_ns, 7 * second, "later steps may still turn out to be in company");
    rig.add(1, 7 * second + MS, 8 * second);
    assert_eq!(rig.matrix.evaluate(20 * second, &mut rig.health), [(1, 2, second - MS)]);
    assert_eq!(rig.health.limits.get("contention_late"), None);
    rig.add(1, 9 * second, 9 * second + MS);
    assert_eq!((rig.health.limits["contention_late"], rig.health.limits["contention_uncompared"]), (1, 1));
}

#[test]
fn a_harmless_third_is_not_blamed() {
    let mut rig = Rig::default();
    let from = rig.steps(0, 50, 4 * MS);
    // Process 2 slows it down, and 3 is there as well; later 3 is there without 2, and it costs nothing.
    let to = rig.steps(from, 50, 10 * MS);
    rig.add(2, from, to);
    let end = rig.steps(to, 50, 4 * MS);
    rig.add(3, from, end);
    rig.all();
    let harmless = rig.pair(1, 3);
    assert_eq!((harmless.company, harmless.verdict()), (50, Verdict::NoEffect), "{harmless:?}");
    assert_eq!(rig.pair(1, 2).verdict(), Verdict::InsufficientData, "it was never there without the other");
}

#[test]
fn a_step_of_a_minute_counts_whole_and_what_was_taken_for_alone_is_forgotten() {
    let mut rig = Rig::default();
    let second = 1_000 * MS;
    for i in 0..600 {
        rig.add(1, i * 100 * MS, i * 100 * MS + 50 * MS);
    }
    rig.matrix.evaluate(60 * second, &mut rig.health);
    assert_eq!(rig.matrix.done_ns, 58 * second);
    rig.add(2, 0, 60 * second);
    assert_eq!((rig.health.limits["contention_late"], rig.health.limits["contention_doubtful"]), (1, 1));
    let counted = |found: Vec<(u32, u32, u64)>| found.iter().map(|(.., ns)| ns).sum::<u64>();
    let found = rig.matrix.evaluate(121 * second, &mut rig.health);
    assert_eq!(counted(found), 30 * second, "each of the steps, once");
    let pair = rig.pair(1, 2);
    assert_eq!((pair.solo, pair.company), (0, 20), "those of the last two seconds");

    // The next is waited for.
    for i in 610..1_210 {
        rig.add(1, i * 100 * MS, i * 100 * MS + 50 * MS);
        rig.matrix.evaluate(i * 100 * MS, &mut rig.health);
    }
    rig.add(2, 61 * second, 121 * second);
    assert_eq!(rig.health.limits["contention_late"], 1);
    rig.matrix.evaluate(200 * second, &mut rig.health);
    let pair = rig.pair(1, 2);
    assert_eq!((pair.solo, pair.company), (0, 620));
}

#[test]
fn a_late_moment_costs_no_samples() {
    let mut rig = Rig::default();
    rig.steps(0, 1_000, 4 * MS);
    rig.matrix.evaluate_until(4_000 * MS, &mut rig.health);
    rig.add(2, 3_900 * MS, 4_100 * MS);
    assert_eq!(rig.matrix.parties[&1].classes.values().map(|times| times.solo.count()).sum::<u64>(), 1_000);
    assert_eq!(
        (rig.health.limits["contention_late"], rig.health.limits.get("contention_doubtful")),
        (1, None)
    );
}

#[test]
fn active_time_counts_overlaps_of_one_process_once() {
    let mut rig = Rig::default();
    let more: Vec<u64> = [(0, 10), (5, 15), (15, 20), (2, 8), (30, 31)].map(|(b, e)| rig.add(1, b, e)).into();
    assert_eq!(more, [10, 5, 5, 0, 1]);
}

#[test]
fn everything_is_bounded_and_counted() {
    let mut rig = Rig::default();
    for pid in 0..100 {
        rig.add(pid, 0, u64::from(pid) + 1);
    }
    assert_eq!((rig.matrix.parties.len(), rig.health.limits["contention_processes"]), (MAX_PARTIES, 68));
    for launches in 0..20 {
        let at = 1000 + launches;
        rig.matrix.add(99, at, &step(99, at, at + 1, 1 << launches), &mut rig.health);
    }
    rig.all();
    assert_eq!(rig.matrix.parties[&99].classes.len(), MAX_CLASSES);
    assert!(rig.health.limits["contention_classes"] > 0);
}
