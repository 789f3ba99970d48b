//! Vectored calls: segments one after the other, in one record.

use core::hint::black_box;

use aya_ebpf::bindings::BPF_RB_NO_WAKEUP;
use wire::counter::Counter;
use wire::socket::{DIR_RECV, FLAG_IOVEC_TRUNCATED, HEAD, TAIL};

use super::super::boundary;
use super::super::call::{for_segments, segment};
use super::{
    Captured, Facts, Piece, Record, Written, at_most, finish, payload, read_user, spare, unreadable,
};
use crate::emit::{Stop, count, reserve, submit};
use crate::repeat::{GO_ON, STOP};

/// Writes the record of a vectored call in one piece; unless it is to be looked `INSIDE` and a message ends there.
#[inline(never)]
pub(super) fn emit_vector<const ROOM: usize, const INSIDE: bool>(
    facts: &Facts<'_>,
    all: &Piece,
    vector: u64,
    segments: u64,
) -> Result<Written, Stop> {
    let mut entry = reserve::<Record<ROOM>>(Counter::DropSocket)?;
    let bytes = payload(&mut entry);
    let mut walk = Walk::new::<ROOM>(bytes, vector, facts.moved.result as u32);
    for_segments(segments, walk_on::<ROOM>, &mut walk);
    let captured = walk.captured(segments);
    let is_cut = captured.tail > 0;
    if INSIDE
        && is_cut
        && facts.moved.dir == DIR_RECV
        && boundary::lies_within(bytes, spare(&mut entry), walk.len)
    {
        entry.discard(BPF_RB_NO_WAKEUP.into());
        return Ok(Written::InPieces);
    }
    finish(&mut entry, facts, all, captured);
    submit(entry);
    Ok(Written::Yes)
}

#[inline(never)]
extern "C" fn walk_on<const ROOM: usize>(index: u64, walk: *mut Walk) -> u64 {
    // SAFETY: the walk of `emit_vector`.
    let walk = unsafe { &mut *walk };
    if walk.is_done() || !walk.step::<ROOM>(index) { STOP } else { GO_ON }
}

/// Copies the segments of a vectored call one after the other: the first bytes of the call to the first half of the
/// payload, the last ones behind them.
struct Walk {
    payload: *mut u8,
    vector: u64,
    /// Bytes the call moved.
    len: u32,
    /// Position in the call at which the tail begins; `len` when the head holds everything.
    tail_from: u32,
    /// Bytes of the call that were walked.
    done: u32,
    failed: bool,
}

impl Walk {
    #[inline(always)]
    fn new<const ROOM: usize>(payload: *mut u8, vector: u64, len: u32) -> Self {
        let head = (ROOM / 2) as u32;
        let tail_from = if len <= head {
            len
        } else if len <= head + TAIL as u32 {
            head
        } else {
            len - TAIL as u32
        };
        Self { payload, vector, len, tail_from, done: 0, failed: false }
    }

    #[inline(always)]
    fn is_done(&self) -> bool {
        self.done >= self.len
    }

    /// Takes the next segment; false if it cannot be read.
    #[inline(always)]
    fn step<const ROOM: usize>(&mut self, index: u64) -> bool {
        let Some(segment) = segment(self.vector, index) else {
            self.failed = true;
            return false;
        };
        let left = self.len - self.done;
        let len = if segment.len < u64::from(left) { segment.len as u32 } else { left };
        self.failed =
            !(self.copy_head::<ROOM>(segment.base, len) && self.copy_tail::<ROOM>(segment.base, len));
        self.done += len;
        !self.failed
    }

    #[inline(always)]
    fn copy_head<const ROOM: usize>(&self, base: u64, len: u32) -> bool {
        let half = (ROOM / 2) as u32;
        if self.done >= half || len == 0 {
            return true;
        }
        let room = half - self.done;
        let len = if len < room { len } else { room };
        let at = black_box(self.done) & (half - 1);
        read_user(self.payload.wrapping_add(at as usize), at_most(len, ROOM / 2), base)
    }

    #[inline(always)]
    fn copy_tail<const ROOM: usize>(&self, base: u64, len: u32) -> bool {
        let end = self.done + len;
        if ROOM / 2 < HEAD || end <= self.tail_from {
            return true;
        }
        let from = if self.done > self.tail_from { self.done } else { self.tail_from };
        let at = black_box(from - self.tail_from) & (TAIL as u32 - 1);
        let destination = self.payload.wrapping_add(HEAD + at as usize);
        read_user(destination, at_most(end - from, TAIL), base + u64::from(from - self.done))
    }

    /// What the walk captured. A call whose end was not reached has no tail.
    #[inline(always)]
    fn captured(&self, segments: u64) -> Captured {
        if self.failed {
            return unreadable();
        }
        let head = if self.done < HEAD as u32 { self.done } else { HEAD as u32 };
        if self.is_done() {
            let tail = self.len - self.tail_from;
            // Nothing between head and tail: it is one piece.
            let is_whole = self.tail_from <= HEAD as u32;
            return if is_whole {
                Captured { head: self.len, tail: 0, flags: 0 }
            } else {
                Captured { head, tail, flags: 0 }
            };
        }
        if segments > 0 {
            count(Counter::IovecTruncated);
        }
        Captured { head, tail: 0, flags: FLAG_IOVEC_TRUNCATED }
    }
}
