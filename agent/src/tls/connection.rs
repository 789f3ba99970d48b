//! A connection that speaks TLS.

use std::collections::VecDeque;

use wire::{
    Header, Kind,
    socket::{self, DIR_SEND, SockId},
    tls,
};
use zerocopy::IntoBytes;

use super::{
    flow::{Flow, Found},
    plain::Chunk,
};

/// Acknowledgements that are kept for what the library has not said yet.
const MAX_EARLY: usize = 64;
/// Written parts that wait for an acknowledgement; the oldest go first, and with them their delivery.
const MAX_ACKS: usize = 1024;
/// Socket calls of one direction that are remembered, four records for each; the oldest go first.
const MAX_CALLS: usize = 64;
/// The same for a connection of which nobody is known to have the plaintext.
const MAX_CALLS_OPAQUE: usize = 8;
/// Payload that a client sends for the sake of TLS alone is shorter: what is longer holds a request.
const MIN_REQUEST: u64 = 100;
/// Turns to write of a server that has answered: its part of the handshake, tickets, and an answer.
const TURNS_ANSWERED: u32 = 3;
/// Turns to read in which the first request comes, at the latest.
const TURNS_FIRST: u32 = 2;

/// Identity of a TLS connection as its library knows it.
pub(super) type SslKey = (u32, tls::SslId);

/// The connection.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own, not a state of one thing")]
pub(super) struct Connection {
    id: SockId,
    /// Reads, writes.
    flows: [Flow; 2],
    /// Seen from its first byte.
    whole: bool,
    /// This side accepted it, or may have.
    serves: bool,
    /// Whose plaintext it carries.
    pub ssl: Option<SslKey>,
    overhead: Option<u32>,
    /// Added to the offsets of plaintext, once it is linked.
    base: u64,
    /// Turns in which application records went, by direction.
    turns: [u32; 2],
    last_dir: Option<u8>,
    /// Of the last call.
    last: Option<Header>,
    /// Ends of what was written, in ciphertext and in plaintext.
    acks: VecDeque<(u64, u64)>,
    /// Acknowledgements so far, oldest first: one may come before the library's call returns, and tells of its plaintext.
    early: VecDeque<socket::Ack>,
    is_opaque: bool,
    is_unframed: bool,
}

impl Connection {
    /// Nothing passed yet.
    pub(super) fn new(id: SockId, whole: bool, serves: bool) -> Self {
        Self {
            id,
            flows: [Flow::new(whole), Flow::new(whole)],
            whole,
            serves,
            ssl: None,
            overhead: None,
            base: 0,
            turns: [0; 2],
            last_dir: None,
            last: None,
            acks: VecDeque::new(),
            early: VecDeque::new(),
            is_opaque: false,
            is_unframed: false,
        }
    }

    fn flow(&mut self, dir: u8) -> &mut Flow {
        &mut self.flows[usize::from(dir == DIR_SEND)]
    }

    /// A socket call that moved bytes.
    pub(super) fn call(&mut self, data: &socket::Data, head: &[u8], tail: &[u8]) {
        self.last = Some(data.header);
        if data.dir == DIR_SEND && self.ssl.is_none() {
            self.writes_later();
        }
        let max = if self.is_opaque && self.ssl.is_none() { MAX_CALLS_OPAQUE } else { MAX_CALLS };
        let has_records = self.flow(data.dir).call(data, head, tail, max);
        if has_records && self.last_dir.replace(data.dir) != Some(data.dir) {
            self.turns[usize::from(data.dir == DIR_SEND)] += 1;
        }
        if self.ssl.is_none() {
            // What went before the link is then a gap.
            self.base = u64::from(self.whole && self.turns[0] > TURNS_FIRST);
        }
    }

    /// What goes in now comes out in writes after this.
    pub(super) fn writes_later(&mut self) {
        self.flows[1].forget_passed();
    }

    /// It is nobody's again.
    pub(super) fn unlink(&mut self) {
        self.ssl = None;
        self.flows.iter_mut().for_each(Flow::doubt);
    }

    /// The thread, of this process, was the last to read from it.
    pub(super) fn is_read_by(&self, Header { tgid, tid, .. }: &Header) -> bool {
        let last = self.flows[0].last();
        last.is_some_and(|carrier| carrier.header.tid == *tid && carrier.header.tgid == *tgid)
    }

    /// The thread that was the last to read from it.
    pub(super) fn reader(&self) -> Option<u32> {
        self.flows[0].last().map(|carrier| carrier.header.tid)
    }

    /// Bytes before those of this write were not seen.
    pub(super) fn is_behind_gap(&self, data: &socket::Data) -> bool {
        self.flows[usize::from(data.dir == DIR_SEND)].is_behind_gap(data.offset)
    }

    /// It carries application data, and nobody's plaintext: told once, as soon as it is sure.
    pub(super) fn becomes_opaque(&mut self, is_closing: bool) -> bool {
        let has_request = self.flows[0].app_bytes > MIN_REQUEST;
        let is_answered = self.turns[1] >= TURNS_ANSWERED || is_closing;
        let now = self.serves && self.ssl.is_none() && has_request && is_answered && !self.is_opaque;
        self.is_opaque |= now;
        now
    }

