//! HTTP/1.1 framing of one direction of a connection, over pieces of any size and over gaps.
//!
//! [`Direction::next`] takes bytes from its input and says what they are. What a body means is left to the caller;
//! what a head says is [`head`]'s matter. Framing that is lost (a gap where its size does not help, bytes that
//! are not HTTP) is found again only at the beginning of a call, and only by something that proves itself: the
//! first line of a message, or a chunk that ends where its size says.

#![expect(clippy::mut_mut, reason = "the input is a cursor over bytes that are masked as they are taken")]

pub(super) mod head;

use super::mask::{self, HeadMask, HeadStep};

/// Longest head that is read.
const MAX_HEAD: usize = 64 * 1024;
/// Most hexadecimal digits of a chunk's size: 2^48 bytes.
const MAX_SIZE_DIGITS: u8 = 12;
/// The end of a chunked body without trailers.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
/// Behind the data of a chunk: another follows that has none, so that these were the last.
const BEFORE_LAST_CHUNK: &[u8] = b"\r\n0\r\n";

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// From the client: requests.
    Request,
    /// To the client: responses.
    Response,
}

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// After so many bytes.
    Length(u64),
    /// With the last chunk.
    Chunked,
    /// With the connection.
    UntilClose,
}

/// What the next bytes are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'b> {
    /// A message begins here (no byte taken).
    Begin,
    /// The head is complete: see [`Direction::head`]; the caller answers with [`Direction::body`].
    Head,
    /// Bytes of the body, still to be masked; true when they are known to be its last.
    Body(&'b mut [u8], bool),
    /// Bytes of the framing, masked.
    Frame,
    /// The message is over (no byte taken).
    End,
    /// Not HTTP/1: framing is lost.
    Garbage,
}

/// What a gap did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gap {
    /// It lies in the body.
    InBody,
    /// The message ended in it, and what followed is lost.
    PastEnd,
    /// It ate framing.
    Lost,
}

/// How lost framing was found again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A message begins.
    Message,
    /// A chunk begins; where its data is, as far as it is in the head.
    Chunk(usize, usize),
}

#[derive(Clone, Copy, Debug)]
enum State {
    Idle,
    Head(HeadMask),
    Length(u64),
    UntilClose,
    Size {
        value: u64,
        digits: u8,
    },
    /// In the rest of a chunk's size line.
    Extension {
        value: u64,
    },
    Data(u64),
    /// Behind a chunk's data.
    DataEnd,
    Trailers(HeadMask),
    Ended,
    Lost,
}

/// One direction of a connection.
#[derive(Debug)]
pub(super) struct Direction {
    side: Side,
    state: State,
    head: Vec<u8>,
}

impl Direction {
    /// At the beginning of a connection, or (`lost`) somewhere in it.
    pub(super) fn new(side: Side, lost: bool) -> Self {
        Self { side, state: if lost { State::Lost } else { State::Idle }, head: Vec::new() }
    }

