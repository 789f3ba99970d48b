//! How many requests were in flight when, from requests that are over.
//!
//! Time is cut into quarters of a second. A request that is over adds to each the time that it was in flight there. A
//! quarter is settled when no request is expected to add to it any more: twice as long after it as the longest request
//! was lately. One that ends later still counts from where nothing is settled yet.

use std::collections::VecDeque;

use crate::request::{RequestRecord, record::Outcome};

/// Length of a slot.
const SLOT_NS: u64 = 250_000_000;
/// Slots that are kept: five minutes.
const SLOTS: usize = 1200;
/// The least that is waited for longer requests.
const LEAST_NS: u64 = 2_000_000_000;
/// The most: half of what is kept, so that a request's own time is still there when it settles.
const MOST_NS: u64 = SLOT_NS * (SLOTS as u64) / 2;
/// Requests that wait to be settled.
const MAX_WAITING: usize = 65_536;

/// What counts of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    begin_ns: u64,
    end_ns: u64,
    is_ok: bool,
    /// Absent where it failed.
    pub(super) e2e_s: Option<f64>,
    ttft_s: Option<f64>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

impl Request {
    /// A request from its first byte to its last. One that failed was in flight, but its times are not those of work.
    pub(super) fn of(record: &RequestRecord, [begin_ns, end_ns]: [u64; 2]) -> Self {
        let is_ok = record.outcome.is_none_or(|outcome| outcome == Outcome::Ok);
        Self {
            begin_ns,
            end_ns: end_ns.max(begin_ns.saturating_add(1)),
            is_ok,
            e2e_s: record.e2e_s.filter(|_| is_ok),
            ttft_s: record.ttft_s.filter(|_| is_ok),
            input_tokens: record.input_tokens.filter(|_| is_ok),
            output_tokens: record.output_tokens.filter(|_| is_ok),
        }
    }

    fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns).max(1)
    }

    /// Numbers of its first slot and its last.
    fn ends(&self) -> [u64; 2] {
        [self.begin_ns, self.end_ns - 1].map(|ns| ns / SLOT_NS)
    }

    /// Its time within a slot, ns.
    fn within(&self, number: u64) -> u64 {
        let begin = number.saturating_mul(SLOT_NS).max(self.begin_ns);
        let end = (number + 1).saturating_mul(SLOT_NS).min(self.end_ns);
        end.saturating_sub(begin)
    }
}

/// One slot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    /// Times of all requests in it, summed, ns.
    busy_ns: u64,
    /// Parts of requests done in it.
    pub(super) requests: f64,
    /// Likewise their output tokens.
    pub(super) output_tokens: f64,
}

impl Slot {
    /// Requests in flight, on average.
    pub(super) fn concurrency(&self) -> f64 {
        self.busy_ns as f64 / SLOT_NS as f64
    }

    /// Its length, seconds.
    pub(super) const fn seconds() -> f64 {
        SLOT_NS as f64 / 1e9
    }
}

/// What became final.
#[derive(Clone, Copy, Debug)]
pub(super) enum Settled {
    /// A slot in which requests were in flight.
    Slot(Slot),
    /// A request, with how many were in flight on average while it was.
    Request(Done),
}

/// A request that is settled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    pub(super) concurrency: f64,
    pub(super) e2e_s: Option<f64>,
    pub(super) ttft_s: Option<f64>,
    pub(super) input_tokens: Option<u64>,
    pub(super) output_tokens: Option<u64>,
}

/// The slots of one model.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    /// Number of the first slot kept.
    first: u64,
    slots: VecDeque<Slot>,
    /// Slots before this one are settled.
    settled: u64,
    waiting: Vec<Request>,
    /// The longest request lately, ns; it fades.
    longest_ns: u64,
    /// Requests that began where all was settled already.
    pub(super) too_long: u64,
}

impl Timeline {
    /// Takes a request that is over; false where a part of it came too late, or there is no room.
    pub(super) fn request(&mut self, request: &Request) -> bool {
        let [from, to] = request.ends();
        if self.slots.is_empty() && self.settled == 0 {
            (self.first, self.settled) = (from, from);
        }
        self.longest_ns = self.longest_ns.max(request.length_ns());
        let is_late = from < self.settled;
        self.too_long += u64::from(is_late);
        for slot in from.max(self.settled)..=to.min(self.first + 4 * SLOTS as u64) {
            self.add(slot, request);
        }
        if self.waiting.len() >= MAX_WAITING {
            return false;
        }
        self.waiting.push(*request);
        !is_late
    }

    fn add(&mut self, number: u64, request: &Request) {
        let Ok(at) = usize::try_from(number.saturating_sub(self.first)) else { return };
        if self.slots.len() <= at {
            self.slots.resize(at + 1, Slot::default());
        }
        let overlap = request.within(number);
        let part = overlap as f64 / request.length_ns() as f64;
        let slot = &mut self.slots[at];
        slot.busy_ns = slot.busy_ns.saturating_add(overlap);
        // A refusal takes a moment and is no work done.
        slot.requests += if request.is_ok { part } else { 0.0 };
        slot.output_tokens += part * request.output_tokens.unwrap_or(0) as f64;
    }

    /// Lets time go on, and gives what became final, with its time.
    pub(super) fn pass(&mut self, now_ns: u64, add: impl FnMut(u64, Settled)) {
        let wait = self.longest_ns.saturating_mul(2).clamp(LEAST_NS, MOST_NS);
        let before = self.settled;
        self.settle(now_ns.saturating_sub(wait) / SLOT_NS, add);
        // A long request that is a minute ago does not hold back for ever: one part in a thousand for each slot.
        let fades = self.settled.saturating_sub(before).min(1000);
        self.longest_ns -= self.longest_ns / 1000 * fades;
    }

