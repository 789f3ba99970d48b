//! When bytes crossed the network: arrival of what is read, acknowledgement of what was written.
//!
//! Everything is in TCP sequence numbers, compared modulo 2^32, so that neither wrap-around nor a call that was not
//! seen can shift it. The tracepoint fires before the kernel works on a segment, one segment at a time for each
//! socket; what became of the segment shows in the next one's `rcv_nxt`.

use wire::counter::Counter;
use wire::socket::Network;

use super::sock::Sock;
use crate::atomic::Word;
use crate::emit::count;
use crate::maps::offset;

/// Arrivals that are kept for each socket; more that are unread count as one.
const MARKS: usize = 4;
/// Tells a sequence number that is there from none.
pub(crate) const VALID: u64 = 1 << 32;

/// Bytes that arrived at once: from the end of the mark before to its own.
#[repr(C)]
struct Mark {
    /// First byte behind it.
    end: Word,
    /// 0 when not known.
    time_ns: Word,
}

impl Mark {
    const fn new(end: u32, time_ns: u64) -> Self {
        Self { end: Word::new(end as u64), time_ns: Word::new(time_ns) }
    }
}

/// What is known of the segments of a connection.
#[repr(C)]
pub(crate) struct Times {
    marks: [Mark; MARKS],
    /// Number of the newest mark, counted from 0.
    newest: Word,
    /// Where the last of the arrivals begins that the newest mark stands for, with [`VALID`]; 0 when it is but one.
    merged_from: Word,
    /// 1 once a segment was seen; before, there is nothing to tell.
    seen: Word,
    /// Furthest byte that arrived behind a hole, with [`VALID`].
    behind_hole: Word,
    /// What the peer has acknowledged, with [`VALID`].
    acked: Word,
    acked_ns: Word,
    /// The acknowledgement that is waited for, with [`VALID`]; 0 when none is.
    awaited: Word,
    /// Bytes written since birth when it was begun to wait.
    awaited_offset: Word,
}

/// Fields of a segment.
#[derive(Clone, Copy)]
pub(crate) struct Segment {
    seq: u32,
    end: u32,
    pub(crate) ack: u32,
}

impl Segment {
    /// Of a `struct sk_buff`.
    #[inline(always)]
    pub(crate) fn read(skb: *const u8) -> Self {
        let skb = Sock(skb);
        Self {
            seq: skb.field(offset!(segment_seq)),
            end: skb.field(offset!(segment_end_seq)),
            ack: skb.field(offset!(segment_ack_seq)),
        }
    }
}

impl Times {
    /// For a socket that expects byte `rcv_nxt` next. What arrived before came at `before_ns`, 0 when not known: on a
    /// new connection that is its birth, since bytes can come with the end of the handshake.
    pub(crate) const fn new(rcv_nxt: u32, before_ns: u64) -> Self {
        Self {
            marks: [Mark::new(rcv_nxt, before_ns), Mark::new(0, 0), Mark::new(0, 0), Mark::new(0, 0)],
            newest: Word::new(0),
            merged_from: Word::new(0),
            seen: Word::new(0),
            behind_hole: Word::new(0),
            acked: Word::new(0),
            acked_ns: Word::new(0),
            awaited: Word::new(0),
            awaited_offset: Word::new(0),
        }
    }

    /// Notes the bytes of a segment.
    #[inline(always)]
    pub(crate) fn arrived(&self, sock: Sock, segment: Segment, now: u64) {
        let rcv_nxt = sock.rcv_nxt();
        self.settle(rcv_nxt);
        if segment.seq == segment.end {
            return;
        }
        if after(segment.seq, rcv_nxt) {
            let known = self.behind_hole.get();
            if known == 0 || after(segment.end, known as u32) {
                self.behind_hole.set(VALID | u64::from(segment.end));
            }
        } else if after(segment.end, rcv_nxt) {
            self.add(sock, segment.end, now);
        }
    }

    /// What became of the last segment: it may have been dropped, or have filled a hole.
    #[inline(always)]
    fn settle(&self, rcv_nxt: u32) {
        let newest = self.newest.get();
        let mark = self.mark(newest);
        let end = mark.end.get() as u32;
        let hole = self.behind_hole.get();
        let explained = self.seen.get() == 0 || hole != 0 && !after(rcv_nxt, hole as u32);
        self.seen.set(1);
        if hole != 0 && !after(hole as u32, rcv_nxt) {
            self.behind_hole.set(0);
        }
        if explained || !after(rcv_nxt, end) {
            mark.end.set(u64::from(rcv_nxt));
        } else {
            // A segment went by unseen.
            self.merged_from.set(0);
            self.push(newest + 1, rcv_nxt, 0);
        }
    }

    #[inline(always)]
    fn add(&self, sock: Sock, end: u32, now: u64) {
        let newest = self.newest.get();
        let is_empty = newest > 0 && self.mark(newest).end.get() == self.mark(newest - 1).end.get();
        let oldest = self.mark(newest + 1);
        let is_full = newest + 1 >= MARKS as u64 && after(oldest.end.get() as u32, sock.copied_seq());
        let merges = is_full && !is_empty;
        if merges {
            count(Counter::ArrivalMerged);
            self.merged_from.set(VALID | self.mark(newest).end.get());
        }
        self.push(if is_empty || is_full { newest } else { newest + 1 }, end, now);
        if !merges {
            self.merged_from.set(0);
        }
    }

