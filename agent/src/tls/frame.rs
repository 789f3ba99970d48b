//! Records of TLS in one direction of a connection: where each ends, as far as their headers were captured.

use std::collections::VecDeque;

/// Length of a record's header.
pub(super) const HEADER: u64 = 5;
const HEADER_BYTES: usize = 5;
/// Application data; in TLS 1.3 everything that is encrypted says it is that.
pub(super) const APPLICATION_DATA: u8 = 23;
/// Longest payload of a record that an implementation may send.
const MAX_PAYLOAD: u32 = (1 << 14) + 2048;

/// A record of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Framed {
    /// Content type.
    pub kind: u8,
    /// Bytes behind the header.
    pub payload: u32,
    /// Byte of the direction at which the next one begins.
    pub end: u64,
}

/// Bytes of one socket call that were captured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Captured<'a> {
    /// Byte of the direction at which the call begins.
    pub start: u64,
    /// Its length.
    pub len: u64,
    /// Its first bytes.
    pub head: &'a [u8],
    /// Its last bytes.
    pub tail: &'a [u8],
}

impl Captured<'_> {
    /// First byte behind the call.
    pub(super) fn end(&self) -> u64 {
        self.start + self.len
    }

    fn byte(&self, at: u64) -> Option<u8> {
        let within = usize::try_from(at.checked_sub(self.start)?).ok()?;
        let from_end = usize::try_from(self.end().checked_sub(at)?).ok()?;
        self.head.get(within).or_else(|| self.tail.get(self.tail.len().checked_sub(from_end)?)).copied()
    }
}

/// What is known of the place of the next header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At this byte, which has not passed yet; so many bytes of it have.
    At(u64, usize),
    /// At this byte, which passed uncaptured.
    Blind(u64),
    /// Nothing.
    Lost,
}

/// Finds records.
#[derive(Debug)]
pub(super) struct Framer {
    place: Place,
    header: [u8; HEADER_BYTES],
    /// Records that nothing is known of but their frame, oldest first.
    pub records: VecDeque<Framed>,
}

impl Framer {
    /// A direction that begins at byte 0; `whole`: that is where it really begins.
    pub(super) fn new(whole: bool) -> Self {
        let place = if whole { Place::At(0, 0) } else { Place::Lost };
        Self { place, header: [0; HEADER_BYTES], records: VecDeque::new() }
    }

    /// Nothing is known of where records begin.
    pub(super) fn is_lost(&self) -> bool {
        self.place == Place::Lost
    }

    /// Where the header is that passed uncaptured, if it is only that.
    pub(super) fn blind_at(&self) -> Option<u64> {
        match self.place {
            Place::Blind(at) => Some(at),
            Place::At(..) | Place::Lost => None,
        }
    }

    /// The record whose header passed uncaptured ends at this byte: its plaintext told.
    pub(super) fn foresee(&mut self, end: u64, seen: u64) {
        self.place = if end < seen { Place::Blind(end) } else { Place::At(end, 0) };
    }

    /// Keeps the last `max` records. (A call adds as many as were captured of it, a few dozen at most.)
    pub(super) fn forget(&mut self, max: usize) {
        self.records.drain(..self.records.len().saturating_sub(max));
    }

    /// Looks at one call. Bytes between the last one and this were lost if `gap`.
    pub(super) fn walk(&mut self, call: &Captured<'_>, gap: bool) {
        match self.place {
            Place::At(at, 0) if at >= call.start => {}
            Place::At(..) if !gap => {}
            _ if header(call.head).is_some() => self.place = Place::At(call.start, 0),
            Place::At(..) => self.place = Place::Lost,
            Place::Blind(_) | Place::Lost => {}
        }
        while let Place::At(at, have) = self.place {
            let next = at + have as u64;
            if next >= call.end() {
                break;
            }
            let Some(byte) = call.byte(next) else {
                self.place = Place::Blind(at);
                break;
            };
            self.header[have] = byte;
            self.place = if have + 1 < self.header.len() { Place::At(at, have + 1) } else { self.record(at) };
        }
    }

    fn record(&mut self, at: u64) -> Place {
        let Some((kind, payload)) = header(&self.header) else { return Place::Lost };
        let end = at + HEADER + u64::from(payload);
        self.records.push_back(Framed { kind, payload, end });
        Place::At(end, 0)
    }
}

