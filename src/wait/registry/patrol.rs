//! The patrol: it looks at waited keys now and then, because nobody tells of some changes.

use std::hash::BuildHasher;

use super::changes::Lap;
use super::Registry;
use crate::wait::key_ref::KeyRef;
use crate::wait::place::{PlaceId, Places};
use crate::wait::queue::WaitQueue;

/// How many keys a patrol looks at, and how many places it passes. With more of them, each has its
/// turn later.
const KEYS: usize = 1_000;
const PLACES: usize = 10_000;

/// How far it has come.
#[derive(Clone, Debug, Default)]
pub(super) struct Patrol {
    lap: Lap,
    keys_left: usize,
}

impl Patrol {
    /// Begins one, unless one is on its way.
    fn begin<L>(&mut self, places: &Places<L>) {
        if self.is_over() || self.lap.is_of_the_past(places) {
            self.lap.begin(places, PLACES);
            self.keys_left = KEYS;
        }
    }

    const fn is_over(&self) -> bool {
        self.lap.is_over() || self.keys_left == 0
    }

    /// Goes on by one place, which was the first one of so many keys.
    fn go_on<L>(&mut self, places: &Places<L>, keys: usize) {
        self.lap.go_on(places);
        self.keys_left = self.keys_left.saturating_sub(keys);
    }
}

impl<L, S: BuildHasher> Registry<L, S> {
    /// Begins a patrol, unless one is on its way.
    pub fn begin_patrol(&mut self) {
        self.patrol.begin(&self.places);
    }

    /// Whether there are keys left to look at.
    pub fn is_on_patrol(&self) -> bool {
        !self.patrol.is_over() && !self.is_empty()
    }

    /// Any place. Whoever ends each goes through all once, like the patrol.
    pub(super) fn any_place(&mut self) -> Option<PlaceId> {
        while !self.is_empty() {
            let here = self.patrol.lap.here(&self.places).map(|(id, _)| id);
            self.patrol.lap.go_on(&self.places);
            if here.is_some() {
                return here;
            }
        }
        None
    }

    /// The next keys of the patrol: those for which the next place is the first. Those that were
    /// free when they were looked at last are marked: nobody tells of a lock that has come to them
    /// since, by RENAME or MOVE.
    pub fn next_of_patrol(&mut self) -> Vec<KeyRef> {
        let is_first = |id: PlaceId, key: &KeyRef| {
            let queue = self.queues.of(key);
            queue.is_some_and(|queue| queue.is_first(id))
        };
        let mut keys = Vec::new();
        if let Some((id, place)) = self.patrol.lap.here(&self.places) {
            keys.extend(place.keys().filter(|key| is_first(id, key)).cloned());
        }
        self.patrol.go_on(&self.places, keys.len());
        for key in &keys {
            let queue = self.queues.of(key);
            if queue.is_some_and(WaitQueue::is_lock_replaced) {
                self.marks.add(key.clone());
            }
        }
        keys
    }
}
