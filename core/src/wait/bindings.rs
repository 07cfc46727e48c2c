//! Holds whose deadlines come forward: those that are bound to a connection (LINGER), when the
//! connection of their acquire is lost, and those of which nobody has heard.
//!
//! # The rules
//!
//! 1. **An acquire binds its hold**, also when it is granted later or again. An acquire without
//!    LINGER unbinds it. Until a waiter is told of its grant, the binding is not sure: if the
//!    waiter is gone before, it does not count.
//! 2. **A binding belongs to a hold under its key.** It ends with the hold, and when the lock
//!    leaves its key: after RENAME and MOVE the ttl is all that is left. So there are never more
//!    bindings than holds.
//! 3. **A renewal keeps the binding**, from whatever connection it comes.
//! 4. **A lost connection** turns its bindings into losses ([`Bindings::lose`]). The instant of the
//!    new deadline is fixed then. A callback of the server only notes that. Commands and the timer
//!    bring the deadline forward.
//! 5. **A deadline never moves back**, and never beyond that of the key ([`Lost::end`]).
//! 6. **A grant that nobody hears of** is a loss, too ([`Bindings::unheard`]): each new hold of it
//!    ends at once, or with KEEP after the grace, counted from when that is carried out.
//! 7. **In memory only**, on the primary. A server that becomes a replica forgets all.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use super::lost::{Delivery, Lost, LostEnd};
use crate::lock::{CompactToken, Fence, Lock, Now, Token, TokenBuf};
use crate::rules::key_ref::KeyRef;
use crate::rules::place::Linger;

/// All bindings of a server, and the losses that are still to be carried out.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    /// By the fence of the hold. A fence is that of several holds where a lock was copied by DUMP
    /// and RESTORE.
    bound: BTreeMap<(Fence, Number), Bound>,
    /// How many of them each database has. There is none without any.
    dbs: BTreeMap<i32, usize>,
    /// Exactly one entry for each entry of `bound`.
    by_client: BTreeSet<(NonZeroU64, Fence, Number)>,
    /// The losses of each key. There is no key without one.
    lost: BTreeMap<KeyRef, Vec<Lost>>,
    /// Those of the keys in `lost` that the timer has not been told of.
    untold: BTreeSet<KeyRef>,
    last: Number,
}

/// Tells bindings of one fence apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Number(u64);

#[derive(Clone, Debug)]
struct Bound {
    key_ref: KeyRef,
    token: CompactToken,
    linger: Linger,
    /// Whether the owner knows of the binding.
    is_sure: bool,
}

/// Questions.
impl Bindings {
    /// Whether there is nothing to know.
    pub fn is_empty(&self) -> bool {
        self.bound.is_empty() && self.lost.is_empty()
    }

    /// How many holds are bound.
    pub fn len(&self) -> usize {
        self.bound.len()
    }

    /// Whether any hold is bound to a connection.
    pub fn has_client(&self, client: NonZeroU64) -> bool {
        self.of_client(client).next().is_some()
    }

    /// Whether a hold is bound to a connection.
    pub fn has(&self, db: i32, name: &[u8], fence: Fence) -> bool {
        self.of_hold(db, name, fence).next().is_some()
    }

    /// Whether a hold is bound to this connection, and its owner knows.
    pub fn binds(&self, db: i32, name: &[u8], fence: Fence, client: NonZeroU64) -> bool {
        let mut bound = self.bound(db, name, fence);
        bound.any(|bound| bound.linger.client == client && bound.is_sure)
    }

    /// Whether a loss that is to be carried out ends a hold by now.
    pub fn is_over(&self, key_ref: &KeyRef, fence: Fence, now: Now) -> bool {
        let mut lost = self.lost.get(key_ref).into_iter().flatten();
        lost.any(|lost| lost.fence == fence && lost.end.ms(now) < now.ms())
    }

    /// Whether there are losses to carry out.
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Whether the timer is to be told of some.
    pub fn has_untold(&self) -> bool {
        !self.untold.is_empty()
    }

