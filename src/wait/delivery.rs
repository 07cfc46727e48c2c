//! Grants on their way to clients that waited: delivered, or lost and taken back.
//!
//! A grant is **lost** when its client is gone before it has heard of it. Its hold is then revoked,
//! wherever it is by then, unless the owner has learned of it otherwise: another request of its
//! token was answered for the same key.
//!
//! A lock may leave its key between the grant and the loss: SWAPDB is followed here; after RENAME
//! and MOVE nobody says where it is, so the hold is looked for ([`Deliveries::seek`]).

// Long because: what becomes of a grant belongs together.

use std::collections::btree_map::Entry;
use std::collections::BTreeMap;
use std::mem::take;
use std::ops::RangeInclusive;
use std::rc::Rc;

use super::key_ref::KeyRef;
use super::keys::Keys;
use super::place::Ticket;
use crate::lock::{CompactToken, Deadline, Fence, Hold, Lock, Mode};

/// The number of a delivery: one for all the requests of a token that are granted the same hold of
/// a key, or of several keys together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryId(u64);

/// A hold that was granted to a waiter, on its way to the listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Whose hold it is.
    pub token: CompactToken,
    /// The hold's fence.
    pub fence: Fence,
    /// The delivery that it belongs to.
    pub delivery: DeliveryId,
    /// The place that the token has again where nobody hears of the grant; `None` without KEEP.
    pub kept: Option<Box<Kept>>,
}

impl Delivery {
    const fn id(&self) -> (Fence, DeliveryId) {
        (self.fence, self.delivery)
    }
}

/// What is needed to give a place back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its queues. They stay where they are, whatever becomes of the locks.
    pub(super) keys: Keys,
    pub(super) ticket: Ticket,
    pub(super) since_us: u64,
    pub(super) mode: Mode,
    pub(super) keep_ms: u32,
    /// Against whose share it counts; `None` is nobody's.
    pub(super) user: Option<Rc<[u8]>>,
}

/// All grants that are on their way, and those that are lost.
#[derive(Clone, Debug, Default)]
pub struct Deliveries {
    /// A fence has several where a lock was copied by DUMP and RESTORE, or has moved from key to
    /// key. Mostly there are few in all, for which an ordered table is faster than a hash.
    pending: BTreeMap<(Fence, DeliveryId), Pending>,
    /// Holds that are to be taken back.
    revoked: Vec<Revoked>,
    /// Those of them that are not under the key where they were granted.
    sought: Vec<Revoked>,
    last: u64,
}

#[derive(Clone, Debug)]
struct Pending {
    spot: Origin,
    /// The other keys that were granted together with this one.
    others: Box<[Origin]>,
    /// How many clients have not been told.
    clients: usize,
    /// Whether the owner knows of the hold.
    known: bool,
    /// What the token had before, of which it knows: the share that was converted.
    before: Option<(Mode, Hold)>,
    /// When the hold ends that was granted last.
    ends: Deadline,
}

/// Where a hold was granted.
#[derive(Clone, Debug)]
struct Origin {
    key_ref: KeyRef,
    /// Whether the lock has left the key since.
    has_left: bool,
}

impl Origin {
    fn new(key_ref: &KeyRef) -> Self {
        Self {
            key_ref: key_ref.clone(),
            has_left: false,
        }
    }
}

impl Pending {
    fn spots(&self) -> impl Iterator<Item = &Origin> {
        std::iter::once(&self.spot).chain(&self.others)
    }

    fn spots_mut(&mut self) -> impl Iterator<Item = &mut Origin> {
        std::iter::once(&mut self.spot).chain(&mut self.others)
    }
}

