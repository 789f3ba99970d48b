//! Long calls that are captured whole: one record after the other.

use wire::counter::Counter;
use wire::socket::{FLAG_CONTINUED, FLAG_MORE, WHOLE};

use super::super::call::Source;
use super::super::gather::{CAPACITY, Gathered, Room};
use super::{Captured, Facts, Memory, Piece, emit_bare, emit_class, emit_ends, emit_fitting};
use crate::emit::{Outcome, Stop, count};
use crate::repeat::{GO_ON, STOP, is_full, repeat};

/// Bytes of a call that are captured in a row; of what is behind, the beginning and the end.
const MAX_WHOLE: u32 = CAPACITY as u32;
/// Records that hold them.
const MAX_PIECES: u32 = MAX_WHOLE.div_ceil(WHOLE as u32);

/// A call that is being cut into pieces.
struct Cutting<'a> {
    facts: &'a Facts<'a>,
    address: u64,
    memory: Memory,
    /// Bytes that are cut into pieces.
    end: u32,
}

/// Writes the records of a call's pieces; of a vectored one by way of `room`. Not on kernels without loops.
#[inline(never)]
pub(super) fn emit(facts: &Facts<'_>, room: Option<&'static Room>) -> Outcome {
    if !is_full() {
        return Ok(());
    }
    match facts.moved.call.source {
        Source::Buffer { address } => cut(facts, address, Memory::User, MAX_WHOLE),
        Source::Vector { address, count: segments } => {
            let len = facts.moved.result as u32;
            let wanted = if len < MAX_WHOLE { len } else { MAX_WHOLE };
            let Some(room) = room else {
                return emit_bare(facts, &Piece::all(facts), Captured::NO_PAYLOAD);
            };
            let gathered = Gathered::new(room, address, segments, wanted);
            let outcome = cut(facts, gathered.address(), Memory::Kernel, gathered.len());
            gathered.release();
            outcome
        }
        Source::Opaque => Ok(()),
    }
}

/// Cuts a call, of which `there` bytes can be had in a row.
#[inline(always)]
fn cut(facts: &Facts<'_>, address: u64, memory: Memory, there: u32) -> Outcome {
    let len = facts.moved.result as u32;
    let end = if len < there { len } else { there };
    let mut cutting = Cutting { facts, address, memory, end };
    repeat::<0, _>(MAX_PIECES, next, &mut cutting);
    if end == len {
        return Ok(());
    }
    count(Counter::CallCut);
    let rest = Piece { from: end, len: (len - end) as i32, flags: if end > 0 { FLAG_CONTINUED } else { 0 } };
    match memory {
        Memory::User if len - end <= WHOLE as u32 => emit_fitting(facts, &rest, address, memory),
        Memory::User => emit_ends::<false>(facts, &rest, address).map(|_| ()),
        Memory::Kernel => emit_bare(facts, &rest, Captured::NO_PAYLOAD),
    }
}

/// Writes one piece. If the ring refuses it, that is a gap like any other, and the next one may find room.
#[inline(never)]
extern "C" fn next(number: u64, cutting: *mut Cutting<'_>) -> u64 {
    // SAFETY: the cutting of `cut`.
    let Cutting { facts, address, memory, end } = unsafe { &*cutting };
    let from = number as u32 * WHOLE as u32;
    if from >= *end {
        return STOP;
    }
    let left = *end - from;
    let len = if left < WHOLE as u32 { left } else { WHOLE as u32 };
    let begins = if from == 0 { 0 } else { FLAG_CONTINUED };
    let ends = if from + len == facts.moved.result as u32 { 0 } else { FLAG_MORE };
    let piece = Piece { from, len: len as i32, flags: begins | ends };
    // Of the largest class, the last one too: with each class to look at, the verifier needs three times as long.
    if let Err(Stop::Count(counter)) = emit_class::<WHOLE>(facts, &piece, *address + u64::from(from), *memory)
    {
        count(counter);
    }
    GO_ON
}
