//! One direction of a connection: its socket calls, its records, and which record holds which plaintext.

use std::collections::VecDeque;

use wire::{
    Header,
    socket::{self, Network},
};

use super::frame::{APPLICATION_DATA, Captured, Framed, Framer, HEADER};

/// Most plaintext of one record.
pub(super) const MAX_PLAIN: u32 = 1 << 14;
/// By how much a record's payload is longer than its plaintext: `ChaCha20` of TLS 1.2; all of TLS 1.3; `AES-GCM` of
/// TLS 1.2; and the short-tag ciphers of TLS 1.3. Which it is, the first record of a connection tells.
const OVERHEADS: [u32; 4] = [17, 24, 16, 9];
/// Once plaintext was found on a direction, longer records without any are a contradiction: tickets, alerts and new
/// keys are shorter.
const MAX_CONTROL: u32 = 512;

/// A socket call, as far as it matters for what it carried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carrier {
    /// Of its record.
    pub header: Header,
    start: u64,
    /// First byte of the direction behind it.
    pub end: u64,
    network: Network,
    /// It moved less than was asked for.
    pub short: bool,
    /// System call number.
    pub syscall: u16,
}

impl Carrier {
    /// When the byte before `end` arrived, as of a read of `len` bytes that came with it.
    pub(super) fn arrival(&self, end: u64, len: u32) -> Network {
        let Network { first_ns, last_ns, first_len, last_from } = self.network;
        let byte = end.saturating_sub(1).saturating_sub(self.start);
        let at = |ns| Network { first_ns: ns, last_ns: ns, first_len: len, last_from: 0 };
        if first_ns != 0 && byte < u64::from(first_len) {
            at(first_ns)
        } else if last_ns == 0 {
            Network::default()
        } else if byte >= u64::from(last_from) {
            at(last_ns)
        } else {
            Network { first_ns: 0, last_ns, first_len: 0, last_from: u32::MAX }
        }
    }

    /// When the peer had acknowledged it, if that was before the call ended.
    pub(super) fn acknowledgement(&self) -> Network {
        Network { first_ns: 0, ..self.network }
    }
}

/// Where plaintext is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// In records up to this byte of the direction.
    At(u64),
    /// In none that has passed yet.
    NotYet,
    /// In none that it could be in.
    Nowhere,
}

/// How plaintext fits a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    /// It is all of it; by so much the payload is longer.
    Whole(u32),
    /// It may be a part of it.
    Part,
    /// It cannot be.
    No,
}

fn fit(Framed { kind, payload, .. }: Framed, plain: u32, overhead: Option<u32>) -> Fit {
    if kind != APPLICATION_DATA {
        return Fit::No;
    }
    let is_whole = |overhead: &u32| payload == plain + overhead;
    let whole = match overhead {
        Some(overhead) => Some(overhead).filter(is_whole),
        None => OVERHEADS.into_iter().find(is_whole),
    };
    let least = overhead.unwrap_or(OVERHEADS[0]);
    whole.map_or(if payload > plain + least { Fit::Part } else { Fit::No }, Fit::Whole)
}

/// One direction.
#[derive(Debug)]
pub(super) struct Flow {
    framer: Framer,
    calls: VecDeque<Carrier>,
    /// Bytes that calls moved.
    seen: u64,
    /// Plaintext of the oldest record that was read already.
    consumed: u32,
    /// Some record's plaintext was found.
    is_matched: bool,
    /// Payload of application records that passed.
    pub app_bytes: u64,
}

impl Flow {
    /// Nothing passed yet; `whole`: the first call is the first of the connection.
    pub(super) fn new(whole: bool) -> Self {
        Self {
            framer: Framer::new(whole),
            calls: VecDeque::new(),
            seen: 0,
            consumed: 0,
            is_matched: false,
            app_bytes: 0,
        }
    }

    /// A socket call; whether application records begin in it. At most `max` calls are remembered.
    pub(super) fn call(&mut self, data: &socket::Data, head: &[u8], tail: &[u8], max: usize) -> bool {
        let len = u64::try_from(data.result).unwrap_or_default();
        let captured = Captured { start: data.offset, len, head, tail };
        let before = self.framer.records.back().map_or(0, |record| record.end);
        self.framer.walk(&captured, data.offset != self.seen);
        self.seen = captured.end();
        let app = |record: &&Framed| record.end > before && record.kind == APPLICATION_DATA;
        let new: u64 = self.framer.records.iter().rev().take_while(app).map(|r| u64::from(r.payload)).sum();
        self.app_bytes += new;
        while self.calls.len() >= max {
            self.calls.pop_front();
        }
        self.framer.forget(4 * max);
        self.calls.push_back(Carrier {
            header: data.header,
            start: data.offset,
            end: captured.end(),
            network: data.network,
            short: u64::from(data.requested) > len,
            syscall: data.syscall,
        });
        new > 0
    }

    /// Bytes before this one were not seen.
    pub(super) fn is_behind_gap(&self, offset: u64) -> bool {
        offset > self.seen
    }