    /// Where the next message begins is not known.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self.state, State::Lost)
    }

    /// The message is over, which is not said yet.
    pub(super) fn ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// In a body that ends with the connection.
    pub(super) fn until_close(&self) -> bool {
        matches!(self.state, State::UntilClose)
    }

    /// Gives framing up.
    pub(super) fn lose(&mut self) {
        self.state = State::Lost;
        self.head = Vec::new();
    }

    /// Bytes held of the head.
    pub(super) fn held(&self) -> usize {
        self.head.capacity()
    }

    /// The masked bytes of the head; after [`Piece::Head`] the whole of it, after a gap what came before.
    pub(super) fn head(&self) -> &[u8] {
        &self.head
    }

    /// Answers [`Piece::Head`]: what follows it. `None`: the next message.
    pub(super) fn body(&mut self, framing: Option<Framing>) {
        self.head = Vec::new();
        self.state = match framing {
            None => State::Idle,
            Some(Framing::Length(0)) => State::Ended,
            Some(Framing::Length(left)) => State::Length(left),
            Some(Framing::Chunked) => State::Size { value: 0, digits: 0 },
            Some(Framing::UntilClose) => State::UntilClose,
        };
    }

    /// Takes the next piece from `input`; `None` when there is no more to say.
    pub(super) fn next<'b>(&mut self, input: &mut &'b mut [u8]) -> Option<Piece<'b>> {
        if matches!(self.state, State::Ended) {
            self.state = State::Idle;
            return Some(Piece::End);
        }
        let first = *input.first()?;
        match self.state {
            // Some clients send an empty line behind a body.
            State::Idle if first == b'\r' || first == b'\n' => {
                take(input, 1);
                Some(Piece::Frame)
            }
            State::Idle => {
                let mask =
                    if self.side == Side::Request { HeadMask::request() } else { HeadMask::response() };
                self.state = State::Head(mask);
                Some(Piece::Begin)
            }
            State::Head(mask) => Some(self.in_head(mask, input)),
            State::Length(left) => {
                let body = take_up_to(input, left);
                let left = left - body.len() as u64;
                self.state = if left == 0 { State::Ended } else { State::Length(left) };
                Some(Piece::Body(body, left == 0))
            }
            State::UntilClose => Some(Piece::Body(std::mem::take(input), false)),
            State::Data(left) => {
                let body = take_up_to(input, left);
                let left = left - body.len() as u64;
                self.data_left(left);
                Some(Piece::Body(body, left == 0 && input.starts_with(BEFORE_LAST_CHUNK)))
            }
            State::Trailers(mask) => Some(self.in_trailers(mask, input)),
            State::Lost | State::Ended => None,
            _ => Some(self.in_chunk_line(input)),
        }
    }

    fn data_left(&mut self, left: u64) {
        self.state = if left == 0 { State::DataEnd } else { State::Data(left) };
    }

    fn in_head<'b>(&mut self, mut mask: HeadMask, input: &mut &'b mut [u8]) -> Piece<'b> {
        let room = MAX_HEAD - self.head.len();
        let mut at = 0;
        loop {
            let readable = room.min(input.len());
            at += mask.run(&mut input[at..readable]);
            let Some(b) = input.get_mut(at) else { break };
            let step = if at < room { mask.step(b) } else { HeadStep::Bad };
            match step {
                HeadStep::More => at += 1,
                HeadStep::End => {
                    let bytes = take(input, at + 1);
                    self.head.extend_from_slice(bytes);
                    return Piece::Head;
                }
                HeadStep::Bad => {
                    take(input, at + usize::from(at < room && mask.needs_bad()));
                    self.lose();
                    return Piece::Garbage;
                }
            }
        }
        self.head.extend_from_slice(input);
        *input = &mut [];
        self.state = State::Head(mask);
        Piece::Frame
    }

    fn in_trailers<'b>(&mut self, mut mask: HeadMask, input: &mut &'b mut [u8]) -> Piece<'b> {
        for (at, b) in input.iter_mut().enumerate() {
            match mask.step(b) {
                HeadStep::More => {}
                HeadStep::End => {
                    take(input, at + 1);
                    self.state = State::Ended;
                    return Piece::Frame;
                }
                HeadStep::Bad => {
                    take(input, at);
                    self.lose();
                    return Piece::Garbage;
                }
            }
        }
        *input = &mut [];
        self.state = State::Trailers(mask);
        Piece::Frame
    }

    /// The lines between the data of chunks.
    fn in_chunk_line<'b>(&mut self, input: &mut &'b mut [u8]) -> Piece<'b> {
        while let Some(b) = input.first_mut() {
            let Some(next) = chunk_line(self.state, b) else {
                self.lose();
                return Piece::Garbage;
            };
            take(input, 1);
            self.state = next;
            if matches!(next, State::Data(_) | State::Trailers(_)) {
                break;
            }
        }
        Piece::Frame
    }

    /// So many bytes of this direction were not captured. An end may follow: see [`Direction::next`].
    pub(super) fn gap(&mut self, len: u64) -> Gap {
        match self.state {
            State::Length(left) if len < left => self.state = State::Length(left - len),
            State::Length(left) if len == left => self.state = State::Ended,
            State::Length(_) => {
                self.lose();
                return Gap::PastEnd;
            }
            State::UntilClose => {}
            State::Data(left) if len <= left => self.data_left(left - len),
            _ => {
                self.state = State::Lost;
                return Gap::Lost;
            }
        }
        Gap::InBody
    }

    /// Tries to find lost framing again at the beginning of a call of `total` bytes, of which `head` are the
    /// first. Nothing is masked yet, and nothing changes unless it succeeds.
    pub(super) fn find(&mut self, head: &[u8], total: u64, tail: &[u8]) -> Option<Found> {
        let message = match self.side {
            Side::Request => mask::begins_request(head),
            Side::Response => mask::begins_response(head),
        };
        if message.is_some() {
            self.state = State::Idle;
            return Some(Found::Message);
        }
        let (begin, end) = whole_chunk(head, total, tail)?;
        self.state = State::Size { value: 0, digits: 0 };
        Some(Found::Chunk(begin, end))
    }
}

