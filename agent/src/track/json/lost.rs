//! The lexer after a gap: looking for a member with a known name.

use super::{Act, Key, KeyMatch, Kind, Level, Lexer, Place, State, mask_back, masked};

#[derive(Clone, Copy, Debug)]
pub(super) enum Lost {
    /// First byte, or behind backslashes that begin here: whether a quote is escaped is not known.
    Start,
    /// Anywhere.
    Scan,
    /// Behind a backslash.
    Escape,
    /// Behind an unescaped quote, while the bytes look like a kept name.
    Name(KeyMatch),
    /// Behind a kept name in unescaped quotes.
    Colon(Key),
}

impl Lexer {
    /// One byte after a gap. `name_start` is where the name began in these bytes.
    pub(super) fn lost(&mut self, lost: Lost, bytes: &mut [u8], at: usize, name_start: &mut usize) -> usize {
        let next = match (lost, bytes[at]) {
            (Lost::Start, b'\\') => {
                bytes[at] = b'x';
                Lost::Start
            }
            (Lost::Start, b'"') | (Lost::Escape, _) => {
                bytes[at] = b'x';
                Lost::Scan
            }
            (Lost::Name(name), b) => name_byte(name, b).unwrap_or_else(|| {
                mask_back(bytes, *name_start, at);
                scan(bytes, at, name_start)
            }),
            (Lost::Colon(key), b' ' | b'\t' | b'\r' | b'\n') => Lost::Colon(key),
            (Lost::Colon(key), b':') => {
                self.found(key);
                return at + 1;
            }
            (Lost::Colon(_), _) => {
                mask_back(bytes, *name_start, at);
                scan(bytes, at, name_start)
            }
            _ => scan(bytes, at, name_start),
        };
        self.state = State::Lost(next);
        at + 1
    }

    /// A member of some object: from here on the way is known again.
    fn found(&mut self, key: Key) {
        self.levels[0] = Level { kind: Kind::Object, place: Place::Unknown, act: Act::None };
        self.depth = 1;
        self.key = key;
        self.state = State::Value(false);
    }
}

/// A byte of what may be a kept name; `None` when it is none.
fn name_byte(mut name: KeyMatch, b: u8) -> Option<Lost> {
    match b {
        b'"' => name.key().map(Lost::Colon),
        b'\\' => None,
        _ => name.push(b).then_some(Lost::Name(name)),
    }
}

fn scan(bytes: &mut [u8], at: usize, name_start: &mut usize) -> Lost {
    match bytes[at] {
        b'"' => {
            *name_start = at + 1;
            Lost::Name(KeyMatch::new())
        }
        b'\\' => {
            bytes[at] = b'x';
            Lost::Escape
        }
        b => {
            bytes[at] = masked(b);
            Lost::Scan
        }
    }
}
