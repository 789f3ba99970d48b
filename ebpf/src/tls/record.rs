//! The record of one call: the fixed part, and as much of the plaintext as is kept.
//!
//! Each class of records is written by a subprogram of its own, for the sake of the stack.

use aya_ebpf::maps::ring_buf::RingBufEntry;
use wire::Kind;
use wire::counter::Counter;
use wire::socket::{FLAG_NO_PAYLOAD, HEAD, SockId, TAIL, WHOLE};
use wire::tls::{Data, SslId};

use super::call::Call;
use super::identity::{Ssl, SslKey};
use crate::emit::{Outcome, count, reserve, submit, write_header};
use crate::scope::Task;
use crate::socket::capture::{at_most, read_user};

/// Payload of the classes; the records are then 144, 528, 1616 and 4176 bytes. What is larger than the last goes into
/// the one before it, its beginning and its end.
const SMALL: usize = 64;
const MEDIUM: usize = 448;
const LARGE: usize = 4096;

#[repr(C)]
struct Record<const ROOM: usize> {
    data: Data,
    payload: [u8; ROOM],
}

/// Writes the record of one call that moved `len` bytes, or none.
#[inline(always)]
pub(crate) fn emit(task: Task, call: &Call, len: u32, now: u64) -> Outcome {
    let ssl = Ssl::find_or_make(SslKey::new(task, call.ssl.get()))?;
    call.now_ns.set(now);
    call.len.set(u64::from(len));
    call.ssl_birth_ns.set(ssl.born(now));
    // Counted even if the record is lost: that is then a gap of known size.
    call.offset.set(ssl.advance(call.dir(), u64::from(len)));
    match len as usize {
        0..=SMALL => emit_class::<SMALL>(task, call),
        ..=MEDIUM => emit_class::<MEDIUM>(task, call),
        ..=WHOLE => emit_class::<WHOLE>(task, call),
        ..=LARGE => emit_class::<LARGE>(task, call),
        _ => emit_class::<WHOLE>(task, call),
    }
}

#[inline(never)]
fn emit_class<const ROOM: usize>(task: Task, call: &Call) -> Outcome {
    let mut entry = reserve::<Record<ROOM>>(Counter::DropTls)?;
    let payload = payload(&mut entry);
    let (head, tail) = capture::<ROOM>(payload, call.buffer.get(), call.len.get() as u32);
    finish(&mut entry, task, call, head, tail);
    submit(entry);
    Ok(())
}

#[inline(always)]
fn payload<const ROOM: usize>(entry: &mut RingBufEntry<Record<ROOM>>) -> *mut u8 {
    // SAFETY: the address of a field of the reserved entry.
    unsafe { (&raw mut (*entry.as_mut_ptr()).payload).cast() }
}

/// Bytes of the beginning and of the end that were read; none if a page is not there.
#[inline(always)]
fn capture<const ROOM: usize>(payload: *mut u8, address: u64, len: u32) -> (u32, u32) {
    const { assert!(WHOLE == HEAD + TAIL) };
    if len == 0 {
        return (0, 0);
    }
    let is_whole = ROOM != WHOLE || len as usize <= WHOLE;
    let head = if is_whole { at_most(len, ROOM) } else { HEAD as u32 };
    let tail = if is_whole { 0 } else { TAIL as u32 };
    let mut is_read = read_user(payload, at_most(head, ROOM), address);
    if !is_whole {
        let end = address + u64::from(len) - TAIL as u64;
        is_read &= read_user(payload.wrapping_add(HEAD), TAIL as u32, end);
    }
    if is_read {
        return (head, tail);
    }
    count(Counter::PlaintextUnreadable);
    (0, 0)
}

/// Writes the fixed part.
#[inline(always)]
fn finish<const ROOM: usize>(
    entry: &mut RingBufEntry<Record<ROOM>>,
    task: Task,
    call: &Call,
    head: u32,
    tail: u32,
) {
    let len = size_of::<Data>() + head as usize + tail as usize;
    // SAFETY: the reserved entry; every byte of the fixed part is written here.
    unsafe {
        let data = &raw mut (*entry.as_mut_ptr()).data;
        write_header(&raw mut (*data).header, Kind::TlsData, len, call.now_ns.get(), task);
        (*data).ssl = SslId { ssl: call.ssl.get(), birth_ns: call.ssl_birth_ns.get() };
        (*data).sock = SockId { sock: call.sock.get(), birth_ns: call.sock_birth_ns.get() };
        (*data).offset = call.offset.get();
        (*data).len = call.len.get() as u32;
        (*data).requested = call.requested.get() as u32;
        (*data).head_len = head as u16;
        (*data).tail_len = tail as u16;
        (*data).dir = call.dir();
        (*data).flags = if head == 0 { FLAG_NO_PAYLOAD } else { 0 };
        (*data).reserved = 0;
    }
}
