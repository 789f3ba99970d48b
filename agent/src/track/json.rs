//! Incremental JSON lexer: finds the few facts that matter in a body and masks the rest where it is.
//!
//! Bytes go through once, in pieces of any size, and nothing is kept but the nesting and the value of a kept member.
//! A byte's masked form takes the lexer to the same state as the byte itself, so a masked body gives the same facts.
//!
//! After a gap it is not known whether the next byte is inside a string. But in a string every quote is escaped, so
//! the unescaped characters `"model"` followed by a colon can only be a member: there the lexer knows again where
//! it is ([`lost`]).

mod act;
mod facts;
mod grammar;
mod growth;
mod keys;
mod lost;
mod nesting;
mod place;
mod reasons;
mod rules;
mod scalar;

use act::Act;
pub(super) use act::Engine;
pub(super) use facts::Facts;
pub(super) use grammar::Grammar;
use keys::{Key, KeyMatch, Word, WordMatch};
use lost::Believed;
use lost::Lost;
use nesting::{Kind, Level, MAX_DEPTH};
use place::Place;
pub(super) use reasons::{is_context, is_filter, is_length};
use scalar::{Digits, mask_back};

use super::mask::masked;

#[derive(Clone, Copy, Debug)]
enum State {
    /// A value; with true also the end of an empty array.
    Value(bool),
    /// A member's name; with true also the end of an empty object.
    Name(bool),
    /// Inside a member's name.
    InName(KeyMatch),
    /// Behind a backslash inside a member's name.
    NameEscape(KeyMatch),
    /// The colon behind a name.
    Colon,
    /// Inside a string value.
    Text(Act),
    /// Behind a backslash inside one.
    TextEscape(Act),
    /// In `true`, `false` or `null`, at this byte.
    Literal(&'static [u8], u8, Act),
    /// In a number.
    Number(Digits),
    /// Behind a value: comma or end.
    After,
    /// Behind the document.
    Done,
    /// Not JSON, or too deep: masked to the end.
    Failed,
    /// After a gap.
    Lost(Lost),
}

/// The lexer.
#[derive(Clone, Debug)]
pub(super) struct Lexer {
    grammar: Grammar,
    state: State,
    levels: [Level; MAX_DEPTH],
    depth: usize,
    /// Name of the member whose value comes.
    key: Key,
    kept: Vec<u8>,
    word: WordMatch,
    /// Bytes of the string so far.
    len: u64,
    /// Some of the body is missing.
    gap: bool,
    /// How far outside of the first known object after a gap: the root's members are the outermost.
    outwards: u32,
    /// The model's name that was found after the gap, in the bytes that are being read.
    believed: Option<Believed>,
    facts: Facts,
}

impl Lexer {
    /// At the beginning of a document.
    pub(super) fn new(grammar: Grammar) -> Self {
        Self {
            grammar,
            state: State::Value(false),
            levels: [Level { kind: Kind::Unknown, place: Place::Other, act: Act::None }; MAX_DEPTH],
            depth: 0,
            key: Key::OTHER,
            kept: Vec::new(),
            word: WordMatch::new(false),
            len: 0,
            gap: false,
            outwards: 0,
            believed: None,
            facts: Facts::default(),
        }
    }

    /// What was found so far, over all documents.
    pub(super) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The same, to take the marks of one document from it.
    pub(super) fn facts_mut(&mut self) -> &mut Facts {
        &mut self.facts
    }

    /// The body is not JSON (or too deep), so that what is absent from the facts is not known to be absent.
    pub(super) fn failed(&self) -> bool {
        matches!(self.state, State::Failed)
    }

    /// Nothing was understood since the last gap, so that what is absent from the facts may have been in it.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self.state, State::Lost(_))
    }

    /// Some of the body is missing, with the same consequence.
    pub(super) fn has_gap(&self) -> bool {
        self.gap
    }

    /// A document is complete, and no other has begun.
    pub(super) fn complete(&self) -> bool {
        matches!(self.state, State::Done | State::Failed)
    }

    /// The next byte begins a new document.
    pub(super) fn restart(&mut self) {
        self.state = State::Value(false);
        self.depth = 0;
        self.outwards = 0;
        self.key = Key::OTHER;
    }

    /// Whatever comes is to be masked until [`Lexer::restart`].
    pub(super) fn give_up(&mut self) {
        self.state = State::Failed;
    }

