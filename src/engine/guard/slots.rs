//! Slots of a cluster that come to this node while it runs, without a promotion.
//!
//! The node that had a slot may have granted leases in it that are not known here. So nothing new
//! is granted in it for as long as after a promotion. It ends earlier by what the node before says:
//! that it serves the slot no more, has no key in it, and lost no held lock with it. All leases
//! have been moved then, and only the rest of that node's own guard remains. While a slot is being
//! imported, the node that still has it says only that rest: what is granted here is what is not
//! there. So that node must go on answering. Another one is elected in its place only later.
//!
//! A node looks at the slots a few times a second. In a slot that it has not seen at the last look
//! it grants nothing, and no absent key in one that was on its way to another node then: the move
//! may have been given up since. So what may be missed is a slot that goes and comes back between
//! two looks.

use std::collections::{BTreeMap, BTreeSet};

use super::settings::BEAT_US;
use crate::lock::slot::SLOTS;

/// The name of a node of a cluster.
pub type NodeId = [u8; 40];

/// For how long the answer of another node is expected at any moment, in microseconds.
const EXPECTED_US: u64 = 2_000_000;

/// How old the last answer about a slot that is being imported may be, in microseconds. An election
/// takes longer than that.
const ANSWERS_US: u64 = 1_000_000;

/// How many questions of other nodes wait for their answer at most.
const MOST_QUESTIONS: usize = 64;

/// Who has which slot, as this node sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// The nodes, this one first.
    pub nodes: Vec<NodeId>,
    /// For each slot the place of its node in `nodes`, if it has one.
    pub owners: Vec<Option<u16>>,
    /// The slots that are coming, and from where.
    pub importing: BTreeMap<u16, NodeId>,
    /// The slots that are going, and to where.
    pub migrating: BTreeMap<u16, NodeId>,
}

impl Cluster {
    /// Whether this node has a slot.
    pub(super) fn has(&self, slot: u16) -> bool {
        self.owner(slot) == Some(0)
    }

    /// Whether this node neither has a slot nor gets it.
    pub(super) fn grants_nothing_in(&self, slot: u16) -> bool {
        !self.has(slot) && !self.imports(slot)
    }

    fn owner(&self, slot: u16) -> Option<u16> {
        self.owners.get(usize::from(slot)).copied().flatten()
    }

    fn node_of(&self, slot: u16) -> Option<NodeId> {
        self.nodes.get(usize::from(self.owner(slot)?)).copied()
    }

    fn imports(&self, slot: u16) -> bool {
        self.importing.contains_key(&slot)
    }

    fn imports_from(&self, slot: u16, from: &NodeId) -> bool {
        self.importing.get(&slot) == Some(from)
    }

    /// Whether this node has a slot that is going to another one.
    pub(super) fn hands_over(&self, slot: u16, to: &NodeId) -> bool {
        self.has(slot) && self.migrating.get(&slot) == Some(to)
    }
}

/// What another node asks: the slots that it has got from this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub by: NodeId,
    /// When, by its own clock. The answer has it, too.
    pub at_us: u64,
    pub slots: BTreeSet<u16>,
}

/// What another node says of slots that it had, or still has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub by: NodeId,
    /// When this node has asked. What has come since is not meant.
    pub asked_us: u64,
    /// How long its own guard lasts yet, in milliseconds.
    pub left_ms: u64,
    /// The slots whose leases have all come along.
    pub slots: BTreeSet<u16>,
}

/// A slot in which nothing new is granted.
#[derive(Clone, Debug)]
pub(super) struct Closed {
    since_us: u64,
    pub(super) end_us: u64,
    /// The node that knows what was granted there, until it has answered.
    asked: Option<NodeId>,
}

