//! Requests of a simulated server against its truth.

use std::fmt;

use super::{
    Stage, Stamps, bounds,
    disturbed::{with_background, with_dummies},
    partition,
    simulator::{Front, PLAN, Plan, Run, Truth, US, simulate},
    single::{self, SINGLE, Single},
};
use crate::{
    health::Health,
    request::{Ended, Forward, Requests, Settled, record::Confidence},
    track::{Exchange, Tracked},
};

/// How many requests were told right.
#[derive(Clone, Copy, Debug, Default)]
struct Score {
    requests: usize,
    exact: usize,
    exact_wrong: usize,
    estimated: usize,
    bounded: usize,
    first_launch: usize,
    first_result: usize,
    last_result: usize,
    ranges: usize,
    in_range: usize,
    narrow: usize,
    batches: usize,
    batch_error: f64,
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |n: usize, of: usize| 100.0 * n as f64 / of.max(1) as f64;
        let told = self.exact + self.estimated;
        write!(
            f,
            "{:5} requests: {} exact ({} wrong), {} estimated, {} bounded; right: first launch {:5.1} %, first result \
             {:5.1} %, last result {:5.1} %; in bounds {:5.1} % of {}; batch off by {:.3}",
            self.requests,
            self.exact,
            self.exact_wrong,
            self.estimated,
            self.bounded,
            share(self.first_launch, told),
            share(self.first_result, told),
            share(self.last_result, told),
            share(self.in_range, self.ranges),
            self.ranges,
            self.batch_error / self.batches.max(1) as f64,
        )
    }
}

impl Score {
    /// Share of the requests that were told, of which something is right.
    fn share(&self, right: usize) -> f64 {
        right as f64 / (self.exact + self.estimated).max(1) as f64
    }

    /// Share of the bounds that hold the truth.
    fn within(&self) -> f64 {
        if self.ranges == 0 { 1.0 } else { self.in_range as f64 / self.ranges as f64 }
    }

    fn add(&mut self, ended: &Ended, truth: &Truth) {
        let assignment = &ended.assignment;
        self.requests += 1;
        match assignment.confidence {
            Some(Confidence::Exact) => self.exact += 1,
            Some(Confidence::Estimated) => self.estimated += 1,
            Some(Confidence::Bounded) => self.bounded += 1,
            None => panic!("{ended:?} has no confidence"),
        }
        let stamps = stamps(&ended.exchange, assignment.forward);
        let split = partition(&stamps);
        assert_eq!(split.stages.iter().map(|s| s.1).sum::<u64>(), split.e2e, "{ended:?}");
        assert!(!split.adjusted, "{ended:?}");
        if let Some(forward) = assignment.forward {
            self.forward(&forward, truth, assignment.confidence == Some(Confidence::Exact));
        }
        if let Some(range) = &assignment.range {
            let first_result = ended.exchange.first_token_ns.map(|_| truth.first_result);
            let Truth { first_launch, last_result, queue, .. } = *truth;
            let forward = Some(Forward { first_launch, first_result, last_result, queue });
            self.range(&bounds(&stamps, range), &partition(&Stamps { forward, ..stamps }).stages);
            let step = (truth.last_result - truth.first_launch) / truth.steps;
            let width = range.first_launch[1].saturating_sub(range.first_launch[0]);
            self.narrow += usize::from(width <= truth.last_result - truth.first_launch + step);
        }
        if let (Some(batch), Some(steps)) = (assignment.batch_mean, assignment.steps) {
            self.batches += 1;
            self.batch_error += (batch - truth.batch_mean).abs() / truth.batch_mean;
            self.exact_wrong +=
                usize::from(assignment.confidence == Some(Confidence::Exact) && steps != truth.steps);
        }
    }

    fn range(&mut self, bounds: &[(Stage, [u64; 2])], truth: &[(Stage, u64)]) {
        let within = |(stage, [lo, hi]): &(Stage, [u64; 2])| {
            truth.iter().find(|t| t.0 == *stage).is_some_and(|t| (*lo..=*hi).contains(&t.1))
        };
        self.ranges += 1;
        self.in_range += usize::from(bounds.iter().all(within));
    }

