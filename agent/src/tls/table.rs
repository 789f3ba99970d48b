//! A map of bounded size that forgets what was added first.

use std::{collections::VecDeque, hash::Hash};

use rustc_hash::FxHashMap;

/// The map.
#[derive(Debug)]
pub(super) struct Table<K, V> {
    max: usize,
    entries: FxHashMap<K, V>,
    /// Keys in the order in which they were added; some may be gone.
    order: VecDeque<K>,
}

impl<K: Copy + Eq + Hash, V> Table<K, V> {
    /// At most `max` entries.
    pub(super) fn new(max: usize) -> Self {
        Self { max, entries: FxHashMap::default(), order: VecDeque::new() }
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key)
    }

    /// Adds or replaces an entry; the one that had to go for it.
    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        if self.entries.insert(key, value).is_some() {
            return None;
        }
        self.order.push_back(key);
        if self.order.len() <= self.max {
            return None;
        }
        self.order.pop_front().and_then(|oldest| self.entries.remove(&oldest))
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        self.entries.remove(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first_and_a_key_counts_once() {
        let mut table = Table::new(2);
        for (key, value) in [(1, 'a'), (2, 'b'), (1, 'c'), (3, 'd')] {
            table.insert(key, value);
        }
        assert_eq!([1, 2, 3].map(|key| table.get(&key).copied()), [None, Some('b'), Some('d')]);
    }
}
