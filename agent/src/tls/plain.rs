//! Plaintext on its way from a TLS library to the socket records that take it.

use wire::{
    Kind,
    socket::{self, FLAG_NO_PAYLOAD, SockId},
    tls,
};
use zerocopy::IntoBytes;

use super::flow::Carrier;

/// What one call of a TLS library moved.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    /// Plaintext bytes of the direction before it.
    pub offset: u64,
    /// Its length.
    pub len: u32,
    /// Bytes of it that went out already.
    pub done: u32,
    /// When the call returned.
    pub time_ns: u64,
    /// The library used the socket within the call: all of it has passed there.
    pub nested: bool,
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Chunk {
    /// Of a record and the bytes behind it.
    pub(super) fn new(data: &tls::Data, head: &[u8], tail: &[u8]) -> Self {
        Self {
            offset: data.offset,
            len: data.len,
            done: 0,
            time_ns: data.header.time_ns,
            nested: data.sock.sock != 0,
            head: head.to_vec(),
            tail: tail.to_vec(),
        }
    }

    /// Bytes that are kept of it, and for it.
    pub(super) fn held(&self) -> usize {
        size_of::<Self>() + self.head.len() + self.tail.len()
    }

    /// Bytes that have not gone out.
    pub(super) fn left(&self) -> u32 {
        self.len - self.done
    }

    /// What was captured of the next `len` bytes: from their beginning, and up to their end.
    fn captured(&self, len: u32) -> (&[u8], &[u8]) {
        let (from, to, whole) = (self.done as usize, (self.done + len) as usize, self.len as usize);
        let tail_from = whole - self.tail.len();
        let head = self.head.get(from..to.min(self.head.len())).unwrap_or_default();
        let begin = from.max(tail_from).max(from + head.len());
        let tail = self.tail.get(begin.saturating_sub(tail_from)..to.saturating_sub(tail_from));
        let tail = if begin < to { tail.unwrap_or_default() } else { &[] };
        // In one piece with the beginning, or without a gap before it.
        if head.is_empty() && begin == from { (tail, head) } else { (head, tail) }
    }

    /// The next `len` bytes as the record of a socket call, as if the socket had carried them in clear.
    pub(super) fn record(
        &self,
        len: u32,
        id: SockId,
        base: u64,
        dir: u8,
        carrier: &Carrier,
        end: u64,
    ) -> Vec<u8> {
        let (head, tail) = self.captured(len);
        let size = size_of::<socket::Data>() + head.len() + tail.len();
        let network =
            if dir == socket::DIR_RECV { carrier.arrival(end, len) } else { carrier.acknowledgement() };
        let mut header = carrier.header;
        (header.kind, header.len) = (Kind::SocketData as u16, u32::try_from(size).unwrap_or(u32::MAX));
        let data = socket::Data {
            header,
            id,
            offset: base + self.offset + u64::from(self.done),
            network,
            result: i32::try_from(len).unwrap_or(i32::MAX),
            requested: len.saturating_add(u32::from(carrier.short)),
            head_len: u16::try_from(head.len()).unwrap_or(u16::MAX),
            tail_len: u16::try_from(tail.len()).unwrap_or(u16::MAX),
            syscall: carrier.syscall,
            dir,
            flags: if size == size_of::<socket::Data>() { FLAG_NO_PAYLOAD } else { 0 },
        };
        [data.as_bytes(), head, tail].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(len: u32, head: usize, tail: usize, done: u32) -> Chunk {
        let bytes: Vec<u8> = (0..len).map(|n| u8::try_from(n).unwrap()).collect();
        let (head, tail) = (bytes[..head].to_vec(), bytes[bytes.len() - tail..].to_vec());
        Chunk { offset: 0, len, done, time_ns: 0, nested: false, head, tail }
    }

    /// Length and captured bytes at either end; from where how many; what of them is captured.
    type Case<'a> = ((u32, usize, usize), (u32, u32), (&'a [u8], &'a [u8]));

    #[test]
    fn a_part_has_what_was_captured_of_it() {
        // (length, captured at either end), (from, length) -> bytes of head and tail, by their position.
        let cases: &[Case<'_>] = &[
            ((8, 8, 0), (0, 8), (&[0, 1, 2, 3, 4, 5, 6, 7], &[])),
            ((8, 8, 0), (2, 3), (&[2, 3, 4], &[])),
            ((8, 2, 2), (0, 8), (&[0, 1], &[6, 7])),
            ((8, 2, 2), (0, 4), (&[0, 1], &[])),
            ((8, 2, 2), (1, 6), (&[1], &[6])),
            ((8, 2, 2), (4, 4), (&[], &[6, 7])),
            ((8, 2, 2), (6, 2), (&[6, 7], &[])),
            ((8, 2, 2), (7, 1), (&[7], &[])),
            ((8, 2, 2), (3, 2), (&[], &[])),
            ((8, 0, 0), (0, 8), (&[], &[])),
        ];
        for ((len, head, tail), (from, part), expected) in cases {
            assert_eq!(
                chunk(*len, *head, *tail, *from).captured(*part),
                *expected,
                "{len} {head} {tail} {from}"
            );
        }
    }
}