    fn forward(&mut self, forward: &Forward, truth: &Truth, exact: bool) {
        let first = forward.first_launch == truth.first_launch && forward.queue == truth.queue;
        let first_result = forward.first_result.is_none_or(|t| t == truth.first_result);
        let last = forward.last_result == truth.last_result;
        self.first_launch += usize::from(first);
        self.first_result += usize::from(first_result);
        self.last_result += usize::from(last);
        self.exact_wrong += usize::from(exact && !(first && first_result && last));
    }
}

fn stamps(exchange: &Exchange, forward: Option<Forward>) -> Stamps {
    Stamps {
        first_in: exchange.first_byte_in_ns.unwrap_or_default(),
        last_in: exchange.last_byte_in_ns.unwrap_or_default(),
        read: exchange.last_byte_in_ns.unwrap_or_default(),
        timed: false,
        last_out: exchange.last_byte_out_ns.unwrap_or_default(),
        blocked: 0,
        forward,
    }
}

fn requests(news: Vec<Tracked>) -> Vec<Ended> {
    let (mut requests, mut health, mut out) = (Requests::new(), Health::default(), Vec::new());
    for news in news {
        requests.apply(news, &mut health, &mut out);
    }
    let ended = out.into_iter().filter_map(|s| match s {
        Settled::Request(ended) => Some(*ended),
        _ => None,
    });
    ended.collect()
}

fn score(name: &str, run: Run) -> Score {
    let mut score = Score::default();
    for ended in requests(run.news) {
        let id = ended.exchange.id.expect("numbered by the simulator");
        score.add(&ended, &run.truth[&id]);
    }
    println!("{name:44} {score}");
    assert_eq!(score.requests, run.truth.len(), "{name}: each request once");
    assert_eq!(score.exact_wrong, 0, "{name}: exact is never wrong");
    score
}

const SPREAD: Front = Front::Spread { lag_us: [300, 6_000] };
/// A front that is never quicker than a short step.
const SLOW: Front = Front::Spread { lag_us: [2_000, 6_000] };
const CLIENTS: [usize; 3] = [1, 8, 64];

fn batching(name: &str, clients: usize, plan: Plan) -> Score {
    score(&format!("{name}, {clients} clients"), simulate(Plan { clients, ..plan }))
}

/// Streams under continuous batching with two steps in flight: the kinds of engine and of front that there are.
#[test]
fn streams_under_continuous_batching() {
    let plans = [
        ("steps 2-10 ms, loop", PLAN),
        ("one step in flight", Plan { depth: 1, ..PLAN }),
        ("steps 2-7 ms, loop", Plan { step_us: [2_000, 7_000], ..PLAN }),
        ("steps 2 ms, loop", Plan { step_us: [2_000, 2_000], ..PLAN }),
        ("at most 16 at a time", Plan { max_batch: 16, ..PLAN }),
        ("answers of 1-4 tokens", Plan { tokens: [1, 4], ..PLAN }),
        ("steps 2-7 ms, lag 0.3-6 ms", Plan { front: SPREAD, step_us: [2_000, 7_000], ..PLAN }),
        ("steps 10 ms, lag 0.3-6 ms", Plan { front: SPREAD, step_us: [10_000, 10_000], ..PLAN }),
        ("steps 2-10 ms, lag 2-6 ms", Plan { front: SLOW, ..PLAN }),
        ("prefills by themselves", Plan { exclusive: true, ..PLAN }),
        ("prefills by themselves, lag 0.3-6 ms", Plan { exclusive: true, front: SPREAD, ..PLAN }),
    ];
    for clients in CLIENTS {
        for (name, plan) in plans {
            let score = batching(name, clients, plan);
            if clients == 1 {
                assert_eq!(score.exact, score.requests, "{name}: alone is exact");
                continue;
            }
            assert!(score.bounded * 100 <= score.requests, "{name}");
            assert!(score.share(score.first_launch) >= 0.95, "{name}");
            assert!(score.share(score.first_result) >= 0.95, "{name}");
            assert!(score.share(score.last_result) >= 0.90, "{name}");
            assert!(score.within() >= 0.99, "{name}");
        }
    }
}

