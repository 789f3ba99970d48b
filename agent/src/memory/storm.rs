//! Retry storms: an allocation fails, its thread frees much, and asks again.
//!
//! Allocators above the driver do that when they run out of memory: what they kept for later goes back piece by piece,
//! and since a free may wait for the device, all requests of the server feel it.

use serde::{Deserialize, Serialize};

use super::Place;

/// A retry comes within this of the last attempt, however much is freed meanwhile; afterwards the storm is over.
const WINDOW_NS: u64 = 5_000_000_000;
/// Frees that make one: a program may give back a block that it has no more use for, and ask again.
const MIN_FREES: u64 = 3;
/// Threads of a process that are followed at once.
const KEPT: usize = 64;

/// A failed allocation, at least three frees, and at least one retry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Storm {
    /// When the first attempt failed, `CLOCK_MONOTONIC` ns.
    pub t_ns: u64,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// How much it asked for.
    pub requested_bytes: u64,
    /// Retries, at least one.
    pub retries: u64,
    /// Calls that gave memory back in between.
    pub frees: u64,
    /// How much they gave back.
    pub freed_bytes: u64,
    /// From the first failure to the last retry, seconds.
    pub duration_s: f64,
    /// Whether the last retry had what it asked for.
    pub succeeded: bool,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    tid: u32,
    place: Place,
    requested: u64,
    begin_ns: u64,
    last_ns: u64,
    /// Of the last retry; 0 when there was none.
    retried_ns: u64,
    retries: u64,
    frees: u64,
    freed: u64,
}

/// Storms of a process that are not over.
#[derive(Debug, Default)]
pub(super) struct Storms {
    pending: Vec<Pending>,
}

impl Storms {
    /// Something is going on: frees are looked at.
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// An allocation failed for want of memory.
    pub(super) fn failed(&mut self, tid: u32, place: Place, bytes: u64, at_ns: u64) {
        if let Some(storm) = self.of(tid, bytes) {
            // Without frees in between it is the same attempt again.
            if storm.frees > 0 {
                storm.retries += 1;
                storm.retried_ns = at_ns;
            }
            storm.last_ns = at_ns;
            return;
        }
        if self.pending.len() >= KEPT {
            self.pending.remove(0);
        }
        self.pending.push(Pending {
            tid,
            place,
            requested: bytes,
            begin_ns: at_ns,
            last_ns: at_ns,
            retried_ns: 0,
            retries: 0,
            frees: 0,
            freed: 0,
        });
    }

    /// Memory was given back.
    pub(super) fn freed(&mut self, tid: u32, bytes: u64, at_ns: u64) {
        let in_time =
            |storm: &&mut Pending| storm.tid == tid && at_ns <= storm.last_ns.saturating_add(WINDOW_NS);
        for storm in self.pending.iter_mut().filter(in_time) {
            storm.frees += 1;
            storm.freed = storm.freed.saturating_add(bytes);
        }
    }

    /// An allocation succeeded: the storm that it ends.
    pub(super) fn succeeded(&mut self, pid: u32, tid: u32, bytes: u64, at_ns: u64) -> Option<(Place, Storm)> {
        let is_it = |storm: &Pending| storm.tid == tid && storm.requested == bytes;
        let at = self
            .pending
            .iter()
            .position(|storm| is_it(storm) && at_ns <= storm.last_ns.saturating_add(WINDOW_NS))?;
        let mut storm = self.pending.remove(at);
        if storm.frees < MIN_FREES {
            return None;
        }
        storm.retries += 1;
        storm.retried_ns = at_ns;
        Some(storm.over(pid, true))
    }

    /// Storms that nothing was heard of for too long. All of them when `now_ns` is the end of time.
    pub(super) fn expired(&mut self, pid: u32, now_ns: u64) -> Vec<(Place, Storm)> {
        let is_over = |storm: &mut Pending| now_ns > storm.last_ns.saturating_add(WINDOW_NS);
        let over: Vec<Pending> = self.pending.extract_if(.., is_over).collect();
        let is_storm = |storm: &Pending| storm.retries > 0 && storm.frees >= MIN_FREES;
        over.into_iter().filter(is_storm).map(|storm| storm.over(pid, false)).collect()
    }

