//! Data records: the fixed part, and as much of the caller's bytes as is kept.
//!
//! Ring space must be reserved in constant sizes, so there are a few classes of records. A vectored call needs twice
//! the room it fills: where a segment lands and how long it is are both variable, and the verifier adds up their
//! largest values.

mod pieces;
mod vector;

use core::ffi::c_void;
use core::hint::black_box;

use aya_ebpf::bindings::BPF_RB_NO_WAKEUP;
use aya_ebpf::helpers::generated::{bpf_probe_read_kernel, bpf_probe_read_user};
use aya_ebpf::maps::ring_buf::RingBufEntry;
use wire::Kind;
use wire::counter::Counter;
use wire::socket::{DIR_RECV, Data, FLAG_NO_PAYLOAD, HEAD, Network, SockId, TAIL, WHOLE};

use self::vector::emit_vector;
use super::call::Source;
use super::identity::Socket;
use super::{Moved, boundary, gather};
use crate::emit::{Outcome, Stop, count, reserve, submit, write_header};

/// Payload of the classes for one buffer; the records are then 152, 536 and 1624 bytes.
const SMALL: usize = 64;
const MEDIUM: usize = 448;

/// What is known of a call before its bytes are read.
pub(crate) struct Facts<'a> {
    pub(crate) moved: &'a Moved,
    pub(crate) now: u64,
    pub(crate) id: SockId,
    pub(crate) offset: u64,
    pub(crate) network: Network,
    /// Whether bytes are wanted at all.
    pub(crate) with_payload: bool,
    /// Whether all of them are.
    pub(crate) is_whole: bool,
}

/// A part of a call that gets a record.
#[derive(Clone, Copy)]
struct Piece {
    /// Its first byte in the call.
    from: u32,
    /// Bytes; for a call that moved none, its result.
    len: i32,
    /// `FLAG_MORE`, `FLAG_CONTINUED`.
    flags: u8,
}

impl Piece {
    /// A call in one piece.
    #[inline(always)]
    fn all(facts: &Facts<'_>) -> Self {
        Self { from: 0, len: facts.moved.result, flags: 0 }
    }
}

/// Where bytes are.
#[derive(Clone, Copy)]
enum Memory {
    User,
    Kernel,
}

/// What became of a record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    Yes,
    /// Another message begins in what it would leave out: nothing was written.
    InPieces,
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

/// Writes the record of one call, or those of its pieces.
#[inline(always)]
pub(crate) fn emit<const ALONE: bool>(facts: &Facts<'_>, socket: &Socket) -> Outcome {
    let all = Piece::all(facts);
    if facts.moved.result <= 0 {
        return emit_bare(facts, &all, Captured::NOTHING);
    }
    if !facts.with_payload {
        return emit_bare(facts, &all, Captured::NO_PAYLOAD);
    }
    let len = facts.moved.result as u32 as usize;
    let is_wanted = ALONE && facts.is_whole && len > WHOLE;
    let is_vector = matches!(facts.moved.call.source, Source::Vector { .. });
    // Without a room, its beginning and its end are captured like those of any other.
    let room = if is_wanted && is_vector { gather::take() } else { None };
    let written = match facts.moved.call.source {
        Source::Opaque => {
            count(Counter::PayloadNone);
            emit_bare(facts, &all, Captured::NO_PAYLOAD)?;
            Written::Yes
        }
        Source::Buffer { .. } if is_wanted => Written::InPieces,
        Source::Vector { .. } if room.is_some() => Written::InPieces,
        Source::Buffer { address } if len <= WHOLE => {
            emit_fitting(facts, &all, address, Memory::User)?;
            Written::Yes
        }
        Source::Buffer { address } => emit_ends::<ALONE>(facts, &all, address)?,
        Source::Vector { address, count } if len <= TAIL => {
            emit_vector::<{ 2 * TAIL }, false>(facts, &all, address, count)?
        }
        Source::Vector { address, count } => emit_vector::<{ 2 * HEAD }, ALONE>(facts, &all, address, count)?,
    };
    if ALONE && written == Written::InPieces {
        socket.want_whole();
        let room = if is_vector && room.is_none() { gather::take() } else { room };
        return pieces::emit(facts, room);
    }
    Ok(())
}

#[inline(never)]
fn emit_bare(facts: &Facts<'_>, piece: &Piece, captured: Captured) -> Outcome {
    let mut entry = reserve::<Record<0>>(Counter::DropSocket)?;
    finish(&mut entry, facts, piece, captured);
    submit(entry);
    Ok(())
}

/// Writes the record of a piece of a buffer, which is captured whole.
#[inline(never)]
fn emit_fitting(facts: &Facts<'_>, piece: &Piece, address: u64, memory: Memory) -> Outcome {
    let address = address + u64::from(piece.from);
    match piece.len as u32 as usize {
        0..=SMALL => emit_class::<SMALL>(facts, piece, address, memory),
        0..=MEDIUM => emit_class::<MEDIUM>(facts, piece, address, memory),
        _ => emit_class::<WHOLE>(facts, piece, address, memory),
    }
}

