//! When p99 took off while throughput did not: the blades of the scissors.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::diagnose::window::Sketch;

/// Minutes that are kept.
const MINUTES: usize = 60;
const MINUTE_NS: u64 = 60_000_000_000;
/// Minutes before, that one is held against.
const BEFORE: usize = 5;
/// Requests that a minute needs.
const ENOUGH: u64 = 20;
/// p99 against before.
const LONGER: f64 = 1.5;
/// Throughput against before, at most: it has not grown as p99 has.
const MORE: f64 = 1.1;

/// A span in which p99 took off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Opening {
    /// Begin, ns since the Unix epoch; 0 where the wall clock is not known.
    pub from_ns: u64,
    /// End.
    pub to_ns: u64,
    /// Requests a second in it.
    pub requests_per_s: f64,
    /// And in the minutes before it.
    pub requests_per_s_before: f64,
    /// p99 of requests in it, seconds: the highest of its minutes.
    pub p99_s: f64,
    /// And in the minutes before it: the median of theirs.
    pub p99_s_before: f64,
}

#[derive(Clone, Debug, Default)]
struct Minute {
    number: u64,
    requests: u64,
    e2e: Sketch,
}

/// The newest minutes of one model.
#[derive(Clone, Debug, Default)]
pub(super) struct Minutes(VecDeque<Minute>);

impl Minutes {
    /// A request is over; its time where it is one of work.
    pub(super) fn request(&mut self, end_ns: u64, e2e_s: Option<f64>) {
        let number = end_ns / MINUTE_NS;
        if self.0.back().is_none_or(|last| last.number < number) {
            self.0.push_back(Minute { number, ..Minute::default() });
        }
        while self.0.len() > MINUTES {
            self.0.pop_front();
        }
        // One that is told late counts in the newest.
        if let Some(last) = self.0.back_mut() {
            last.requests += 1;
            last.e2e.extend(e2e_s);
        }
    }

    /// Lets time go on.
    pub(super) fn pass(&mut self, now_ns: u64) {
        let oldest = (now_ns / MINUTE_NS).saturating_sub(MINUTES as u64);
        while self.0.front().is_some_and(|minute| minute.number < oldest) {
            self.0.pop_front();
        }
    }

    /// The spans, oldest first; the minute that goes on is not among them.
    pub(super) fn openings(&self, wall: &impl Fn(u64) -> Option<u64>) -> Vec<Opening> {
        let told: Vec<(u64, u64, f64)> = self.0.iter().filter_map(Minute::told).collect();
        let over = told.len().saturating_sub(1);
        let mut all: Vec<Opening> = Vec::new();
        let mut closed: Vec<(u64, f64)> = Vec::new();
        for (number, requests, p99) in told.iter().take(over).copied() {
            let opened = |(rate, usual): &(f64, f64)| p99 >= usual * LONGER && requests as f64 <= rate * MORE;
            let Some((rate, usual)) = before(&closed).filter(opened) else {
                closed.push((requests, p99));
                continue;
            };
            let at = |number: u64| wall(number.saturating_mul(MINUTE_NS)).unwrap_or(0);
            let [from_ns, to_ns] = [at(number), at(number + 1)];
            match all.last_mut().filter(|last| last.to_ns == from_ns && from_ns > 0) {
                Some(last) => {
                    last.to_ns = to_ns;
                    last.p99_s = last.p99_s.max(p99);
                    last.requests_per_s = f64::midpoint(last.requests_per_s, requests as f64 / 60.0);
                }
                None => all.push(Opening {
                    from_ns,
                    to_ns,
                    requests_per_s: requests as f64 / 60.0,
                    requests_per_s_before: rate / 60.0,
                    p99_s: p99,
                    p99_s_before: usual,
                }),
            }
        }
        all
    }
}

impl Minute {
    fn told(&self) -> Option<(u64, u64, f64)> {
        let stats = self.e2e.stats().filter(|stats| stats.count >= ENOUGH)?;
        Some((self.number, self.requests, stats.p99))
    }
}

/// Mean requests, and the median of p99, of the last minutes in which nothing was wrong.
fn before(closed: &[(u64, f64)]) -> Option<(f64, f64)> {
    let last = closed.get(closed.len().checked_sub(BEFORE)?..)?;
    let rate = last.iter().map(|(requests, _)| *requests as f64).sum::<f64>() / BEFORE as f64;
    let mut p99: Vec<f64> = last.iter().map(|(_, p99)| *p99).collect();
    p99.sort_by(f64::total_cmp);
    Some((rate, p99[BEFORE / 2]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Minutes as (requests, seconds of each).
    fn minutes(all: &[(u64, f64)]) -> Minutes {
        let mut minutes = Minutes::default();
        for ((requests, s), number) in all.iter().zip(100_u64..) {
            (0..*requests).for_each(|_| minutes.request(number * MINUTE_NS + 1, Some(*s)));
        }
        minutes
    }

    #[test]
    fn only_longer_times_without_more_requests_are_an_opening() {
        let wall = |ns: u64| Some(ns);
        let calm = [(60, 0.3); 5];
        let then = |more: &[(u64, f64)]| minutes(&[&calm, more].concat()).openings(&wall);
        assert_eq!(then(&[(60, 0.3), (60, 0.3)]), []);
        assert_eq!(then(&[(120, 0.9), (60, 0.3)]), [], "twice the requests");
        let opened = then(&[(55, 0.9), (50, 1.2), (60, 0.3), (60, 0.3)]);
        assert_eq!(opened.len(), 1, "{opened:?}");
        let one = opened[0];
        assert_eq!([one.from_ns, one.to_ns].map(|ns| ns / MINUTE_NS), [105, 107]);
        assert!(one.p99_s > 1.1 && (one.p99_s_before - 0.3).abs() < 0.01 && one.requests_per_s < 1.0);
    }
}
