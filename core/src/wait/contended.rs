//! The most contended keys: for which requests have waited the longest in total.
//!
//! There may be any number of keys, and the table has room for [`ROOM`]. It is that of the
//! algorithm **Space-Saving** (Metwally, Agrawal and El Abbadi, 2005), by the time waited:
//!
//! - A wait for a key of the table adds to its total.
//! - A wait for another key takes the place of the key with the smallest total, and starts with
//!   that total: the new key may have been in the table before, with no more than that. The
//!   inherited part is its error.
//!
//! So a total is never too small, and too large by its error at most. A key whose real total is
//! more than one in [`ROOM`] of all the time waited is always in the table.
//!
//! The table is changed only when a wait ends. It takes [`ROOM`] times the longest name and some
//! 200 bytes more.

use std::collections::HashMap;
use std::hash::BuildHasher;

use crate::rules::key_ref::KeyRef;

/// How many keys are remembered.
pub const ROOM: usize = 128;

/// The longest name that is kept whole. A longer key counts under its first bytes.
pub const LONGEST_NAME: usize = 1_024;

/// What is known of the waits for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    /// The key.
    pub key_ref: KeyRef,
    /// How many requests have waited, since the key is in the table.
    pub count: u64,
    /// How long they have waited together, and what the key has inherited.
    pub total_us: u64,
    /// The longest of the waits.
    pub longest_us: u64,
    /// What the key has inherited: by so much the total may be too large.
    pub error_us: u64,
}

/// The table.
#[derive(Clone, Debug, Default)]
pub struct Contended<S> {
    /// Where each key is in `all`.
    places: HashMap<KeyRef, usize, S>,
    all: Vec<Waits>,
    order: Order,
}

/// All places in the order of totals that they had, the smallest last. So a new key finds the
/// smallest without a search.
///
/// Totals only grow. So if the total of the last one is still the same, it is the smallest of all.
#[derive(Clone, Debug, Default)]
struct Order(Vec<(u64, usize)>);

impl Order {
    /// Takes out the place with the smallest total. `None` only where there are no totals.
    fn take_smallest(&mut self, all: &[Waits]) -> Option<usize> {
        loop {
            let (seen_us, place) = self.0.pop()?;
            let total_us = all.get(place)?.total_us;
            if total_us == seen_us {
                return Some(place);
            }
            self.put(total_us, place);
        }
    }

    /// Puts a place in.
    fn put(&mut self, total_us: u64, place: usize) {
        let at = self.0.partition_point(|(other, _)| *other > total_us);
        self.0.insert(at, (total_us, place));
    }
}

impl<S: BuildHasher + Default> Contended<S> {
    /// Notes that a request has waited for a key, and does not any more.
    pub fn add(&mut self, key_ref: &KeyRef, waited_us: u64) {
        if key_ref.name.len() > LONGEST_NAME {
            let start = key_ref.name.get(..LONGEST_NAME).unwrap_or_default();
            return self.add(&KeyRef::new(key_ref.db, start), waited_us);
        }
        match self.places.get(key_ref) {
            Some(place) => {
                let place = *place;
                self.grow(place, waited_us);
            }
            None => {
                let place = self.place_for(key_ref);
                let total_us = self.grow(place, waited_us);
                self.order.put(total_us, place);
            }
        }
    }

    /// Adds a wait to a place. Answers its total.
    fn grow(&mut self, place: usize, waited_us: u64) -> u64 {
        let Some(waits) = self.all.get_mut(place) else {
            return u64::MAX; // There is such a place.
        };
        waits.total_us = waits.total_us.saturating_add(waited_us);
        waits.count = waits.count.saturating_add(1);
        waits.longest_us = waits.longest_us.max(waited_us);
        waits.total_us
    }

    /// Makes room for a key that is not in the table.
    #[cold]
    fn place_for(&mut self, key_ref: &KeyRef) -> usize {
        let waits = |inherited_us| Waits {
            key_ref: key_ref.clone(),
            count: 0,
            total_us: inherited_us,
            longest_us: 0,
            error_us: inherited_us,
        };
        let mut place = self.all.len();
        if place < ROOM {
            self.all.push(waits(0));
        } else if let Some(smallest) = self.order.take_smallest(&self.all) {
            place = smallest;
            if let Some(old) = self.all.get_mut(place) {
                let new = waits(old.total_us);
                let old = std::mem::replace(old, new);
                self.places.remove(&old.key_ref);
            }
        }
        self.places.insert(key_ref.clone(), place);
        place
    }

