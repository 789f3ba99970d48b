//! Incremental JSON lexer: finds the few facts that matter in a body and masks the rest where it is.
//!
//! Bytes go through once, in pieces of any size, and nothing is kept but the nesting and the value of a kept member.
//! A byte's masked form takes the lexer to the same state as the byte itself, so a masked body gives the same facts.
//!
//! After a gap it is not known whether the next byte is inside a string. But in a string every quote is escaped, so
//! the unescaped characters `"model"` followed by a colon can only be a member: there the lexer knows again where
//! it is ([`lost`]).

mod facts;
mod keys;
mod lost;

pub(super) use facts::Facts;
use keys::{Key, KeyMatch};
use lost::Lost;

use super::mask::masked;

/// Nesting that is followed; a deeper document is masked and not read.
const MAX_DEPTH: usize = 64;
/// Longest value that is kept; a longer one is masked from there on and not known.
const MAX_KEPT: usize = 256;
/// Most digits of a number that is kept.
const MAX_DIGITS: u8 = 19;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Object,
    Array,
    /// Reached from inside, after a gap.
    Unknown,
}

/// What a container is to the APIs that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nothing that matters.
    Other,
    /// The document's object.
    Root,
    /// The array `choices`.
    Choices,
    /// One of its objects.
    Choice,
    /// `delta` or `message` of a choice.
    Delta,
    /// A list or object that is content as soon as it has something in it.
    ContentList,
    /// The object `usage`.
    Usage,
    /// The object `stream_options`.
    StreamOptions,
    /// Entered in the middle, after a gap: may be any object.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    kind: Kind,
    place: Place,
}

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
    Text(Keep),
    /// Behind a backslash inside one.
    TextEscape(Keep),
    /// In `true`, `false` or `null`, at this byte.
    Literal(&'static [u8], u8),
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

/// What becomes of a string value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
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
struct Digits {
    keep: bool,
    value: Option<u64>,
    count: u8,
}

/// The lexer.
#[derive(Clone, Debug)]
pub(super) struct Lexer {
    state: State,
    levels: [Level; MAX_DEPTH],
    depth: usize,
    /// Name of the member whose value comes.
    key: Key,
    kept: Vec<u8>,
    /// How far outside of the first known object after a gap: the root's members are the outermost.
    outwards: u32,
    facts: Facts,
}

impl Lexer {
    /// At the beginning of a document.
    pub(super) fn new() -> Self {
        Self {
            state: State::Value(false),
            levels: [Level { kind: Kind::Unknown, place: Place::Other }; MAX_DEPTH],
            depth: 0,
            key: Key::Other,
            kept: Vec::new(),
            outwards: 0,
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

    /// A document is complete, and no other has begun.
    pub(super) fn complete(&self) -> bool {
        matches!(self.state, State::Done | State::Failed)
    }

    /// The next byte begins a new document.
    pub(super) fn restart(&mut self) {
        self.state = State::Value(false);
        self.depth = 0;
        self.outwards = 0;
        self.key = Key::Other;
    }

    /// Whatever comes is to be masked until [`Lexer::restart`].
    pub(super) fn give_up(&mut self) {
        self.state = State::Failed;
    }

    /// An unknown number of bytes is missing here.
    pub(super) fn gap(&mut self) {
        if !self.failed() {
            self.depth = 0;
            self.outwards = 0;
            self.facts.forget_origin();
            self.state = State::Lost(Lost::Start);
        }
    }

    /// Reads and masks the next bytes.
    pub(super) fn feed(&mut self, bytes: &mut [u8]) {
        let (mut at, mut name_start) = (0, 0);
        while at < bytes.len() {
            at = match self.state {
                State::Text(keep) => self.text(keep, bytes, at),
                State::Failed => {
                    bytes[at] = masked(bytes[at]);
                    at + 1
                }
                State::InName(name) => self.name(name, bytes, at, name_start),
                State::Lost(lost) => self.lost(lost, bytes, at, &mut name_start),
                _ => {
                    name_start = at + 1;
                    at + usize::from(self.step(&mut bytes[at]))
                }
            };
        }
    }

    /// A byte outside of strings. False when it ended a number and is still to be read.
    fn step(&mut self, b: &mut u8) -> bool {
        match self.state {
            State::NameEscape(name) => {
                *b = b'x';
                self.state = State::InName(name);
            }
            State::TextEscape(keep) => self.escaped(keep, b),
            State::Literal(word, at) => self.literal(word, at, b),
            State::Number(digits) => return self.number(digits, b),
            _ if matches!(*b, b' ' | b'\t' | b'\r' | b'\n') => {}
            State::Done => {
                self.restart();
                return false;
            }
            _ => self.structure(b),
        }
        true
    }

    fn structure(&mut self, b: &mut u8) {
        let kind = self.top().kind;
        match (self.state, *b) {
            (State::Name(_), b'"') => self.state = State::InName(KeyMatch::new()),
            (State::Name(true), b'}') | (State::Value(true), b']') => self.pop(*b),
            // After a gap: if it has values without names, then it is an array.
            (State::Name(false), _) if kind == Kind::Unknown => self.array_after_all(b),
            (State::Value(_), _) => self.value(b),
            (State::Colon, b':') => {
                if kind == Kind::Unknown {
                    self.levels[self.depth - 1].kind = Kind::Object;
                }
                self.state = State::Value(false);
            }
            (State::Colon, b',' | b']') if kind == Kind::Unknown => self.array_after_all(b),
            (State::After, b',') => self.comma(),
            (State::After, b'}' | b']') => self.pop(*b),
            _ => self.fail(b),
        }
    }

    fn array_after_all(&mut self, b: &mut u8) {
        self.levels[self.depth - 1] = Level { kind: Kind::Array, place: Place::Other };
        self.state = if matches!(self.state, State::Colon) { State::After } else { State::Value(false) };
        self.structure(b);
    }

    fn comma(&mut self) {
        self.state = match self.top().kind {
            Kind::Array => State::Value(false),
            Kind::Object | Kind::Unknown => State::Name(false),
        };
    }

    fn value(&mut self, b: &mut u8) {
        let place = self.top().place;
        if place == Place::ContentList {
            self.facts.mark_content();
        }
        match *b {
            b'"' => {
                self.kept.clear();
                self.state = State::Text(keep_text(place, self.key));
            }
            b'{' => self.push(Kind::Object),
            b'[' => self.push(Kind::Array),
            b't' => self.state = State::Literal(b"true", 1),
            b'f' => self.state = State::Literal(b"false", 1),
            b'n' => self.state = State::Literal(b"null", 1),
            b'-' | b'0'..=b'9' => {
                let keep = keep_number(place, self.key);
                self.number(Digits { keep, value: Some(0), count: 0 }, b);
            }
            _ => self.fail(b),
        }
    }

    fn fail(&mut self, b: &mut u8) {
        *b = masked(*b);
        self.state = State::Failed;
    }

    fn top(&self) -> Level {
        match self.depth {
            0 => Level { kind: Kind::Array, place: Place::Other },
            depth => self.levels[depth - 1],
        }
    }

    fn push(&mut self, kind: Kind) {
        if self.depth == MAX_DEPTH {
            self.state = State::Failed;
            return;
        }
        let place = child(self.depth, self.top().place, self.key, kind);
        match (self.top().place, self.key) {
            (Place::Root, Key::Error) => self.facts.error = true,
            _ if place == Place::Choice => self.facts.enter_choice(),
            _ => {}
        }
        self.levels[self.depth] = Level { kind, place };
        self.depth += 1;
        self.key = Key::Other;
        self.state = if kind == Kind::Object { State::Name(true) } else { State::Value(true) };
    }

    fn pop(&mut self, b: u8) {
        let level = self.top();
        let kind = if b == b'}' { Kind::Object } else { Kind::Array };
        if level.kind != kind && level.kind != Kind::Unknown {
            self.state = State::Failed;
            return;
        }
        if level.place == Place::Choice {
            self.facts.leave_choice();
        }
        self.key = Key::Other;
        self.state = State::After;
        if self.depth > 1 {
            self.depth -= 1;
        } else if level.place == Place::Unknown || self.outwards > 0 {
            self.outwards = self.outwards.saturating_add(1);
            self.levels[0] = Level { kind: Kind::Unknown, place: Place::Unknown };
        } else {
            self.depth = 0;
            self.state = State::Done;
        }
    }

    fn name(&mut self, mut name: KeyMatch, bytes: &mut [u8], at: usize, start: usize) -> usize {
        match bytes[at] {
            b'"' => {
                self.key = name.key().unwrap_or(Key::Other);
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

    fn text(&mut self, keep: Keep, bytes: &mut [u8], mut at: usize) -> usize {
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

    fn keep_text(&mut self, keep: Keep, bytes: &[u8], mut at: usize) -> usize {
        while let Some(b) = bytes.get(at) {
            if *b == b'"' {
                self.end_text(keep);
                return at + 1;
            }
            if self.kept.len() >= MAX_KEPT {
                self.state = State::Text(Keep::No);
                return at;
            }
            at += 1;
            self.kept.push(*b);
            if *b == b'\\' {
                self.state = State::TextEscape(keep);
                return at;
            }
        }
        at
    }

    fn escaped(&mut self, keep: Keep, b: &mut u8) {
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

    fn literal(&mut self, word: &'static [u8], at: u8, b: &mut u8) {
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
                self.facts.include_usage = Some(yes)
            }
            _ => {}
        }
    }

    fn number(&mut self, mut digits: Digits, b: &mut u8) -> bool {
        match *b {
            b'0'..=b'9' => {
                let digit = u64::from(*b - b'0');
                digits.value = digits.value.and_then(|v| v.checked_mul(10)?.checked_add(digit));
                if !digits.keep || digits.count == MAX_DIGITS {
                    digits.value = None;
                    *b = b'1';
                }
                digits.count = (digits.count + 1).min(MAX_DIGITS);
            }
            b'-' | b'+' | b'.' | b'e' | b'E' => digits.value = None,
            _ => {
                self.end_value();
                if let Some(value) = digits.value.filter(|_| digits.keep) {
                    self.facts.set_number(self.key, value);
                }
                return false;
            }
        }
        self.state = State::Number(digits);
        true
    }

    fn end_value(&mut self) {
        self.state = if self.depth == 0 { State::Done } else { State::After };
    }
}

/// What a container is, by the place it stands in, its name and its kind.
fn child(depth: usize, parent: Place, key: Key, kind: Kind) -> Place {
    match (parent, key, kind) {
        _ if depth == 0 && kind == Kind::Object => Place::Root,
        (Place::Root | Place::Unknown, Key::Choices, Kind::Array) => Place::Choices,
        (Place::Choices, _, Kind::Object) => Place::Choice,
        (Place::Choice | Place::Unknown, Key::Delta | Key::Message, Kind::Object) => Place::Delta,
        (Place::Root | Place::Unknown, Key::Usage, Kind::Object) => Place::Usage,
        (Place::Root | Place::Unknown, Key::StreamOptions, Kind::Object) => Place::StreamOptions,
        (Place::Delta, Key::ToolCalls | Key::Content, Kind::Array)
        | (Place::Delta, Key::FunctionCall, Kind::Object) => Place::ContentList,
        _ => Place::Other,
    }
}

fn keep_text(place: Place, key: Key) -> Keep {
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

fn keep_number(place: Place, key: Key) -> bool {
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
fn mask_back(bytes: &mut [u8], start: usize, end: usize) {
    super::mask::mask_text(&mut bytes[start..end]);
}

#[cfg(test)]
mod tests;