/// Tokens and events that do not go one to one, and clients that leave an engine that goes on.
#[test]
fn streams_that_are_not_regular() {
    let plans = [
        ("last token without text", Plan { silent_end: true, ..PLAN }),
        ("last token without text, lag 0.3-6 ms", Plan { silent_end: true, front: SPREAD, ..PLAN }),
        ("up to 3 tokens an event", Plan { burst: 3, ..PLAN }),
        ("clients leave", Plan { abort: 30, ..PLAN }),
        ("prompts from a cache", Plan { prefill_us: [0, 50], ..PLAN }),
        ("preempted", Plan { preempt: 30, ..PLAN }),
    ];
    for clients in CLIENTS {
        for (name, plan) in plans {
            let score = batching(name, clients, plan);
            assert!(score.bounded * 20 <= score.requests, "{name}: those without any content");
            assert!(score.share(score.first_result) >= 0.95, "{name}");
            assert!(score.within() >= 0.99, "{name}");
        }
    }
}

/// Requests that are preempted for long are told, those that are not are not said to be, and for how long is right.
#[test]
fn those_that_sit_out() {
    let preempted = Plan { tokens: [16, 64], preempt: 60, out_for: [12, 60], ..PLAN };
    for plan in [preempted, Plan { front: SPREAD, ..preempted }, Plan { exclusive: true, ..preempted }] {
        let run = simulate(plan);
        let [mut really, mut told, mut right] = [0; 3];
        for ended in requests(run.news) {
            let truth = run.truth[&ended.exchange.id.expect("numbered by the simulator")].sat_out;
            let said = ended.assignment.sat_out_ns.unwrap_or(0);
            really += usize::from(truth > 0);
            told += usize::from(said > 0);
            // Within a step and its prefill.
            right += usize::from(said > 0 && truth > 0 && truth.abs_diff(said) <= 20 * US * 1000);
        }
        println!("{really} sat out, {told} were told, {right} right");
        assert!(really > 50, "{really} are too few to say anything");
        assert!(right * 100 >= really * 95, "missed or wrong");
        assert!(right * 100 >= told * 95, "told for nothing, or wrong");
    }
}

/// What cannot be known is not said to be known: prompts in chunks, answers at once, and all of it together.
#[test]
fn bounds_where_nothing_better_is_known() {
    let plans = [
        ("prompts in chunks", Plan { chunks: 3, ..PLAN }),
        ("answers at once", Plan { streaming: 0, ..PLAN }),
        ("answers at once, 16 at a time", Plan { streaming: 0, max_batch: 16, ..PLAN }),
        ("half of them streams", Plan { streaming: 50, ..PLAN }),
        ("everything", Plan { abort: 30, streaming: 50, chunks: 3, silent_end: true, burst: 2, ..PLAN }),
    ];
    for clients in CLIENTS {
        for (name, plan) in plans {
            let score = batching(name, clients, plan);
            assert!(score.within() >= 0.99, "{name}");
            if plan.streaming == 0 {
                let alone = if clients == 1 { score.exact } else { score.bounded };
                assert_eq!(alone, score.requests, "{name}");
                assert!(
                    2 * score.narrow >= score.ranges,
                    "{name}: half are no wider than the service and a step"
                );
            }
        }
    }
}

