//! What one call on a socket came to, the same for every protocol.

use wire::socket;

use super::{
    http1::{Direction, Found, Side},
    sse::Sse,
};
use crate::decode::Payload;

const EAGAIN: i32 = 11;
const EPIPE: i32 = 32;
const ECONNRESET: i32 = 104;
const ETIMEDOUT: i32 = 110;

/// The end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// So many bytes moved.
    Moved(u64),
    /// The client has closed its side.
    Closed,
    /// It is none: see [`socket::FLAG_UNSEEN`].
    Unseen,
    /// A write of nothing.
    Nothing,
    /// A full socket refused a write.
    Refused,
    /// The client is gone.
    Gone,
    /// Another error.
    Failed,
}

/// Which side's bytes a call was about.
pub(super) fn side(data: &socket::Data) -> Side {
    if data.dir == socket::DIR_RECV { Side::Request } else { Side::Response }
}

/// Its bytes are the first of a call. (Of one that was recorded in pieces, only the first piece's are.)
pub(super) fn begins(data: &socket::Data) -> bool {
    data.flags & socket::FLAG_CONTINUED == 0
}

/// Its bytes are the last of a call.
pub(super) fn ends(data: &socket::Data) -> bool {
    data.flags & socket::FLAG_MORE == 0
}

/// It moved less than it could have: the socket was full. (Of a call that goes on in other records, the last one tells.)
pub(super) fn is_short(data: &socket::Data) -> bool {
    ends(data) && i64::from(data.requested) > i64::from(data.result)
}

/// Bytes of the call from the record's first on; of a call that goes on in other records more than any it could have.
pub(super) fn extent(data: &socket::Data) -> u64 {
    if ends(data) { u64::try_from(data.result).unwrap_or_default() } else { u64::MAX }
}

impl Call {
    /// Of a record.
    pub(super) fn of(data: &socket::Data) -> Self {
        let side = side(data);
        match (u64::try_from(data.result), data.result.wrapping_neg()) {
            (Ok(0), _) if data.flags & socket::FLAG_UNSEEN != 0 => Self::Unseen,
            (Ok(0), _) if side == Side::Request => Self::Closed,
            (Ok(0), _) => Self::Nothing,
            (Ok(len), _) => Self::Moved(len),
            (Err(_), EAGAIN) if side == Side::Response => Self::Refused,
            (Err(_), EPIPE | ECONNRESET | ETIMEDOUT) => Self::Gone,
            (Err(_), _) => Self::Failed,
        }
    }
}

/// Bytes that were written are a response's: a status line, or a whole chunk with an event.
pub(super) fn answers(data: &socket::Data, payload: &Payload<'_>) -> bool {
    let head = &*payload.head;
    let mut probe = Direction::new(Side::Response, true);
    match probe.find(head, extent(data), payload.tail) {
        Some(Found::Message) => true,
        Some(Found::Chunk(begin, end)) => head.get(begin..end).is_some_and(Sse::begins),
        None => false,
    }
}
