//! Masking: captured bytes lose their text where they are, before anything else sees them.
//!
//! What a parser needs to come to the same result stays; every other letter, digit and non-ASCII byte becomes `x`.
//! Masking is idempotent, and everything is parsed *as masked*, so a redacted recording replays to what the live
//! run gave. Bytes are masked as they pass and never looked at again, so a head split over many calls is masked
//! like a whole one.

/// Methods that begin a request. A closed list, since it is also what tells HTTP from other protocols. Sorted.
const METHODS: &[&[u8]] =
    &[b"CONNECT", b"DELETE", b"GET", b"HEAD", b"OPTIONS", b"PATCH", b"POST", b"PUT", b"TRACE"];

/// Headers that are read, and so kept: framing, content kind, and what ties a request to others. Sorted, lower case.
const KEPT_HEADERS: &[&[u8]] = &[
    b"content-encoding",
    b"content-length",
    b"content-type",
    b"inference-header-content-length",
    b"traceparent",
    b"transfer-encoding",
    b"upgrade",
    b"x-request-id",
];
/// Their values, where only some words matter; other values are masked from where they differ.
const KEPT_VALUES: [Option<Words>; KEPT_HEADERS.len()] =
    [Some(&[b"identity"]), None, Some(CONTENT_TYPES), None, None, None, Some(UPGRADES), None];
/// Content types that are told apart, and the commonest of the others. Sorted, lower case.
const CONTENT_TYPES: Words = &[
    b"application/json",
    b"application/jsonl",
    b"application/ndjson",
    b"application/x-ndjson",
    b"text/event-stream",
];

/// Protocols that a connection can change to and that are told apart. Sorted, lower case.
const UPGRADES: Words = &[b"h2c", b"websocket"];

/// Words, sorted.
type Words = &'static [&'static [u8]];

/// The byte that stands for `b` in masked text.
pub(super) fn masked(b: u8) -> u8 {
    if b.is_ascii_alphanumeric() || !b.is_ascii() { b'x' } else { b }
}

/// Masks text: letters, digits and non-ASCII bytes become `x`, punctuation stays.
pub(super) fn mask_text(bytes: &mut [u8]) {
    for b in bytes {
        *b = masked(*b);
    }
}

/// Masks everything: for bytes of an unknown protocol or a compressed body.
pub(super) fn mask_all(bytes: &mut [u8]) {
    bytes.fill(b'x');
}

/// Byte-wise look-up of a name in a sorted table: the range of names that begin with the bytes so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Narrow {
    low: u8,
    high: u8,
    len: u8,
}

impl Narrow {
    /// All names of the table are possible.
    pub(super) fn new(table: &[&[u8]]) -> Self {
        Self { low: 0, high: u8::try_from(table.len()).unwrap_or(u8::MAX), len: 0 }
    }

    /// No byte was added yet.
    pub(super) fn is_new(self) -> bool {
        self.len == 0
    }

    /// Adds a byte; false when no name begins so.
    pub(super) fn push(&mut self, table: &[&[u8]], b: u8) -> bool {
        let at = usize::from(self.len);
        let fits = |i: u8| table[usize::from(i)].get(at) == Some(&b);
        while self.low < self.high && !fits(self.low) {
            self.low += 1;
        }
        while self.low < self.high && !fits(self.high - 1) {
            self.high -= 1;
        }
        self.len = self.len.saturating_add(1);
        self.low < self.high
    }

    /// The name that consists of exactly the bytes so far. (Shorter names sort first.)
    pub(super) fn exact(self, table: &[&[u8]]) -> Option<usize> {
        let low = usize::from(self.low);
        (self.low < self.high && table[low].len() == usize::from(self.len)).then_some(low)
    }
}

