//! When requests start: as soon as a client is free (closed loop), or at random times (open loop).

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::args::Args;
use crate::clock;
use crate::random::Random;

/// Shared by all clients.
pub(crate) struct Pace {
    limit: u64,
    /// No request starts after this.
    end: u64,
    next: Mutex<Next>,
    /// Mean seconds between two arrivals; `None` is closed loop.
    mean_gap: Option<f64>,
    late: AtomicU64,
}

struct Next {
    number: u64,
    due: u64,
    random: Random,
}

/// Leave to start one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// Number of the request.
    pub number: u64,
    /// When it was to start; `None` in a closed loop.
    pub due: Option<u64>,
}

/// Requests that start this much after they were due are late: more than a timer's error.
const LATE_NS: u64 = 5_000_000;

/// Not the number of any request.
const ARRIVALS: u64 = u64::MAX;

impl Pace {
    pub(crate) fn new(args: &Args) -> Self {
        let now = clock::now();
        Self {
            limit: args.requests.unwrap_or(u64::MAX),
            end: args.seconds.map_or(u64::MAX, |s| clock::after(now, s)),
            next: Mutex::new(Next { number: 0, due: now, random: Random::new(args.seed, ARRIVALS) }),
            mean_gap: args.open_loop.map(|rate| 1.0 / rate),
            late: AtomicU64::new(0),
        }
    }

    /// Waits for the next request's time; `None` when there are no more.
    pub(crate) fn next(&self) -> Option<Ticket> {
        let ticket = self.draw()?;
        if let Some(due) = ticket.due {
            clock::sleep_until(due);
            if clock::now() > due + LATE_NS {
                self.late.fetch_add(1, Ordering::Relaxed);
            }
        }
        Some(ticket)
    }

    fn draw(&self) -> Option<Ticket> {
        let mut next = self.next.lock().expect("nothing here panics");
        let due = self.mean_gap.map(|mean| next.arrive(mean));
        let over = next.number >= self.limit || due.unwrap_or_else(clock::now) >= self.end;
        let number = next.number;
        next.number += 1;
        (!over).then_some(Ticket { number, due })
    }

    /// Requests that found no free client in time.
    pub(crate) fn late(&self) -> Option<u64> {
        self.mean_gap.map(|_| self.late.load(Ordering::Relaxed))
    }
}

impl Next {
    fn arrive(&mut self, mean_gap: f64) -> u64 {
        let gap = self.random.gap(mean_gap) * 1e9;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive; fractions of 1 ns"
        )]
        let gap = gap as u64;
        self.due = self.due.saturating_add(gap);
        self.due
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn pace(more: &str) -> Pace {
        Pace::new(&Args::parse_from("loadgen --port 1".split_whitespace().chain(more.split_whitespace())))
    }

    #[test]
    fn a_closed_loop_ends_by_number_or_time() {
        let pace = pace("--requests 3 --seconds 60");
        let numbers: Vec<u64> = std::iter::from_fn(|| pace.next()).map(|t| t.number).collect();
        assert_eq!(numbers, [0, 1, 2]);
        let mut timed = self::pace("--seconds 60");
        assert!(timed.next().is_some());
        timed.end = clock::now();
        assert_eq!((timed.next(), timed.late()), (None, None));
    }

    #[test]
    fn arrivals_keep_their_rate_and_their_seed() {
        let dues = |seed| -> Vec<u64> {
            let pace = pace(&format!("--requests 4000 --open-loop 1000 --seed {seed}"));
            let start = pace.next.lock().unwrap().due;
            std::iter::from_fn(|| pace.draw()).map(|t| t.due.unwrap() - start).collect()
        };
        let first = dues(1);
        assert_eq!((first.len(), &first), (4000, &dues(1)));
        assert_ne!(first, dues(2));
        let seconds = first[3999] as f64 / 1e9;
        assert!((3.7..4.3).contains(&seconds), "{seconds}");
    }

    #[test]
    fn an_overdue_request_is_late() {
        let pace = pace("--requests 2 --open-loop 100000");
        pace.next.lock().unwrap().due = clock::now() - 2 * LATE_NS;
        pace.next().unwrap();
        assert_eq!(pace.late(), Some(1));
    }
}
