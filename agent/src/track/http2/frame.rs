//! HTTP/2 framing of one direction of a connection, over pieces of any size and over gaps.
//!
//! [`Frames::next`] takes bytes from its input and says what they are; nothing is kept but the first octets of a frame.
//! A gap inside a frame leaves the framing as it is. A gap beyond the end of a frame loses it, and it is found again
//! only where frames prove themselves: at the beginning of a call, or at the end of one ([`super::find`]).

#![expect(clippy::mut_mut, reason = "the input is a cursor over bytes that are masked as they are taken")]

use super::mask::mask_all;

/// What a client begins with.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Octets of a frame's header.
pub(super) const HEADER: usize = 9;
/// Longest frame unless a peer allowed more.
pub(super) const DEFAULT_MAX: u32 = 16_384;
/// Longest frame that is believed where framing was lost. Text (masked text too) read as a length is more.
pub(super) const FOUND_MAX: u32 = (1 << 21) - 1;

pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    Headers,
    Priority,
    Reset,
    Settings,
    Promise,
    Ping,
    GoAway,
    Window,
    Continuation,
    /// To be ignored.
    Other,
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub len: u32,
    pub kind: Kind,
    pub flags: u8,
    pub stream: u32,
}

impl Header {
    /// Reads one, whatever it says.
    pub(super) fn read(bytes: &[u8; HEADER]) -> Self {
        let [a, b, c, kind, flags, stream @ ..] = *bytes;
        let kind = match kind {
            0 => Kind::Data,
            1 => Kind::Headers,
            2 => Kind::Priority,
            3 => Kind::Reset,
            4 => Kind::Settings,
            5 => Kind::Promise,
            6 => Kind::Ping,
            7 => Kind::GoAway,
            8 => Kind::Window,
            9 => Kind::Continuation,
            _ => Kind::Other,
        };
        Self { len: u32::from_be_bytes([0, a, b, c]), kind, flags, stream: u32::from_be_bytes(stream) }
    }

    /// A flag is set.
    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// It may be one: a receiver would not close the connection over it.
    fn is_valid(&self, max: u32) -> bool {
        let on_stream = self.stream != 0;
        self.len <= max
            && self.stream >> 31 == 0
            && match self.kind {
                Kind::Data | Kind::Headers | Kind::Promise | Kind::Continuation => on_stream,
                Kind::Priority => on_stream && self.len == 5,
                Kind::Reset => on_stream && self.len == 4,
                Kind::Settings => !on_stream && self.len.is_multiple_of(6),
                Kind::Ping => !on_stream && self.len == 8,
                Kind::GoAway => !on_stream && self.len >= 8,
                Kind::Window => self.len == 4,
                Kind::Other => true,
            }
    }

    /// It is one, as far as nine octets can prove it.
    pub(super) fn is_convincing(&self, max: u32) -> bool {
        let flags = match self.kind {
            Kind::Data => END_STREAM | PADDED,
            Kind::Headers => END_STREAM | END_HEADERS | PADDED | PRIORITY,
            Kind::Promise => END_HEADERS | PADDED,
            Kind::Continuation => END_HEADERS,
            Kind::Settings | Kind::Ping => 1,
            Kind::Priority | Kind::Reset | Kind::GoAway | Kind::Window => 0,
            Kind::Other => return false,
        };
        // Only clients open streams that carry requests.
        let stream = self.stream == 0 || self.stream % 2 == 1;
        self.flags & !flags == 0 && stream && self.is_valid(max.min(FOUND_MAX))
    }

    /// Octets before the content that are read.
    pub(super) fn lead(&self) -> u8 {
        match self.kind {
            Kind::Data => u8::from(self.has(PADDED)),
            Kind::Headers => u8::from(self.has(PADDED)) + if self.has(PRIORITY) { 5 } else { 0 },
            Kind::Promise => u8::from(self.has(PADDED)) + 4,
            Kind::Reset | Kind::Window => 4,
            Kind::Settings => 6,
            Kind::GoAway => 8,
            _ => 0,
        }
    }