/// Content type and length, if bytes begin with a record's header.
pub(super) fn header(bytes: &[u8]) -> Option<(u8, u32)> {
    let [kind @ 20..=24, 3, 0..=4, high, low, ..] = *bytes else { return None };
    let payload = u32::from(u16::from_be_bytes([high, low]));
    (payload > 0 && payload <= MAX_PAYLOAD).then_some((kind, payload))
}

/// A connection begins with TLS: a client's or a server's first message.
pub(super) fn begins_handshake(head: &[u8]) -> bool {
    const HANDSHAKE: u8 = 22;
    match *head {
        [HANDSHAKE] => true,
        [HANDSHAKE, 3, ..] => head.len() < HEADER_BYTES || header(head).is_some(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(payloads: &[u16]) -> Vec<u8> {
        let record = |n: &u16| {
            let [high, low] = n.to_be_bytes();
            [vec![23, 3, 3, high, low], vec![0xaa; usize::from(*n)]].concat()
        };
        payloads.iter().flat_map(record).collect()
    }

    /// Feeds calls of these lengths, of which so many bytes are captured at either end.
    fn walk(framer: &mut Framer, bytes: &[u8], calls: &[usize], head: usize, tail: usize) {
        let mut start = 0;
        for len in calls {
            let call = &bytes[start..start + len];
            let (head, tail) =
                if *len <= head + tail { (call, &call[..0]) } else { (&call[..head], &call[len - tail..]) };
            framer.walk(&Captured { start: start as u64, len: *len as u64, head, tail }, false);
            start += len;
        }
    }

    fn payloads(framer: &Framer) -> Vec<u32> {
        framer.records.iter().map(|record| record.payload).collect()
    }

    #[test]
    fn records_are_found_however_calls_cut_them() {
        let bytes = stream(&[10, 300, 1, 40]);
        for cut in 1..bytes.len() {
            let mut framer = Framer::new(true);
            let mut calls = vec![cut; bytes.len() / cut];
            calls.push(bytes.len() % cut);
            walk(&mut framer, &bytes, &calls, 1024, 512);
            assert_eq!(payloads(&framer), [10, 300, 1, 40], "calls of {cut}");
            assert_eq!(framer.records[3].end, bytes.len() as u64);
        }
    }

    #[test]
    fn a_header_that_passes_uncaptured_is_blind_until_it_is_foreseen() {
        let bytes = stream(&[2000, 3000, 50]);
        let mut framer = Framer::new(true);
        walk(&mut framer, &bytes, &[bytes.len()], 1024, 512);
        assert_eq!((payloads(&framer), framer.blind_at()), (vec![2000], Some(2005)));
        framer.foresee(2005 + 3005, bytes.len() as u64);
        assert_eq!(framer.blind_at(), Some(5010), "the last header was captured, but is gone");
        framer.foresee(5065, 5065);
        let more = stream(&[7]);
        framer.walk(&Captured { start: 5065, len: 12, head: &more, tail: &[] }, false);
        assert_eq!(payloads(&framer), [2000, 7]);
    }

    #[test]
    fn lost_framing_is_found_at_the_beginning_of_a_call() {
        let record = stream(&[10]);
        let mut framer = Framer::new(false);
        framer.walk(&Captured { start: 0, len: 9, head: &[7; 9], tail: &[] }, false);
        assert!(framer.is_lost());
        framer.walk(&Captured { start: 9, len: 15, head: &record, tail: &[] }, false);
        assert_eq!(payloads(&framer), [10]);
        // A call was lost in which the next one may have begun.
        framer.walk(&Captured { start: 40, len: 9, head: &[7; 9], tail: &[] }, true);
        assert!(framer.is_lost());
    }

    #[test]
    fn what_is_no_header_is_none() {
        for bytes in [&b"GET /"[..], &[23, 3, 3, 0xff, 0xff], &[23, 3, 3, 0, 0], &[25, 3, 3, 0, 1], &[23, 3]]
        {
            assert_eq!(header(bytes), None, "{bytes:?}");
        }
        assert!(
            begins_handshake(&[22]) && begins_handshake(&[22, 3, 1]) && begins_handshake(&[22, 3, 1, 2, 0])
        );
        assert!(!begins_handshake(b"POST /") && !begins_handshake(&[]) && !begins_handshake(&[22, 4]));
    }
}
