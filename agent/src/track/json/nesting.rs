//! Objects and arrays: what each of them is to the APIs that are read.

use super::{Act, Key, Lexer, Place, State, place};

/// Nesting that is followed; a deeper document is masked and not read.
pub(super) const MAX_DEPTH: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Object,
    Array,
    /// Reached from inside, after a gap.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    pub kind: Kind,
    pub place: Place,
    /// What the container is good for.
    pub act: Act,
}

impl Lexer {
    pub(super) fn top(&self) -> Level {
        match self.depth {
            0 => Level { kind: Kind::Array, place: place::ROOT, act: Act::None },
            depth => self.levels[depth - 1],
        }
    }

    /// Where the value that comes leads, and what it is good for.
    pub(super) fn coming(&self) -> (Place, Act) {
        let top = self.top();
        match top.kind {
            _ if self.depth == 0 => (place::ROOT, Act::None),
            Kind::Array if top.act == Act::Tensor => (Place::Other, Act::Tensor),
            Kind::Array => place::element(top.place, self.grammar),
            Kind::Object | Kind::Unknown => place::member(top.place, self.key, self.grammar),
        }
    }

    pub(super) fn push(&mut self, kind: Kind, place: Place, act: Act) {
        if self.depth == MAX_DEPTH {
            self.state = State::Failed;
            return;
        }
        match act {
            Act::Error => self.facts.error = true,
            Act::Choice => self.facts.enter_choice(),
            Act::Item => self.facts.add_item(),
            _ => {}
        }
        self.levels[self.depth] = Level { kind, place, act };
        self.depth += 1;
        self.key = Key::OTHER;
        self.state = if kind == Kind::Object { State::Name(true) } else { State::Value(true) };
    }

    pub(super) fn pop(&mut self, b: u8) {
        let level = self.top();
        let kind = if b == b'}' { Kind::Object } else { Kind::Array };
        if level.kind != kind && level.kind != Kind::Unknown {
            self.state = State::Failed;
            return;
        }
        if level.act == Act::Choice {
            self.facts.leave_choice();
        }
        self.key = Key::OTHER;
        self.state = State::After;
        if self.depth > 1 {
            self.depth -= 1;
        } else if level.place == Place::Unknown || self.outwards > 0 {
            self.outwards = self.outwards.saturating_add(1);
            self.levels[0] = Level { kind: Kind::Unknown, place: Place::Unknown, act: Act::None };
            self.facts.outgrow(self.outwards);
        } else {
            self.depth = 0;
            self.state = State::Done;
        }
    }

    pub(super) fn array_after_all(&mut self, b: &mut u8) {
        self.levels[self.depth - 1] = Level { kind: Kind::Array, place: Place::Other, act: Act::None };
        self.state = if matches!(self.state, State::Colon) { State::After } else { State::Value(false) };
        self.structure(b);
    }

    pub(super) fn comma(&mut self) {
        if self.depth == 1 && self.outwards > 0 {
            // Something follows what was left since the gap, so that none of it was the root.
            self.facts.outgrow(self.outwards.saturating_add(1));
        }
        self.state = match self.top().kind {
            Kind::Array => State::Value(false),
            Kind::Object | Kind::Unknown => State::Name(false),
        };
    }
}
