//! From the path of a value to the rules about it: a tree of the rules' paths, built by the compiler.
//!
//! A document is read many times a second, and each of its members is looked up here: that takes two loads.

use super::{
    act::Act,
    grammar::Grammar,
    keys::{Key, NAMES, find, narrow},
    rules::{COUNT, RULES},
};

/// Room for the places to which paths lead, the document itself among them.
const PLACES: usize = 176;

/// Where a path leads to that rules are about, or go on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node(u8);

/// What is known of a value's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It leads nowhere.
    Other,
    /// A part of the rules begins with it.
    Path(Node),
    /// Entered in the middle, after a gap: may be any object.
    Unknown,
}

/// The document itself.
pub(super) const ROOT: Place = Place::Path(Node(0));

/// The tree. A child of 0 is none: the root is nobody's child.
struct Tree {
    /// Number of places.
    len: usize,
    members: [[u8; NAMES.len()]; PLACES],
    elements: [u8; PLACES],
    /// The rules about the place itself: the first, and the one behind the last.
    rules: [(u8, u8); PLACES],
}

static TREE: Tree = Tree::new();

impl Tree {
    const fn new() -> Self {
        let mut tree = Self {
            len: 1,
            members: [[0; NAMES.len()]; PLACES],
            elements: [0; PLACES],
            rules: [(0, 0); PLACES],
        };
        let mut rule = 0;
        while rule < COUNT {
            tree.add(rule);
            rule += 1;
        }
        tree
    }

    const fn add(&mut self, rule: usize) {
        let path = RULES[rule].path.as_bytes();
        let (mut place, mut at) = (0, 0);
        while at < path.len() {
            if path[at] == b'[' {
                at += 2;
                place = self.element(place);
            } else {
                at += if path[at] == b'.' { 1 } else { 0 };
                let end = name_end(path, at);
                place = self.member(place, find(path, at, end));
                at = end;
            }
        }
        // Rules with the same path follow each other.
        let (first, end) = self.rules[place];
        self.rules[place] = (if end == 0 { narrow(rule) } else { first }, narrow(rule + 1));
    }

    const fn member(&mut self, place: usize, name: Option<usize>) -> usize {
        let Some(name) = name else { panic!("every name in a rule's path is one of NAMES") };
        if self.members[place][name] == 0 {
            self.members[place][name] = self.grow();
        }
        self.members[place][name] as usize
    }

    const fn element(&mut self, place: usize) -> usize {
        if self.elements[place] == 0 {
            self.elements[place] = self.grow();
        }
        self.elements[place] as usize
    }

    const fn grow(&mut self) -> u8 {
        self.len += 1;
        narrow(self.len - 1)
    }
}

/// Where the name that begins at `at` ends.
const fn name_end(path: &[u8], mut at: usize) -> usize {
    while at < path.len() && path[at] != b'.' && path[at] != b'[' {
        at += 1;
    }
    at
}

/// A place by its number, 0 for none, and what a value there is good for.
fn found(number: u8, grammar: Grammar, otherwise: Act) -> (Place, Act) {
    if number == 0 {
        return (Place::Other, otherwise);
    }
    let (first, end) = TREE.rules[usize::from(number)];
    let rules = &RULES[usize::from(first)..usize::from(end)];
    let act = rules.iter().find(|rule| grammar.has(rule.set)).map_or(otherwise, |rule| rule.act);
    (Place::Path(Node(number)), act)
}

/// What a member of an object is: where it leads, and what it is good for.
pub(super) fn member(parent: Place, key: Key, grammar: Grammar) -> (Place, Act) {
    let other = if parent == ROOT && grammar.any_output() { Act::Tensor } else { Act::None };
    let Some(name) = key.index() else { return (Place::Other, other) };
    match parent {
        Place::Other => (Place::Other, Act::None),
        Place::Unknown => anywhere(name, grammar),
        Place::Path(Node(place)) => found(TREE.members[usize::from(place)][name], grammar, other),
    }
}

/// What an element of an array is.
pub(super) fn element(parent: Place, grammar: Grammar) -> (Place, Act) {
    let Place::Path(Node(place)) = parent else { return (Place::Other, Act::None) };
    found(TREE.elements[usize::from(place)], grammar, Act::None)
}

/// What a member of some object may be, by its name alone.
fn anywhere(name: usize, grammar: Grammar) -> (Place, Act) {
    let mut act = Act::None;
    let mut place = Place::Other;
    for rule in RULES.iter().filter(|rule| grammar.has(rule.set)) {
        let Some((member, is_end)) = on_path(rule.path.as_bytes(), name) else { continue };
        if is_end && act == Act::None && rule.act.is_telling() {
            act = rule.act;
        }
        if !is_end && place == Place::Other {
            place = Place::Path(Node(member));
        }
    }
    (place, act)
}

/// The first member of a rule's path that has this name, and whether the path ends with it.
fn on_path(path: &[u8], name: usize) -> Option<(u8, bool)> {
    let (mut place, mut at) = (0, 0);
    while at < path.len() {
        if path[at] == b'[' {
            at += 2;
            place = TREE.elements[usize::from(place)];
            continue;
        }
        at += usize::from(path[at] == b'.');
        let end = name_end(path, at);
        let found = Key::of(&path[at..end])?.index()?;
        place = TREE.members[usize::from(place)][found];
        if found == name {
            return Some((place, end == path.len()));
        }
        at = end;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_is_found_step_by_step() {
        for rule in RULES {
            let grammar = Grammar::of(rule.set);
            let (mut place, mut act) = (ROOT, Act::None);
            for part in rule.path.split('.') {
                let name = part.trim_end_matches("[]");
                if !name.is_empty() {
                    (place, act) = member(place, Key::of(name.as_bytes()).unwrap(), grammar);
                }
                if part.ends_with("[]") {
                    (place, act) = element(place, grammar);
                }
            }
            assert_eq!(act, rule.act, "{}", rule.path);
        }
    }
}