/// A hold that is to be taken back.
#[derive(Clone, Debug)]
pub struct Revoked {
    /// Where it was granted, or found.
    pub key_ref: KeyRef,
    /// Whose it is.
    pub token: CompactToken,
    /// Its fence: whatever has another one is another hold.
    pub fence: Fence,
    /// What its owner knows of, and keeps.
    pub before: Option<(Mode, Hold)>,
    /// When it ends. Other keys that were granted together with this one have the same fence: a
    /// conversion is undone elsewhere only where its end is that of the conversion.
    pub ends: Deadline,
    /// Whether it may be under another key by now.
    pub has_left: bool,
    /// The delivery that was lost. Several keys that were granted together have the same.
    delivery: DeliveryId,
    /// The place that the token has again.
    pub(super) kept: Option<Box<Kept>>,
}

impl Deliveries {
    /// Notes that a waiting client was granted a hold in place of what it had before, and has not
    /// been told yet.
    pub fn granted(
        &mut self,
        key_ref: &KeyRef,
        hold: &Hold,
        before: Option<(Mode, Hold)>,
    ) -> DeliveryId {
        let fence = hold.fence;
        let lost = self.take_lost(key_ref, fence);
        let is_it =
            |pending: &Pending| pending.others.is_empty() && pending.spot.key_ref == *key_ref;
        if self.may_have(fence) {
            let mut all = self.pending.range_mut(all_of(fence)).rev();
            if let Some(((_, delivery), pending)) = all.find(|(_, pending)| is_it(pending)) {
                pending.clients = pending.clients.saturating_add(1);
                pending.ends = hold.deadline;
                return *delivery;
            }
        }
        // The owner knows of what it had before the first of them.
        let before = lost.map_or(before, |lost| lost.before);
        self.begin(Origin::new(key_ref), Box::default(), hold, 1, before)
    }

    /// Takes the earlier grants of a hold that were lost, and answers the first one. The hold is on
    /// its way again, so that decides whether it stays.
    fn take_lost(&mut self, key_ref: &KeyRef, fence: Fence) -> Option<Revoked> {
        if !self.has_lost() {
            return None; // The usual case.
        }
        let here = |lost: &Revoked| lost.fence == fence && lost.key_ref == *key_ref;
        let revoked = take(&mut self.revoked).into_iter();
        let (lost, revoked): (Vec<_>, _) = revoked.partition(here);
        // What is looked for is found.
        let all = take(&mut self.sought).into_iter();
        let (found, sought): (Vec<_>, _) = all.partition(|lost| lost.fence == fence);
        (self.revoked, self.sought) = (revoked, sought);
        lost.into_iter().chain(found).next()
    }

    fn has_lost(&self) -> bool {
        !self.revoked.is_empty() || !self.sought.is_empty()
    }

