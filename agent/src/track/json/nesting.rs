//! Objects and arrays: what each of them is to the APIs that are read.

use super::{Key, Lexer, State};

/// Nesting that is followed; a deeper document is masked and not read.
pub(super) const MAX_DEPTH: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Object,
    Array,
    /// Reached from inside, after a gap.
    Unknown,
}

/// What a container is to the APIs that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
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
pub(super) struct Level {
    pub kind: Kind,
    pub place: Place,
}

impl Lexer {
    pub(super) fn top(&self) -> Level {
        match self.depth {
            0 => Level { kind: Kind::Array, place: Place::Other },
            depth => self.levels[depth - 1],
        }
    }

    pub(super) fn push(&mut self, kind: Kind) {
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

    pub(super) fn pop(&mut self, b: u8) {
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

    pub(super) fn array_after_all(&mut self, b: &mut u8) {
        self.levels[self.depth - 1] = Level { kind: Kind::Array, place: Place::Other };
        self.state = if matches!(self.state, State::Colon) { State::After } else { State::Value(false) };
        self.structure(b);
    }

    pub(super) fn comma(&mut self) {
        self.state = match self.top().kind {
            Kind::Array => State::Value(false),
            Kind::Object | Kind::Unknown => State::Name(false),
        };
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