    /// The first octet of the payload is the length of the padding at its end.
    pub(super) fn is_padded(&self) -> bool {
        matches!(self.kind, Kind::Data | Kind::Headers | Kind::Promise) && self.has(PADDED)
    }
}

/// What the next bytes are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'b> {
    /// A frame begins: its header is complete.
    Begin(Header),
    /// A value of a control frame: a setting, an error code, by how much a window grows, or the last stream and error code
    /// of a `GOAWAY`.
    Value(Header, [u8; 8]),
    /// Octets of the frame's content, still to be masked; true when a body ends with them.
    Content(Header, &'b mut [u8], bool),
    /// Octets of the framing, masked.
    Frame,
    /// The frame is over (no octet taken).
    End(Header),
    /// Not HTTP/2: framing is lost.
    Garbage,
}

/// What a gap did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gap {
    /// It lies in this frame, which may have ended with it.
    InFrame(Header),
    /// It goes beyond the end of this frame.
    PastEnd(Header),
    /// It ate framing.
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Preface(u8),
    Header,
    Payload,
    Lost,
}

/// The framing of one direction.
#[derive(Debug)]
pub(super) struct Frames {
    state: State,
    /// Octets of a header, or of what is read of a payload.
    buffer: [u8; HEADER],
    have: u8,
    frame: Header,
    /// Octets of the payload that are left, padding included.
    left: u32,
    padding: u32,
    /// Octets of the lead that come before the content.
    lead: u8,
    /// The content can't be told from the padding any more: all of it is skipped.
    skip: bool,
    /// Longest frame that the receiver allows.
    pub max: u32,
}

impl Frames {
    /// At the beginning of a connection; `preface` for what a client sends.
    pub(super) fn new(preface: bool) -> Self {
        let state = if preface { State::Preface(0) } else { State::Header };
        Self {
            state,
            buffer: [0; HEADER],
            have: 0,
            frame: Header { len: 0, kind: Kind::Other, flags: 0, stream: 0 },
            left: 0,
            padding: 0,
            lead: 0,
            skip: false,
            max: DEFAULT_MAX,
        }
    }

    /// Somewhere in a connection.
    pub(super) fn lost() -> Self {
        // What was agreed on is not known.
        Self { state: State::Lost, max: FOUND_MAX, ..Self::new(false) }
    }

    /// Where the next frame begins is not known.
    pub(super) fn is_lost(&self) -> bool {
        self.state == State::Lost
    }

    /// The next octet begins a frame.
    pub(super) fn is_between(&self) -> bool {
        self.state == State::Header && self.have == 0
    }

    /// Gives framing up.
    pub(super) fn lose(&mut self) {
        self.state = State::Lost;
    }

    /// A connection begins here.
    pub(super) fn begin(&mut self) {
        self.state = State::Preface(0);
    }

    /// Framing goes on here.
    pub(super) fn found(&mut self) {
        self.state = State::Header;
        self.have = 0;
    }