/// Steps that are nobody's, beside those of requests.
#[test]
fn what_else_the_gpu_does() {
    type Disturb = fn(Run) -> Run;
    let kinds: [(&str, Disturb); 2] = [("dummy steps", with_dummies), ("background work", with_background)];
    for clients in CLIENTS {
        for ((name, disturb), streaming) in kinds.into_iter().flat_map(|kind| [(kind, 100), (kind, 0)]) {
            let plan = Plan { clients, streaming, chunks: 2, think_us: 20_000, ..PLAN };
            let score =
                score(&format!("{name}, {streaming} % streams, {clients} clients"), disturb(simulate(plan)));
            assert!(streaming == 0 || score.share(score.first_result) >= 0.95, "{name}");
            assert!(score.within() >= 0.99, "{name}");
        }
    }
}

/// Few clients, so that requests are alone by turns, and everything that can make a lone request look simpler than it
/// is: engines that go on for clients that have gone, prompts in chunks, tokens without text, answers at once.
#[test]
fn exact_is_never_wrong() {
    let everything = Plan { requests: 200, abort: 30, streaming: 50, chunks: 3, silent_end: true, ..PLAN };
    let plans = [
        ("bursts", Plan { burst: 2, ..everything }),
        ("pauses", Plan { think_us: 100_000, ..everything }),
        ("short answers", Plan { tokens: [1, 6], depth: 1, think_us: 30_000, front: SLOW, ..everything }),
        ("quick steps", Plan { front: SPREAD, step_us: [500, 3_000], prefill_us: [100, 200], ..everything }),
    ];
    let mut exact = 0;
    for (seed, clients) in (1..6).flat_map(|seed| [1, 2, 3].map(|clients| (seed, clients))) {
        for (name, plan) in plans {
            exact += batching(&format!("{name}, seed {seed}"), clients, Plan { seed, ..plan }).exact;
        }
    }
    assert!(exact > 500, "{exact} is too few to say anything");
}

#[test]
fn one_thread_one_at_a_time() {
    let eight = SINGLE;
    let plans = [
        ("alone", Single { clients: 1, ..eight }, true),
        ("8 clients", eight, true),
        ("8 clients, a step ahead", Single { ahead: true, ..eight }, true),
        ("prompts in chunks", Single { chunks: 3, ..eight }, false),
        ("half of them streams", Single { streaming: 50, ..eight }, false),
        ("everything", Single { streaming: 50, chunks: 3, ahead: true, silent_end: true, ..eight }, false),
    ];
    for (name, plan, exact) in plans {
        let score = score(&format!("one thread, {name}"), single::simulate(plan));
        assert!(!exact || score.exact == score.requests, "{name}");
        assert!(score.share(score.first_launch) >= 0.99, "{name}");
        assert!(score.share(score.last_result) >= 0.99, "{name}");
    }
}

/// A thread that does everything and batches must not pass for one that takes turns.
#[test]
fn one_thread_that_batches() {
    let four = Single { batch: 4, ..SINGLE };
    let plans = [
        ("8 clients", four),
        ("3 clients, half streams", Single { clients: 3, streaming: 50, ..four }),
        ("everything", Single { streaming: 50, chunks: 3, ahead: true, silent_end: true, ..four }),
        ("2 clients, everything", Single { clients: 2, streaming: 50, chunks: 3, silent_end: true, ..four }),
    ];
    for (name, plan) in plans {
        let score = score(&format!("one batching thread, {name}"), single::simulate(plan));
        assert!(score.share(score.first_result) >= 0.95, "{name}");
        assert!(score.within() >= 0.99, "{name}");
    }
}

/// How fast: not asserted, since that depends on the machine.
#[test]
#[ignore = "a measurement"]
fn speed() {
    for clients in [8, 64, 512] {
        let run = simulate(Plan { clients, requests: 20_000, max_batch: 256, tokens: [1, 256], ..PLAN });
        let (all, content) =
            (run.news.len(), run.news.iter().filter(|n| matches!(n, Tracked::Content { .. })).count());
        let start = std::time::Instant::now();
        let ended = requests(run.news).len();
        let took = start.elapsed().as_secs_f64();
        println!(
            "{clients} clients: {ended} requests, {content} content events of {all} values in {took:.3} s: \
             {:.0} content events/s",
            content as f64 / took
        );
    }
}
