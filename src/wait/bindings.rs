//! Holds that are bound to a connection (LINGER): when the connection of their acquire is lost,
//! their deadlines come forward.
//!
//! # The rules
//!
//! 1. **An acquire binds its hold**, also when it is granted later or again. An acquire without
//!    LINGER unbinds it.
//! 2. **A binding belongs to a hold under its key.** It ends with the hold, and when the lock
//!    leaves its key: after RENAME and MOVE the ttl is all that is left. So there are never more
//!    bindings than holds.
//! 3. **A renewal keeps the binding**, from whatever connection it comes.
//! 4. **A lost connection** turns its bindings into losses ([`Bindings::lose`]). The instant of the
//!    new deadline is fixed then. A callback of the server only notes that. Commands and the timer
//!    bring the deadline forward.
//! 5. **A deadline never moves back**, and never beyond that of the key ([`Lost::end`]).
//! 6. **In memory only**, on the primary. A server that becomes a replica forgets all.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use super::key_ref::KeyRef;
use crate::lock::{CompactToken, Deadline, Effect, Fence, Hold, Lock, Now, Token, TokenBuf};

/// What an acquire with LINGER says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linger {
    /// The number of its connection. A server gives each to one connection only.
    pub client: NonZeroU64,
    /// For how long the hold stays after the loss of the connection, in milliseconds.
    pub ms: u64,
}

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
    /// Whether the same connection had the hold before it was converted. It has it again where
    /// nobody hears of that.
    had_it: bool,
}

/// A hold whose connection was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Whose it is.
    pub token: TokenBuf,
    /// Its fence: whatever has another one is another hold.
    pub fence: Fence,
    /// When it is to end, in milliseconds since the Unix epoch; 0 is at once.
    pub ends_at_ms: u64,
    /// Whether the same connection had it before it was converted.
    pub had_it: bool,
}

impl Lost {
    /// Brings the deadline forward of the hold in its lock, under a key that ends at
    /// `key_deadline`. The second value is the hold if it ends now. `None` if there is nothing to
    /// change.
    pub fn end(
        &self,
        lock: &Lock,
        key_deadline: Option<Deadline>,
        now: Now,
    ) -> Option<(Effect<'_>, Option<Hold>)> {
        let token = self.token.as_token();
        let (_, hold) = lock.hold_of(token, now)?;
        if hold.fence != self.fence {
            return None;
        }
        if self.ends_at_ms < now.ms() {
            let (effect, hold) = lock.release(token, now)?;
            return Some((effect, Some(hold)));
        }
        let ends_at = Deadline::from_millis(self.ends_at_ms.min(Deadline::MAX_MS))?;
        if ends_at >= hold.deadline {
            return None;
        }
        Some((lock.shorten(token, ends_at, key_deadline, now)?, None))
    }
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

    /// Whether a hold is bound to this connection.
    pub fn binds(&self, db: i32, name: &[u8], fence: Fence, client: NonZeroU64) -> bool {
        let mut bound = self.bound(db, name, fence);
        bound.any(|bound| bound.linger.client == client)
    }

    /// Whether a loss that is to be carried out ends a hold by now.
    pub fn is_over(&self, key_ref: &KeyRef, fence: Fence, now: Now) -> bool {
        let mut lost = self.lost_of(key_ref, fence);
        lost.any(|lost| lost.ends_at_ms < now.ms())
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

    fn lost_of(&self, key_ref: &KeyRef, fence: Fence) -> impl Iterator<Item = &Lost> {
        let lost = self.lost.get(key_ref).into_iter().flatten();
        lost.filter(move |lost| lost.fence == fence)
    }
}

/// Changes.
impl Bindings {
    /// Binds a hold, in place of whatever it was bound to before. `had_it` says that it was bound
    /// to the same connection.
    pub fn bind(
        &mut self,
        key_ref: KeyRef,
        token: Token<'_>,
        fence: Fence,
        linger: Linger,
        had_it: bool,
    ) {
        self.forget(key_ref.db, &key_ref.name, fence);
        self.last = Number(self.last.0.wrapping_add(1));
        let number = self.last;
        let bound = Bound {
            key_ref,
            token: token.into(),
            linger,
            had_it,
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
            self.forget_lost(db, name, fence);
        }
    }

    /// Follows a conversion that is undone, because its owner has not heard of it. The connection
    /// that had the hold before has it again, or is lost.
    pub fn undo(&mut self, db: i32, name: &[u8], fence: Fence) {
        let key_ref = KeyRef::new(db, name);
        let had_it = self.bound(db, name, fence).any(|bound| bound.had_it)
            || self.lost_of(&key_ref, fence).any(|lost| lost.had_it);
        if !had_it {
            self.forget(db, name, fence);
        }
    }

    /// Forgets the bindings of a lock that leaves its key, and their losses.
    pub fn lock_left(&mut self, db: i32, name: &[u8], lock: &Lock) {
        if !self.lost.is_empty() {
            self.take_lost(&KeyRef::new(db, name));
        }
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

    /// Forgets the losses of a hold that are to be carried out.
    pub fn forget_lost(&mut self, db: i32, name: &[u8], fence: Fence) {
        if let Entry::Occupied(mut losses) = self.lost.entry(KeyRef::new(db, name)) {
            losses.get_mut().retain(|lost| lost.fence != fence);
            if losses.get().is_empty() {
                self.untold.remove(losses.key());
                losses.remove();
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
            let Some(bound) = self.remove(fence, number) else {
                continue;
            };
            let lost = Lost {
                token: TokenBuf::from(bound.token.text().as_token()),
                fence,
                ends_at_ms: match bound.linger.ms {
                    0 => 0,
                    ms => now.ms().saturating_add(ms),
                },
                had_it: bound.had_it,
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

    /// Gives a loss back that cannot be carried out yet.
    pub fn put_back(&mut self, key_ref: &KeyRef, lost: Lost) {
        self.add_lost(key_ref.clone(), lost);
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