    /// An unknown number of bytes is missing here.
    pub(super) fn gap(&mut self) {
        self.gap = true;
        if !self.failed() {
            if matches!(self.state, State::Text(Act::Growth) | State::TextEscape(Act::Growth)) {
                self.facts.text_goes_on(self.len);
            }
            self.facts.gap(self.top().act == Act::Ids);
            self.depth = 0;
            self.outwards = 0;
            self.state = State::Lost(Lost::Start);
        }
    }

    /// Reads and masks the next bytes; `last` when no more of the document are sure to come.
    pub(super) fn feed(&mut self, bytes: &mut [u8], last: bool) {
        let (mut at, mut name_start, mut text_start) = (0, 0, 0);
        while at < bytes.len() {
            at = match self.state {
                State::Text(act) => {
                    let next = self.text(act, bytes, at);
                    self.believe(act, bytes, text_start..next);
                    next
                }
                State::Failed => {
                    bytes[at] = masked(bytes[at]);
                    at + 1
                }
                State::InName(name) => self.name(name, bytes, at, name_start),
                State::Lost(lost) => self.lost(lost, bytes, at, &mut name_start),
                State::TextEscape(_) => self.step(bytes, at),
                _ => {
                    (name_start, text_start) = (at + 1, at + 1);
                    let next = self.step(bytes, at);
                    self.doubt(bytes);
                    next
                }
            };
        }
        self.leave(bytes, text_start, last);
    }

    /// Bytes outside of strings; where to go on.
    fn step(&mut self, bytes: &mut [u8], at: usize) -> usize {
        match self.state {
            State::NameEscape(name) => {
                bytes[at] = b'x';
                self.state = State::InName(name);
            }
            State::TextEscape(act) => self.escaped(act, &mut bytes[at]),
            State::Literal(word, done, act) => self.literal(word, done, act, &mut bytes[at]),
            State::Number(digits) => return self.number(digits, bytes, at),
            _ if matches!(bytes[at], b' ' | b'\t' | b'\r' | b'\n') => {}
            State::Done => {
                self.restart();
                return at;
            }
            _ => self.structure(&mut bytes[at]),
        }
        at + 1
    }

    fn structure(&mut self, b: &mut u8) {
        let kind = self.top().kind;
        match (self.state, *b) {
            (State::Name(_), b'"') => self.state = State::InName(KeyMatch::new()),
            (State::Name(true), b'}') | (State::Value(true), b']') | (State::After, b'}' | b']') => {
                self.pop(*b);
            }
            // After a gap: if it has values without names, then it is an array.
            (State::Name(false), _) | (State::Colon, b',' | b']') if kind == Kind::Unknown => {
                self.array_after_all(b);
            }
            (State::Value(_), _) => self.value(b),
            (State::Colon, b':') => {
                if kind == Kind::Unknown {
                    self.levels[self.depth - 1].kind = Kind::Object;
                }
                self.state = State::Value(false);
            }
            (State::After, b',') => self.comma(),
            _ => self.fail(b),
        }
    }

    fn value(&mut self, b: &mut u8) {
        match self.top().act {
            Act::Content => self.facts.mark_content(),
            Act::Whole => self.facts.mark_any_content(),
            Act::Ids => self.facts.add_id(),
            Act::Tensor if matches!(*b, b'-' | b'0'..=b'9') => self.facts.mark_numbers(),
            _ => {}
        }
        let (place, act) = self.coming();
        self.facts.seen(act);
        match *b {
            b'"' => {
                if act == Act::Tensor {
                    self.facts.mark_text();
                }
                self.kept.clear();
                self.word = WordMatch::new(act != Act::Word);
                self.len = 0;
                self.state = State::Text(act.on_text());
            }
            b'{' => self.push(Kind::Object, place, act),
            b'[' => self.push(Kind::Array, place, act),
            b't' => self.state = State::Literal(b"true", 1, act),
            b'f' => self.state = State::Literal(b"false", 1, act),
            b'n' => self.state = State::Literal(b"null", 1, act),
            b'-' | b'0'..=b'9' => {
                let act = if act.on_number() { act } else { Act::None };
                let mut digits = Digits { act, value: Some(0), count: 0 };
                digits.push(b);
                self.state = State::Number(digits);
            }
            _ => self.fail(b),
        }
    }

    fn fail(&mut self, b: &mut u8) {
        *b = masked(*b);
        self.state = State::Failed;
    }
}

#[cfg(test)]
mod tests;
