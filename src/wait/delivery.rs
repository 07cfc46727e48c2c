//! Grants on their way to clients that waited: delivered, or lost and taken back.
//!
//! A grant is **lost** when its client is gone before it has heard of it. Its hold is then revoked, wherever it is by then, unless the
//! owner has learned of it otherwise: another request of its token was answered for the same key.
//!
//! A lock may leave its key between the grant and the loss: SWAPDB is followed here; after RENAME and MOVE nobody says where it is, so
//! the hold is looked for ([`Deliveries::seek`]).

use std::collections::HashMap;
use std::hash::BuildHasher;

use super::key_ref::KeyRef;
use crate::lock::{Deadline, Effect, Fence, Hold, Lock, Mode, Now, TokenBuf};

/// The number of a delivery: one for all the requests of a token that are granted the same hold of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Delivery(u64);

impl Delivery {
    /// Before all.
    pub const MIN: Self = Self(0);
    /// After all.
    pub const MAX: Self = Self(u64::MAX);
}

/// A hold that was granted to a waiter, on its way to the listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Whose hold it is.
    pub token: TokenBuf,
    /// The hold's fence.
    pub fence: Fence,
    /// The delivery that it belongs to.
    pub delivery: Delivery,
}

/// All grants that are on their way, and those that are lost.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub struct Deliveries<S> {
    pending: HashMap<Delivery, Pending, S>,
    /// The last delivery of each fence, which leads to the others. There are others where a lock was copied
    /// by DUMP and RESTORE, or has moved from key to key.
    by_fence: HashMap<Fence, Delivery, S>,
    /// Holds that are to be taken back.
    revoked: Vec<Revoked>,
    /// Those of them that are not under the key where they were granted.
    sought: Vec<Revoked>,
    last: u64,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Pending {
    key_ref: KeyRef,
    fence: Fence,
    /// How many clients have not been told.
    clients: usize,
    /// Whether the owner knows of the hold.
    known: bool,
    /// Whether the lock has left the place since.
    has_left: bool,
    /// What the token had before, of which it knows: the share that was converted.
    before: Option<(Mode, Hold)>,
    /// The next delivery with the same fence.
    next: Option<Delivery>,
}

/// A hold that is to be taken back.
#[derive(Clone, Debug)]
pub struct Revoked {
    /// Where it was granted, or found.
    pub key_ref: KeyRef,
    /// Whose it is.
    pub token: TokenBuf,
    /// Its fence: whatever has another one is another hold.
    pub fence: Fence,
    /// What its owner knows of, and keeps.
    pub before: Option<(Mode, Hold)>,
    /// Whether it may be under another key by now.
    pub has_left: bool,
}

impl Revoked {
    /// Takes the hold back from a lock that has it, under a key that ends at `key_deadline`. What the owner had before, and knows of, it
    /// has again, but never alone beside others who have come in since.
    pub fn undo(&self, lock: &Lock, key_deadline: Option<Deadline>, now: Now) -> Effect<'_> {
        let (now_ms, token) = (now.ms(), self.token.as_token());
        match self.before {
            Some((mode, mut hold)) if !hold.deadline.is_over(now_ms) => {
                // The key ends with the hold that is undone, unless it was given an earlier end from outside.
                if let Some(Effect::Cap { deadline }) = key_deadline.and_then(|d| lock.cap(d)) {
                    hold.deadline = hold.deadline.min(deadline);
                }
                let mode = match lock.is_held_by_others(token, now) {
                    true => Mode::Shared,
                    false => mode,
                };
                Effect::Hold {
                    now_ms,
                    mode,
                    token,
                    hold,
                }
            }
            _ => Effect::Release { now_ms, token },
        }
    }
}

impl<S: BuildHasher> Deliveries<S> {
    /// Notes that a waiting client was granted a hold in place of what it had before, and has not been told yet.
    pub fn granted(
        &mut self,
        key_ref: &KeyRef,
        fence: Fence,
        before: Option<(Mode, Hold)>,
    ) -> Delivery {
        if let Some((delivery, pending)) = self.find(fence, |pending| pending.key_ref == *key_ref) {
            pending.clients = pending.clients.saturating_add(1);
            return delivery;
        }
        self.last = self.last.wrapping_add(1);
        let delivery = Delivery(self.last);
        let next = self.by_fence.insert(fence, delivery);
        let pending = Pending {
            key_ref: key_ref.clone(),
            fence,
            clients: 1,
            known: false,
            has_left: false,
            before,
            next,
        };
        self.pending.insert(delivery, pending);
        delivery
    }