    #[inline(always)]
    fn push(&self, number: u64, end: u32, time_ns: u64) {
        let mark = self.mark(number);
        mark.time_ns.set(time_ns);
        mark.end.set(u64::from(end));
        self.newest.set(number);
    }

    #[inline(always)]
    fn mark(&self, number: u64) -> &Mark {
        &self.marks[number as usize & (MARKS - 1)]
    }

    /// When the last `len` bytes that were read had arrived.
    #[inline(always)]
    pub(crate) fn of_read(&self, sock: Sock, len: u32) -> Network {
        let mut found = Network::default();
        if self.seen.get() == 0 {
            return found;
        }
        let end = sock.copied_seq();
        let begin = end.wrapping_sub(len);
        let newest = self.newest.get();
        let merged_from = self.merged_from.get();
        let mut before = begin;
        let (mut has_first, mut has_last) = (false, false);
        for back in (0..MARKS as u64).rev() {
            if back > newest {
                continue;
            }
            let mark = self.mark(newest - back);
            let (until, time_ns) = (mark.end.get() as u32, mark.time_ns.get());
            // Of a mark that stands for several arrivals only the last one's time is known.
            let is_merged = back == 0 && merged_from != 0 && after(merged_from as u32, before);
            let from = if is_merged { merged_from as u32 } else { before };
            if !has_first && after(until, begin) {
                has_first = true;
                if !is_merged {
                    found.first_ns = time_ns;
                    found.first_len = smaller(until.wrapping_sub(begin), len);
                }
            }
            if !has_last && !after(end, until) {
                has_last = true;
                found.last_ns = time_ns;
                found.last_from = if after(from, begin) { smaller(from.wrapping_sub(begin), len) } else { 0 };
            }
            before = until;
        }
        self.filled(end, before, begin, newest, &mut found, has_first, has_last);
        if found.first_ns == 0 || found.last_ns == 0 {
            count(Counter::ArrivalUnknown);
        }
        found
    }

    /// Bytes behind the newest mark are there because it filled a hole before them.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "inlined; a structure would pass through the stack")]
    fn filled(
        &self,
        end: u32,
        newest_end: u32,
        begin: u32,
        newest: u64,
        found: &mut Network,
        has_first: bool,
        has_last: bool,
    ) {
        let hole = self.behind_hole.get();
        if has_last || hole == 0 || after(end, hole as u32) {
            return;
        }
        found.last_ns = self.mark(newest).time_ns.get();
        found.last_from = if after(newest_end, begin) { newest_end.wrapping_sub(begin) } else { 0 };
        if !has_first {
            found.first_ns = found.last_ns;
            found.first_len = end.wrapping_sub(begin);
        }
    }

    /// Notes what a segment acknowledges. Returns the number of bytes since birth that are acknowledged by it, when that
    /// is all that was written and a record of it was waited for; where `each` is wanted, also when it is less.
    #[inline(always)]
    pub(crate) fn acknowledged(&self, sock: Sock, ack: u32, now: u64, each: bool) -> Option<u64> {
        // A reset has none, and any number in its place.
        if !after(ack, sock.snd_una()) || after(ack, sock.snd_nxt()) {
            return None;
        }
        self.acked_ns.set(now);
        // Against `of_write`: one of the two sees the other.
        self.acked.publish(VALID | u64::from(ack));
        match self.reached(ack) {
            None if each => self.so_far(ack),
            reached => reached,
        }
    }

    /// Bytes since birth before `ack`, while something behind it is waited for.
    #[inline(always)]
    fn so_far(&self, ack: u32) -> Option<u64> {
        let awaited = self.awaited.get();
        let offset = self.awaited_offset.get();
        let left = (awaited as u32).wrapping_sub(ack);
        // A write may come between the two: then the next acknowledgement tells.
        let is_consistent = awaited != 0 && self.awaited.get() == awaited && u64::from(left) <= offset;
        is_consistent.then(|| offset - u64::from(left))
    }

    /// Whether everything that was waited for is acknowledged with `ack`: how many bytes, and never twice.
    #[inline(always)]
    pub(crate) fn reached(&self, ack: u32) -> Option<u64> {
        let awaited = self.awaited.get();
        let offset = self.awaited_offset.get();
        let is_reached = awaited != 0 && !after(awaited as u32, ack);
        (is_reached && self.awaited.replace(awaited, 0)).then_some(offset)
    }

    /// A write has ended and `offset` bytes were written since birth: waits for their acknowledgement, unless it was
    /// there before.
    #[inline(always)]
    pub(crate) fn of_write(&self, sock: Sock, offset: u64) -> Network {
        if self.seen.get() == 0 {
            return Network::default();
        }
        let end = sock.write_seq();
        self.awaited.publish(0);
        self.awaited_offset.set(offset);
        self.awaited.publish(VALID | u64::from(end));
        let acked = self.acked.get();
        let was_before =
            acked != 0 && !after(end, acked as u32) && self.awaited.replace(VALID | u64::from(end), 0);
        if !was_before {
            return Network::default();
        }
        Network {
            first_ns: 0,
            last_ns: self.acked_ns.get(),
            first_len: sock.srtt_us(),
            last_from: sock.retransmits(),
        }
    }
}

/// `a` comes after `b`, modulo 2^32.
#[inline(always)]
pub(crate) fn after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

#[inline(always)]
fn smaller(a: u32, b: u32) -> u32 {
    if a < b { a } else { b }
}
