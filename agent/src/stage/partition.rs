//! The partition itself, in integer nanoseconds.

use crate::request::{Forward, Range};

/// A stage of a request, as in the design's section 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// First to last request byte arrived; read, where arrivals are not seen.
    NetworkIn,
    /// Arrived to read; absent where arrivals are not seen.
    AcceptWait,
    /// Read to first launch, while the engine was not busy with others.
    Preprocess,
    /// Read to first launch, while it was.
    Queue,
    /// First launch to the result of the first content.
    Prefill,
    /// From there to the last result.
    Decode,
    /// Prefill and decode, where they cannot be told apart.
    Forward,
    /// Last result to last write, while the socket took it.
    Postprocess,
    /// While a full socket kept the server from writing.
    NetworkOut,
    /// What could not be placed.
    Unattributed,
}

impl Stage {
    /// Key in the record: seconds.
    pub fn key(self) -> &'static str {
        match self {
            Self::NetworkIn => "network_in_s",
            Self::AcceptWait => "accept_wait_s",
            Self::Preprocess => "preprocess_s",
            Self::Queue => "queue_s",
            Self::Prefill => "prefill_s",
            Self::Decode => "decode_s",
            Self::Forward => "forward_s",
            Self::Postprocess => "postprocess_s",
            Self::NetworkOut => "network_out_s",
            Self::Unattributed => "unattributed_s",
        }
    }
}

/// What a partition is made of, ns.
#[derive(Clone, Copy, Debug)]
pub struct Stamps {
    /// First request byte arrived.
    pub first_in: u64,
    /// Last request byte arrived; its read, where arrivals are not seen.
    pub last_in: u64,
    /// Last request byte read.
    pub read: u64,
    /// Arrivals are seen.
    pub timed: bool,
    /// Last response byte written.
    pub last_out: u64,
    /// Time in which a full socket kept the server from writing.
    pub blocked: u64,
    /// The forward, when it is known.
    pub forward: Option<Forward>,
}

/// A request's wall time in stages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// First request byte arrived to last response byte written, ns.
    pub e2e: u64,
    /// Stages and their lengths in ns; they add up to `e2e`.
    pub stages: Vec<(Stage, u64)>,
    /// A stamp was moved, because an interval would have been negative.
    pub adjusted: bool,
}

/// Moves stamps so that none lies before the one before it.
struct Order {
    last: u64,
    end: u64,
    adjusted: bool,
}

impl Order {
    fn next(&mut self, t: u64) -> u64 {
        let moved = t.min(self.end).max(self.last);
        self.adjusted |= moved != t;
        self.last = moved;
        moved
    }
}

/// Splits a request's time.
pub fn partition(stamps: &Stamps) -> Partition {
    let backwards = stamps.last_out < stamps.first_in;
    let end = stamps.last_out.max(stamps.first_in);
    let mut order = Order { last: stamps.first_in, end, adjusted: backwards };
    let arrived = order.next(stamps.last_in);
    let read = order.next(stamps.read);
    let mut stages = vec![(Stage::NetworkIn, arrived - stamps.first_in)];
    if stamps.timed {
        stages.push((Stage::AcceptWait, read - arrived));
    }
    let done = match &stamps.forward {
        Some(forward) => forward_stages(forward, read, &mut order, &mut stages),
        None => read,
    };
    let network_out = stamps.blocked.min(end - done);
    let rest = end - done - network_out;
    let (postprocess, unattributed) = if stamps.forward.is_some() { (rest, 0) } else { (0, rest) };
    if stamps.forward.is_some() {
        stages.push((Stage::Postprocess, postprocess));
    }
    stages.push((Stage::NetworkOut, network_out));
    stages.push((Stage::Unattributed, unattributed));
    Partition { e2e: end - stamps.first_in, stages, adjusted: order.adjusted }
}

/// The stages from the read to the last result, which is returned.
fn forward_stages(forward: &Forward, read: u64, order: &mut Order, stages: &mut Vec<(Stage, u64)>) -> u64 {
    let first = order.next(forward.first_launch);
    let queue = forward.queue.min(first - read);
    stages.push((Stage::Preprocess, first - read - queue));
    stages.push((Stage::Queue, queue));
    if let Some(first_result) = forward.first_result {
        let prefilled = order.next(first_result);
        let done = order.next(forward.last_result);
        stages.push((Stage::Prefill, prefilled - first));
        stages.push((Stage::Decode, done - prefilled));
        return done;
    }
    let done = order.next(forward.last_result);
    stages.push((Stage::Forward, done - first));
    done
}

/// What the times of probes leave open at either end of a stage, ns: a thread can be kept waiting between the moment
/// that is meant and the probe that tells of it.
const OPEN_NS: u64 = 200_000;
/// What they leave open of a stage of many steps, as a part of it: 10 µs of steps of 10 ms.
const OPEN_PART: u64 = 1_000;

/// Least and most of each stage that is not exact, ns.
pub fn bounds(stamps: &Stamps, range: &Range) -> Vec<(Stage, [u64; 2])> {
    let open = |ns: u64| OPEN_NS + ns / OPEN_PART;
    let widen =
        |[least, most]: [u64; 2]| [least.saturating_sub(open(least)), most.saturating_add(open(most))];
    sharp(stamps, range).into_iter().map(|(stage, bound)| (stage, widen(bound))).collect()
}

