//! Requests that are over, but for the client's acknowledgement of the last byte.

use std::collections::BTreeMap;

use crate::{
    health::Health,
    request::Ended,
    track::{Delivery, ExchangeId, Tracked},
};

/// A client that takes longer than this for the last bytes of an answer keeps its record back no longer.
const PATIENCE_NS: u64 = 5_000_000_000;
/// Requests kept back.
const KEPT: usize = 4096;

/// The requests that wait.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    waiting: BTreeMap<ExchangeId, Box<Ended>>,
}

impl Deliveries {
    /// A request is over: returned, when nothing is waited for. One that waits too long makes room for it.
    pub(super) fn over(&mut self, ended: Box<Ended>, health: &mut Health) -> Option<Box<Ended>> {
        let Some(id) = ended.exchange.id.filter(|_| ended.exchange.awaits_delivery) else {
            return Some(ended);
        };
        let evicted = if self.waiting.len() >= KEPT {
            health.limit("deliveries");
            self.waiting.pop_first()
        } else {
            None
        };
        self.waiting.insert(id, ended);
        evicted.map(|(_, ended)| ended)
    }

    /// A delivery: the request it completes.
    pub(super) fn delivered(&mut self, id: ExchangeId, delivery: Option<Delivery>) -> Option<Box<Ended>> {
        let mut ended = self.waiting.remove(&id)?;
        ended.exchange.delivery = delivery;
        Some(ended)
    }

    /// Time passes, or the run ends: the requests that are not waited for any more, in order.
    pub(super) fn expired(&mut self, tracked: &Tracked, health: &mut Health) -> Vec<Box<Ended>> {
        let limit = match tracked {
            Tracked::Tick { time_ns } => time_ns.saturating_sub(PATIENCE_NS),
            Tracked::End { .. } => u64::MAX,
            _ => return Vec::new(),
        };
        let is_late = |ended: &Ended| ended.exchange.last_byte_out_ns.unwrap_or_default() <= limit;
        let late: Vec<_> =
            self.waiting.extract_if(.., |_, ended| is_late(ended)).map(|(_, ended)| ended).collect();
        if !late.is_empty() {
            health.limit_by("deliveries_unfinished", late.len() as u64);
        }
        late
    }
}