/// The state behind a byte of a chunk's size line or of the line end behind its data; `None` when it is wrong.
fn chunk_line(state: State, b: &mut u8) -> Option<State> {
    match (state, *b) {
        (State::Size { value, digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F')
            if digits < MAX_SIZE_DIGITS =>
        {
            let digit = u64::from(char::from(*b).to_digit(16)?);
            Some(State::Size { value: value << 4 | digit, digits: digits + 1 })
        }
        (State::Size { digits: 0, .. }, _) => None,
        (State::Size { value, .. } | State::Extension { value }, b'\n') => Some(match value {
            0 => State::Trailers(HeadMask::trailers()),
            left => State::Data(left),
        }),
        (State::Size { value, .. }, b';' | b' ' | b'\t' | b'\r') => Some(State::Extension { value }),
        (State::Extension { value }, _) => {
            *b = mask::masked(*b);
            Some(State::Extension { value })
        }
        (State::DataEnd, b'\r') => Some(State::DataEnd),
        (State::DataEnd, b'\n') => Some(State::Size { value: 0, digits: 0 }),
        _ => None,
    }
}

/// Where the data of a chunk is that fills the call, or ends within it as its size says.
fn whole_chunk(head: &[u8], total: u64, tail: &[u8]) -> Option<(usize, usize)> {
    let digits = head.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    if !(1..=usize::from(MAX_SIZE_DIGITS)).contains(&digits) || head.get(digits..digits + 2)? != b"\r\n" {
        return None;
    }
    let size = u64::from_str_radix(std::str::from_utf8(&head[..digits]).ok()?, 16).ok()?;
    let data = digits as u64 + 2;
    if size == 0 {
        return head.starts_with(LAST_CHUNK).then_some((digits + 2, digits + 2));
    }
    let end = data + size;
    let in_head = usize::try_from(end).unwrap_or(usize::MAX).min(head.len());
    // Without the end in sight, the sizes must agree.
    let line_end = match head.get(in_head..in_head + 2) {
        Some(bytes) => bytes == b"\r\n",
        None => total == end + 2 && (tail.is_empty() || tail.ends_with(b"\r\n")),
    };
    line_end.then_some((digits + 2, in_head))
}

/// The last bytes of a call are the end of a chunked body: how many of them.
pub(super) fn ends_chunked(bytes: &[u8]) -> usize {
    let before = bytes.strip_suffix(LAST_CHUNK);
    if before.is_some_and(|before| before.is_empty() || before.ends_with(b"\r\n")) {
        LAST_CHUNK.len()
    } else {
        0
    }
}

fn take<'b>(input: &mut &'b mut [u8], len: usize) -> &'b mut [u8] {
    let (taken, rest) = std::mem::take(input).split_at_mut(len);
    *input = rest;
    taken
}

fn take_up_to<'b>(input: &mut &'b mut [u8], len: u64) -> &'b mut [u8] {
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(input.len());
    take(input, len)
}

#[cfg(test)]
mod tests;