/// Where a head's mask stands.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In the method.
    Method(Narrow),
    /// At the beginning of the request target.
    TargetStart,
    /// In the request target, before a `?`.
    Target,
    /// In scheme, credentials and host of a target in absolute form: so many `/` to come.
    Authority(u8),
    /// Behind the `?`.
    Query,
    /// In the fixed text `HTTP/1.` at this byte, of a request line (true) or a status line.
    Version(bool, u8),
    /// In the rest of the first line.
    FirstLine,
    /// At the beginning of a line.
    LineStart,
    /// Behind the CR of an empty line.
    LastCr,
    /// In a header's name.
    Name(Narrow, bool),
    /// In a header's value, kept or not.
    Value(bool),
    /// In a value that is kept as far as it is one of these.
    Word(Words, Narrow),
}

/// What a byte did to a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadStep {
    /// It goes on.
    More,
    /// That was the last byte of the head.
    End,
    /// This is no HTTP/1 head.
    Bad,
}

/// Masks the head of a message, or the trailers of a chunked one, byte by byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadMask {
    place: Place,
}

impl HeadMask {
    /// At the beginning of a request line.
    pub(super) fn request() -> Self {
        Self { place: Place::Method(Narrow::new(METHODS)) }
    }

    /// At the beginning of a status line.
    pub(super) fn response() -> Self {
        Self { place: Place::Version(false, 0) }
    }

    /// At the beginning of trailers.
    pub(super) fn trailers() -> Self {
        Self { place: Place::LineStart }
    }

    /// Masks the first bytes that leave the mask where it is, all at once: how many. Nearly all of a long head are such,
    /// and byte by byte each would cost forty times as much.
    pub(super) fn run(self, bytes: &mut [u8]) -> usize {
        let len = match self.place {
            Place::Value(_) | Place::FirstLine => memchr::memchr(b'\n', bytes),
            Place::Name(_, false) => bytes.iter().position(|b| !is_in_name(*b)),
            Place::Target | Place::Query => bytes.iter().position(|b| matches!(b, 0..=b' ' | b'?' | 0x7f)),
            _ => Some(0),
        };
        let len = len.unwrap_or(bytes.len());
        let bytes = &mut bytes[..len];
        match self.place {
            Place::Value(true) | Place::Target => {}
            Place::Query => bytes.fill(b'x'),
            Place::Name(..) => mask_text(bytes),
            _ => bytes.iter_mut().for_each(|b| *b = hidden(*b)),
        }
        len
    }

    /// Masks one byte.
    pub(super) fn step(&mut self, b: &mut u8) -> HeadStep {
        let Some(place) = self.next(b) else {
            return if matches!(self.place, Place::LineStart | Place::LastCr) && *b == b'\n' {
                HeadStep::End
            } else {
                HeadStep::Bad
            };
        };
        self.place = place;
        HeadStep::More
    }

    /// The byte that showed that this is no head must stay, since masked it would not show it.
    pub(super) fn needs_bad(self) -> bool {
        matches!(self.place, Place::TargetStart | Place::Target | Place::Authority(_) | Place::Query)
    }

    /// Masks the byte and says where that leads; `None` at the end of the head or when it cannot be one.
    fn next(self, b: &mut u8) -> Option<Place> {
        Some(match self.place {
            Place::Method(mut narrow) => {
                if *b == b' ' {
                    narrow.exact(METHODS)?;
                    return Some(Place::TargetStart);
                }
                narrow.push(METHODS, *b).then_some(Place::Method(narrow))?
            }
            Place::TargetStart | Place::Target | Place::Authority(_) | Place::Query => self.target(b)?,
            Place::Version(request, at) => version(request, at, *b)?,
            Place::FirstLine => match value(false, b) {
                Place::LineStart => Place::LineStart,
                _ => Place::FirstLine,
            },
            Place::LineStart => line_start(b)?,
            Place::LastCr => return None,
            Place::Name(narrow, known) => name(narrow, known, b),
            Place::Value(keep) => value(keep, b),
            Place::Word(words, narrow) => word(words, narrow, b),
        })
    }

