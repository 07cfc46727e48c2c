//! Slots of a cluster that come to this node, or move.
//!
//! The node that had a slot may have granted leases in it that are not known here. So nothing new
//! is granted in a slot that comes in another way than by a promotion of this server. While a slot
//! moves key by key, a key that is absent here may be at the other node, or was handed on by a
//! server that was replaced since: it is not granted, however long the move lasts.
//!
//! A node looks at the slots a few times a second. In a slot that it has not seen at the last look
//! it grants nothing.

use super::doubt::Reason;
use super::slots::Cluster;
use super::Guard;
use crate::lock::slot::{slot_of, SLOTS};

impl Guard {
    /// Whether slots are looked at.
    #[inline]
    pub(in crate::engine) fn has_slots(&self) -> bool {
        self.cluster.is_some()
    }

    /// Looks at the slots of this node. At the first look after a start or a promotion all of them
    /// are new, and the doubt of that covers them. Whether some slots may be open that were not.
    pub(in crate::engine) fn look_at_slots(&mut self, cluster: Cluster, boot_us: u64) -> bool {
        if self.cluster.as_ref() == Some(&cluster) {
            return false;
        }
        match self.cluster.take() {
            Some(before) => {
                let has_come = |slot: &u16| cluster.has(*slot) && !before.has(*slot);
                let moves_anew = |slot: &u16| {
                    cluster.knows(*slot) && cluster.move_of(*slot) != before.move_of(*slot)
                };
                let moving = before.moving.keys().chain(cluster.moving.keys()).copied();
                let moving = moving.filter(moves_anew);
                #[cfg(any(test, feature = "fault-injection"))]
                let moving = moving.filter(|_| self.settings.has(super::Rule::SlotMoves));
                if let Some(doubt) = self.doubt_of(Reason::Slot, boot_us) {
                    let doubtful = (0..SLOTS).filter(has_come).chain(moving);
                    doubtful.for_each(|slot| self.doubts.add_to_slot(slot, doubt));
                }
            }
            None => self.begins_with_slots(boot_us),
        }
        self.cluster = Some(cluster);
        self.quiet_until_us = 0;
        true
    }

    /// Whether nothing new is granted in the slot of a key, which may be absent.
    #[cold]
    pub(super) fn is_slot_closed(&self, name: &[u8], is_absent: bool) -> bool {
        let slot = slot_of(name);
        let Some(cluster) = &self.cluster else {
            return false;
        };
        #[cfg(any(test, feature = "fault-injection"))]
        let is_absent = is_absent && self.settings.has(super::Rule::SlotAbsent);
        let is_lacking = is_absent && cluster.move_of(slot).is_some();
        !cluster.knows(slot) || self.doubts.is_of_slot(slot) || is_lacking
    }

    /// A request was refused because of the guard. A slot that has come since the last look is
    /// looked at now.
    pub(in crate::engine) fn refused(&mut self, name: &[u8]) {
        let slot = slot_of(name);
        let cluster = self.cluster.as_ref();
        if cluster.is_some_and(|cluster| !cluster.knows(slot)) {
            self.beat_now();
        }
    }

    /// Whether a slot, or any, moves key by key. A replica that is promoted does not know of that.
    pub(super) fn is_any_moving(&self, slot: Option<u16>) -> bool {
        self.cluster.as_ref().is_some_and(|cluster| {
            let mut moving = cluster.moving.keys();
            let is_meant = |one: &u16| slot.is_none_or(|slot| slot == *one);
            moving.any(|one| is_meant(one) && cluster.move_of(*one).is_some())
        })
    }

    /// How many slots are in doubt.
    pub(in crate::engine) fn slots_closed(&self) -> usize {
        self.doubts.slot_count()
    }

    /// Opens the slots whose time has come. Whether there are any.
    pub(in crate::engine) fn open_slots(&mut self, boot_us: u64) -> bool {
        self.doubts.pass(boot_us)
    }
}

#[cfg(test)]
mod tests;