/// The same, as if all times were true to the nanosecond.
fn sharp(stamps: &Stamps, range: &Range) -> Vec<(Stage, [u64; 2])> {
    let gap = |from: [u64; 2], to: [u64; 2]| [to[0].saturating_sub(from[1]), to[1].saturating_sub(from[0])];
    let end = stamps.last_out;
    let [first, last, queue] = [range.first_launch, range.last_result, range.queue];
    let before = first.map(|t| t.saturating_sub(stamps.read));
    // Between two first launches at most their distance is added to either, so both grow with it.
    let mut all = vec![
        (Stage::Preprocess, [before[0].saturating_sub(queue[0]), before[1].saturating_sub(queue[1])]),
        (Stage::Queue, queue),
    ];
    if let Some(first_result) = range.first_result {
        all.push((Stage::Prefill, gap(first, first_result)));
        all.push((Stage::Decode, gap(first_result, last)));
    } else {
        all.push((Stage::Forward, gap(first, last)));
    }
    let rest = gap(last, [end, end]);
    let network_out = rest.map(|r| stamps.blocked.min(r));
    all.push((Stage::Postprocess, [rest[0] - network_out[0], rest[1] - network_out[1]]));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps(first_in: u64, last_in: u64, last_out: u64, blocked: u64, forward: Option<Forward>) -> Stamps {
        Stamps { first_in, last_in, read: last_in, timed: false, last_out, blocked, forward }
    }

    fn forward(first_launch: u64, first_result: Option<u64>, last_result: u64, queue: u64) -> Forward {
        Forward { first_launch, first_result, last_result, queue }
    }

    /// Name, stamps, stages, whether a stamp was moved.
    type Case<'a> = (&'a str, Stamps, Vec<(Stage, u64)>, bool);

    #[test]
    fn partitions() {
        use Stage::{
            AcceptWait as A, Decode as D, Forward as F, NetworkIn as I, NetworkOut as O, Postprocess as Po,
            Prefill as Pf, Preprocess as Pr, Queue as Q, Unattributed as U,
        };
        let cases: Vec<Case<'_>> = vec![
            (
                "a stream",
                stamps(100, 110, 1000, 0, Some(forward(150, Some(300), 900, 30))),
                vec![(I, 10), (Pr, 10), (Q, 30), (Pf, 150), (D, 600), (Po, 100), (O, 0), (U, 0)],
                false,
            ),
            (
                "at once, socket full",
                stamps(100, 100, 1000, 40, Some(forward(150, None, 900, 0))),
                vec![(I, 0), (Pr, 50), (Q, 0), (F, 750), (Po, 60), (O, 40), (U, 0)],
                false,
            ),
            ("no forward known", stamps(100, 120, 1000, 30, None), vec![(I, 20), (O, 30), (U, 850)], false),
            (
                "answered before it was read",
                stamps(100, 300, 200, 0, None),
                vec![(I, 100), (O, 0), (U, 0)],
                true,
            ),
            (
                "launch before the read, result after the write",
                stamps(100, 200, 1000, 0, Some(forward(150, Some(120), 2000, 900))),
                vec![(I, 100), (Pr, 0), (Q, 0), (Pf, 0), (D, 800), (Po, 0), (O, 0), (U, 0)],
                true,
            ),
            (
                "blocked longer than there was time after the last result",
                stamps(0, 0, 100, 50, Some(forward(10, Some(20), 90, 0))),
                vec![(I, 0), (Pr, 10), (Q, 0), (Pf, 10), (D, 70), (Po, 0), (O, 10), (U, 0)],
                false,
            ),
            (
                "arrived at 100 to 110, read at 200",
                Stamps { read: 200, timed: true, ..stamps(100, 110, 1000, 0, None) },
                vec![(I, 10), (A, 90), (O, 0), (U, 800)],
                false,
            ),
            ("backwards", stamps(500, 600, 400, 7, None), vec![(I, 0), (O, 0), (U, 0)], true),
        ];
        for (name, stamps, want, adjusted) in cases {
            let got = partition(&stamps);
            assert_eq!(got.stages, want, "{name}");
            assert_eq!(got.adjusted, adjusted, "{name}");
            assert_eq!(got.stages.iter().map(|s| s.1).sum::<u64>(), got.e2e, "{name}");
        }
    }

    #[test]
    fn bounds_hold_the_truth_of_every_choice_within_the_range() {
        let range = Range {
            first_launch: [150, 400],
            first_result: Some([250, 500]),
            last_result: [700, 900],
            queue: [40, 200],
        };
        let stamps = stamps(100, 110, 1000, 20, None);
        let bounds = bounds(&stamps, &range);
        for (first, queue) in [(150, 40), (250, 100), (400, 200)] {
            for first_result in [410, 450, 500] {
                for last in [700, 800, 900] {
                    let forward = Some(forward(first, Some(first_result), last, queue));
                    for (stage, ns) in partition(&Stamps { forward, ..stamps }).stages {
                        let bound = bounds.iter().find(|b| b.0 == stage);
                        assert!(
                            bound.is_none_or(|(_, [lo, hi])| (*lo..=*hi).contains(&ns)),
                            "{stage:?} {ns} {bound:?}"
                        );
                    }
                }
            }
        }
    }
}