/// The slots of this node.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    /// What was seen at the last look. `None` before the first one, and outside of a cluster.
    pub(super) seen: Option<Cluster>,
    pub(super) closed: BTreeMap<u16, Closed>,
    /// For each slot whether new grants may be made.
    pub(super) open: Vec<bool>,
    pub(super) questions: Vec<Question>,
    /// When the nodes of the slots that are being imported were asked, and have answered.
    answered_us: BTreeMap<u16, (NodeId, u64)>,
}

impl Slots {
    /// Whether new grants in a slot may be made.
    pub(super) fn is_open(&self, slot: u16) -> bool {
        self.open.get(usize::from(slot)) == Some(&true)
    }

    /// Whether any slot goes to another node, key by key, as far as was seen.
    #[inline]
    pub(super) fn is_handing_over(&self) -> bool {
        let seen = self.seen.as_ref();
        seen.is_some_and(|seen| !seen.migrating.is_empty())
    }

    /// Whether this slot does.
    pub(super) fn goes(&self, slot: u16) -> bool {
        let seen = self.seen.as_ref();
        seen.is_some_and(|seen| seen.migrating.contains_key(&slot))
    }

    /// When the next one ends. It changes at a look and by an answer.
    pub(super) fn next_end_us(&self) -> u64 {
        let ends_us = self.closed.values().map(|closed| closed.end_us);
        ends_us.min().unwrap_or(u64::MAX)
    }

    /// Whether an answer may come at any moment.
    pub(super) fn expects_answer(&self, boot_us: u64) -> bool {
        let is_new = |closed: &Closed| boot_us.saturating_sub(closed.since_us) < EXPECTED_US;
        let mut asked = self.closed.values().filter(|one| one.asked.is_some());
        asked.any(is_new)
    }

    /// Looks at the slots. Those that have come are closed for so long, but for the first look: a
    /// start and a promotion close all of them.
    pub(super) fn look(&mut self, cluster: Cluster, boot_us: u64, wait_us: u64) {
        let end_us = boot_us.saturating_add(wait_us);
        if let Some(before) = &self.seen {
            let closed = |asked| Closed {
                since_us: boot_us,
                end_us,
                asked,
            };
            for slot in 0..SLOTS {
                let has_come = cluster.has(slot) && !before.has(slot);
                if has_come && !before.imports(slot) {
                    self.closed.insert(slot, closed(before.node_of(slot)));
                }
            }
            // A move was given up. This node does not know what the target has granted, and the
            // target goes on as long as the last answer allows.
            for (slot, to) in &before.migrating {
                if cluster.has(*slot) && !cluster.hands_over(*slot, to) {
                    let mut closed = closed(Some(*to));
                    closed.end_us = end_us.saturating_add(ANSWERS_US + BEAT_US);
                    if let Some(before) = self.closed.get(slot) {
                        // Another node may know more.
                        (closed.asked, closed.end_us) = (None, closed.end_us.max(before.end_us));
                    }
                    self.closed.insert(*slot, closed);
                }
            }
            let answers = |slot, from| {
                let last = self.answered_us.get(slot);
                last.is_some_and(|(node, us)| {
                    node == from && boot_us.saturating_sub(*us) <= ANSWERS_US
                })
            };
            for (slot, from) in &cluster.importing {
                let is_new = !before.imports_from(*slot, from);
                let is_open = !self.closed.contains_key(slot);
                if !cluster.has(*slot) && (is_new || (is_open && !answers(slot, from))) {
                    self.closed.insert(*slot, closed(Some(*from)));
                }
            }
        }
        self.answered_us
            .retain(|slot, (node, _)| cluster.imports_from(*slot, node));
        self.seen = Some(cluster);
        self.note_open();
    }

    /// Opens the slots whose time has come. Whether there are any.
    pub(super) fn time_passes(&mut self, boot_us: u64) -> bool {
        let before = self.closed.len();
        self.closed.retain(|_, closed| closed.end_us > boot_us);
        let has_opened = self.closed.len() < before;
        if has_opened {
            self.note_open();
        }
        has_opened
    }

