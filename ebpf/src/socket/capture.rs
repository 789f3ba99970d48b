//! Data records: the fixed part, and as much of the caller's bytes as is kept.
//!
//! Ring space must be reserved in constant sizes, so there are a few classes of records. A vectored call needs twice
//! the room it fills: where a segment lands and how long it is are both variable, and the verifier adds up their
//! largest values.

use core::ffi::c_void;
use core::hint::black_box;

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use aya_ebpf::maps::ring_buf::RingBufEntry;
use wire::Kind;
use wire::counter::Counter;
use wire::socket::{Data, FLAG_IOVEC_TRUNCATED, FLAG_NO_PAYLOAD, HEAD, Network, SockId, TAIL, WHOLE};

use super::call::{Call, GO_ON, MAX_SEGMENTS, STOP, Source, for_segments, segment};
use crate::emit::{Outcome, count, reserve, submit, write_header};
use crate::scope::Task;

/// Payload of the classes for one buffer; the records are then 152, 536 and 1624 bytes.
const SMALL: usize = 64;
const MEDIUM: usize = 448;

/// What is known of a call before its bytes are read.
pub(crate) struct Facts {
    pub(crate) task: Task,
    pub(crate) now: u64,
    pub(crate) id: SockId,
    pub(crate) offset: u64,
    pub(crate) network: Network,
    pub(crate) result: i32,
    pub(crate) dir: u8,
    pub(crate) call: Call,
    /// Whether bytes are wanted at all.
    pub(crate) with_payload: bool,
}

#[repr(C)]
struct Record<const ROOM: usize> {
    data: Data,
    payload: [u8; ROOM],
}

/// How much of a call was captured.
#[derive(Clone, Copy)]
struct Captured {
    head: u32,
    tail: u32,
    flags: u8,
}

impl Captured {
    const NOTHING: Self = Self { head: 0, tail: 0, flags: 0 };
    const NO_PAYLOAD: Self = Self { head: 0, tail: 0, flags: FLAG_NO_PAYLOAD };
}

/// Writes the record of one call.
#[inline(always)]
pub(crate) fn emit(facts: &Facts) -> Outcome {
    if facts.result <= 0 {
        return emit_bare(facts, Captured::NOTHING);
    }
    if !facts.with_payload {
        return emit_bare(facts, Captured::NO_PAYLOAD);
    }
    let len = facts.result as u32 as usize;
    match facts.call.source {
        Source::Opaque => {
            count(Counter::PayloadNone);
            emit_bare(facts, Captured::NO_PAYLOAD)
        }
        Source::Buffer { address } if len <= SMALL => emit_buffer::<SMALL>(facts, address),
        Source::Buffer { address } if len <= MEDIUM => emit_buffer::<MEDIUM>(facts, address),
        Source::Buffer { address } => emit_buffer::<WHOLE>(facts, address),
        Source::Vector { address, count } if len <= TAIL => {
            emit_vector::<{ 2 * TAIL }>(facts, address, count)
        }
        Source::Vector { address, count } => emit_vector::<{ 2 * HEAD }>(facts, address, count),
    }
}

#[inline(never)]
fn emit_bare(facts: &Facts, captured: Captured) -> Outcome {
    let mut entry = reserve::<Record<0>>(Counter::DropSocket)?;
    finish(&mut entry, facts, captured);
    submit(entry);
    Ok(())
}

#[inline(never)]
fn emit_buffer<const ROOM: usize>(facts: &Facts, address: u64) -> Outcome {
    let mut entry = reserve::<Record<ROOM>>(Counter::DropSocket)?;
    let payload = payload(&mut entry);
    let len = facts.result as u32;
    let captured = if ROOM < WHOLE || len as usize <= ROOM {
        read_whole::<ROOM>(payload, address, len)
    } else {
        read_ends(payload, address, len)
    };
    finish(&mut entry, facts, captured);
    submit(entry);
    Ok(())
}

#[inline(always)]
fn read_whole<const ROOM: usize>(payload: *mut u8, address: u64, len: u32) -> Captured {
    let len = at_most(len, ROOM);
    if read_user(payload, len, address) { Captured { head: len, tail: 0, flags: 0 } } else { unreadable() }
}

/// Only for records with room for [`WHOLE`] bytes.
#[inline(always)]
fn read_ends(payload: *mut u8, address: u64, len: u32) -> Captured {
    const { assert!(WHOLE == HEAD + TAIL) };
    if !read_user(payload, HEAD as u32, address) {
        return unreadable();
    }
    let tail_address = address + u64::from(len) - TAIL as u64;
    if !read_user(payload.wrapping_add(HEAD), TAIL as u32, tail_address) {
        return unreadable();
    }
    Captured { head: HEAD as u32, tail: TAIL as u32, flags: 0 }
}

#[inline(never)]
fn emit_vector<const ROOM: usize>(facts: &Facts, vector: u64, segments: u64) -> Outcome {
    let mut entry = reserve::<Record<ROOM>>(Counter::DropSocket)?;
    let mut walk = Walk::new::<ROOM>(payload(&mut entry), vector, facts.result as u32);
    for_segments(segments, walk_on::<ROOM>, &mut walk);
    finish(&mut entry, facts, walk.captured(segments));
    submit(entry);
    Ok(())
}

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
        if segments > MAX_SEGMENTS {
            count(Counter::IovecTruncated);
        }
        Captured { head, tail: 0, flags: FLAG_IOVEC_TRUNCATED }
    }
}

/// A page that is not there: nothing of the call is claimed to be captured.
#[inline(always)]
fn unreadable() -> Captured {
    count(Counter::PayloadUnreadable);
    Captured::NO_PAYLOAD
}

#[inline(always)]
fn payload<const ROOM: usize>(entry: &mut RingBufEntry<Record<ROOM>>) -> *mut u8 {
    // SAFETY: the address of a field of the reserved entry.
    unsafe { (&raw mut (*entry.as_mut_ptr()).payload).cast() }
}

/// The number, with a bound that the verifier sees: the compiler may already know it and leave out the check.
#[inline(always)]
pub(crate) fn at_most(len: u32, limit: usize) -> u32 {
    let (len, limit) = (black_box(len), limit as u32);
    if len > limit { limit } else { len }
}

#[inline(always)]
pub(crate) fn read_user(to: *mut u8, len: u32, from: u64) -> bool {
    // SAFETY: a checked read of user memory; the verifier proves that `to` has room for `len`.
    unsafe { bpf_probe_read_user(to.cast::<c_void>(), len, from as *const c_void) == 0 }
}

/// Writes the fixed part.
#[inline(always)]
fn finish<const ROOM: usize>(entry: &mut RingBufEntry<Record<ROOM>>, facts: &Facts, captured: Captured) {
    let len = size_of::<Data>() + captured.head as usize + captured.tail as usize;
    // SAFETY: the reserved entry; every byte of the fixed part is written here.
    unsafe {
        let data = &raw mut (*entry.as_mut_ptr()).data;
        write_header(&raw mut (*data).header, Kind::SocketData, len, facts.now, facts.task);
        (*data).id = facts.id;
        (*data).offset = facts.offset;
        (*data).network = facts.network;
        (*data).result = facts.result;
        (*data).requested = facts.call.requested;
        (*data).head_len = captured.head as u16;
        (*data).tail_len = captured.tail as u16;
        (*data).syscall = facts.call.syscall;
        (*data).dir = facts.dir;
        (*data).flags = captured.flags;
    }
}
