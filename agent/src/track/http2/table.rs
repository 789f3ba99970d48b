//! The dynamic table of HPACK, as an observer needs it.
//!
//! An index counts insertions back from the newest one. What the encoder evicts is the oldest, and it never refers to
//! what it has evicted; an entry too large for the table empties it, so that nothing older is referred to either. So
//! the sizes of the entries, and with them the table's limit, its updates and the settings behind them, do not
//! matter: the last so-and-so many insertions, in order, resolve every valid index. That is what lets values be
//! masked (which changes their length), and what makes a table right again after a loss: it begins empty, and
//! an index that reaches behind what was inserted since is unknown.

use std::collections::VecDeque;

use super::fields::{Field, Value};

/// Entries that are kept: as many as fit into 16 KiB, four times the default size.
const MAX_ENTRIES: usize = 512;
/// Octets of values that are kept, over all entries.
const MAX_OCTETS: usize = 16 * 1024;
/// Entries of the static table.
const STATIC: u32 = 61;

/// The last insertions, newest first.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: VecDeque<(Field, Value)>,
    octets: usize,
}

impl Table {
    /// Bytes held.
    pub(super) fn held(&self) -> usize {
        self.octets + self.entries.capacity() * size_of::<(Field, Value)>()
    }

    /// Adds an entry. A value that finds no room is unknown.
    pub(super) fn insert(&mut self, field: Field, value: Value) {
        if self.entries.len() == MAX_ENTRIES
            && let Some((_, Some(value))) = self.entries.pop_back()
        {
            self.octets -= value.len();
        }
        let value = value.filter(|value| self.octets + value.len() <= MAX_OCTETS);
        self.octets += value.as_ref().map_or(0, |value| value.len());
        self.entries.push_front((field, value));
    }

    /// Insertions were missed: nothing that came before can be found any more.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The entry at an index, of the static table too. Index 0 is none.
    pub(super) fn get(&self, index: u32) -> (Field, Option<&[u8]>) {
        if index <= STATIC {
            return fixed(index);
        }
        let entry = usize::try_from(index - STATIC - 1).ok().and_then(|at| self.entries.get(at));
        entry.map_or((Field::Unknown, None), |(field, value)| (*field, value.as_deref()))
    }
}

/// The static table, as far as its fields are looked at.
fn fixed(index: u32) -> (Field, Option<&'static [u8]>) {
    match index {
        2 => (Field::Method, Some(b"GET")),
        3 => (Field::Method, Some(b"POST")),
        4 => (Field::Path, Some(b"/")),
        5 => (Field::Path, Some(b"/index.html")),
        8 => (Field::Status, Some(b"200")),
        9 => (Field::Status, Some(b"204")),
        10 => (Field::Status, Some(b"206")),
        11 => (Field::Status, Some(b"304")),
        12 => (Field::Status, Some(b"400")),
        13 => (Field::Status, Some(b"404")),
        14 => (Field::Status, Some(b"500")),
        26 => (Field::ContentEncoding, Some(b"")),
        31 => (Field::ContentType, Some(b"")),
        _ => (Field::Other, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_counts_back_from_the_newest() {
        let mut table = Table::default();
        table.insert(Field::Path, Some(b"/a"[..].into()));
        table.insert(Field::Other, None);
        assert_eq!(table.get(62), (Field::Other, None));
        assert_eq!(table.get(63), (Field::Path, Some(&b"/a"[..])));
        assert_eq!(table.get(64), (Field::Unknown, None));
        assert_eq!(table.get(u32::MAX), (Field::Unknown, None));
        table.clear();
        assert_eq!(table.get(62), (Field::Unknown, None));
        assert_eq!(table.get(3), (Field::Method, Some(&b"POST"[..])));
    }

    #[test]
    fn entries_and_octets_are_bounded() {
        let mut table = Table::default();
        for _ in 0..10_000 {
            table.insert(Field::Path, Some(vec![b'a'; 1000].into()));
        }
        assert_eq!(table.entries.len(), MAX_ENTRIES);
        assert!(table.octets <= MAX_OCTETS);
        // Each is forgotten with its own octets, so that the newest gets room again.
        for _ in 0..MAX_ENTRIES {
            table.insert(Field::Other, None);
        }
        assert_eq!(table.octets, 0);
    }
}
