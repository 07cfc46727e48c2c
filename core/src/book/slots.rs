//! The waited keys of a node of a cluster, by hash slot. The node asks once for each slot whether
//! it still serves it, and only where it does not for each key.

use std::collections::BTreeSet;

use crate::lock::slot::slot_of;
use crate::rules::key_ref::{KeyId, KeyRef};

/// The waited keys by hash slot, and how far they are looked at.
#[derive(Clone, Debug, Default)]
pub struct WaitedSlots {
    /// Whether the server is a node of a cluster. If not, there is nothing else.
    is_kept: bool,
    keys: BTreeSet<(u16, KeyId)>,
    round: Round,
    /// Keys with a lock that must be looked at once this node serves them.
    put_off: BTreeSet<KeyRef>,
    /// Those of them that are to be looked at in this round.
    in_round: BTreeSet<KeyRef>,
}

/// What is asked next.
#[derive(Clone, Copy, Debug, Default)]
enum Round {
    #[default]
    Nothing,
    /// About the first slot that is not before this one.
    SlotFrom(u16),
    /// About the keys of this slot from this one on.
    KeysFrom(u16, KeyId),
}

/// A question to the server: does this node serve it?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotQuestion {
    /// All keys of the slot, also those that do not exist. If not, the caller says so:
    /// [`WaitedSlots::refuse`].
    Slot(u16),
    /// This key. If not, the caller ends its places.
    Key(KeyRef),
}

impl WaitedSlots {
    pub(super) fn add(&mut self, name: &[u8], id: KeyId) {
        if self.is_kept {
            self.keys.insert((slot_of(name), id));
        }
    }

    pub(super) fn remove(&mut self, name: &[u8], id: KeyId) {
        if self.is_kept {
            self.keys.remove(&(slot_of(name), id));
        }
    }

    #[cfg(test)]
    pub(super) fn assert_tight(&self, keys: usize) {
        assert_eq!(self.keys.len(), if self.is_kept { keys } else { 0 });
    }

    /// Has the slots known, before anybody waits: the server is a node of a cluster.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }

    /// Begins a round through the slots of all waited keys, from the first one. Keys that were put
    /// off are looked at again.
    pub fn begin(&mut self) {
        self.round = Round::SlotFrom(0);
        self.in_round.append(&mut self.put_off);
    }

    /// Whether the round is not over.
    pub fn is_asking(&self) -> bool {
        !matches!(self.round, Round::Nothing) || !self.in_round.is_empty()
    }

    /// Has a key looked at again once this node of a cluster may serve it.
    pub fn put_off(&mut self, key: KeyRef) {
        if self.is_kept {
            self.put_off.insert(key);
        }
    }

    /// Whether any key was put off.
    pub fn has_put_off(&self) -> bool {
        !self.put_off.is_empty()
    }

    /// A key that was put off, and is to be looked at now.
    pub(crate) fn next_put_off(&mut self) -> Option<KeyRef> {
        self.in_round.pop_first()
    }

    /// This node does not serve all keys of the slot that was asked for, so each of them is asked
    /// for.
    pub fn refuse(&mut self, slot: u16) {
        self.round = Round::KeysFrom(slot, KeyId(0));
    }

    /// The next question of the round.
    pub(crate) fn next(
        &mut self,
        key_of: impl Fn(KeyId) -> Option<KeyRef>,
    ) -> Option<SlotQuestion> {
        loop {
            match self.round {
                Round::Nothing => return None,
                Round::SlotFrom(from) => {
                    let Some((slot, _)) = self.keys.range((from, KeyId(0))..).next() else {
                        self.round = Round::Nothing;
                        return None;
                    };
                    self.round = Round::SlotFrom(slot.saturating_add(1));
                    return Some(SlotQuestion::Slot(*slot));
                }
                Round::KeysFrom(slot, from) => {
                    let to = (slot, KeyId(u32::MAX));
                    let Some((_, id)) = self.keys.range((slot, from)..=to).next() else {
                        self.round = Round::SlotFrom(slot.saturating_add(1));
                        continue;
                    };
                    self.round = Round::KeysFrom(slot, KeyId(id.0.saturating_add(1)));
                    if let Some(key) = key_of(*id) {
                        return Some(SlotQuestion::Key(key));
                    }
                }
            }
        }
    }
}
