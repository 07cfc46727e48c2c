//! The patrol: it looks at waited keys now and then, because nobody tells of some changes.

use std::hash::BuildHasher;

use super::changes::Lap;
use crate::book::Indexed;

/// How many keys a patrol looks at, and how many places it passes. With more of them, each has its
/// turn later.
const KEYS: usize = 1_000;
const PLACES: usize = 10_000;

/// How far it has come.
#[derive(Clone, Debug, Default)]
pub(super) struct Patrol {
    pub(super) lap: Lap,
    keys_left: usize,
}

impl Patrol {
    /// Begins one, unless one is on its way.
    pub(super) fn begin<L, S: BuildHasher>(&mut self, book: &Indexed<L, S>) {
        if self.is_over() || self.lap.is_of_the_past(book) {
            self.lap.begin(book, PLACES);
            self.keys_left = KEYS;
        }
    }

    pub(super) const fn is_over(&self) -> bool {
        self.lap.is_over() || self.keys_left == 0
    }

    /// Goes on by one place, which was the first one of so many keys.
    pub(super) fn go_on<L, S: BuildHasher>(&mut self, book: &Indexed<L, S>, keys: usize) {
        self.lap.go_on(book);
        self.keys_left = self.keys_left.saturating_sub(keys);
    }
}
