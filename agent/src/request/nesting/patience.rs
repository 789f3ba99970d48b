//! How long exchanges wait for those that they belong to, and for what belongs to them.

use std::collections::VecDeque;

use super::{Nesting, Stage};
use crate::{
    health::Health,
    request::{record::Flag, requests::Ended},
    track::ExchangeId,
};

/// Content events of those that are over, 16 bytes each; beyond, the oldest waits no longer.
pub(super) const KEPT_EVENTS: usize = 1 << 20;
/// How long an outer exchange waits for an inner one that does not end: longer than records of two processors can be
/// out of order. Servers that do not notice that nobody waits for the answer any more go on for as long as they like.
const PATIENCE_NS: u64 = 1_000_000_000;
/// How long an inner exchange waits for an outer one that goes on, where no identifier says that it belongs to it: it
/// may be work in the background beside a stream without end, which then has a record of its own, with a flag. What is
/// asked in the course of an answer is asked for its next part, and few last longer than this after it.
const STAY_NS: u64 = 60_000_000_000;

impl Nesting {
    pub(super) fn make_room(&mut self, health: &mut Health, out: &mut VecDeque<Box<Ended>>) {
        while self.events > KEPT_EVENTS {
            health.limit("nested_events");
            if let Some((_, oldest)) = self.whole.first().copied() {
                self.let_go(oldest, health, out);
            } else if let Some((_, oldest)) = self.waiting.pop_first() {
                self.give_up(oldest);
                self.settle(oldest, health, out);
            } else {
                return;
            }
        }
    }

    /// Time passes: what has waited too long goes to `out`.
    pub(in crate::request) fn tick(&mut self, now: u64, health: &mut Health, out: &mut VecDeque<Box<Ended>>) {
        self.tire(now.saturating_sub(PATIENCE_NS), health, out);
        let limit = now.saturating_sub(STAY_NS);
        while let Some((since, id)) = self.whole.first().copied().filter(|(since, _)| *since <= limit) {
            if self.has_identity(id) {
                self.stay(since, id, now);
            } else {
                health.limit("nested_apart");
                self.let_go(id, health, out);
            }
        }
    }

    /// Outer exchanges that are over since `limit` wait no longer.
    pub(super) fn tire(&mut self, limit: u64, health: &mut Health, out: &mut VecDeque<Box<Ended>>) {
        while let Some((_, id)) = self.waiting.first().copied().filter(|(since, _)| *since <= limit) {
            self.waiting.pop_first();
            health.limit("nested_unfinished");
            self.give_up(id);
            self.settle(id, health, out);
        }
    }

    /// An exchange that is over waits no longer for the one that it seemed to belong to.
    fn let_go(&mut self, id: ExchangeId, health: &mut Health, out: &mut VecDeque<Box<Ended>>) {
        if let Some(Stage::Whole(ended, _)) = self.all.get_mut(&id).map(|entry| &mut entry.stage) {
            ended.exchange.flags.push(Flag::NestedGuessed);
        }
        self.release(id, health, out);
    }

    fn has_identity(&self, id: ExchangeId) -> bool {
        self.all.get(&id).and_then(|entry| entry.link).is_some_and(|link| link.is_identity)
    }

    /// It waits as long once more.
    fn stay(&mut self, since: u64, id: ExchangeId, now: u64) {
        self.whole.remove(&(since, id));
        if let Some(Stage::Whole(_, since)) = self.all.get_mut(&id).map(|entry| &mut entry.stage) {
            *since = now;
            self.whole.insert((now, id));
        }
    }

    /// Waits no longer for what belongs to an exchange and is not over. If the answer was whole, it was none of its.
    fn give_up(&mut self, id: ExchangeId) {
        let Some(entry) = self.all.get_mut(&id) else { return };
        let is_answered = entry.is_answered;
        for inner in std::mem::take(&mut entry.inner) {
            let Some(part) = self.all.get_mut(&inner) else { continue };
            if matches!(part.stage, Stage::Whole(..)) {
                self.all.entry(id).and_modify(|entry| entry.inner.push(inner));
            } else {
                part.is_late = !is_answered;
                self.unlink(inner);
            }
        }
    }
}
