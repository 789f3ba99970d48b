//! How much of a device is free: what was last told, and what watched processes have moved since.
//!
//! A look takes time, and so does a call that moves memory. Where both overlapped it is not known whether the look saw
//! the move, and the look is not used; the next one comes soon.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Moves that a later look is compared with; by far more than fit into one.
const KEPT: usize = 512;

/// Who told how much is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A process asked the driver (`cuMemGetInfo`).
    Process,
    /// NVML.
    Nvml,
}

/// A span of time: the call was entered, and it returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
}

impl Span {
    fn overlaps(self, other: Self) -> bool {
        self.begin_ns < other.end_ns && other.begin_ns < self.end_ns
    }
}

/// Free and all bytes of a device, as a look showed them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) during: Span,
    pub(super) free: u64,
    pub(super) total: u64,
    pub(super) source: Source,
}

/// The last look.
#[derive(Clone, Copy, Debug)]
struct Look {
    seen: Seen,
    /// What had been moved by then.
    moved: i64,
    /// Memory may have been taken since without being counted.
    is_blurred: bool,
}

/// What is known of one device.
#[derive(Clone, Debug, Default)]
pub(super) struct Sight {
    last: Option<Look>,
    /// Bytes that watched processes have taken less those that they gave back, since the beginning.
    moved: i64,
    /// The last moves.
    moves: VecDeque<(Span, i64)>,
}

/// Free memory at a moment that was not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Estimate {
    pub(super) free: u64,
    pub(super) total: u64,
    pub(super) source: Source,
    /// Time between the look and the moment, before or after.
    pub(super) age_ns: u64,
    /// When the look began.
    pub(super) looked_ns: u64,
    /// It is the most that can have been free.
    pub(super) is_most: bool,
}

/// A moment: its time, and what had been moved by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) at_ns: u64,
    pub(super) moved: i64,
}

impl Moment {
    /// The same, at another time.
    pub(super) fn when(self, at_ns: u64) -> Self {
        Self { at_ns, ..self }
    }
}

impl Sight {
    /// A watched process took (or gave back) so much. Moves come in the order of their ends, and may come after a look
    /// that was later.
    pub(super) fn moved(&mut self, during: Span, bytes: i64) {
        self.moved = self.moved.saturating_add(bytes);
        if self.moves.len() >= KEPT {
            self.moves.pop_front();
        }
        self.moves.push_back((during, bytes));
        match &mut self.last {
            Some(look) if look.seen.during.overlaps(during) => self.last = None,
            Some(look) if during.end_ns <= look.seen.during.begin_ns => {
                look.moved = look.moved.saturating_add(bytes);
            }
            _ => {}
        }
    }

    /// A watched process took memory of which a pool may have kept a part.
    pub(super) fn blurred(&mut self, during: Span) {
        if let Some(look) = &mut self.last {
            look.is_blurred |= look.seen.during.begin_ns < during.end_ns;
        }
    }

    /// Somebody looked; false when it is not known what the look saw.
    pub(super) fn seen(&mut self, seen: Seen) -> bool {
        if self.moves.iter().any(|(during, _)| during.overlaps(seen.during)) {
            return false;
        }
        let later = self.moves.iter().filter(|(during, _)| during.begin_ns >= seen.during.end_ns);
        let later = later.fold(0_i64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        self.last = Some(Look { seen, moved: self.moved.saturating_sub(later), is_blurred: false });
        true
    }

    pub(super) fn now(&self, at_ns: u64) -> Moment {
        Moment { at_ns, moved: self.moved }
    }

    /// What was free at a moment, by the last look: corrected by what watched processes did in between.
    pub(super) fn at(&self, moment: Moment) -> Option<Estimate> {
        let Look { seen, moved, is_blurred } = self.last?;
        let free = i128::from(seen.free) + i128::from(moved) - i128::from(moment.moved);
        Some(Estimate {
            free: u64::try_from(free.max(0)).unwrap_or(u64::MAX).min(seen.total),
            total: seen.total,
            source: seen.source,
            age_ns: seen.during.end_ns.abs_diff(moment.at_ns),
            looked_ns: seen.during.begin_ns,
            is_most: is_blurred,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(begin_ns: u64, end_ns: u64) -> Span {
        Span { begin_ns, end_ns }
    }

    fn seen(begin_ns: u64, end_ns: u64, free: u64) -> Seen {
        Seen { during: span(begin_ns, end_ns), free, total: 100, source: Source::Nvml }
    }

    #[test]
    fn what_was_free_follows_from_a_look_before_or_after() {
        let mut sight = Sight::default();
        assert_eq!(sight.at(sight.now(5)), None);
        assert!(sight.seen(seen(9, 10, 60)));
        sight.moved(span(11, 12), 20);
        let moment = sight.now(15);
        assert_eq!(sight.at(moment).map(|e| (e.free, e.age_ns)), Some((40, 5)));
        sight.moved(span(15, 16), -30);
        assert!(sight.seen(seen(17, 18, 71)));
        assert_eq!(sight.at(moment).map(|e| (e.free, e.age_ns)), Some((41, 3)));
    }

    #[test]
    fn a_look_during_a_move_is_not_used_whichever_is_heard_of_first() {
        let mut sight = Sight::default();
        sight.moved(span(10, 20), 5);
        assert!(!sight.seen(seen(19, 25, 60)));
        assert!(sight.seen(seen(20, 25, 60)));
        sight.moved(span(24, 30), 5);
        assert_eq!(sight.at(sight.now(31)), None);
    }

    #[test]
    fn moves_may_be_heard_of_after_a_look_that_came_later() {
        let mut sight = Sight::default();
        assert!(sight.seen(seen(50, 60, 60)));
        // Before the look, which has seen it.
        sight.moved(span(30, 40), 7);
        assert_eq!(sight.at(sight.now(61)).map(|e| e.free), Some(60));
        // A look that is heard of late, with a move after it.
        sight.moved(span(70, 80), 4);
        assert!(sight.seen(seen(65, 66, 60)));
        assert_eq!(sight.at(sight.now(81)).map(|e| e.free), Some(56));
    }
}