    /// The device that the process was thought to be on is another.
    pub(super) fn moves(&mut self, from: Place, to: Place) {
        self.pending.iter_mut().filter(|storm| storm.place == from).for_each(|storm| storm.place = to);
    }

    fn of(&mut self, tid: u32, bytes: u64) -> Option<&mut Pending> {
        self.pending.iter_mut().find(|storm| storm.tid == tid && storm.requested == bytes)
    }
}

impl Pending {
    fn over(self, pid: u32, succeeded: bool) -> (Place, Storm) {
        let storm = Storm {
            t_ns: self.begin_ns,
            pid,
            tid: self.tid,
            requested_bytes: self.requested,
            retries: self.retries,
            frees: self.frees,
            freed_bytes: self.freed,
            duration_s: self.retried_ns.saturating_sub(self.begin_ns) as f64 / 1e9,
            succeeded,
        };
        (self.place, storm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const HERE: Place = Place::Process(9);

    #[test]
    fn two_rounds_and_then_it_fits() {
        let mut storms = Storms::default();
        storms.failed(1, HERE, 20, S);
        storms.freed(1, 5, S + 1);
        storms.freed(2, 50, S + 2);
        storms.failed(1, HERE, 20, S + 3);
        storms.freed(1, 5, S + 4);
        storms.freed(1, 1, S + 4);
        assert_eq!(storms.succeeded(9, 1, 4, S + 5), None, "another size");
        assert_eq!(storms.succeeded(9, 2, 20, S + 5), None, "another thread");
        let (_, storm) = storms.succeeded(9, 1, 20, 2 * S).unwrap();
        assert_eq!((storm.retries, storm.frees, storm.freed_bytes, storm.succeeded), (2, 3, 11, true));
        assert!((storm.duration_s - 1.0).abs() < 1e-9);
        assert!(storms.is_idle());
    }

    #[test]
    fn one_that_fails_again_and_gives_up() {
        let mut storms = Storms::default();
        storms.failed(1, HERE, 20, 0);
        (0..3).for_each(|_| storms.freed(1, 5, 1));
        storms.failed(1, HERE, 20, 2);
        assert!(storms.expired(9, WINDOW_NS).is_empty());
        let over = storms.expired(9, WINDOW_NS + 3);
        assert_eq!(over.len(), 1);
        let storm = &over[0].1;
        assert_eq!((storm.retries, storm.frees, storm.succeeded), (1, 3, false));
    }

    #[test]
    fn attempts_at_two_sizes_are_two_storms_and_frees_keep_none_open() {
        let mut storms = Storms::default();
        for (bytes, at_ns) in [(20, 0), (30, 1), (20, 2)] {
            storms.failed(1, HERE, bytes, at_ns);
            storms.freed(1, 5, at_ns);
        }
        assert!(storms.succeeded(9, 1, 20, 3).is_some(), "frees count for both");
        storms.freed(1, 5, WINDOW_NS);
        assert!(storms.expired(9, WINDOW_NS + 2).is_empty(), "one failure of 30 without a retry");
        assert!(storms.is_idle());
    }

    #[test]
    fn what_is_no_storm() {
        let mut storms = Storms::default();
        // Asks again without giving anything back.
        storms.failed(1, HERE, 20, 0);
        storms.failed(1, HERE, 20, 1);
        assert_eq!(storms.succeeded(9, 1, 20, 2), None);
        // Gives back a block or two that it does not need.
        storms.failed(1, HERE, 20, 0);
        (0..MIN_FREES - 1).for_each(|_| storms.freed(1, 5, 1));
        assert_eq!(storms.succeeded(9, 1, 20, 2), None);
        // Gives back and does not ask again.
        storms.failed(1, HERE, 20, 3);
        storms.freed(1, 5, 4);
        assert!(storms.expired(9, u64::MAX).is_empty());
        // Asks again much later.
        storms.failed(1, HERE, 20, 0);
        storms.freed(1, 5, 1);
        assert_eq!(storms.succeeded(9, 1, 20, 2 + WINDOW_NS), None);
    }

    #[test]
    fn what_is_followed_is_bounded() {
        let mut storms = Storms::default();
        for tid in 0..200 {
            storms.failed(tid, HERE, 1, 1);
        }
        assert_eq!(storms.pending.len(), KEPT);
    }
}
