//! A table whose newest entry stands apart from the others: it is found without hashing, and often
//! it is the only one.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// The table.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Table<K, V, S> {
    newest: Option<(K, V)>,
    others: HashMap<K, V, S>,
}

/// How many entries an empty table has room for.
const SPARE: usize = 1_024;

/// Gives the memory of a table back that has become empty.
pub(super) fn shrink<K: Eq + Hash, V, S: BuildHasher>(table: &mut HashMap<K, V, S>) {
    if table.is_empty() && table.capacity() > SPARE {
        table.shrink_to(SPARE);
    }
}

impl<K, V, S: Default> Default for Table<K, V, S> {
    fn default() -> Self {
        Self {
            newest: None,
            others: HashMap::default(),
        }
    }
}

impl<K: Eq + Hash, V, S: BuildHasher> Table<K, V, S> {
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        match &self.newest {
            Some((newest, value)) if newest == key => Some(value),
            _ => self.others.get(key),
        }
    }

    /// Adds an entry for a key that has none.
    pub(super) fn insert(&mut self, key: K, value: V) {
        if let Some((key, value)) = self.newest.replace((key, value)) {
            self.others.insert(key, value);
        }
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        if let Some((_, value)) = self.newest.take_if(|(newest, _)| newest == key) {
            return Some(value);
        }
        if self.others.is_empty() {
            return None;
        }
        let removed = self.others.remove(key);
        shrink(&mut self.others);
        removed
    }
}

#[cfg(test)]
impl<K, V, S> Table<K, V, S> {
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        let newest = self.newest.iter().map(|(_, value)| value);
        newest.chain(self.others.values())
    }
}

#[cfg(test)]
mod tests {
    use std::hash::RandomState;

    use super::*;

    #[test]
    fn an_entry_is_found_wherever_it_stands() {
        let mut table = Table::<u32, u32, RandomState>::default();
        (0..5_000).for_each(|n| table.insert(n, n + 1));
        assert!((0..5_000).all(|n| table.get(&n) == Some(&(n + 1))));
        assert_eq!(table.values().count(), 5_000);
        for n in [4_999, 0].into_iter().chain(1..4_999) {
            assert_eq!(table.remove(&n), Some(n + 1));
            assert_eq!((table.remove(&n), table.get(&n)), (None, None));
        }
        assert!(table.values().next().is_none() && table.others.capacity() < 3_000);
    }
}