    /// Notes that so many waiting clients were granted several keys together. `None` without any.
    pub fn granted_together<'k>(
        &mut self,
        mut keys: impl Iterator<Item = &'k KeyRef>,
        hold: &Hold,
        clients: usize,
    ) -> Option<DeliveryId> {
        let first = keys.next().filter(|_| clients > 0)?;
        let others = keys.map(Origin::new).collect();
        Some(self.begin(Origin::new(first), others, hold, clients, None))
    }

    fn begin(
        &mut self,
        spot: Origin,
        others: Box<[Origin]>,
        hold: &Hold,
        clients: usize,
        before: Option<(Mode, Hold)>,
    ) -> DeliveryId {
        self.last = self.last.wrapping_add(1);
        let delivery = DeliveryId(self.last);
        let pending = Pending {
            spot,
            others,
            clients,
            known: false,
            before,
            ends: hold.deadline,
        };
        self.pending.insert((hold.fence, delivery), pending);
        delivery
    }

    /// Notes that a client was told.
    pub fn delivered(&mut self, granted: &Delivery) {
        let has_lost = self.has_lost();
        let all_of = || self.pending.range(all_of(granted.fence));
        let is_only = self.pending.len() == 1 || all_of().nth(1).is_none();
        if let Some(pending) = self.pending.get_mut(&granted.id()) {
            pending.known = true;
            // Mostly nothing else is known of this hold.
            if has_lost || !is_only {
                let spots = pending.spots();
                let spots: Vec<_> = spots
                    .map(|spot| (spot.key_ref.clone(), spot.has_left))
                    .collect();
                self.know(granted.fence, |other, other_has_left| {
                    let mut spots = spots.iter();
                    spots.any(|(key_ref, has_left)| *has_left || other_has_left || other == key_ref)
                });
            }
        }
        self.settle(granted);
    }

    /// Notes that the client is gone which was to be told.
    pub fn lost(&mut self, mut granted: Delivery) {
        let pending = self.pending.get(&granted.id());
        if let Some(pending) = pending.filter(|pending| !pending.known) {
            for spot in pending.spots() {
                self.revoked.push(Revoked {
                    key_ref: spot.key_ref.clone(),
                    token: granted.token.clone(),
                    fence: granted.fence,
                    before: pending.before,
                    ends: pending.ends,
                    has_left: spot.has_left,
                    delivery: granted.delivery,
                    kept: granted.kept.take(),
                });
            }
        }
        self.settle(&granted);
    }

    /// Notes that the owner of a hold knows of it: it has asked again, or renewed.
    pub fn acknowledge(&mut self, db: i32, key: &[u8], fence: Fence) {
        self.know(fence, |key_ref, has_left| {
            has_left || (key_ref.db == db && *key_ref.name == *key)
        });
    }

    /// Whether it is not known yet if the owner of a hold under this key has heard of it. A copy of
    /// the hold has the same fence under another key.
    pub fn is_under_way(&self, at: &KeyRef, fence: Fence) -> bool {
        let is_here = |key_ref: &KeyRef, has_left: bool| has_left || key_ref == at;
        let all = self.pending.range(all_of(fence));
        let unknown = all.filter(|(_, pending)| !pending.known);
        let mut spots = unknown.flat_map(|(_, pending)| pending.spots());
        let mut revoked = self.revoked.iter().filter(|lost| lost.fence == fence);
        spots.any(|spot| is_here(&spot.key_ref, spot.has_left))
            || revoked.any(|lost| is_here(&lost.key_ref, lost.has_left))
    }

    /// Whether an acknowledgement can matter.
    pub fn is_waiting(&self) -> bool {
        !self.pending.is_empty() || self.has_lost()
    }

    /// Whether nothing is left of the deliveries that have ended.
    #[cfg(test)]
    pub(crate) fn is_tight(&self, in_flight: usize) -> bool {
        let clients: usize = self.pending.values().map(|pending| pending.clients).sum();
        clients == in_flight
    }

    /// Notes that a lock leaves its key.
    pub fn left(&mut self, db: i32, key: &[u8]) {
        let is_it = |key_ref: &KeyRef| key_ref.is(db, key);
        let spots = self.pending.values_mut().flat_map(Pending::spots_mut);
        spots
            .filter(|spot| is_it(&spot.key_ref))
            .for_each(|spot| spot.has_left = true);
        let revoked = self.revoked.iter_mut();
        revoked
            .filter(|revoked| is_it(&revoked.key_ref))
            .for_each(|revoked| revoked.has_left = true);
    }

    /// Notes that locks have left many keys, any of them perhaps.
    pub fn all_left(&mut self) {
        let spots = self.pending.values_mut().flat_map(Pending::spots_mut);
        spots.for_each(|spot| spot.has_left = true);
        let revoked = self.revoked.iter_mut();
        revoked.for_each(|revoked| revoked.has_left = true);
    }

    /// Follows SWAPDB.
    pub fn swap_dbs(&mut self, one: i32, other: i32) {
        for spot in self.pending.values_mut().flat_map(Pending::spots_mut) {
            spot.key_ref.swap_db(one, other);
        }
        for revoked in self.revoked.iter_mut().chain(&mut self.sought) {
            revoked.key_ref.swap_db(one, other);
        }
    }

    /// Whether there are holds to take back.
    pub fn has_revoked(&self) -> bool {
        !self.revoked.is_empty()
    }

    /// Takes the holds that are to be taken back. Their places are not given back yet.
    pub(super) fn take_revoked(&mut self) -> Vec<Revoked> {
        std::mem::take(&mut self.revoked)
    }

    /// Has a hold looked for that is not where it was granted.
    pub fn seek(&mut self, revoked: Revoked) {
        self.sought.push(revoked);
    }

    /// The holds that are looked for.
    pub fn sought(&self) -> Vec<Revoked> {
        self.sought.clone()
    }

    /// Notes where a hold was found that is looked for. It is to be taken back there.
    pub fn found(&mut self, fence: Fence, key_ref: &KeyRef) {
        let all = take(&mut self.sought).into_iter();
        let (found, sought): (Vec<_>, _) = all.partition(|sought| sought.fence == fence);
        self.sought = sought;
        let here = found.into_iter().map(|revoked| Revoked {
            key_ref: key_ref.clone(),
            has_left: false,
            ..revoked
        });
        self.revoked.extend(here);
    }

    /// Gives up what is looked for and was not found.
    pub fn give_up(&mut self) {
        self.sought.clear();
    }

    /// Drops all: the server has become a replica, and its primary decides.
    pub fn clear_revoked(&mut self) {
        self.revoked.clear();
        self.sought.clear();
    }

    /// The owner of a hold knows of it: no client that missed it matters any more, wherever `is_it`
    /// says that it is the same hold. The lock may have moved from key to key, and each may have
    /// granted it. If one of several holds that were granted together is known, all are.
    fn know(&mut self, fence: Fence, is_it: impl Fn(&KeyRef, bool) -> bool) {
        let all = self
            .may_have(fence)
            .then(|| self.pending.range_mut(all_of(fence)));
        for (_, pending) in all.into_iter().flatten() {
            let mut spots = pending.spots();
            let is_known = spots.any(|spot| is_it(&spot.key_ref, spot.has_left));
            drop(spots);
            pending.known |= is_known;
        }
        let lost = self.revoked.iter().chain(&self.sought);
        let known = lost.filter(|r| r.fence == fence && is_it(&r.key_ref, r.has_left));
        let known: Vec<DeliveryId> = known.map(|revoked| revoked.delivery).collect();
        if !known.is_empty() {
            let stays = |revoked: &Revoked| !known.contains(&revoked.delivery);
            self.revoked.retain(stays);
            self.sought.retain(stays);
        }
    }

    /// Whether any delivery may have this fence. False is certain, and the usual case, because
    /// fences go up.
    fn may_have(&self, fence: Fence) -> bool {
        let ends = (
            self.pending.first_key_value(),
            self.pending.last_key_value(),
        );
        let (Some((first, _)), Some((last, _))) = ends else {
            return false;
        };
        (first.0..=last.0).contains(&fence)
    }

    fn settle(&mut self, granted: &Delivery) {
        if let Entry::Occupied(mut entry) = self.pending.entry(granted.id()) {
            match entry.get().clients {
                0 | 1 => drop(entry.remove()),
                clients => entry.get_mut().clients = clients.saturating_sub(1),
            }
        }
    }
}

/// The keys of all deliveries of a fence.
const fn all_of(fence: Fence) -> RangeInclusive<(Fence, DeliveryId)> {
    (fence, DeliveryId(0))..=(fence, DeliveryId(u64::MAX))
}

/// The sought holds that a lock has: readers that were lost one by one may have moved together.
pub fn find_in<'s>(lock: &'s Lock, sought: &'s [Revoked]) -> impl Iterator<Item = Fence> + 's {
    let is_there = |revoked: &&Revoked| {
        let token = revoked.token.text();
        let stored = lock.stored(token.as_token());
        stored.is_some_and(|(_, hold)| {
            hold.fence == revoked.fence
                && (revoked.before.is_none() || hold.deadline == revoked.ends)
        })
    };
    sought.iter().filter(is_there).map(|revoked| revoked.fence)
}

#[cfg(test)]
mod tests;