    /// A read of plaintext: its record, or `None` if it is not this connection's.
    pub(super) fn read(&mut self, chunk: &Chunk, requested: u32) -> Option<Vec<u8>> {
        let (overhead, flow) = (&mut self.overhead, &mut self.flows[0]);
        let Found::At(end) = flow.read(chunk.len, requested, overhead) else { return None };
        let carrier = flow.carrier(end)?;
        Some(chunk.record(chunk.len, self.id, self.base, socket::DIR_RECV, &carrier, end))
    }

    /// The same for a connection whose records cannot be told apart: as of its last call.
    pub(super) fn read_unframed(&mut self, chunk: &Chunk) -> Option<Vec<u8>> {
        let carrier = self.flows[0].last()?;
        Some(chunk.record(chunk.len, self.id, self.base, socket::DIR_RECV, &carrier, carrier.end))
    }

    /// Plaintext cannot be compared with the records of this direction.
    pub(super) fn is_lost(&self, dir: u8) -> bool {
        self.overhead.is_none() || self.flows[usize::from(dir == DIR_SEND)].is_lost()
    }

    /// Notes that it is; whether that is news.
    pub(super) fn becomes_unframed(&mut self) -> bool {
        !std::mem::replace(&mut self.is_unframed, true)
    }

    /// Some of the plaintext may have gone out: its records, and whether the rest may still come.
    pub(super) fn write(&mut self, chunk: &mut Chunk, out: &mut Vec<Vec<u8>>) -> bool {
        let mut ready: Option<(u64, u32)> = None;
        let goes_on = loop {
            let done = ready.map_or(0, |(_, len)| len);
            if chunk.left() == done {
                break true;
            }
            match self.flows[1].write(chunk.left() - done, &mut self.overhead) {
                (Found::At(end), len) => ready = Some((end, done + len)),
                (Found::NotYet, _) => break true,
                (Found::Nowhere, _) => break false,
            }
        };
        if let Some((end, len)) = ready {
            self.written(chunk, len, end, out);
        }
        goes_on
    }

    /// A record of this direction is exactly as long as the plaintext, or its beginning, makes one.
    pub(super) fn may_hold(&self, chunk: &Chunk, dir: u8) -> bool {
        self.flows[usize::from(dir == DIR_SEND)].may_hold(chunk.left(), self.overhead)
    }

    /// The same for a connection whose records cannot be told apart: all of it, with its last call.
    pub(super) fn write_unframed(&mut self, chunk: &mut Chunk, out: &mut Vec<Vec<u8>>) {
        if let Some(carrier) = self.flows[1].last() {
            self.written(chunk, chunk.left(), carrier.end, out);
        }
    }

    fn written(&mut self, chunk: &mut Chunk, len: u32, end: u64, out: &mut Vec<Vec<u8>>) {
        let Some(carrier) = self.flows[1].carrier(end) else { return };
        out.push(chunk.record(len, self.id, self.base, DIR_SEND, &carrier, end));
        chunk.done += len;
        let plain_end = self.base + chunk.offset + u64::from(chunk.done);
        if let Some(ack) = self.acknowledged_before(end) {
            out.push(socket::Ack { offset: plain_end, ..ack }.as_bytes().to_vec());
            return;
        }
        if self.acks.len() == MAX_ACKS {
            self.acks.pop_front();
        }
        self.acks.push_back((end, plain_end));
    }

    /// The first acknowledgement, of those that have come, that covers everything before byte `end`.
    fn acknowledged_before(&mut self, end: u64) -> Option<socket::Ack> {
        while self.early.pop_front_if(|ack| ack.offset < end).is_some() {}
        self.early.front().copied()
    }

    /// An acknowledgement, in bytes of plaintext; `None` if it covers none.
    pub(super) fn ack(&mut self, ack: &socket::Ack) -> Option<socket::Ack> {
        if self.early.len() == MAX_EARLY {
            self.early.pop_front();
        }
        self.early.push_back(*ack);
        let mut plain = None;
        while let Some((_, end)) = self.acks.pop_front_if(|(end, _)| *end <= ack.offset) {
            plain = Some(end);
        }
        Some(socket::Ack { offset: plain?, ..*ack })
    }

    /// What was found out about it, by whoever made its last call, as of `time_ns`.
    pub(super) fn verdict(&self, finding: u8, header: &Header) -> Vec<u8> {
        let last = self.last.as_ref().unwrap_or(header);
        verdict(self.id, finding, 0, &Header { time_ns: header.time_ns, ..*last })
    }
}

/// A finding as a record of its own, as of `header`.
pub(super) fn verdict(id: SockId, finding: u8, bytes: u64, header: &Header) -> Vec<u8> {
    let len = u32::try_from(size_of::<tls::Verdict>()).unwrap_or(u32::MAX);
    let header = Header { kind: Kind::TlsVerdict as u16, len, ..*header };
    tls::Verdict { header, id, bytes, finding, reserved: [0; 7] }.as_bytes().to_vec()
}