    /// Takes the next piece from `input`; `None` when there is no more to say.
    pub(super) fn next<'b>(&mut self, input: &mut &'b mut [u8]) -> Option<Piece<'b>> {
        match self.state {
            State::Lost => None,
            State::Payload if self.left == 0 => {
                self.state = State::Header;
                self.have = 0;
                Some(Piece::End(self.frame))
            }
            _ if input.is_empty() => None,
            State::Preface(at) => Some(self.preface(at, input)),
            State::Header => Some(self.header(input)),
            State::Payload => Some(self.payload(input)),
        }
    }

    fn preface<'b>(&mut self, at: u8, input: &mut &'b mut [u8]) -> Piece<'b> {
        let wanted = &PREFACE[usize::from(at)..];
        let len = wanted.len().min(input.len());
        if input[..len] != wanted[..len] {
            self.lose();
            return Piece::Garbage;
        }
        take(input, len);
        let at = usize::from(at) + len;
        self.state = match u8::try_from(at) {
            Ok(at) if at_end(at) => State::Header,
            Ok(at) => State::Preface(at),
            Err(_) => State::Lost,
        };
        Piece::Frame
    }

    fn header<'b>(&mut self, input: &mut &'b mut [u8]) -> Piece<'b> {
        if !self.gather(HEADER, input) {
            return Piece::Frame;
        }
        let frame = Header::read(&self.buffer);
        if !frame.is_valid(self.max) {
            self.lose();
            return Piece::Garbage;
        }
        self.state = State::Payload;
        self.frame = frame;
        self.have = 0;
        self.left = frame.len;
        self.padding = 0;
        self.lead = frame.lead();
        self.skip = u32::from(self.lead) > frame.len;
        if self.skip {
            self.lead = 0;
        }
        Piece::Begin(frame)
    }

    fn payload<'b>(&mut self, input: &mut &'b mut [u8]) -> Piece<'b> {
        if self.lead > 0 {
            let before = self.have;
            let whole = self.gather(usize::from(self.lead), input);
            self.left -= u32::from(self.have - before);
            return if whole { self.lead() } else { Piece::Frame };
        }
        let content = if self.skip { 0 } else { self.left.saturating_sub(self.padding) };
        let bytes = take_up_to(input, if content > 0 { content } else { self.left });
        // Fits: not more than `left`.
        self.left -= u32::try_from(bytes.len()).unwrap_or(self.left);
        if content > 0 {
            let last = self.left == self.padding && self.ends_stream(input);
            return Piece::Content(self.frame, bytes, last);
        }
        mask_all(bytes);
        Piece::Frame
    }

    /// The body ends with the content of this frame: it says so, or an empty one does that comes right `behind` it.
    fn ends_stream(&self, behind: &[u8]) -> bool {
        let [a, b, c, d] = self.frame.stream.to_be_bytes();
        let empty = [0, 0, 0, 0, END_STREAM, a, b, c, d];
        self.frame.kind == Kind::Data
            && (self.frame.has(END_STREAM) || (self.left == 0 && behind.starts_with(&empty)))
    }

    /// The octets before the content are complete.
    fn lead<'b>(&mut self) -> Piece<'b> {
        let again = self.frame.kind == Kind::Settings && self.left >= 6;
        self.have = 0;
        if !again {
            self.lead = 0;
        }
        if self.frame.is_padded() {
            self.padding = self.buffer[0].into();
            self.skip = self.padding > self.left;
        }
        match self.frame.kind {
            Kind::Settings | Kind::Reset | Kind::GoAway | Kind::Window => {
                let [value @ .., _] = self.buffer;
                Piece::Value(self.frame, value)
            }
            _ => Piece::Frame,
        }
    }

    /// Gathers octets until there are `wanted`.
    fn gather(&mut self, wanted: usize, input: &mut &mut [u8]) -> bool {
        let have = usize::from(self.have);
        let bytes = take_up_to(input, u32::try_from(wanted - have).unwrap_or(0));
        self.buffer[have..have + bytes.len()].copy_from_slice(bytes);
        self.have += u8::try_from(bytes.len()).unwrap_or(0);
        usize::from(self.have) == wanted
    }

    /// So many octets of this direction were not captured. An end may follow: see [`Frames::next`].
    pub(super) fn gap(&mut self, len: u64) -> Gap {
        if self.state != State::Payload {
            self.lose();
            return Gap::Lost;
        }
        let Some(left) = u32::try_from(len).ok().and_then(|len| self.left.checked_sub(len)) else {
            self.lose();
            return Gap::PastEnd(self.frame);
        };
        self.left = left;
        self.skip |= self.lead > 0;
        self.lead = 0;
        Gap::InFrame(self.frame)
    }

    /// The content of the frame can't be told from its padding.
    pub(super) fn skips(&self) -> bool {
        self.skip
    }
}

fn at_end(at: u8) -> bool {
    usize::from(at) == PREFACE.len()
}

fn take<'b>(input: &mut &'b mut [u8], len: usize) -> &'b mut [u8] {
    let (taken, rest) = std::mem::take(input).split_at_mut(len);
    *input = rest;
    taken
}

fn take_up_to<'b>(input: &mut &'b mut [u8], len: u32) -> &'b mut [u8] {
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(input.len());
    take(input, len)
}

#[cfg(test)]
mod tests;
