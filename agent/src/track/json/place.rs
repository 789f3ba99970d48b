//! From the path of a value to the rules about it.

use super::{
    act::Act,
    grammar::Grammar,
    keys::{Key, NAMES},
    rules::{COUNT, RULES, Rule},
};

/// The rules whose paths begin with the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    low: u8,
    high: u8,
    /// Length of what they begin with.
    at: u8,
}

/// What is known of a value's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It leads nowhere.
    Other,
    /// A part of the rules begins with it.
    Path(Prefix),
    /// Entered in the middle, after a gap: may be any object.
    Unknown,
}

/// The document itself.
pub(super) const ROOT: Place = Place::Path(Prefix { low: 0, high: narrow(COUNT), at: 0 });

/// The rules of each name as a member of the root.
const AT_ROOT: [Prefix; NAMES.len()] = {
    let mut all = [Prefix { low: 0, high: 0, at: 0 }; NAMES.len()];
    let mut i = 0;
    while i < NAMES.len() {
        let (mut low, mut high) = (0, 0);
        let mut j = 0;
        while j < COUNT {
            if is_next(RULES[j].path.as_bytes(), 0, b"", NAMES[i]) {
                low = if high == 0 { j } else { low };
                high = j + 1;
            }
            j += 1;
        }
        all[i] = Prefix { low: narrow(low), high: narrow(high), at: narrow(NAMES[i].len()) };
        i += 1;
    }
    all
};

#[expect(clippy::cast_possible_truncation, reason = "the number of rules and the length of paths are small")]
const fn narrow(n: usize) -> u8 {
    assert!(n < u8::MAX as usize);
    n as u8
}

/// From `at` on, the path goes on with `between` and `name`, and there the name ends.
const fn is_next(path: &[u8], at: usize, between: &[u8], name: &[u8]) -> bool {
    let (middle, end) = (at + between.len(), at + between.len() + name.len());
    if path.len() < end || (path.len() > end && path[end] != b'.' && path[end] != b'[') {
        return false;
    }
    let mut i = at;
    while i < end {
        let expected = if i < middle { between[i - at] } else { name[i - middle] };
        if path[i] != expected {
            return false;
        }
        i += 1;
    }
    true
}

impl Prefix {
    fn next(self, between: &[u8], name: &[u8]) -> Self {
        let at = usize::from(self.at);
        // In a document that is read many times a second, this is where the time goes.
        let fits = |i: &u8| {
            let rest = RULES[usize::from(*i)].path.as_bytes().get(at..);
            let rest = rest.and_then(|rest| rest.strip_prefix(between)?.strip_prefix(name));
            matches!(rest, Some([] | [b'.' | b'[', ..]))
        };
        let low = (self.low..self.high).find(fits).unwrap_or(self.high);
        let high = low + narrow((low..self.high).take_while(fits).count());
        Self { low, high, at: narrow(at + between.len() + name.len()) }
    }

    fn rules(self) -> &'static [Rule] {
        &RULES[usize::from(self.low)..usize::from(self.high)]
    }

    /// What its value is good for; `None` if no rule of the grammar is about it.
    fn act(self, grammar: Grammar) -> Option<Act> {
        let whole = |rule: &&Rule| rule.path.len() == usize::from(self.at);
        self.rules().iter().take_while(whole).find(|rule| grammar.has(rule.set)).map(|rule| rule.act)
    }

    fn place(self) -> Place {
        if self.low < self.high { Place::Path(self) } else { Place::Other }
    }
}

/// Of a value that no rule is about.
const NOTHING: (Place, Act) = (Place::Other, Act::None);

/// What a member of an object is: where it leads, and what it is good for.
pub(super) fn member(parent: Place, key: Key, grammar: Grammar) -> (Place, Act) {
    let other = if parent == ROOT && grammar.any_output() { Act::Content } else { Act::None };
    let Some(index) = key.index() else { return (Place::Other, other) };
    let found = match parent {
        Place::Other => return NOTHING,
        Place::Unknown => return anywhere(NAMES[index], grammar),
        ROOT => AT_ROOT[index],
        Place::Path(prefix) => prefix.next(b".", NAMES[index]),
    };
    (found.place(), found.act(grammar).unwrap_or(other))
}

/// What an element of an array is.
pub(super) fn element(parent: Place, grammar: Grammar) -> (Place, Act) {
    let Place::Path(prefix) = parent else { return NOTHING };
    let found = prefix.next(b"", b"[]");
    (found.place(), found.act(grammar).unwrap_or(Act::None))
}

/// What a member of some object may be, by its name alone.
fn anywhere(name: &[u8], grammar: Grammar) -> (Place, Act) {
    let mut act = Act::None;
    let mut place = Place::Other;
    for rule in RULES.iter().filter(|rule| grammar.has(rule.set)) {
        let path = rule.path.as_bytes();
        let Some(end) = end_of(path, name) else { continue };
        if end == path.len() && act == Act::None && rule.act.is_telling() {
            act = rule.act;
        }
        if end < path.len() && place == Place::Other {
            let all = Prefix { low: 0, high: narrow(COUNT), at: 0 };
            place = all.next(b"", &path[..end]).place();
        }
    }
    (place, act)
}

/// Where a name ends in a path.
fn end_of(path: &[u8], name: &[u8]) -> Option<usize> {
    (0..path.len()).find_map(|at| {
        let begins = at == 0 || path[at - 1] == b'.';
        (begins && is_next(path, at, b"", name)).then_some(at + name.len())
    })
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
