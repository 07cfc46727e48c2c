//! Keys that have changed outside a command, and are to be looked at.

use std::collections::BTreeSet;

use crate::rules::key_ref::KeyRef;

/// Marked keys.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    /// Those that the timer looks at in this turn. All come before those of `later`.
    in_turn: BTreeSet<KeyRef>,
    /// Those that were marked since the turn began.
    later: BTreeSet<KeyRef>,
}

impl Marks {
    pub(super) fn add(&mut self, key: KeyRef) {
        self.later.insert(key);
    }

    /// Takes the mark of a key. Whether it had one.
    pub fn remove(&mut self, key: &KeyRef) -> bool {
        let was_in_turn = self.in_turn.remove(key);
        self.later.remove(key) || was_in_turn
    }

    /// Whether a key has one.
    pub fn has(&self, key: &KeyRef) -> bool {
        self.later.contains(key) || self.in_turn.contains(key)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.in_turn.is_empty() && self.later.is_empty()
    }

    /// Takes all.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Begins a turn of the timer, unless the last one is not over. Keys that are marked from now
    /// on come in a later turn.
    pub fn begin_turn(&mut self) {
        if self.in_turn.is_empty() {
            std::mem::swap(&mut self.later, &mut self.in_turn);
        }
    }

    /// Takes the mark of the next key of the turn.
    pub fn next_in_turn(&mut self) -> Option<KeyRef> {
        let key = self.in_turn.pop_first()?;
        self.later.remove(&key);
        Some(key)
    }

    /// Follows SWAPDB: a marked key counts as marked in both databases.
    pub(super) fn swap_dbs(&mut self, one: i32, other: i32) {
        let swapped = |key: &KeyRef| {
            let mut key = key.clone();
            key.swap_db(one, other).then_some(key)
        };
        let marked = self.in_turn.iter().chain(&self.later);
        let swapped: Vec<KeyRef> = marked.filter_map(swapped).collect();
        self.later.extend(swapped);
    }
}