    fn of_client(&self, client: NonZeroU64) -> impl Iterator<Item = (Fence, Number)> + '_ {
        let least = Fence::new(1).map(|fence| (client, fence, Number(0)));
        let rest = least
            .into_iter()
            .flat_map(|least| self.by_client.range(least..));
        let here = rest.take_while(move |(other, _, _)| *other == client);
        here.map(|(_, fence, number)| (*fence, *number))
    }

    /// The binding of a hold.
    fn of_hold<'b>(
        &'b self,
        db: i32,
        name: &'b [u8],
        fence: Fence,
    ) -> impl Iterator<Item = (Fence, Number)> + 'b {
        let of_fence = (fence, Number(0))..=(fence, Number(u64::MAX));
        let here = self.bound.range(of_fence);
        let here = here.filter(move |(_, bound)| bound.key_ref.is(db, name));
        here.map(|(of, _)| *of)
    }

    fn bound<'b>(&'b self, db: i32, name: &'b [u8], of: Fence) -> impl Iterator<Item = &'b Bound> {
        let here = self.of_hold(db, name, of);
        here.filter_map(|of| self.bound.get(&of))
    }
}

/// Changes.
impl Bindings {
    /// Binds a hold, in place of whatever it was bound to before. `is_sure` says whether its owner
    /// knows: it was answered, or was bound to the same connection before.
    pub fn bind(
        &mut self,
        key_ref: KeyRef,
        token: Token<'_>,
        fence: Fence,
        linger: Linger,
        is_sure: bool,
    ) {
        self.forget(key_ref.db, &key_ref.name, fence);
        self.last = Number(self.last.0.wrapping_add(1));
        let number = self.last;
        let bound = Bound {
            key_ref,
            token: token.into(),
            linger,
            is_sure,
        };
        let count = self.dbs.entry(bound.key_ref.db).or_default();
        *count = count.saturating_add(1);
        self.bound.insert((fence, number), bound);
        self.by_client.insert((linger.client, fence, number));
    }

    /// Forgets the binding of a hold, and its loss: it has ended, has left its key, or was acquired
    /// anew.
    pub fn forget(&mut self, db: i32, name: &[u8], fence: Fence) {
        let first = self.of_hold(db, name, fence).next();
        if let Some((_, number)) = first {
            self.remove(fence, number);
        }
        if !self.lost.is_empty() {
            let key = KeyRef::new(db, name);
            self.drop_lost(&key, |lost| lost.fence == fence);
        }
    }

    /// Notes that a client has heard of its grant: its bindings are sure, and another client of the
    /// same grant that was gone before does not matter.
    pub fn heard(&mut self, delivery: &Delivery) {
        let fence = delivery.fence;
        for key in delivery.keys.iter() {
            if let Some(client) = delivery.bound_to {
                let here: Vec<_> = self.of_hold(key.db, &key.name, fence).collect();
                for of in here {
                    let bound = self.bound.get_mut(&of);
                    if let Some(bound) = bound.filter(|bound| bound.linger.client == client) {
                        bound.is_sure = true;
                    }
                }
            }
            let is_unheard = |lost: &Lost| matches!(lost.end, LostEnd::Unheard(_));
            self.drop_lost(key, |lost| lost.fence == fence && is_unheard(lost));
        }
    }

    /// Notes that nobody has heard of a grant: its new holds are to end.
    pub fn unheard(&mut self, delivery: &Delivery) {
        for key in delivery.keys.iter() {
            let lost = Lost {
                token: TokenBuf::from(delivery.token.text().as_token()),
                fence: delivery.fence,
                end: LostEnd::Unheard(delivery.keep_ms),
            };
            self.add_lost(key.clone(), lost);
        }
    }

    /// Forgets the bindings of a lock that leaves its key, and their losses.
    pub fn lock_left(&mut self, db: i32, name: &[u8], lock: &Lock) {
        self.forget_losses_of(db, name, lock);
        let mut here = Vec::new();
        if self.bound.len() < lock.len() {
            // Most holds of the lock are not bound.
            let bound = self.bound.iter();
            let bound = bound.filter(|(_, bound)| bound.key_ref.is(db, name));
            here.extend(bound.map(|(of, _)| *of));
        } else {
            for (_, hold) in lock.holders() {
                here.extend(self.of_hold(db, name, hold.fence));
            }
        }
        for (fence, number) in here {
            self.remove(fence, number);
        }
    }