    fn target(self, b: &mut u8) -> Option<Place> {
        Some(match (self.place, *b) {
            (_, b' ') => Place::Version(true, 0),
            (_, 0..b' ' | 0x7f) => return None,
            (_, b'?') => Place::Query,
            (Place::Query, _) => {
                *b = b'x';
                Place::Query
            }
            // Of `http://user:password@host/path` only the path is of use.
            (Place::TargetStart, b) if b.is_ascii_alphanumeric() => Place::Authority(3),
            (Place::Authority(1), b'/') => Place::Target,
            (Place::Authority(slashes), b'/') => Place::Authority(slashes - 1),
            (Place::Authority(slashes), _) => {
                *b = masked(*b);
                Place::Authority(slashes)
            }
            _ => Place::Target,
        })
    }
}

/// `HTTP/1.1` and, in a status line, the status after it.
fn version(request: bool, at: u8, b: u8) -> Option<Place> {
    let good = match at {
        7 => b == b'0' || b == b'1',
        8 if request => b == b'\r' || b == b'\n',
        8 => b == b' ',
        9..=11 => b.is_ascii_digit(),
        _ => b"HTTP/1.".get(usize::from(at)) == Some(&b),
    };
    match (good, at, b) {
        (false, ..) => None,
        (true, 8, b'\n') => Some(Place::LineStart),
        (true, 8, b'\r') | (true, 11, _) => Some(Place::FirstLine),
        _ => Some(Place::Version(request, at + 1)),
    }
}

fn line_start(b: &mut u8) -> Option<Place> {
    match *b {
        b'\n' => None,
        b'\r' => Some(Place::LastCr),
        // A folded line belongs to the value before; whether that one was kept is not worth remembering.
        b' ' | b'\t' => Some(Place::Value(false)),
        _ => Some(name(Narrow::new(KEPT_HEADERS), true, b)),
    }
}

/// Names of headers are kept, as far as they can be one of the list.
fn name(mut narrow: Narrow, known: bool, b: &mut u8) -> Place {
    match *b {
        b':' => match narrow.exact(KEPT_HEADERS).filter(|_| known).map(|at| KEPT_VALUES[at]) {
            Some(Some(words)) => Place::Word(words, Narrow::new(words)),
            Some(None) => Place::Value(true),
            None => Place::Value(false),
        },
        b'\n' => Place::LineStart,
        other if is_in_name(other) => {
            let known = known && narrow.push(KEPT_HEADERS, b.to_ascii_lowercase());
            if !known {
                *b = masked(*b);
            }
            Place::Name(narrow, known)
        }
        _ => value(false, b),
    }
}

/// Of `text/event-stream; charset=utf-8`, what stands before the semicolon.
fn word(words: Words, mut narrow: Narrow, b: &mut u8) -> Place {
    let is_word = narrow.exact(words).is_some();
    match *b {
        b' ' | b'\t' | b'\r' if is_word || narrow.is_new() => Place::Word(words, narrow),
        b';' if is_word => Place::Value(false),
        other if narrow.push(words, other.to_ascii_lowercase()) => Place::Word(words, narrow),
        _ => value(false, b),
    }
}

fn is_in_name(b: u8) -> bool {
    matches!(b, b'-' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z')
}

fn value(keep: bool, b: &mut u8) -> Place {
    if *b == b'\n' {
        return Place::LineStart;
    }
    if !keep {
        *b = hidden(*b);
    }
    Place::Value(keep)
}

/// What stands for a byte of a value that is not kept.
fn hidden(b: u8) -> u8 {
    if matches!(b, b' ' | b'\t' | b'\r') { b } else { b'x' }
}

/// A call's bytes begin with a request line, as far as they go: so many of them prove it.
pub(super) fn begins_request(bytes: &[u8]) -> Option<usize> {
    METHODS.iter().find_map(|method| match bytes.strip_prefix(*method)? {
        [b' ', b'/' | b'*' | b'h', ..] => Some(method.len() + 2),
        _ => None,
    })
}

/// A call's bytes begin with a status line: so many of them prove it.
pub(super) fn begins_response(bytes: &[u8]) -> Option<usize> {
    match bytes.strip_prefix(b"HTTP/1.")? {
        [b'0' | b'1', b' ', a, b, c, ..] if [a, b, c].iter().all(|d| d.is_ascii_digit()) => Some(12),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