    /// The keys of a database, those with the largest totals first, `most` at most.
    pub fn of_db(&self, db: i32, most: usize) -> Vec<Waits> {
        let here = self.all.iter().filter(|waits| waits.key_ref.db == db);
        let mut here: Vec<_> = here.cloned().collect();
        here.sort_by(|one, other| {
            let by_total = other.total_us.cmp(&one.total_us);
            by_total.then_with(|| one.key_ref.cmp(&other.key_ref))
        });
        here.truncate(most);
        here
    }

    /// Follows SWAPDB.
    pub fn swap_dbs(&mut self, one: i32, other: i32) {
        for waits in &mut self.all {
            waits.key_ref.swap_db(one, other);
        }
        let keys = self.all.iter().map(|waits| waits.key_ref.clone());
        self.places = keys.zip(0..).collect();
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::collections::hash_map::RandomState;
    use std::collections::BTreeMap;

    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    type Table = Contended<RandomState>;

    fn key(n: usize) -> KeyRef {
        KeyRef::new((n % 2) as i32, format!("key:{n}").as_bytes())
    }

    fn all(table: &Table) -> Vec<Waits> {
        (0..2).flat_map(|db| table.of_db(db, usize::MAX)).collect()
    }

    /// The number, the total and the longest of all waits of a key.
    type Exact = BTreeMap<KeyRef, (u64, u64, u64)>;

    fn note(exact: &mut Exact, key_ref: KeyRef, us: u64) {
        let (count, total_us, longest_us) = exact.entry(key_ref).or_default();
        (*count, *total_us) = (*count + 1, *total_us + us);
        *longest_us = us.max(*longest_us);
    }

    #[test]
    fn a_total_is_right_up_to_its_error() {
        for seed in 0..60 {
            let mut rng = StdRng::seed_from_u64(seed);
            let keys = rng.random_range(1..600);
            let (mut table, mut exact) = (Table::default(), Exact::new());
            for _ in 0..5_000 {
                // The first ones are asked for more often than the last ones.
                let n = rng.random_range(0..keys) * rng.random_range(0..keys) / keys;
                let us = rng.random_range(0..1_000);
                table.add(&key(n), us);
                note(&mut exact, key(n), us);
            }
            let shown = all(&table);
            assert_eq!(shown.len(), exact.len().min(ROOM));
            for waits in &shown {
                let (count, total_us, longest_us) = exact[&waits.key_ref];
                assert!(waits.total_us >= total_us, "seed {seed}: {waits:?}");
                assert!(waits.total_us - waits.error_us <= total_us, "{waits:?}");
                assert!(waits.count <= count && waits.longest_us <= longest_us);
                if waits.error_us == 0 && exact.len() <= ROOM {
                    let all = (waits.count, waits.total_us, waits.longest_us);
                    assert_eq!(all, (count, total_us, longest_us));
                }
            }
            let sum: u64 = exact.values().map(|(_, total_us, _)| total_us).sum();
            let large = exact.iter().filter(|(_, of)| of.1 > sum / ROOM as u64);
            for (key_ref, _) in large {
                assert!(shown.iter().any(|waits| waits.key_ref == *key_ref));
            }
        }
    }

    #[test]
    fn the_largest_total_comes_first() {
        let mut table = Table::default();
        for n in 0..10 {
            table.add(&key(n * 2), n as u64);
        }
        let totals: Vec<_> = table.of_db(0, 3).iter().map(|w| w.total_us).collect();
        assert_eq!(totals, [9, 8, 7]);
        assert_eq!(table.of_db(1, 3), []);
        table.swap_dbs(0, 1);
        assert_eq!(table.of_db(0, 3), []);
        assert_eq!(table.of_db(1, 3).len(), 3);
        // It is still one entry.
        table.add(&KeyRef::new(1, b"key:18"), 1);
        assert_eq!(table.of_db(1, 1)[0].total_us, 10);
        table.clear();
        assert_eq!(all(&table), []);
    }

    #[test]
    fn a_long_name_counts_under_its_beginning() {
        let mut table = Table::default();
        for end in [1, 2] {
            let mut name = vec![b'x'; LONGEST_NAME];
            name.push(end);
            table.add(&KeyRef::new(0, &name), 5);
        }
        let shown = table.of_db(0, 9);
        assert_eq!((shown.len(), shown[0].count), (1, 2));
        assert_eq!(shown[0].key_ref.name.len(), LONGEST_NAME);
    }
}