    /// Notes that a client was told.
    pub fn delivered(&mut self, granted: &Grant) {
        if let Some(pending) = self.pending.get(&granted.delivery) {
            let (key_ref, has_left) = (pending.key_ref.clone(), pending.has_left);
            self.know(granted.fence, |other, other_has_left| {
                has_left || other_has_left || *other == key_ref
            });
        }
        self.settle(granted.delivery);
    }

    /// Notes that the client is gone which was to be told.
    pub fn lost(&mut self, granted: Grant) {
        let pending = self.pending.get(&granted.delivery);
        if let Some(pending) = pending.filter(|pending| !pending.known) {
            self.revoked.push(Revoked {
                key_ref: pending.key_ref.clone(),
                token: granted.token,
                fence: granted.fence,
                before: pending.before,
                has_left: pending.has_left,
            });
        }
        self.settle(granted.delivery);
    }

    /// Notes that the owner of a hold knows of it: it has asked again, or renewed.
    pub fn acknowledge(&mut self, db: i32, key: &[u8], fence: Fence) {
        self.know(fence, |key_ref, has_left| {
            has_left || (key_ref.db == db && *key_ref.name == *key)
        });
    }

    /// Whether an acknowledgement can matter.
    pub fn is_waiting(&self) -> bool {
        !self.pending.is_empty() || !self.revoked.is_empty() || !self.sought.is_empty()
    }

    /// Whether nothing is left of the deliveries that have ended.
    #[cfg(test)]
    pub(super) fn is_tight(&self, in_flight: usize) -> bool {
        let clients: usize = self.pending.values().map(|pending| pending.clients).sum();
        clients == in_flight && self.by_fence.len() <= self.pending.len()
    }

    /// Notes that a lock leaves its key. `db` is `None` where the server does not say which.
    pub fn left(&mut self, db: Option<i32>, key: &[u8]) {
        let is_it =
            |key_ref: &KeyRef| db.is_none_or(|db| db == key_ref.db) && *key_ref.name == *key;
        let pending = self.pending.values_mut();
        pending
            .filter(|pending| is_it(&pending.key_ref))
            .for_each(|pending| pending.has_left = true);
        let revoked = self.revoked.iter_mut();
        revoked
            .filter(|revoked| is_it(&revoked.key_ref))
            .for_each(|revoked| revoked.has_left = true);
    }

    /// Notes that locks have left many keys, any of them perhaps.
    pub fn all_left(&mut self) {
        let pending = self.pending.values_mut();
        pending.for_each(|pending| pending.has_left = true);
        let revoked = self.revoked.iter_mut();
        revoked.for_each(|revoked| revoked.has_left = true);
    }

    /// Follows SWAPDB.
    pub fn swap_dbs(&mut self, one: i32, other: i32) {
        for pending in self.pending.values_mut() {
            pending.key_ref.swap_db(one, other);
        }
        for revoked in self.revoked.iter_mut().chain(&mut self.sought) {
            revoked.key_ref.swap_db(one, other);
        }
    }

    /// Whether there are holds to take back.
    pub fn has_revoked(&self) -> bool {
        !self.revoked.is_empty()
    }

