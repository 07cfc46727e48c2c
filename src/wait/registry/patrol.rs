//! The patrol: it looks at waited keys now and then, because nobody tells of some changes.

use super::changes::Lap;
use crate::wait::place::Places;

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
    pub(super) fn begin<L>(&mut self, places: &Places<L>) {
        if self.is_over() || self.lap.is_of_the_past(places) {
            self.lap.begin(places, PLACES);
            self.keys_left = KEYS;
        }
    }

    pub(super) const fn is_over(&self) -> bool {
        self.lap.is_over() || self.keys_left == 0
    }

    /// Goes on by one place, which was the first one of so many keys.
    pub(super) fn go_on<L>(&mut self, places: &Places<L>, keys: usize) {
        self.lap.go_on(places);
        self.keys_left = self.keys_left.saturating_sub(keys);
    }
}