    /// One look at each loss: a lock may have as many as holds. The key may get a lock again that
    /// has the others.
    fn forget_losses_of(&mut self, db: i32, name: &[u8], lock: &Lock) {
        if self.lost.is_empty() {
            return;
        }
        let holders = lock.holders().into_iter();
        let fences: BTreeSet<Fence> = holders.map(|(_, hold)| hold.fence).collect();
        let key = KeyRef::new(db, name);
        self.drop_lost(&key, |lost| fences.contains(&lost.fence));
    }

    fn drop_lost(&mut self, key: &KeyRef, is_it: impl Fn(&Lost) -> bool) {
        if let Some(losses) = self.lost.get_mut(key) {
            losses.retain(|lost| !is_it(lost));
            if losses.is_empty() {
                self.take_lost(key);
            }
        }
    }

    fn remove(&mut self, fence: Fence, number: Number) -> Option<Bound> {
        let bound = self.bound.remove(&(fence, number))?;
        let entry = (bound.linger.client, fence, number);
        self.by_client.remove(&entry);
        if let Entry::Occupied(mut count) = self.dbs.entry(bound.key_ref.db) {
            match count.get().checked_sub(1) {
                None | Some(0) => drop(count.remove()),
                Some(left) => *count.get_mut() = left,
            }
        }
        Some(bound)
    }

    /// Notes that a connection is lost: the holds that are bound to it are to end.
    pub fn lose(&mut self, client: NonZeroU64, now: Now) {
        let all: Vec<_> = self.of_client(client).collect();
        for (fence, number) in all {
            let bound = self.remove(fence, number);
            let Some(bound) = bound.filter(|bound| bound.is_sure) else {
                continue;
            };
            let lost = Lost {
                token: TokenBuf::from(bound.token.text().as_token()),
                fence,
                end: LostEnd::At(match bound.linger.ms {
                    0 => 0,
                    ms => now.ms().saturating_add(ms),
                }),
            };
            self.add_lost(bound.key_ref, lost);
        }
    }

    fn add_lost(&mut self, key_ref: KeyRef, lost: Lost) {
        self.untold.insert(key_ref.clone());
        self.lost.entry(key_ref).or_default().push(lost);
    }

    /// Some of the keys with losses that the timer is to look at; each comes once.
    pub fn next_untold(&mut self, most: usize) -> Vec<KeyRef> {
        (0..most).map_while(|_| self.untold.pop_first()).collect()
    }

    /// Takes the losses of a key, to carry them out.
    pub fn take_lost(&mut self, key_ref: &KeyRef) -> Vec<Lost> {
        self.untold.remove(key_ref);
        self.lost.remove(key_ref).unwrap_or_default()
    }

    /// Forgets the holds of a database that was emptied; `None` is all.
    pub fn empty_db(&mut self, db: Option<i32>) {
        let Some(db) = db else {
            return self.clear();
        };
        if self.dbs.remove(&db).is_some() {
            self.bound.retain(|_, bound| bound.key_ref.db != db);
            let Self {
                bound, by_client, ..
            } = self;
            by_client.retain(|(_, fence, number)| bound.contains_key(&(*fence, *number)));
        }
        self.lost.retain(|key, _| key.db != db);
        self.untold.retain(|key| key.db != db);
    }

    /// Follows SWAPDB.
    pub fn swap_dbs(&mut self, one: i32, other: i32) {
        for bound in self.bound.values_mut() {
            bound.key_ref.swap_db(one, other);
        }
        let counts = [one, other].map(|db| self.dbs.remove(&db));
        let swapped = [other, one].into_iter().zip(counts);
        self.dbs
            .extend(swapped.filter_map(|(db, count)| Some((db, count?))));
        let swapped = |mut key: KeyRef| {
            key.swap_db(one, other);
            key
        };
        let lost = std::mem::take(&mut self.lost).into_iter();
        self.lost = lost.map(|(key, losses)| (swapped(key), losses)).collect();
        // Whatever the timer was told of is under the other number now.
        self.untold = self.lost.keys().cloned().collect();
    }

    /// Forgets all: the server has become a replica.
    pub fn clear(&mut self) {
        *self = Self {
            last: self.last,
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests;
