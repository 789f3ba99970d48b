//! Names, strings, numbers and literals: what stays of them and what is known by them.

use memchr::memchr2;

use super::{Act, Key, KeyMatch, Lexer, Place, State, Word};
use crate::track::mask::mask_text;

/// Longest value that is kept; a longer one is masked from there on and not known.
pub(super) const MAX_KEPT: usize = 256;
/// Most digits of a number that is kept.
const MAX_DIGITS: u8 = 19;

/// What becomes of a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Digits {
    /// What it is good for; it is masked if for nothing.
    pub act: Act,
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
                if self.act == Act::None || self.count == MAX_DIGITS {
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
            && let Some(len) = memchr2(b'"', b'\\', &bytes[at..])
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
                self.key = key.unwrap_or(Key::OTHER);
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
        self.key = key.unwrap_or(Key::OTHER);
        self.state = State::Colon;
        at + name.len() + 1
    }

    /// Bytes of a string value.
    pub(super) fn text(&mut self, act: Act, bytes: &mut [u8], at: usize) -> usize {
        match (act, bytes[at]) {
            (act, _) if act.is_word() => return self.word(act, bytes, at),
            (act, _) if act.keeps_text() => return self.keep_text(act, bytes, at),
            (Act::None | Act::Growth, _) | (_, b'"') => {}
            (Act::Content, _) => self.facts.mark_content(),
            (Act::Error, _) => self.facts.error = true,
            _ => self.facts.mark_any_content(),
        }
        let rest = &mut bytes[at..];
        let len = memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
        mask_text(&mut rest[..len]);
        self.len += len as u64;
        match rest.get_mut(len) {
            Some(b'"') => self.end_text(act),
            Some(backslash) => {
                *backslash = b'x';
                self.len += 1;
                self.state = State::TextEscape(act);
            }
            None => {
                self.state = State::Text(act);
                return at + len;
            }
        }
        at + len + 1
    }

    /// Bytes of what may be a word of the list.
    fn word(&mut self, act: Act, bytes: &mut [u8], begin: usize) -> usize {
        if self.word.is_new()
            && let Some(len) = memchr2(b'"', b'\\', &bytes[begin..])
            && bytes[begin + len] == b'"'
        {
            return self.whole_word(act, &mut bytes[begin..begin + len], begin);
        }
        for at in begin..bytes.len() {
            match bytes[at] {
                b'"' => {
                    if self.word.index().is_none() {
                        mask_back(bytes, begin, at);
                    }
                    self.said(act, self.word.index());
                    self.end_value();
                    return at + 1;
                }
                b if b != b'\\' && self.word.push(b) => {}
                _ => {
                    mask_back(bytes, begin, at);
                    self.said(act, None);
                    self.state = State::Text(Act::None);
                    return at;
                }
            }
        }
        bytes.len()
    }

    /// The usual case: a word that is in one piece.
    fn whole_word(&mut self, act: Act, word: &mut [u8], begin: usize) -> usize {
        let index = self.word.find(word);
        if index.is_none() {
            mask_text(word);
        }
        if !word.is_empty() {
            self.said(act, index);
        }
        self.end_value();
        begin + word.len() + 1
    }

    /// A word was read: its place in its list, if it is there.
    fn said(&mut self, act: Act, index: Option<usize>) {
        match (act, index) {
            (Act::Word, Some(index)) => self.facts.set_word(Word::at(index)),
            (Act::Word, None) => {}
            (_, index) => self.facts.set_finish_reason(index),
        }
    }

    fn keep_text(&mut self, act: Act, bytes: &[u8], at: usize) -> usize {
        let rest = &bytes[at..];
        let room = MAX_KEPT.saturating_sub(self.kept.len());
        let len = memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
        if len > room || (len == room && rest.get(len) == Some(&b'\\')) {
            self.state = State::Text(Act::None);
            return at + room;
        }
        self.kept.extend_from_slice(&rest[..len]);
        match rest.get(len) {
            Some(b'"') => self.end_text(act),
            Some(_) => {
                self.kept.push(b'\\');
                self.state = State::TextEscape(act);
            }
            None => return bytes.len(),
        }
        at + len + 1
    }

    /// The byte behind a backslash.
    pub(super) fn escaped(&mut self, act: Act, b: &mut u8) {
        if act.keeps_text() {
            self.kept.push(*b);
        } else {
            *b = b'x';
        }
        self.len += 1;
        self.state = State::Text(act);
    }

    /// The value was found in the root (`None`), or so far outside of what is known after a gap.
    fn origin(&self) -> Option<u32> {
        (self.top().place == Place::Unknown).then_some(self.outwards)
    }

    fn end_text(&mut self, act: Act) {
        self.end_value();
        match act {
            Act::Model => self.facts.set_model(&self.kept, self.origin()),
            Act::Version => self.facts.set_version(&self.kept),
            Act::Growth => self.facts.grow(self.len),
            Act::Final => self.facts.ended = true,
            _ => {}
        }
    }

    /// One byte of a word without quotes.
    pub(super) fn literal(&mut self, word: &'static [u8], at: u8, act: Act, b: &mut u8) {
        if word.get(usize::from(at)) != Some(b) {
            return self.fail(b);
        }
        if usize::from(at) + 1 < word.len() {
            self.state = State::Literal(word, at + 1, act);
            return;
        }
        self.end_value();
        let yes = word == b"true";
        match act {
            _ if word == b"null" => {}
            Act::Stream => self.facts.set_stream(yes, self.origin()),
            _ => self.facts.set_flag(act, yes),
        }
    }

    /// Bytes of a number, up to one that is none.
    pub(super) fn number(&mut self, mut digits: Digits, bytes: &mut [u8], mut at: usize) -> usize {
        while let Some(b) = bytes.get_mut(at) {
            if !digits.push(b) {
                self.end_value();
                if let Some(value) = digits.value.filter(|_| digits.act != Act::None) {
                    self.facts.set_number(digits.act, value);
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

/// Masks the part of a name that looked like a kept one. (What an earlier call held of it stays: a few letters
/// of a word from the list.)
pub(super) fn mask_back(bytes: &mut [u8], start: usize, end: usize) {
    mask_text(&mut bytes[start..end]);
}
