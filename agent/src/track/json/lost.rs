//! The lexer after a gap: looking for a member with a known name.

use std::ops::Range;

use super::{Act, Key, KeyMatch, Kind, Level, Lexer, Place, State, mask_back, masked};
use crate::track::mask::mask_text;

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

/// A model's name that was found after a gap: the root's, or that of some object inside.
#[derive(Clone, Debug)]
pub(super) struct Believed {
    /// Where it stands in the bytes that are being read.
    at: Range<usize>,
    /// How far outside of what was known first its object is.
    outwards: u32,
}

impl Lexer {
    /// A string's bytes were read: if it was the model's name, it is believed for now.
    pub(super) fn believe(&mut self, act: Act, bytes: &mut [u8], at: Range<usize>) {
        let goes_on = matches!(self.state, State::Text(_) | State::TextEscape(_));
        if act != Act::Model || goes_on || self.top().place != Place::Unknown {
            return;
        }
        let found = Believed { at: at.start..at.end - 1, outwards: self.outwards };
        if let Some(earlier) = self.believed.replace(found) {
            mask_text(&mut bytes[earlier.at]);
        }
    }

    /// What proves to be a member of an object inside is not believed any more, and does not stay.
    pub(super) fn doubt(&mut self, bytes: &mut [u8]) {
        if let Some(found) = self.believed.take_if(|found| !self.facts.model_is_of(found.outwards)) {
            mask_text(&mut bytes[found.at]);
        }
    }

    /// No more bytes for now. A name stays only if its object was left and the document ends here (`last`), so that it
    /// was the root: later bytes could take back what is known by it, but not what stands here.
    pub(super) fn leave(&mut self, bytes: &mut [u8], text_start: usize, last: bool) {
        if self.top().place == Place::Unknown {
            match self.state {
                State::Text(Act::Model) => self.state = State::Text(Act::None),
                State::TextEscape(Act::Model) => self.state = State::TextEscape(Act::None),
                _ => {}
            }
            if matches!(self.state, State::Text(Act::None) | State::TextEscape(Act::None)) {
                mask_text(&mut bytes[text_start..]);
            }
        }
        let Some(found) = self.believed.take() else { return };
        let is_inside = found.outwards == self.outwards || !last;
        if is_inside {
            self.facts.forget_model();
        }
        if is_inside || !self.facts.model_is_of(found.outwards) {
            mask_text(&mut bytes[found.at]);
        }
    }

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
