//! A hash table no change of which moves many entries at once. A table that doubles moves all of
//! them, which takes a tenth of a second for a million. So a large one has segments, which grow one
//! by one.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::iter::once;

/// How many entries a table without segments has at most: it would double next.
const MOST_WHOLE: usize = 14_336;

/// One for each value of a byte of the hash.
const SEGMENTS: usize = 256;

/// Up to how much room a table keeps, however few its entries are.
const SPARE: usize = 1_024;

/// The same for a segment.
const SPARE_OF_SEGMENT: usize = 64;

/// The table.
#[derive(Clone, Debug)]
pub struct Segmented<K, V, S = RandomState> {
    /// Empty where there are segments.
    whole: HashMap<K, V, S>,
    segments: Option<Box<[HashMap<K, V, S>]>>,
}

impl<K, V, S: Default> Default for Segmented<K, V, S> {
    fn default() -> Self {
        Self {
            whole: HashMap::default(),
            segments: None,
        }
    }
}

/// Questions.
impl<K: Eq + Hash, V, S: BuildHasher> Segmented<K, V, S> {
    /// The table that has a key, if any has.
    #[inline]
    pub fn of<Q: Hash + ?Sized>(&self, key: &Q) -> &HashMap<K, V, S>
    where
        K: Borrow<Q>,
    {
        let segment = self.segments.as_ref().and_then(|segments| {
            let number = number_of(self.whole.hasher(), key);
            segments.get(number)
        });
        segment.unwrap_or(&self.whole)
    }

    /// The same, to change its values.
    pub fn of_mut<Q: Hash + ?Sized>(&mut self, key: &Q) -> &mut HashMap<K, V, S>
    where
        K: Borrow<Q>,
    {
        let whole = &mut self.whole;
        match &mut self.segments {
            None => whole,
            Some(segments) => {
                let number = number_of(whole.hasher(), key);
                segments.get_mut(number).unwrap_or(whole)
            }
        }
    }

    /// The value of a key.
    #[inline]
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.of(key).get(key)
    }
}

/// Questions about all entries.
impl<K, V, S> Segmented<K, V, S> {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.tables().map(HashMap::len).sum()
    }

    /// Whether there are none. Without entries there are no segments.
    pub fn is_empty(&self) -> bool {
        self.segments.is_none() && self.whole.is_empty()
    }

    /// For how many entries there is room.
    pub fn capacity(&self) -> usize {
        self.tables().map(HashMap::capacity).sum()
    }

    /// All entries, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.tables().flatten()
    }

    fn tables(&self) -> impl Iterator<Item = &HashMap<K, V, S>> {
        let segments = self.segments.as_deref().unwrap_or_default();
        once(&self.whole).chain(segments)
    }
}

/// Changes.
impl<K: Eq + Hash, V, S: BuildHasher + Default> Segmented<K, V, S> {
    /// Sets the value of a key.
    pub fn insert(&mut self, key: K, value: V) {
        if self.whole.len() >= MOST_WHOLE {
            let whole = std::mem::take(&mut self.whole);
            self.segments = Some((0..SEGMENTS).map(|_| HashMap::default()).collect());
            for (key, value) in whole {
                self.of_mut(&key).insert(key, value);
            }
        }
        self.of_mut(&key).insert(key, value);
    }

    /// Takes an entry out, and gives memory back where most have gone.
    pub fn remove_entry<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
    {
        let is_whole = self.segments.is_none();
        let spare = if is_whole { SPARE } else { SPARE_OF_SEGMENT };
        let table = self.of_mut(key);
        let removed = table.remove_entry(key)?;
        if table.capacity() / 8 > table.len().max(spare) {
            table.shrink_to(table.len().saturating_mul(2));
        }
        if table.is_empty() && !is_whole {
            self.join();
        }
        Some(removed)
    }

    /// Makes one table of the segments if they have few entries. It is called when one has none,
    /// which happens by chance then.
    fn join(&mut self) {
        if self.len() < MOST_WHOLE / 4 {
            let segments = self.segments.take().into_iter();
            let entries = segments.flatten().flatten();
            self.whole.extend(entries);
        }
    }
}

/// Which segment has a key. A table uses other bits of a hash to find its entries.
fn number_of(hasher: &impl BuildHasher, key: &(impl Hash + ?Sized)) -> usize {
    let [_, _, number, ..] = hasher.hash_one(key).to_be_bytes();
    usize::from(number)
}

impl<K: Eq + Hash, V: PartialEq, S: BuildHasher> PartialEq for Segmented<K, V, S> {
    fn eq(&self, other: &Self) -> bool {
        let mut all = self.iter();
        self.len() == other.len() && all.all(|(key, value)| other.get(key) == Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_table_has_room_for_many_entries() {
        const ALL: u32 = 300_000;
        let mut table = Segmented::<u32, u32>::default();
        for n in 0..ALL {
            table.insert(n, 0);
            table.insert(n, n);
            let most = table.of(&n).capacity();
            assert!(most <= MOST_WHOLE, "{most}");
        }
        assert!((0..ALL).all(|n| table.get(&n) == Some(&n)));
        assert!(table.get(&ALL).is_none() && table.len() == table.iter().count());
        assert!(table.tables().all(|one| one.capacity() <= 4_096));
        let clone = table.clone();
        *table.of_mut(&7).get_mut(&7).unwrap() = 8;
        assert!(clone == clone.clone() && table != clone);

        for n in 0..ALL {
            let before = table.tables().count();
            assert_eq!(
                table.remove_entry(&n),
                Some((n, if n == 7 { 8 } else { n }))
            );
            assert_eq!(table.remove_entry(&n), None);
            let moved = before > table.tables().count();
            assert!(!moved || table.whole.len() < MOST_WHOLE / 4);
        }
        assert!(table.segments.is_none() && table.capacity() <= 8 * SPARE);
    }
}