    fn note_open(&mut self) {
        let Some(seen) = &self.seen else {
            return;
        };
        let (closed, all) = (&self.closed, 0..SLOTS);
        let may_be = |slot: u16| seen.has(slot) || seen.imports(slot);
        self.open = all
            .map(|slot| may_be(slot) && !closed.contains_key(&slot))
            .collect();
    }

    /// What is to be asked: each node with its slots. The node of a slot that is being imported is
    /// asked again and again, because its guard may begin at any time.
    pub(super) fn asks(&self) -> BTreeMap<NodeId, BTreeSet<u16>> {
        let mut asks: BTreeMap<NodeId, BTreeSet<u16>> = BTreeMap::new();
        let importing = self.seen.iter().flat_map(|seen| &seen.importing);
        let closed = self.closed.iter();
        let closed = closed.filter_map(|(slot, closed)| Some((slot, closed.asked?)));
        for (slot, node) in importing.map(|(slot, from)| (slot, *from)).chain(closed) {
            asks.entry(node).or_default().insert(*slot);
        }
        asks
    }

    /// Another node has answered. The time must pass after that.
    pub(super) fn hear(&mut self, answer: &Answer, boot_us: u64) {
        let end_us = boot_us.saturating_add(answer.left_ms.saturating_mul(1_000));
        // The other node may grant in a slot that it no longer hands over.
        self.answered_us.retain(|slot, (node, us)| {
            *node != answer.by || *us >= answer.asked_us || answer.slots.contains(slot)
        });
        for slot in &answer.slots {
            let seen = self.seen.as_ref();
            let is_importing = seen.is_some_and(|seen| seen.imports_from(*slot, &answer.by));
            if is_importing {
                self.answered_us.insert(*slot, (answer.by, answer.asked_us));
            }
            if is_importing && answer.left_ms > 0 {
                self.closed.entry(*slot).or_insert(Closed {
                    since_us: answer.asked_us,
                    end_us,
                    asked: Some(answer.by),
                });
            }
            if let Some(closed) = self.closed.get_mut(slot) {
                let is_asked = closed.asked == Some(answer.by) || is_importing;
                if is_asked && closed.since_us <= answer.asked_us {
                    closed.asked = None;
                    closed.end_us = end_us;
                }
            }
        }
        self.note_open();
    }

    /// Another node asks. It is answered by the timer.
    pub(super) fn note(&mut self, question: Question) {
        self.questions.retain(|one| one.by != question.by);
        if self.questions.len() < MOST_QUESTIONS {
            self.questions.push(question);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The node that has a slot which is being imported may die, and another one take its place.
    #[test]
    fn a_slot_is_imported_only_while_its_node_answers() {
        let [this, source] = [[1; 40], [2; 40]];
        let cluster = |importing| Cluster {
            nodes: vec![this, source],
            owners: vec![Some(1); usize::from(SLOTS)],
            importing,
            migrating: BTreeMap::new(),
        };
        let mut slots = Slots::default();
        slots.look(cluster(BTreeMap::new()), 0, 9_000_000);
        let answer = |asked_us| Answer {
            by: source,
            asked_us,
            left_ms: 0,
            slots: [7].into(),
        };
        let mut is_open_at = |us, is_answered: bool| {
            slots.look(cluster([(7, source)].into()), us, 9_000_000);
            assert_eq!(slots.asks()[&source], [7].into());
            if is_answered {
                slots.hear(&answer(us), us);
                slots.time_passes(us + 1);
            }
            slots.is_open(7)
        };
        let steps = [
            (1, false),
            (2, true),
            (1_000_000, false),
            (1_100_000, false),
        ];
        let steps = steps.map(|(us, is_answered)| is_open_at(us, is_answered));
        assert_eq!(steps, [false, true, true, false]);
        assert!(is_open_at(1_200_000, true));
    }
}