#[inline(always)]
fn emit_class<const ROOM: usize>(facts: &Facts<'_>, piece: &Piece, address: u64, memory: Memory) -> Outcome {
    let mut entry = reserve::<Record<ROOM>>(Counter::DropSocket)?;
    let len = at_most(piece.len as u32, ROOM);
    let is_read = read(payload(&mut entry), len, address, memory);
    let captured = if is_read { Captured { head: len, tail: 0, flags: 0 } } else { unreadable() };
    finish(&mut entry, facts, piece, captured);
    submit(entry);
    Ok(())
}

/// Of a piece that is too long, its beginning and its end; unless it is to be looked `INSIDE` and a message ends there.
#[inline(never)]
fn emit_ends<const INSIDE: bool>(facts: &Facts<'_>, piece: &Piece, address: u64) -> Result<Written, Stop> {
    const { assert!(WHOLE == HEAD + TAIL) };
    let mut entry = reserve::<Record<WHOLE>>(Counter::DropSocket)?;
    let payload = payload(&mut entry);
    let (len, address) = (piece.len as u32, address + u64::from(piece.from));
    let has_head = read_user(payload, HEAD as u32, address);
    let is_request = INSIDE && has_head && facts.moved.dir == DIR_RECV;
    if is_request && boundary::lies_within(payload, spare(&mut entry), len) {
        entry.discard(BPF_RB_NO_WAKEUP.into());
        return Ok(Written::InPieces);
    }
    let tail = address + u64::from(len) - TAIL as u64;
    let is_read = has_head && read_user(payload.wrapping_add(HEAD), TAIL as u32, tail);
    let captured =
        if is_read { Captured { head: HEAD as u32, tail: TAIL as u32, flags: 0 } } else { unreadable() };
    finish(&mut entry, facts, piece, captured);
    submit(entry);
    Ok(Written::Yes)
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

/// The fixed part, which is written last, as room for something else.
#[inline(always)]
fn spare<const ROOM: usize>(entry: &mut RingBufEntry<Record<ROOM>>) -> *mut boundary::Scan {
    const { assert!(size_of::<boundary::Scan>() <= size_of::<Data>()) };
    // SAFETY: the address of a field of the reserved entry.
    unsafe { (&raw mut (*entry.as_mut_ptr()).data).cast() }
}

/// The number, with a bound that the verifier sees: the compiler may already know it and leave out the check.
#[inline(always)]
pub(crate) fn at_most(len: u32, limit: usize) -> u32 {
    let (len, limit) = (black_box(len), limit as u32);
    if len > limit { limit } else { len }
}

#[inline(always)]
fn read(to: *mut u8, len: u32, from: u64, memory: Memory) -> bool {
    match memory {
        Memory::User => read_user(to, len, from),
        // SAFETY: a checked read of kernel memory; the verifier proves that `to` has room for `len`.
        Memory::Kernel => unsafe {
            bpf_probe_read_kernel(to.cast::<c_void>(), len, from as *const c_void) == 0
        },
    }
}

#[inline(always)]
pub(crate) fn read_user(to: *mut u8, len: u32, from: u64) -> bool {
    // SAFETY: a checked read of user memory; the verifier proves that `to` has room for `len`.
    unsafe { bpf_probe_read_user(to.cast::<c_void>(), len, from as *const c_void) == 0 }
}

/// How far a position in a call is behind another one; 0 if it is not. Without a branch, since the verifier would go
/// on with each of them to the end.
#[inline(always)]
fn behind(position: u32, from: u32) -> u32 {
    let distance = i64::from(position) - i64::from(from);
    (distance & !black_box(distance >> 63)) as u32
}

/// Writes the fixed part.
#[inline(always)]
fn finish<const ROOM: usize>(
    entry: &mut RingBufEntry<Record<ROOM>>,
    facts: &Facts<'_>,
    piece: &Piece,
    captured: Captured,
) {
    let len = size_of::<Data>() + captured.head as usize + captured.tail as usize;
    let requested = behind(facts.moved.call.requested, piece.from);
    // Those of a write are no positions. Without a branch, as above.
    let from = piece.from & u32::from(facts.moved.dir).wrapping_sub(1);
    // SAFETY: the reserved entry; every byte of the fixed part is written here.
    unsafe {
        let data = &raw mut (*entry.as_mut_ptr()).data;
        write_header(&raw mut (*data).header, Kind::SocketData, len, facts.now, facts.moved.task);
        (*data).id = facts.id;
        (*data).offset = facts.offset + u64::from(piece.from);
        (*data).network.first_ns = facts.network.first_ns;
        (*data).network.last_ns = facts.network.last_ns;
        (*data).network.first_len = behind(facts.network.first_len, from);
        (*data).network.last_from = behind(facts.network.last_from, from);
        (*data).result = piece.len;
        (*data).requested = requested;
        (*data).head_len = captured.head as u16;
        (*data).tail_len = captured.tail as u16;
        (*data).syscall = facts.moved.call.syscall;
        (*data).dir = facts.moved.dir;
        (*data).flags = captured.flags | piece.flags;
    }
}
