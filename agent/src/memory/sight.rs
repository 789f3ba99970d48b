//! How much of a device is free: what was last told, and what watched processes have moved since.

use serde::{Deserialize, Serialize};

/// Who told how much is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A process asked the driver (`cuMemGetInfo`).
    Process,
    /// NVML.
    Nvml,
}

/// Free and all bytes of a device at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) at_ns: u64,
    pub(super) free: u64,
    pub(super) total: u64,
    pub(super) source: Source,
}

/// What is known of one device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sight {
    /// The last word, and [`Sight::moved`] then.
    last: Option<(Seen, i64)>,
    /// Bytes that watched processes have taken less those that they gave back, since the beginning.
    moved: i64,
}

/// Free memory at a moment that was not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Estimate {
    pub(super) free: u64,
    pub(super) total: u64,
    pub(super) source: Source,
    /// Time between the look and the moment, before or after.
    pub(super) age_ns: u64,
}

/// A moment: its time, and what had been moved by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) at_ns: u64,
    moved: i64,
}

impl Sight {
    /// A watched process took (or gave back) so much.
    pub(super) fn moved(&mut self, bytes: i64) {
        self.moved = self.moved.saturating_add(bytes);
    }

    /// Somebody told.
    pub(super) fn seen(&mut self, seen: Seen) {
        self.last = Some((seen, self.moved));
    }

    pub(super) fn now(&self, at_ns: u64) -> Moment {
        Moment { at_ns, moved: self.moved }
    }

    /// What was free at a moment, by the last word: corrected by what watched processes did in between.
    pub(super) fn at(&self, moment: Moment) -> Option<Estimate> {
        let (seen, moved) = self.last?;
        let free = i128::from(seen.free) + i128::from(moved) - i128::from(moment.moved);
        Some(Estimate {
            free: u64::try_from(free.max(0)).unwrap_or(u64::MAX).min(seen.total),
            total: seen.total,
            source: seen.source,
            age_ns: seen.at_ns.abs_diff(moment.at_ns),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_free_follows_from_a_look_before_or_after() {
        let mut sight = Sight::default();
        assert_eq!(sight.at(sight.now(5)), None);
        let seen = |at_ns, free| Seen { at_ns, free, total: 100, source: Source::Nvml };
        sight.seen(seen(10, 60));
        sight.moved(20);
        let moment = sight.now(15);
        assert_eq!(sight.at(moment).map(|e| (e.free, e.age_ns)), Some((40, 5)));
        sight.moved(-30);
        sight.seen(seen(18, 71));
        assert_eq!(sight.at(moment).map(|e| (e.free, e.age_ns)), Some((41, 3)));
    }
}
