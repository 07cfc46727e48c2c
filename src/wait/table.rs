//! A table whose newest entry stands apart from the others: it is found without hashing, and often
//! it is the only one.

use std::hash::{BuildHasher, Hash};

use crate::lock::Segmented;

/// The table.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Table<K, V, S> {
    newest: Option<(K, V)>,
    others: Segmented<K, V, S>,
}

impl<K, V, S: Default> Default for Table<K, V, S> {
    fn default() -> Self {
        Self {
            newest: None,
            others: Segmented::default(),
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
}

impl<K: Eq + Hash, V, S: BuildHasher + Default> Table<K, V, S> {
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
        self.others.remove_entry(key).map(|(_, value)| value)
    }
}

#[cfg(test)]
impl<K, V, S> Table<K, V, S> {
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        let newest = self.newest.iter().map(|(_, value)| value);
        newest.chain(self.others.iter().map(|(_, value)| value))
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
        assert!(table.values().next().is_none() && table.others.capacity() < 9_000);
    }
}
