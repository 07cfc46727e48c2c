//! The waited keys of a node of a cluster, by hash slot. The node asks once for each slot whether
//! it still serves it, and only where it does not for each key.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Included, Unbounded};

use crate::lock::slot::slot_of;
use crate::wait::key_ref::KeyRef;

/// The waited keys by hash slot, and how far they are looked at.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct WaitedSlots {
    keys: BTreeSet<(u16, KeyRef)>,
    round: Round,
    /// Keys with a lock that must be looked at once this node serves them.
    put_off: BTreeSet<KeyRef>,
    /// Those of them that are to be looked at in this round.
    in_round: BTreeSet<KeyRef>,
}

/// What is asked next.
#[derive(Clone, Debug, Default)]
enum Round {
    #[default]
    Nothing,
    /// About the first slot that is not before this one.
    SlotFrom(u16),
    /// About the keys of this slot after this one.
    KeysOf(u16, Option<KeyRef>),
}

/// A question to the server: does this node serve it?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotQuestion {
    /// All keys of the slot, also those that do not exist. If not, the caller says so:
    /// `Registry::slot_is_refused`.
    Slot(u16),
    /// This key. If not, the caller ends its places.
    Key(KeyRef),
}

impl WaitedSlots {
    pub(super) fn add(&mut self, key: &KeyRef) {
        self.keys.insert((slot_of(&key.name), key.clone()));
    }

    pub(super) fn remove(&mut self, key: &KeyRef) {
        self.keys.remove(&(slot_of(&key.name), key.clone()));
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Begins a round through the slots of all waited keys, from the first one.
    pub(super) fn begin(&mut self) {
        self.round = Round::SlotFrom(0);
        self.in_round.append(&mut self.put_off);
    }

    pub(super) fn is_asking(&self) -> bool {
        !matches!(self.round, Round::Nothing) || !self.in_round.is_empty()
    }

    /// Has a key looked at in the next round.
    pub(super) fn put_off(&mut self, key: KeyRef) {
        self.put_off.insert(key);
    }

    pub(super) fn has_put_off(&self) -> bool {
        !self.put_off.is_empty()
    }

    /// A key that was put off, and is to be looked at now.
    pub(super) fn next_put_off(&mut self) -> Option<KeyRef> {
        self.in_round.pop_first()
    }

    /// Has each key of a slot asked for.
    pub(super) fn refuse(&mut self, slot: u16) {
        self.round = Round::KeysOf(slot, None);
    }

    /// The next question of the round.
    pub(super) fn next(&mut self) -> Option<SlotQuestion> {
        loop {
            match std::mem::take(&mut self.round) {
                Round::Nothing => return None,
                Round::SlotFrom(slot) => {
                    let (slot, _) = self.keys.range((slot, first_key())..).next()?;
                    self.round = Round::SlotFrom(slot.saturating_add(1));
                    return Some(SlotQuestion::Slot(*slot));
                }
                Round::KeysOf(slot, after) => {
                    let from = match after {
                        Some(key) => Excluded((slot, key)),
                        None => Included((slot, first_key())),
                    };
                    let next = self.keys.range((from, Unbounded)).next();
                    if let Some((_, key)) = next.filter(|(of, _)| *of == slot) {
                        let key = key.clone();
                        self.round = Round::KeysOf(slot, Some(key.clone()));
                        return Some(SlotQuestion::Key(key));
                    }
                    self.round = Round::SlotFrom(slot.saturating_add(1));
                }
            }
        }
    }
}

fn first_key() -> KeyRef {
    KeyRef::new(i32::MIN, b"")
}