    /// The call that moved the byte before `end`; the last one if that is not known any more.
    pub(super) fn carrier(&mut self, end: u64) -> Option<Carrier> {
        while self.calls.len() > 1 && self.calls[0].end < end {
            self.calls.pop_front();
        }
        self.calls.front().copied()
    }

    /// The last call.
    pub(super) fn last(&self) -> Option<Carrier> {
        self.calls.back().copied()
    }

    /// Plaintext to come cannot be in records that have passed.
    pub(super) fn forget_passed(&mut self) {
        let seen = self.seen;
        self.framer.records.retain(|record| record.end > seen);
    }

    /// What was found so far may be wrong.
    pub(super) fn doubt(&mut self) {
        self.is_matched = false;
        self.consumed = 0;
    }

    /// Where records begin is not known, so that nothing can be compared.
    pub(super) fn is_lost(&self) -> bool {
        self.framer.is_lost()
    }

    /// A read gave `len` bytes of the `requested` there was room for: all of the rest of one record, or as much of it
    /// as there was room for.
    pub(super) fn read(&mut self, len: u32, requested: u32, overhead: &mut Option<u32>) -> Found {
        let (mut consumed, mut part, mut is_end) = (self.consumed, None, true);
        for index in 0..self.framer.records.len() {
            let record = self.framer.records[index];
            is_end = record.end <= self.seen;
            if !is_end {
                break;
            }
            match fit(record, consumed + len, *overhead) {
                Fit::Whole(found) => {
                    *overhead = Some(found);
                    return self.take(index, consumed + len, true);
                }
                // Of several that are long enough the library is at the last, as long as nothing else is known.
                Fit::Part if len == requested => part = Some((index, consumed + len)),
                Fit::Part | Fit::No => {}
            }
            if part.is_some() && overhead.is_some() {
                break;
            }
            if !self.may_skip(index) {
                return part.map_or(Found::Nowhere, |(index, consumed)| self.take(index, consumed, false));
            }
            consumed = 0;
        }
        match part {
            Some((index, consumed)) => self.take(index, consumed, false),
            None if is_end => self.foresee_read(len, requested, *overhead),
            None => Found::NotYet,
        }
    }

    /// Of a record's plaintext, `consumed` bytes have been read; that is all of it, or not.
    fn take(&mut self, index: usize, consumed: u32, is_whole: bool) -> Found {
        self.is_matched = true;
        self.framer.records.drain(..index);
        let end = self.framer.records.front().map_or(self.seen, |record| record.end);
        self.consumed = consumed;
        if is_whole {
            self.framer.records.pop_front();
            self.consumed = 0;
        }
        Found::At(end)
    }

    /// As [`Self::foresee`]. Of a record that is read in parts, the last part tells how long it is.
    fn foresee_read(&mut self, len: u32, requested: u32, overhead: Option<u32>) -> Found {
        let so_far = self.consumed + len;
        if self.framer.blind_at().is_some() && len == requested && so_far < MAX_PLAIN {
            self.consumed = so_far;
            return Found::At(self.seen);
        }
        self.foresee(so_far, overhead)
    }

    /// `left` bytes are still to be written of what was given to the library in one call; where the next record with
    /// some of them is, and how many it holds.
    pub(super) fn write(&mut self, left: u32, overhead: &mut Option<u32>) -> (Found, u32) {
        let len = left.min(MAX_PLAIN);
        for index in 0..self.framer.records.len() {
            let record = self.framer.records[index];
            if let Fit::Whole(found) = fit(record, len, *overhead) {
                if record.end > self.seen {
                    return (Found::NotYet, len);
                }
                *overhead = Some(found);
                return (self.take(index, 0, true), len);
            }
            if !self.may_skip(index) {
                return (Found::Nowhere, len);
            }
        }
        (self.foresee(len, *overhead), len)
    }

    /// A record that has passed fits the beginning of what was given to the library, `len` bytes.
    pub(super) fn may_hold(&self, len: u32, overhead: Option<u32>) -> bool {
        let fits = |record: &Framed| matches!(fit(*record, len.min(MAX_PLAIN), overhead), Fit::Whole(_));
        self.framer.records.iter().any(fits)
    }

    /// A record without plaintext may stand before one that has some.
    fn may_skip(&self, index: usize) -> bool {
        let record = self.framer.records[index];
        !self.is_matched || record.kind != APPLICATION_DATA || record.payload <= MAX_CONTROL
    }

    /// The next header was not captured, but the length of its record follows from its plaintext.
    fn foresee(&mut self, len: u32, overhead: Option<u32>) -> Found {
        let (Some(at), Some(overhead)) = (self.framer.blind_at(), overhead) else { return Found::NotYet };
        let end = at + HEADER + u64::from(len + overhead);
        if end > self.seen {
            return Found::NotYet;
        }
        self.framer.records.clear();
        self.framer.foresee(end, self.seen);
        self.consumed = 0;
        self.is_matched = true;
        Found::At(end)
    }
}
