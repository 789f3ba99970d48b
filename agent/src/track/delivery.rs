//! Answers on their way: written, and not yet acknowledged by the client.

use std::collections::VecDeque;

use wire::socket::{self, Network};

use super::{Delivery, ExchangeId, Tracked};

/// Answers of one connection that are waited for: as many as HTTP/2 streams are followed at a time.
const MAX_AWAITED: usize = 512;

/// The answers of one connection.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    /// Bytes since birth that were looked at: an answer that ends, ends with them.
    position: u64,
    /// Acknowledged since birth, and when.
    acked: Option<(u64, Delivery)>,
    awaited: VecDeque<(ExchangeId, u64)>,
    /// What the retransmissions were at the end of the last answer.
    retransmits: u32,
}

impl Deliveries {
    /// A call wrote up to byte `end`; it may have been acknowledged before it ended.
    pub(super) fn wrote(&mut self, end: u64, network: &Network) {
        self.position = end;
        let &Network { last_ns: acked_ns, first_len: srtt_us, last_from: retransmits, .. } = network;
        if acked_ns == 0 {
            return;
        }
        let before = self.acked.map_or((None, None), |(_, d)| (d.srtt_us, d.retransmits));
        let (srtt_us, retransmits) = if srtt_us > 0 { (Some(srtt_us), Some(retransmits)) } else { before };
        self.acked = Some((end, Delivery { acked_ns, srtt_us, retransmits }));
    }

    /// Everything before byte `position` has been looked at, and nothing behind it.
    pub(super) fn reach(&mut self, position: u64) {
        self.position = position;
    }

    /// So many more bytes have been looked at.
    pub(super) fn advance(&mut self, len: u64) {
        self.position += len;
    }

    /// Bytes since birth that were looked at.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// The answer that ends here is acknowledged.
    pub(super) fn has_ended(&self) -> bool {
        self.acked.is_some_and(|(offset, _)| offset >= self.position)
    }

    /// The answer that ends here: its delivery if it is known.
    pub(super) fn ended(&mut self) -> Option<Delivery> {
        let (_, delivery) = self.acked.filter(|(offset, _)| *offset >= self.position)?;
        Some(self.since_last(delivery))
    }

    /// Waits for the answer that ends here. False when too many are waited for.
    pub(super) fn wait(&mut self, id: ExchangeId) -> bool {
        let has_room = self.awaited.len() < MAX_AWAITED;
        if has_room {
            self.awaited.push_back((id, self.position));
        }
        has_room
    }

    /// Bytes are acknowledged.
    pub(super) fn acked(&mut self, ack: &socket::Ack, out: &mut Vec<Tracked>) {
        let delivery = Delivery {
            acked_ns: ack.header.time_ns,
            srtt_us: (ack.srtt_us > 0).then_some(ack.srtt_us),
            retransmits: Some(ack.retransmits),
        };
        self.acked = Some((ack.offset, delivery));
        while let Some((exchange, _)) = self.awaited.pop_front_if(|(_, end)| *end <= ack.offset) {
            out.push(Tracked::Delivered { exchange, delivery: Some(self.since_last(delivery)) });
        }
    }

    /// Nothing more will be known.
    pub(super) fn give_up(&mut self, out: &mut Vec<Tracked>) {
        out.extend(
            self.awaited.drain(..).map(|(exchange, _)| Tracked::Delivered { exchange, delivery: None }),
        );
    }

    /// The kernel counts retransmissions since birth; an answer has those since the one before.
    fn since_last(&mut self, delivery: Delivery) -> Delivery {
        let Some(total) = delivery.retransmits else { return delivery };
        let before = std::mem::replace(&mut self.retransmits, total);
        Delivery { retransmits: Some(total.saturating_sub(before)), ..delivery }
    }
}
