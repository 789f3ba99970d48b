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
/// Content events of them, 16 bytes each; a request beyond is not kept back.
const KEPT_EVENTS: usize = 1 << 20;

/// The requests that wait.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    waiting: BTreeMap<ExchangeId, Box<Ended>>,
    events: usize,
}

impl Deliveries {
    /// A request is over: returned, when nothing is waited for. One that waits too long makes room for it.
    pub(super) fn over(&mut self, ended: Box<Ended>, health: &mut Health) -> Option<Box<Ended>> {
        let Some(id) = ended.exchange.id.filter(|_| ended.exchange.awaits_delivery) else {
            return Some(ended);
        };
        if self.events + ended.exchange.content.len() > KEPT_EVENTS {
            health.limit("deliveries");
            return Some(ended);
        }
        let evicted = if self.waiting.len() >= KEPT {
            health.limit("deliveries");
            self.waiting.pop_first()
        } else {
            None
        };
        self.events += ended.exchange.content.len();
        self.waiting.insert(id, ended);
        evicted.map(|(_, ended)| self.left(ended))
    }

    /// A delivery: the request it completes.
    pub(super) fn delivered(&mut self, id: ExchangeId, delivery: Option<Delivery>) -> Option<Box<Ended>> {
        let ended = self.waiting.remove(&id)?;
        let mut ended = self.left(ended);
        ended.exchange.delivery = delivery;
        Some(ended)
    }

    fn left(&mut self, ended: Box<Ended>) -> Box<Ended> {
        self.events -= ended.exchange.content.len();
        ended
    }

    /// Time passes, or the run ends: no request that ended up to then is waited for any more.
    pub(super) fn limit(tracked: &Tracked) -> Option<u64> {
        match tracked {
            Tracked::Tick { time_ns } => Some(time_ns.saturating_sub(PATIENCE_NS)),
            Tracked::End { .. } => Some(u64::MAX),
            _ => None,
        }
    }

    /// The requests that are not waited for any more, in order.
    pub(super) fn expired(&mut self, limit: u64, health: &mut Health) -> Vec<Ended> {
        let is_late = |ended: &Ended| ended.exchange.last_byte_out_ns.unwrap_or_default() <= limit;
        let late: Vec<_> =
            self.waiting.extract_if(.., |_, ended| is_late(ended)).map(|(_, ended)| *ended).collect();
        self.events -= late.iter().map(|ended| ended.exchange.content.len()).sum::<usize>();
        if !late.is_empty() {
            health.limit_by("deliveries_unfinished", late.len() as u64);
        }
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{request::Assignment, track::Exchange};

    fn over(id: u64, last_byte_out_ns: u64) -> Box<Ended> {
        let exchange = Exchange {
            id: Some(ExchangeId(id)),
            last_byte_out_ns: Some(last_byte_out_ns),
            awaits_delivery: true,
            ..Exchange::default()
        };
        Box::new(Ended { exchange, assignment: Assignment::default(), deadline: None, inner: None })
    }

    fn ids(all: &[Ended]) -> Vec<u64> {
        all.iter().filter_map(|ended| Some(ended.exchange.id?.0)).collect()
    }

    #[test]
    fn a_request_comes_out_once_with_its_delivery_or_without() {
        let (mut deliveries, mut health) = (Deliveries::default(), Health::default());
        for id in 1..=3 {
            assert!(deliveries.over(over(id, id * PATIENCE_NS), &mut health).is_none());
        }
        let delivery = Delivery { acked_ns: 9, srtt_us: None, retransmits: None };
        let ended = deliveries.delivered(ExchangeId(2), Some(delivery)).unwrap();
        assert_eq!(ended.exchange.delivery, Some(delivery));
        assert!(deliveries.delivered(ExchangeId(2), None).is_none());
        let early = deliveries.expired(PATIENCE_NS - 1, &mut health);
        assert!(early.is_empty());
        let late = deliveries.expired(PATIENCE_NS, &mut health);
        assert_eq!(ids(&late), [1]);
        let last = deliveries.expired(u64::MAX, &mut health);
        assert_eq!(ids(&last), [3]);
        assert_eq!(health.limits["deliveries_unfinished"], 2);
    }

    #[test]
    fn what_is_kept_back_is_bounded() {
        let (mut deliveries, mut health) = (Deliveries::default(), Health::default());
        let out = (0..=KEPT as u64).filter_map(|id| deliveries.over(over(id, 1), &mut health));
        assert_eq!(ids(&out.map(|ended| *ended).collect::<Vec<_>>()), [0]);
        assert_eq!(health.limits["deliveries"], 1);
    }

    #[test]
    fn so_are_their_content_events() {
        let (mut deliveries, mut health) = (Deliveries::default(), Health::default());
        let event = crate::track::ContentEvent { time_ns: 1, tid: 1 };
        let long = |id| {
            let mut ended = over(id, 1);
            ended.exchange.content = vec![event; KEPT_EVENTS / 4];
            ended
        };
        assert!((0..4).all(|id| deliveries.over(long(id), &mut health).is_none()));
        assert!(deliveries.over(long(4), &mut health).is_some());
        assert!(deliveries.delivered(ExchangeId(2), None).is_some());
        assert!(deliveries.over(long(5), &mut health).is_none());
        assert_eq!(deliveries.expired(u64::MAX, &mut health).len(), 4);
        assert_eq!((deliveries.events, health.limits["deliveries"]), (0, 1));
    }
}