    /// Takes the holds that are to be taken back.
    pub fn take_revoked(&mut self) -> Vec<Revoked> {
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
        for revoked in self.sought.extract_if(.., |sought| sought.fence == fence) {
            self.revoked.push(Revoked {
                key_ref: key_ref.clone(),
                has_left: false,
                ..revoked
            });
        }
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

    /// The owner of a hold knows of it: no client that missed it matters any more, wherever `is_it` says that it is the same hold. The
    /// lock may have moved from key to key, and each may have granted it.
    fn know(&mut self, fence: Fence, is_it: impl Fn(&KeyRef, bool) -> bool) {
        let mut at = self.by_fence.get(&fence).copied();
        while let Some(pending) = at.and_then(|delivery| self.pending.get_mut(&delivery)) {
            pending.known |= is_it(&pending.key_ref, pending.has_left);
            at = pending.next;
        }
        let stays = |r: &Revoked| r.fence != fence || !is_it(&r.key_ref, r.has_left);
        self.revoked.retain(stays);
        self.sought.retain(stays);
    }

    fn settle(&mut self, delivery: Delivery) {
        let Some(pending) = self.pending.get_mut(&delivery) else {
            return;
        };
        pending.clients = pending.clients.saturating_sub(1);
        if pending.clients > 0 {
            return;
        }
        let (fence, next) = (pending.fence, pending.next);
        self.pending.remove(&delivery);
        // Whatever led to it leads to the next one.
        if self.by_fence.get(&fence) == Some(&delivery) {
            match next {
                Some(next) => self.by_fence.insert(fence, next),
                None => self.by_fence.remove(&fence),
            };
        } else if let Some((_, before)) = self.find(fence, |p| p.next == Some(delivery)) {
            before.next = next;
        }
    }

    /// The first delivery of a fence that is as it is asked for.
    fn find(
        &mut self,
        fence: Fence,
        is_it: impl Fn(&Pending) -> bool,
    ) -> Option<(Delivery, &mut Pending)> {
        let mut at = self.by_fence.get(&fence).copied();
        while let Some(delivery) = at {
            let pending = self.pending.get(&delivery)?;
            if is_it(pending) {
                return Some((delivery, self.pending.get_mut(&delivery)?));
            }
            at = pending.next;
        }
        None
    }
}

/// The sought holds that a lock has: readers that were lost one by one may have moved together.
pub fn find_in<'s>(lock: &'s Lock, sought: &'s [Revoked]) -> impl Iterator<Item = Fence> + 's {
    let is_there = |revoked: &&Revoked| {
        let token = revoked.token.as_token();
        lock.fence_of(token) == Some(revoked.fence)
    };
    sought.iter().filter(is_there).map(|revoked| revoked.fence)
}

#[cfg(test)]
mod tests {
    use std::hash::RandomState;

    use super::*;
    use crate::lock::{Fate, Token};

    fn key_ref(db: i32, name: &str) -> KeyRef {
        KeyRef::new(db, name.as_bytes())
    }

    fn fence(n: u64) -> Fence {
        Fence::new(n).unwrap()
    }

    fn granted(deliveries: &mut Deliveries<RandomState>, key: &str, token: &str, n: u64) -> Grant {
        let delivery = deliveries.granted(&key_ref(0, key), fence(n), None);
        let token = Token::new(token.as_bytes()).unwrap().into();
        Grant {
            token,
            fence: fence(n),
            delivery,
        }
    }

    #[test]
    fn a_lost_grant_is_taken_back_unless_its_owner_knows_of_it() {
        let mut all = Deliveries::<RandomState>::default();
        let lost = granted(&mut all, "k", "a", 1);
        all.lost(lost);
        assert_eq!(all.take_revoked().len(), 1);
        // Two requests of one token: one is told.
        let [told, lost] = [1, 1].map(|n| granted(&mut all, "k", "a", n));
        all.lost(lost);
        all.delivered(&told);
        assert!(all.take_revoked().is_empty() && all.pending.is_empty());
        // The owner asks again.
        let lost = granted(&mut all, "k", "a", 2);
        all.acknowledge(0, b"k", fence(2));
        all.lost(lost);
        assert!(all.take_revoked().is_empty() && all.by_fence.is_empty());
    }

    #[test]
    fn two_keys_with_one_fence_are_two_deliveries() {
        let mut all = Deliveries::<RandomState>::default();
        let told = granted(&mut all, "k", "a", 1);
        let lost = granted(&mut all, "copy", "a", 1);
        all.delivered(&told);
        all.lost(lost);
        let revoked = all.take_revoked();
        assert_eq!(revoked.len(), 1);
        assert_eq!(revoked[0].key_ref, key_ref(0, "copy"));
        // Nor does a renewal of the one speak for the other.
        let lost = granted(&mut all, "copy", "a", 1);
        all.acknowledge(0, b"k", fence(1));
        all.lost(lost);
        assert_eq!(all.take_revoked().len(), 1);
    }

    #[test]
    fn a_hold_that_has_moved_is_followed_or_looked_for() {
        let mut all = Deliveries::<RandomState>::default();
        let lost = granted(&mut all, "k", "a", 1);
        all.swap_dbs(0, 3);
        all.lost(lost);
        let revoked = all.take_revoked().pop().unwrap();
        assert_eq!(
            (&revoked.key_ref, revoked.has_left),
            (&key_ref(3, "k"), false)
        );
        let lost = granted(&mut all, "k", "a", 1);
        all.left(Some(0), b"other");
        all.left(Some(0), b"k");
        all.lost(lost);
        let revoked = all.take_revoked().pop().unwrap();
        assert!(revoked.has_left);
        all.seek(revoked);
        all.found(fence(2), &key_ref(0, "new"));
        assert!(!all.has_revoked());
        all.found(fence(1), &key_ref(0, "new"));
        assert_eq!(all.take_revoked()[0].key_ref, key_ref(0, "new"));
        assert!(all.sought().is_empty());
    }

