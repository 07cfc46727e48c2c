//! The guard of one slot, beside that of the whole server.

use std::collections::{BTreeMap, BTreeSet};

use super::settings::{Reason, Rule};
use super::slots::{Answer, Cluster, NodeId, Question};
use super::Guard;
use crate::lock::slot::slot_of;

impl Guard {
    /// Whether no new grant of a key may be made.
    #[inline]
    pub(in crate::engine) fn is_closed_for<'n>(&self, name: impl FnOnce() -> &'n [u8]) -> bool {
        self.is_closed() || (self.has_slots() && self.is_slot_closed(name()))
    }

    /// The same of the hand-off to waiters.
    #[inline]
    pub(in crate::engine) fn holds_back_for(&self, name: &[u8]) -> bool {
        self.holds_back() || (self.has_slots() && self.is_slot_closed(name))
    }

    /// Whether slots are looked at.
    #[inline]
    pub(in crate::engine) fn has_slots(&self) -> bool {
        !self.slots.open.is_empty()
    }

    #[cold]
    fn is_slot_closed(&self, name: &[u8]) -> bool {
        !self.slots.is_open(slot_of(name))
    }

    /// A request was refused because of the guard. A slot that has come since the last look is
    /// looked at now.
    pub(in crate::engine) fn refused(&mut self, name: &[u8]) {
        let is_known = |slot| self.slots.is_open(slot) || self.slots.closed.contains_key(&slot);
        if self.has_slots() && !is_known(slot_of(name)) {
            self.beat_now();
        }
    }

    /// Whether any slot goes to another node.
    #[inline]
    pub(in crate::engine) fn is_handing_over(&self) -> bool {
        self.slots.is_handing_over()
    }

    /// Whether a key that is absent may be at another node, though the server says that it is not.
    /// The slots are looked at now.
    pub(in crate::engine) fn may_be_elsewhere(&mut self, name: &[u8]) -> bool {
        let may_be = self.is_handing_over()
            && self.settings.has(Rule::SlotGoes)
            && self.slots.goes(slot_of(name));
        if may_be {
            self.beat_now();
        }
        may_be
    }

    /// For how many milliseconds no new grant of a key, or of any, is made yet, and why.
    pub fn all_closed_for(&self, name: Option<&[u8]>, boot_us: u64) -> Option<(u64, Reason)> {
        let whole = self.closed_for(boot_us);
        if let Some((0, _)) = whole {
            return whole;
        }
        let ends_us = self
            .slots
            .closed
            .iter()
            .map(|(slot, one)| (slot, one.end_us));
        let is_meant = |slot: u16| name.is_none_or(|name| slot_of(name) == slot);
        let ends_us = ends_us.filter(|(slot, _)| is_meant(**slot));
        let end_us = ends_us.map(|(_, end_us)| end_us).max();
        let left_us = end_us.and_then(|us| us.checked_sub(boot_us));
        let slot = left_us.map(|us| (us.div_ceil(1_000), Reason::Slot));
        slot.into_iter().chain(whole).max_by_key(|(ms, _)| *ms)
    }

    /// How many slots are closed.
    pub(in crate::engine) fn slots_closed(&self) -> usize {
        self.slots.closed.len()
    }

    /// Looks at the slots of this node.
    pub(in crate::engine) fn look_at_slots(&mut self, cluster: Cluster, boot_us: u64) {
        let wait_us = match self.asks_replicas() {
            true => self.quorum_wait_us(boot_us),
            false => {
                let wait_ms = self
                    .longest_ms(boot_us)
                    .saturating_add(self.settings.slack_ms);
                wait_ms.saturating_mul(1_000)
            }
        };
        let wait_us = if self.settings.has(Rule::Slots) {
            wait_us
        } else {
            0
        };
        self.slots.look(cluster, boot_us, wait_us);
        self.quiet_until_us = 0;
    }

    /// What this node asks others.
    pub(in crate::engine) fn asks(&self) -> BTreeMap<NodeId, BTreeSet<u16>> {
        self.slots.asks()
    }

    /// What others have asked this node.
    pub(in crate::engine) fn take_questions(&mut self) -> Vec<Question> {
        std::mem::take(&mut self.slots.questions)
    }

    /// The slots of a question that this node neither has nor gets.
    pub(in crate::engine) fn gone_of(&self, question: &Question) -> Vec<u16> {
        let seen = self.slots.seen.as_ref();
        let is_gone = |slot: &u16| seen.is_some_and(|seen| seen.grants_nothing_in(*slot));
        question.slots.iter().copied().filter(is_gone).collect()
    }

    /// What this node says to a question: how long its own guard lasts yet, in milliseconds, and
    /// the slots whose leases have all come along. `None` while it does not know that.
    /// `is_whole` says whether a slot of another node has no key here, and lost no held lock.
    pub(in crate::engine) fn answer(
        &self,
        question: Question,
        mut is_whole: impl FnMut(u16) -> bool,
        boot_us: u64,
    ) -> Option<(u64, BTreeSet<u16>)> {
        let (settings, by) = (&self.settings, question.by);
        let cluster = self.slots.seen.as_ref()?;
        let whole_ms = match self.closed_for(boot_us) {
            Some((0, _)) => return None,
            closed_for => closed_for.map_or(0, |(ms, _)| ms),
        };
        let mut is_told = |slot: &u16| {
            let is_gone = cluster.grants_nothing_in(*slot) || !settings.has(Rule::SlotIsGone);
            let must_be_whole = settings.has(Rule::SlotIsWhole);
            cluster.hands_over(*slot, &by) || (is_gone && (!must_be_whole || is_whole(*slot)))
        };
        let slots = question.slots.into_iter();
        let slots: BTreeSet<u16> = slots.filter(|slot| is_told(slot)).collect();
        let closed = slots.iter().filter_map(|slot| self.slots.closed.get(slot));
        let rests_ms = closed.map(|one| one.end_us.saturating_sub(boot_us).div_ceil(1_000));
        let left_ms = match settings.has(Rule::SlotRest) {
            true => rests_ms.fold(whole_ms, u64::max),
            false => 0,
        };
        Some((left_ms, slots))
    }

    /// Another node asks. The timer answers.
    pub(in crate::engine) fn is_asked(&mut self, question: Question) {
        if self.has_beats() {
            self.slots.note(question);
            self.beat_now();
        }
    }

    /// Another node has answered.
    pub(in crate::engine) fn is_answered(&mut self, answer: &Answer, boot_us: u64) {
        self.slots.hear(answer, boot_us);
        self.quiet_until_us = 0;
    }

    /// Opens the slots whose time has come. Whether there are any.
    pub(in crate::engine) fn open_slots(&mut self, boot_us: u64) -> bool {
        self.has_slots() && self.slots.time_passes(boot_us)
    }

    /// Notes when the timer is to look at slots.
    pub(super) fn slots_due(&mut self, boot_us: u64, monotonic_us: u64) {
        let end_us = self.slots.next_end_us();
        if end_us < u64::MAX {
            let due_us = monotonic_us.saturating_add(end_us.saturating_sub(boot_us));
            self.due_us = Some(self.due_us.map_or(due_us, |us| us.min(due_us)));
        }
    }
}

#[cfg(test)]
mod tests;
