//! After how long the clients of a service give up.
//!
//! A client that closes before anything was answered may have been told to, may have died, or has waited as long as it
//! was set to. The last shows when several do so after the same time: people and crashes spread, settings do not. So a
//! wait counts as one that ran out if enough of the latest waits that ended so lie close to it, and more than lie in
//! the wider neighbourhood. Waits that are alike and end at the same moment are one: requests that began together and
//! were broken off together tell of one event, not of a setting.

use std::collections::VecDeque;

use super::record::Outcome;
use crate::track::Exchange;

/// Waits that are remembered.
const KEPT: usize = 64;
/// Waits that make a cluster, the one in question among them.
const LEAST: usize = 4;
/// A shorter one is no long silence.
const SHORTEST_NS: u64 = 200_000_000;
/// Waits of one setting differ by this, and by a hundredth.
const SLACK_NS: u64 = 20_000_000;
/// The neighbourhood is as many times wider.
const WIDER: u64 = 5;

/// When the clients of a service give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// After how long: the median of those that are alike, ns.
    pub wait_ns: u64,
    /// How many those are.
    pub samples: u64,
}

/// A wait that ended before anything was answered.
#[derive(Clone, Copy, Debug)]
struct Wait {
    ns: u64,
    closed_ns: u64,
}

impl Wait {
    /// How far another one may be away that is alike, ns.
    fn slack(self) -> u64 {
        SLACK_NS + self.ns / 100
    }

    /// Whether the two are so close that nothing more is known by the second.
    fn is_same(self, other: Self) -> bool {
        let slack = self.slack();
        self.closed_ns.abs_diff(other.closed_ns) <= slack && self.ns.abs_diff(other.ns) <= 2 * slack
    }
}

/// The waits of a service's clients.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    waits: VecDeque<Wait>,
}

impl Deadlines {
    /// Takes a request that is over; its client's deadline, if it ran out.
    pub(crate) fn over(&mut self, exchange: &Exchange) -> Option<Deadline> {
        let wait = given_up_after(exchange)?;
        if !self.waits.iter().any(|other| wait.is_same(*other)) {
            if self.waits.len() == KEPT {
                self.waits.pop_front();
            }
            self.waits.push_back(wait);
        }
        self.deadline(wait)
    }

    fn deadline(&self, wait: Wait) -> Option<Deadline> {
        let (wait, slack) = (wait.ns, wait.slack());
        let mut alike: Vec<u64> = self.within(wait, slack).collect();
        let others = self.within(wait, WIDER * slack).count() - alike.len();
        if alike.len() < LEAST || alike.len() <= others {
            return None;
        }
        alike.sort_unstable();
        Some(Deadline { wait_ns: alike[alike.len() / 2], samples: alike.len() as u64 })
    }

    fn within(&self, wait: u64, slack: u64) -> impl Iterator<Item = u64> {
        self.waits.iter().map(|other| other.ns).filter(move |other| other.abs_diff(wait) <= slack)
    }
}

/// How long the client of a request waited that was not answered, if it closed after a silence.
fn given_up_after(exchange: &Exchange) -> Option<Wait> {
    let closed = exchange.close_ns.filter(|_| exchange.outcome == Some(Outcome::ClientDisconnect))?;
    // Servers that do not notice answer nobody.
    if exchange.first_byte_out_ns.is_some_and(|answered| answered < closed) {
        return None;
    }
    let ns = closed.checked_sub(exchange.first_byte_in_ns?)?;
    (ns >= SHORTEST_NS).then_some(Wait { ns, closed_ns: closed })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn given_up(begun_ms: u64, ms: u64) -> Exchange {
        Exchange {
            outcome: Some(Outcome::ClientDisconnect),
            first_byte_in_ns: Some(begun_ms * MS),
            close_ns: Some((begun_ms + ms) * MS),
            ..Exchange::default()
        }
    }

    /// What is said of the last of several.
    fn last(waits_ms: &[u64]) -> Option<(u64, u64)> {
        let mut deadlines = Deadlines::default();
        let all = (1..).zip(waits_ms).map(|(n, ms)| deadlines.over(&given_up(n * 10_000, *ms)));
        all.last().flatten().map(|d| (d.wait_ns / MS, d.samples))
    }

    /// Name, waits, what is said of the last one: after how long, and how many are alike.
    type Case = (&'static str, Vec<u64>, Option<(u64, u64)>);

    #[test]
    fn waits_that_are_alike_are_a_setting() {
        let spread: Vec<u64> = (0..60).map(|n| 1000 + 150 * n).collect();
        let with = |more: &[u64]| [&spread, more].concat();
        let cases: Vec<Case> = vec![
            ("three are few", vec![5000, 5001, 5003], None),
            ("four are enough", vec![5000, 5001, 5003, 5040], Some((5003, 4))),
            ("a long one varies more", vec![60_000, 60_300, 60_500, 60_600], Some((60_500, 4))),
            ("as they come", spread.clone(), None),
            ("a setting among others", with(&[5000, 5001, 5001, 5002, 5003, 5004]), Some((5002, 7))),
            ("another one", vec![5000, 5000, 5000, 5000, 9000], None),
            ("two settings", vec![5000, 9000, 5000, 9000, 5000, 9000, 5000, 9000], Some((9000, 4))),
            ("a quick one is no silence", vec![20, 20, 20, 20, 20], None),
        ];
        for (name, waits, want) in cases {
            assert_eq!(last(&waits), want, "{name}");
        }
    }

    #[test]
    fn only_a_client_that_closed_before_the_answer_counts() {
        let others = [
            Exchange { outcome: Some(Outcome::Truncated), ..given_up(100, 5000) },
            Exchange { first_byte_out_ns: Some(5000 * MS), ..given_up(100, 5000) },
            Exchange { close_ns: None, ..given_up(100, 5000) },
            Exchange { first_byte_in_ns: None, ..given_up(100, 5000) },
        ];
        for exchange in others {
            let mut deadlines = Deadlines::default();
            let said: Vec<_> = (0..9).filter_map(|_| deadlines.over(&exchange)).collect();
            assert_eq!((said, deadlines.waits.len()), (Vec::new(), 0), "{exchange:?}");
        }
    }

    #[test]
    fn an_answer_to_nobody_is_none() {
        let mut deadlines = Deadlines::default();
        let late = |n: u64| Exchange {
            first_byte_out_ns: Some((1000 * n + 9000) * MS),
            status: Some(200),
            ..given_up(1000 * n, 5000)
        };
        let said: Vec<_> = (0..4).map(|n| deadlines.over(&late(n)).map(|d| d.samples)).collect();
        assert_eq!(said, [None, None, None, Some(4)]);
    }

    /// As when a program with many requests in flight ends, or a connection with many streams. The same setting can
    /// run out for many at once: four such times tell.
    #[test]
    fn what_begins_and_ends_together_counts_once() {
        let mut deadlines = Deadlines::default();
        let mut burst = |begun_ms: u64| {
            let all = (0..8).filter_map(|n| deadlines.over(&given_up(begun_ms + n, 5000 - n / 4)));
            all.last().map(|deadline| deadline.samples)
        };
        let said = [1000, 11_000, 21_000, 31_000].map(&mut burst);
        assert_eq!(said, [None, None, None, Some(4)]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut deadlines = Deadlines::default();
        for n in 0..1000 {
            deadlines.over(&given_up(100, 1000 * n));
        }
        assert_eq!(deadlines.waits.len(), KEPT);
    }
}