    #[test]
    fn an_owner_that_knows_of_its_hold_keeps_it_wherever_it_was_granted() {
        let mut all = Deliveries::<RandomState>::default();
        // The lock goes from key to key, and each grants the hold to a waiter of its token.
        let [first, second] = ["k", "l"].map(|key| {
            let grant = granted(&mut all, key, "a", 1);
            all.left(Some(0), key.as_bytes());
            grant
        });
        let third = granted(&mut all, "m", "a", 1);
        all.lost(first);
        all.delivered(&third);
        all.lost(second);
        assert!(all.take_revoked().is_empty());
        // The same by a command.
        let before = granted(&mut all, "k", "a", 2);
        all.left(Some(0), b"k");
        let now = granted(&mut all, "l", "a", 2);
        all.acknowledge(0, b"l", fence(2));
        all.lost(before);
        all.lost(now);
        assert!(all.take_revoked().is_empty() && all.by_fence.is_empty());
    }

    /// A lock with holds that end at 1,000 + these.
    fn lock_of(mode: Mode, holds: &[(&str, u64)]) -> Lock {
        let mut lock: Option<Lock> = None;
        for (n, (token, ms)) in (1..).zip(holds) {
            let effect = Effect::Hold {
                now_ms: 1_000,
                mode,
                token: Token::new(token.as_bytes()).unwrap(),
                hold: hold(n, *ms),
            };
            match &mut lock {
                Some(lock) => assert_eq!(effect.apply_to(lock), Fate::Held),
                None => lock = effect.apply_to_absent(),
            }
        }
        lock.unwrap()
    }

    fn hold(n: u64, ms: u64) -> Hold {
        Hold {
            fence: fence(n),
            deadline: Deadline::from_millis(1_000 + ms).unwrap(),
            since_ms: 1_000,
        }
    }

    #[test]
    fn what_is_given_back_excludes_nobody_and_lasts_as_long_as_before() {
        let revoked = |mode, ms| Revoked {
            key_ref: key_ref(0, "k"),
            token: Token::new(b"a").unwrap().into(),
            fence: fence(1),
            before: Some((mode, hold(1, ms))),
            has_left: false,
        };
        let undone = |revoked: &Revoked, mut lock: Lock, key_end: Option<Deadline>| {
            let effect = revoked.undo(&lock, key_end, Now::from_millis(1_000));
            assert_eq!(effect.apply_to(&mut lock), Fate::Held);
            lock
        };
        // The exclusive hold that became a share, beside which others have come in.
        let readers = lock_of(Mode::Shared, &[("a", 10), ("b", 10)]);
        let end = readers.latest_deadline();
        assert_eq!(
            undone(&revoked(Mode::Exclusive, 10), readers.clone(), end),
            readers
        );
        // The share that became exclusive for a shorter time.
        let writer = || lock_of(Mode::Exclusive, &[("a", 10)]);
        let reader = |ms| lock_of(Mode::Shared, &[("a", ms)]);
        let share = revoked(Mode::Shared, 50);
        let end = writer().latest_deadline();
        assert_eq!(undone(&share, writer(), end), reader(50));
        assert_eq!(undone(&share, writer(), None), reader(50));
        // The key was given an earlier end from outside.
        let end = Deadline::from_millis(1_005);
        assert_eq!(undone(&share, writer(), end), reader(5));
    }

    #[test]
    fn all_holds_that_are_looked_for_are_found_in_one_lock() {
        let sought = [("a", 1), ("b", 2), ("b", 3)].map(|(token, n)| Revoked {
            key_ref: key_ref(0, "k"),
            token: Token::new(token.as_bytes()).unwrap().into(),
            fence: fence(n),
            before: None,
            has_left: true,
        });
        let lock = lock_of(Mode::Shared, &[("a", 10), ("b", 10)]);
        let found: Vec<u64> = find_in(&lock, &sought).map(Fence::get).collect();
        assert_eq!(found, [1, 2]);
    }
}
