//! Names, strings, numbers and literals: what stays of them and what is known by them.

use super::{Key, KeyMatch, Lexer, Place, State};
use crate::track::mask::{mask_text, masked};

/// Longest value that is kept; a longer one is masked from there on and not known.
pub(super) const MAX_KEPT: usize = 256;
/// The same for values that are one of a few words.
const MAX_WORD: usize = 32;
/// Most digits of a number that is kept.
const MAX_DIGITS: u8 = 19;

/// What becomes of a string value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// It is masked.
    No,
    /// It is masked, and if it is not empty then there is content.
    Content,
    /// It is masked, and if it is not empty then there is an error.
    Error,
    /// It stays and is known.
    Model,
    FinishReason,
    Object,
}

/// What becomes of a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Digits {
    pub keep: bool,
    pub value: Option<u64>,
    pub count: u8,
}

impl Digits {
    /// Adds a byte of the number and masks it; false when it is none.
    pub(super) fn push(&mut self, b: &mut u8) -> bool {
        match *b {
            b'0'..=b'9' => {
                let digit = u64::from(*b - b'0');
                self.value = self.value.and_then(|v| v.checked_mul(10)?.checked_add(digit));
                if !self.keep || self.count == MAX_DIGITS {
                    self.value = None;
                    *b = b'1';
                }
                self.count = (self.count + 1).min(MAX_DIGITS);
            }
            b'-' | b'+' | b'.' | b'e' | b'E' => self.value = None,
            _ => return false,
        }
        true
    }
}

impl Lexer {
    /// Bytes of a member's name, which began at `start` (or in an earlier call).
    pub(super) fn name(&mut self, mut name: KeyMatch, bytes: &mut [u8], at: usize, start: usize) -> usize {
        if name.is_new()
            && let Some(len) = bytes[at..].iter().position(|b| matches!(b, b'"' | b'\\'))
            && bytes[at + len] == b'"'
        {
            return self.whole_name(&mut bytes[at..at + len], at);
        }
        match bytes[at] {
            b'"' => {
                let key = name.key();
                if key.is_none() && name.known() {
                    mask_back(bytes, start, at);
                }
                self.key = key.unwrap_or(Key::Other);
                self.state = State::Colon;
                return at + 1;
            }
            b'\\' => {
                if name.known() {
                    mask_back(bytes, start, at);
                }
                name.fail();
                bytes[at] = b'x';
                self.state = State::NameEscape(name);
                return at + 1;
            }
            b => {
                let known = name.known();
                if !name.push(b) {
                    mask_back(bytes, if known { start } else { at }, at + 1);
                }
            }
        }
        self.state = State::InName(name);
        at + 1
    }

    /// The usual case: a name that is in one piece.
    fn whole_name(&mut self, name: &mut [u8], at: usize) -> usize {
        let key = Key::of(name);
        if key.is_none() {
            mask_text(name);
        }
        self.key = key.unwrap_or(Key::Other);
        self.state = State::Colon;
        at + name.len() + 1
    }

    /// Bytes of a string value.
    pub(super) fn text(&mut self, keep: Keep, bytes: &mut [u8], mut at: usize) -> usize {
        match (keep, bytes[at]) {
            (_, b'"') | (Keep::No, _) => {}
            (Keep::Content, _) => self.facts.mark_content(),
            (Keep::Error, _) => self.facts.error = true,
            (Keep::Model | Keep::FinishReason | Keep::Object, _) => return self.keep_text(keep, bytes, at),
        }
        while let Some(b) = bytes.get_mut(at) {
            at += 1;
            match *b {
                b'"' => {
                    self.end_text(keep);
                    return at;
                }
                b'\\' => {
                    *b = b'x';
                    self.state = State::TextEscape(Keep::No);
                    return at;
                }
                other => *b = masked(other),
            }
        }
        self.state = State::Text(Keep::No);
        at
    }