    fn settle(&mut self, until: u64, mut add: impl FnMut(u64, Settled)) {
        if until <= self.settled {
            return;
        }
        let before = usize::try_from(self.settled.saturating_sub(self.first)).unwrap_or(usize::MAX);
        for (slot, number) in self.slots.iter().skip(before).zip(self.settled.max(self.first)..until) {
            if slot.busy_ns > 0 {
                add(number.saturating_mul(SLOT_NS), Settled::Slot(*slot));
            }
        }
        self.settled = until;
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|request| {
            let is_over = request.ends()[1] < until;
            if is_over {
                add(request.end_ns, Settled::Request(self.done(request)));
            }
            !is_over
        });
        self.waiting = waiting;
        self.forget();
    }

    fn done(&self, request: &Request) -> Done {
        let Request { e2e_s, ttft_s, input_tokens, output_tokens, .. } = *request;
        Done { concurrency: self.around(request), e2e_s, ttft_s, input_tokens, output_tokens }
    }

    /// Requests in flight on average while this one was.
    fn around(&self, request: &Request) -> f64 {
        let [from, to] = request.ends();
        let (mut sum, mut time) = (0.0, 0.0);
        for number in from.max(self.first)..=to {
            let at = usize::try_from(number - self.first).unwrap_or(usize::MAX);
            let Some(slot) = self.slots.get(at) else { break };
            let overlap = request.within(number) as f64;
            sum += slot.concurrency() * overlap;
            time += overlap;
        }
        // Itself at least.
        (sum / f64::max(time, 1.0)).max(1.0)
    }

    /// What is settled and old is not kept.
    fn forget(&mut self) {
        let oldest = self.settled.saturating_sub(SLOTS as u64);
        while self.first < oldest && self.slots.pop_front().is_some() {
            self.first += 1;
        }
        if self.slots.is_empty() {
            self.first = self.first.max(self.settled);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn request(begin_ns: u64, end_ns: u64) -> Request {
        let e2e_s = Some((end_ns - begin_ns) as f64 / 1e9);
        Request {
            begin_ns,
            end_ns,
            is_ok: true,
            e2e_s,
            ttft_s: None,
            input_tokens: None,
            output_tokens: Some(10),
        }
    }

    #[test]
    fn slots_hold_who_was_in_flight_and_throughput_is_that_of_the_same_moment() {
        let mut timeline = Timeline::default();
        // Two for a second, then one of them for another.
        assert!(timeline.request(&request(100 * S, 101 * S)));
        assert!(timeline.request(&request(100 * S, 102 * S)));
        let mut told = Vec::new();
        timeline.pass(103 * S, |at, settled| told.push((at, settled)));
        assert!(told.is_empty(), "a longer one may still end");
        timeline.pass(107 * S, |at, settled| told.push((at, settled)));
        let slots: Vec<(f64, f64)> = told
            .iter()
            .filter_map(|(_, settled)| match settled {
                Settled::Slot(slot) => Some((slot.concurrency(), slot.requests)),
                Settled::Request(_) => None,
            })
            .collect();
        assert_eq!(slots.len(), 8);
        assert!(slots[..4].iter().all(|(n, done)| (*n - 2.0).abs() < 1e-9 && (*done - 0.375).abs() < 1e-9));
        assert!(slots[4..].iter().all(|(n, done)| (*n - 1.0).abs() < 1e-9 && (*done - 0.125).abs() < 1e-9));
        let mut around: Vec<f64> = told
            .iter()
            .filter_map(|(_, settled)| match settled {
                Settled::Request(done) => Some(done.concurrency),
                Settled::Slot(_) => None,
            })
            .collect();
        around.sort_by(f64::total_cmp);
        assert_eq!(around, [1.5, 2.0]);
    }

    #[test]
    fn what_comes_too_late_counts_where_nothing_is_settled_and_is_told() {
        let mut timeline = Timeline::default();
        assert!(timeline.request(&request(100 * S, 101 * S)));
        timeline.pass(200 * S, |_, _| {});
        assert!(!timeline.request(&request(100 * S, 201 * S)));
        assert_eq!(timeline.too_long, 1);
        let mut slots = 0;
        timeline.pass(600 * S, |_, settled| slots += usize::from(matches!(settled, Settled::Slot(_))));
        assert!((4..=16).contains(&slots), "{slots}");
    }

    #[test]
    fn what_failed_was_in_flight_and_is_no_throughput() {
        let mut timeline = Timeline::default();
        timeline.request(&Request { is_ok: false, ..request(100 * S, 101 * S) });
        let mut sums = (0.0, 0.0);
        timeline.pass(600 * S, |_, settled| {
            if let Settled::Slot(slot) = settled {
                sums = (sums.0 + slot.concurrency(), sums.1 + slot.requests);
            }
        });
        assert_eq!(sums, (4.0, 0.0));
    }

    #[test]
    fn memory_is_bounded() {
        let mut timeline = Timeline::default();
        for second in 0..4000 {
            timeline.request(&request((1000 + second) * S, (1001 + second) * S));
            timeline.pass((1001 + second) * S, |_, _| {});
        }
        assert!(timeline.slots.len() <= SLOTS + 400, "{}", timeline.slots.len());
        assert!(timeline.waiting.len() < 10, "{}", timeline.waiting.len());
        // And a time far in the future makes no slots up to it.
        timeline.request(&request(u64::MAX - S, u64::MAX));
        assert!(timeline.slots.len() <= SLOTS + 400, "{}", timeline.slots.len());
    }
}
