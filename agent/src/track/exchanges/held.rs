//! Answers that were written long after the client had ended its side. A client that only does not send any more reads
//! them, one that is gone does not: the acknowledgement of the last byte tells, since the host of a client that is gone
//! answers with a reset. Where acknowledgements are not seen, a reset tells of the one, and nothing of the other.

use super::{Context, Exchanges};
use crate::{
    request::record::Arrival,
    track::{Tracked, body::Body, delivery::Deliveries, open::Ending, open::Open},
};

/// Such an answer.
#[derive(Debug)]
pub(super) struct Waiting {
    open: Open,
    body: Body,
    /// First byte of the connection behind it.
    end: u64,
}

impl Exchanges {
    /// Whether the answer that ends now can be held. Those of a stream are not: with its connection half closed, no
    /// client of HTTP/2 goes on.
    pub(super) fn may_hold(&self) -> bool {
        self.holds && self.held.len() < super::MAX_OPEN
    }

    /// Holds the first exchange's answer.
    pub(super) fn hold(&mut self, deliveries: &Deliveries, cx: &mut Context<'_>) {
        let end = deliveries.position();
        if let Some((open, body)) = self.take_first(cx) {
            cx.held.add(open.held());
            self.held.push_back(Waiting { open, body, end });
        }
    }

    /// Everything before byte `offset` of the connection has been acknowledged.
    pub(in crate::track) fn acked(&mut self, offset: u64, deliveries: &mut Deliveries, cx: &mut Context<'_>) {
        while let Some(Waiting { mut open, body, .. }) = self.held.pop_front_if(|held| held.end <= offset) {
            cx.held.sub(open.held());
            open.exchange.close_ns = None;
            deliver(&mut open, deliveries, cx);
            cx.out.push(Tracked::Finished(open.finish(Ending::Complete, &body)));
        }
    }

    /// Bytes held for them.
    pub(super) fn waiting(&self) -> usize {
        self.held.iter().map(|waiting| waiting.open.held()).sum()
    }

    /// No acknowledgement came before the connection ended like this.
    pub(in crate::track) fn let_go(&mut self, ending: Ending, cx: &mut Context<'_>) {
        for Waiting { open, body, .. } in self.held.drain(..) {
            cx.held.sub(open.held());
            let ending = match ending {
                Ending::ServerGone if shows_delivery(&open) => Ending::ClientGone,
                Ending::ServerGone => Ending::Unread,
                other => other,
            };
            cx.out.push(Tracked::Finished(open.finish(ending, &body)));
        }
    }
}

/// Notes the delivery of an answer that is complete, or that it is still to come.
pub(super) fn deliver(open: &mut Open, deliveries: &mut Deliveries, cx: &mut Context<'_>) {
    // What of it was seen to be acknowledged may not be all of it.
    let is_end_unseen = open.exchange.last_byte_out_ns.is_none();
    if !shows_delivery(open) || is_end_unseen {
        return;
    }
    open.exchange.delivery = deliveries.ended();
    if open.exchange.delivery.is_none() {
        open.exchange.awaits_delivery = deliveries.wait(open.id);
        if !open.exchange.awaits_delivery {
            cx.health.limit("deliveries");
        }
    }
}

/// Where arrivals are not seen, acknowledgements are not either.
fn shows_delivery(open: &Open) -> bool {
    open.exchange.arrival.is_some_and(|source| source != Arrival::Read)
}