    fn keep_text(&mut self, keep: Keep, bytes: &[u8], at: usize) -> usize {
        let rest = &bytes[at..];
        let most = if keep == Keep::Model { MAX_KEPT } else { MAX_WORD };
        let room = most.saturating_sub(self.kept.len());
        let len = rest.iter().position(|b| matches!(b, b'"' | b'\\')).unwrap_or(rest.len());
        if len > room || (len == room && rest.get(len) == Some(&b'\\')) {
            self.state = State::Text(Keep::No);
            return at + room;
        }
        self.kept.extend_from_slice(&rest[..len]);
        match rest.get(len) {
            Some(b'"') => self.end_text(keep),
            Some(_) => {
                self.kept.push(b'\\');
                self.state = State::TextEscape(keep);
            }
            None => return bytes.len(),
        }
        at + len + 1
    }

    /// The byte behind a backslash.
    pub(super) fn escaped(&mut self, keep: Keep, b: &mut u8) {
        if matches!(keep, Keep::Model | Keep::FinishReason | Keep::Object) {
            self.kept.push(*b);
        } else {
            *b = b'x';
        }
        self.state = State::Text(keep);
    }

    fn end_text(&mut self, keep: Keep) {
        self.end_value();
        let origin = if self.top().place == Place::Unknown { Some(self.outwards) } else { None };
        match keep {
            Keep::Model => self.facts.set_model(&self.kept, origin),
            Keep::FinishReason => self.facts.set_finish_reason(&self.kept),
            Keep::Object if self.kept == b"error" => self.facts.error = true,
            _ => {}
        }
    }

    /// One byte of a word.
    pub(super) fn literal(&mut self, word: &'static [u8], at: u8, b: &mut u8) {
        if word.get(usize::from(at)) != Some(b) {
            return self.fail(b);
        }
        if usize::from(at) + 1 < word.len() {
            self.state = State::Literal(word, at + 1);
            return;
        }
        self.end_value();
        let yes = word == b"true";
        match (self.top().place, self.key) {
            _ if word == b"null" => {}
            (Place::Root, Key::Stream) => self.facts.set_stream(yes, None),
            (Place::Unknown, Key::Stream) => self.facts.set_stream(yes, Some(self.outwards)),
            (Place::StreamOptions | Place::Unknown, Key::IncludeUsage) => {
                self.facts.include_usage = Some(yes);
            }
            _ => {}
        }
    }

    /// Bytes of a number, up to one that is none.
    pub(super) fn number(&mut self, mut digits: Digits, bytes: &mut [u8], mut at: usize) -> usize {
        while let Some(b) = bytes.get_mut(at) {
            if !digits.push(b) {
                self.end_value();
                if let Some(value) = digits.value.filter(|_| digits.keep) {
                    self.facts.set_number(self.key, value);
                }
                return at;
            }
            at += 1;
        }
        self.state = State::Number(digits);
        at
    }

    fn end_value(&mut self) {
        self.state = if self.depth == 0 { State::Done } else { State::After };
    }
}

pub(super) fn keep_text(place: Place, key: Key) -> Keep {
    match (place, key) {
        (Place::Root | Place::Unknown, Key::Model) => Keep::Model,
        (Place::Root | Place::Unknown, Key::Object) => Keep::Object,
        (Place::Root, Key::Error) => Keep::Error,
        (Place::Choice | Place::Unknown, Key::FinishReason) => Keep::FinishReason,
        (Place::Choice, Key::Text)
        | (Place::Delta, Key::Content | Key::ReasoningContent | Key::Reasoning | Key::Refusal) => {
            Keep::Content
        }
        _ => Keep::No,
    }
}

pub(super) fn keep_number(place: Place, key: Key) -> bool {
    match key {
        Key::MaxTokens | Key::MaxCompletionTokens => matches!(place, Place::Root | Place::Unknown),
        Key::PromptTokens | Key::CompletionTokens | Key::TotalTokens => {
            matches!(place, Place::Usage | Place::Unknown)
        }
        Key::Index => place == Place::Choice,
        _ => false,
    }
}

/// Masks the part of a name that looked like a kept one. (What an earlier call held of it stays: a few letters
/// of a word from the list.)
pub(super) fn mask_back(bytes: &mut [u8], start: usize, end: usize) {
    mask_text(&mut bytes[start..end]);
}
