//! Answers on their way: written, and not yet acknowledged by the client.

use std::collections::VecDeque;

use super::{Delivery, ExchangeId, Tracked};

/// Answers of one connection that are waited for. HTTP/1.1 has one at a time, or a few where requests are pipelined.
const MAX_AWAITED: usize = 64;

/// The answers of one connection.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    /// Written since birth at the end of the last call.
    written: u64,
    /// Acknowledged since birth, and when.
    acked: Option<(u64, Delivery)>,
    awaited: VecDeque<(ExchangeId, u64)>,
    /// What the retransmissions were at the end of the last answer.
    retransmits: u32,
}

impl Deliveries {
    /// A call wrote up to byte `end`; it was acknowledged at `acked_ns` if that is not 0.
    pub(super) fn wrote(&mut self, end: u64, acked_ns: u64) {
        self.written = end;
        if acked_ns != 0 {
            let (srtt_us, retransmits) = self.acked.map_or((None, None), |(_, d)| (d.srtt_us, d.retransmits));
            self.acked = Some((end, Delivery { acked_ns, srtt_us, retransmits }));
        }
    }

    /// The answer that ends with the last call: its delivery if it is known.
    pub(super) fn ended(&mut self) -> Option<Delivery> {
        let (_, delivery) = self.acked.filter(|(offset, _)| *offset >= self.written)?;
        Some(self.since_last(delivery))
    }

    /// Waits for the answer that ends with the last call. False when too many are waited for.
    pub(super) fn wait(&mut self, id: ExchangeId) -> bool {
        let has_room = self.awaited.len() < MAX_AWAITED;
        if has_room {
            self.awaited.push_back((id, self.written));
        }
        has_room
    }

    /// Bytes up to `offset` are acknowledged.
    pub(super) fn acked(&mut self, offset: u64, delivery: Delivery, out: &mut Vec<Tracked>) {
        self.acked = Some((offset, delivery));
        while let Some((exchange, _)) = self.awaited.pop_front_if(|(_, end)| *end <= offset) {
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
