//! Whether a message of HTTP/1 ends inside the call that it begins with: then another one follows in it.
//!
//! Asked only of reads that are too long to be captured whole. One look at the head for the length of the body: what
//! is not found out here leaves the call as it is, and the agent, which sees the gap, asks for the next ones.

use core::ptr;

use wire::socket::HEAD;

use crate::repeat::{GO_ON, STOP, is_full, repeat};

const LENGTH: [u8; 15] = *b"content-length:";
/// As much of the name.
const CHUNKED: [u8; 15] = *b"transfer-encodi";

/// A line may still be that header.
const MAYBE_LENGTH: u32 = 1;
const MAYBE_CHUNKED: u32 = 2;
/// The bytes are the value of `content-length`.
const IN_LENGTH: u32 = 4;
const LINE: u32 = MAYBE_LENGTH | MAYBE_CHUNKED;

/// What was read of a head. It lies in memory whose values the verifier does not follow: on the stack it would, and
/// take each of the thousand turns for another one.
#[repr(C)]
pub(crate) struct Scan {
    /// Column in the line.
    column: u32,
    /// What the line may be.
    line: u32,
    /// Length of the body.
    body: u64,
    /// Length of the head, once its end was found.
    end: u64,
}

/// The head and what was read of it.
struct Places {
    head: *const u8,
    scan: *mut Scan,
}

/// Whether the message that begins at `head`, of which [`HEAD`] bytes are there, ends before byte `len`. Writes to
/// `scan`.
#[inline(always)]
pub(crate) fn lies_within(head: *const u8, scan: *mut Scan, len: u32) -> bool {
    // SAFETY: the caller's bytes, more than four.
    let first = unsafe { head.cast::<[u8; 4]>().read_unaligned() };
    // A few turns would not do.
    if !is_full() || !is_method(first) {
        return false;
    }
    let mut places = Places { head, scan };
    // SAFETY: the caller's memory.
    unsafe {
        scan.write_volatile(Scan { column: 0, line: LINE, body: 0, end: 0 });
        repeat::<0, _>(HEAD as u32, step, &mut places);
        let (end, body) =
            ((&raw const (*scan).end).read_volatile(), (&raw const (*scan).body).read_volatile());
        end != 0 && end + body < u64::from(len)
    }
}

/// These first bytes are a method of those that clients of HTTP/1 send.
#[inline(always)]
pub(crate) fn is_method(first: [u8; 4]) -> bool {
    matches!(&first, b"GET " | b"POST" | b"PUT " | b"HEAD" | b"PATC" | b"DELE" | b"OPTI")
}

#[inline(never)]
extern "C" fn step(index: u64, places: *mut Places) -> u64 {
    // SAFETY: the places of `lies_within`; volatile, so that the bound stays one the verifier sees.
    let (b, scan) = unsafe {
        let Places { head, scan } = *places;
        (ptr::read_volatile(head.add(index as usize & (HEAD - 1))), &mut *scan)
    };
    match b {
        b'\n' if scan.column == 0 => {
            scan.end = index + 1;
            return STOP;
        }
        b'\n' => {
            scan.column = 0;
            scan.line = LINE;
        }
        b'\r' => {}
        b'0'..=b'9' if scan.line == IN_LENGTH => scan.body = scan.body * 10 + u64::from(b - b'0'),
        _ => return name(scan, b | 0x20),
    }
    GO_ON
}

/// Takes a character of a header's name, or of what no longer can be one that matters; [`STOP`] ends the scan.
#[inline(always)]
fn name(scan: &mut Scan, lower: u8) -> u64 {
    let at = scan.column as usize;
    scan.column += 1;
    if at >= CHUNKED.len() {
        return GO_ON;
    }
    if CHUNKED[at] != lower {
        scan.line &= !MAYBE_CHUNKED;
    }
    if LENGTH[at] != lower {
        scan.line &= !MAYBE_LENGTH;
    }
    let is_whole = at == LENGTH.len() - 1;
    if is_whole && scan.line & MAYBE_CHUNKED != 0 {
        // Where it ends is not known here.
        return STOP;
    }
    if is_whole && scan.line & MAYBE_LENGTH != 0 {
        scan.line = IN_LENGTH;
    }
    GO_ON
}
