//! A map of bounded size that forgets what was not used for the longest time.

use std::{collections::VecDeque, hash::Hash};

use rustc_hash::FxHashMap;

/// The map.
#[derive(Debug)]
pub(super) struct Table<K, V> {
    max: usize,
    /// With the number of its last use.
    entries: FxHashMap<K, (u64, V)>,
    /// Uses in their order; those that were not the last of an entry count for nothing.
    order: VecDeque<(u64, K)>,
    uses: u64,
}

impl<K: Copy + Eq + Hash, V> Table<K, V> {
    /// At most `max` entries.
    pub(super) fn new(max: usize) -> Self {
        Self { max, entries: FxHashMap::default(), order: VecDeque::new(), uses: 0 }
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }

    /// To use it: it is then the last to go.
    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.contains_key(key).then(|| self.note_use(*key));
        let (at, value) = self.entries.get_mut(key)?;
        *at = self.uses;
        Some(value)
    }

    /// Adds or replaces an entry; the one that had to go for it.
    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.note_use(key);
        self.entries.insert(key, (self.uses, value));
        if self.entries.len() <= self.max { None } else { self.evict() }
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        self.entries.remove(key).map(|(_, value)| value)
    }

    fn note_use(&mut self, key: K) {
        if self.order.back().is_some_and(|(_, last)| *last == key) {
            self.order.pop_back();
        }
        if self.order.len() > 2 * self.max {
            self.order.retain(|(at, key)| self.entries.get(key).is_some_and(|(last, _)| last == at));
        }
        self.uses += 1;
        self.order.push_back((self.uses, key));
    }

    fn evict(&mut self) -> Option<V> {
        while let Some((at, key)) = self.order.pop_front() {
            if self.entries.get(&key).is_some_and(|(last, _)| *last == at) {
                return self.remove(&key);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_longest_goes_first_and_a_key_counts_once() {
        let mut table = Table::new(2);
        for (key, value) in [(1, 'a'), (2, 'b'), (1, 'c'), (3, 'd')] {
            table.insert(key, value);
        }
        assert_eq!([1, 2, 3].map(|key| table.get(&key).copied()), [Some('c'), None, Some('d')]);
        table.get_mut(&1);
        assert_eq!(table.insert(4, 'e'), Some('d'));
    }

    #[test]
    fn what_was_removed_takes_no_room() {
        let mut table = Table::new(2);
        table.insert(1, 'a');
        for key in 2..100 {
            table.insert(key, 'x');
            table.remove(&key);
            assert!(table.order.len() <= 2 * table.max + 1);
        }
        assert_eq!(table.get(&1), Some(&'a'));
    }
}
