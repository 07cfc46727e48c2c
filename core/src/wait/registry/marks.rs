//! Keys are marked and watched, and their queues follow changes of their locks.

use std::hash::BuildHasher;

use super::Registry;
use crate::lock::Now;
use crate::rules::key_ref::KeyRef;
use crate::rules::place::NEVER;
use crate::rules::Book;

impl<L, S: BuildHasher> Registry<L, S> {
    /// Has a key that is waited for looked at by this time of the wall clock.
    pub fn set_wake(&mut self, key: &KeyRef, at_ms: Option<u64>) {
        if let Some(id) = self.book.queues.id_of(key) {
            self.book.queues.set_wake(id, at_ms.unwrap_or(NEVER));
        }
    }

    /// Marks a key as changed, if anybody waits for it. Answers whether somebody does.
    pub fn mark(&mut self, key: &KeyRef) -> bool {
        let queue = self.book.queues.of(key);
        queue
            .map(|queue| self.agenda.marks.add(queue.key.clone()))
            .is_some()
    }

    /// The same where the key has lost its lock, and may get another one in its place.
    pub fn mark_replaced(&mut self, db: i32, name: &[u8]) -> bool {
        let key = self.book.queues.key_ref(db, name);
        key.is_some_and(|key| {
            self.set_replaced(&key, true);
            self.mark(&key)
        })
    }

    /// Marks a key as changed, whether anybody waits for it or not.
    pub fn mark_anyway(&mut self, db: i32, name: &[u8]) {
        self.agenda.marks.add(KeyRef::new(db, name));
    }

    /// Whether somebody may be next on a key that was served before: something has happened to it
    /// since, or the time has come. Each change of its places serves it, marks it, or has it served
    /// before the step ends.
    pub fn may_be_due(&self, key: &KeyRef, now: Now) -> bool {
        let is_marked = self.agenda.marks.has(key) || self.agenda.step.unserved.contains(key);
        if is_marked || self.is_behind() || self.has_several() {
            return true;
        }
        let id = self.book.queues.id_of(key);
        let queue = id.and_then(|id| Some((id, self.book.queues.get(id)?)));
        queue.is_some_and(|(id, queue)| {
            queue.wakes_at_ms <= now.ms()
                || queue.is_replaced
                || self.book.converts(id).next().is_some()
                || self.book.first_owner(id).is_some()
        })
    }

    /// Whether the time has come by which a key was to be looked at.
    pub fn is_woken(&self, key: &KeyRef, now: Now) -> bool {
        let id = self.book.queues.id_of(key);
        let queue = id.and_then(|id| self.book.queues.get(id));
        queue.is_some_and(|queue| queue.wakes_at_ms <= now.ms())
    }

    /// Marks the next key that is to be looked at by now. False if there is none.
    pub fn mark_woken(&mut self, now: Now) -> bool {
        let woken = self.book.queues.take_woken(now);
        let queue = woken.and_then(|id| self.book.queues.get(id));
        queue
            .map(|queue| self.agenda.marks.add(queue.key.clone()))
            .is_some()
    }

    /// Notes that the lock of a key that was just served has changed by a grant only, to a token
    /// that does not wait for it.
    pub fn lock_granted(&mut self, key: &KeyRef) {
        self.set_replaced(key, false);
    }

    fn set_replaced(&mut self, key: &KeyRef, is_replaced: bool) {
        let id = self.book.queues.id_of(key);
        if let Some(queue) = id.and_then(|id| self.book.queues.get_mut(id)) {
            queue.is_replaced = is_replaced;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasherDefault, DefaultHasher};
    use std::rc::Rc;

    use super::*;
    use crate::lock::{Mode, Refusal, Token, Ttl};
    use crate::rules::keys::{Keys, Several, Wanted};
    use crate::wait::{Listener, NewRequest};

    type World = Registry<u64, BuildHasherDefault<DefaultHasher>>;

    fn key(name: &[u8]) -> KeyRef {
        KeyRef::new(0, name)
    }

    fn enter(world: &mut World, keys: &Keys, refusal: Refusal) {
        let new = NewRequest {
            token: Token::new(b"a").unwrap(),
            mode: Mode::Exclusive,
            ttl: Ttl::from_millis(1_000).unwrap(),
            listener: Some(Listener::Client(world.len() as u64)),
            times_out_at_us: None,
            keep_ms: None,
            is_server_generated: false,
            linger: None,
            result: None,
            user: None,
            refusal,
            now_us: 0,
        };
        world.enter(keys, new);
    }

    /// Whether somebody may be next on the key "k", at which a request waits, after a change.
    fn is_due_after(change: impl FnOnce(&mut World)) -> bool {
        let mut world = World::default();
        enter(&mut world, &Keys::One(key(b"k")), Refusal::Busy);
        change(&mut world);
        world.may_be_due(&key(b"k"), Now::from_millis(1_000))
    }

    #[test]
    fn a_key_is_served_again_only_after_a_change_or_when_its_time_has_come() {
        assert!(!is_due_after(|_| {}));
        assert!(is_due_after(|world| assert!(world.mark(&key(b"k")))));
        assert!(!is_due_after(|world| world.mark_anyway(1, b"k")));
        for (at_ms, is_due) in [(999, true), (1_000, true), (1_001, false)] {
            let wake = |world: &mut World| world.set_wake(&key(b"k"), Some(at_ms));
            assert_eq!(is_due_after(wake), is_due, "{at_ms}");
        }
        assert!(is_due_after(|world| {
            assert!(world.mark_replaced(0, b"k") && world.agenda.marks.remove(&key(b"k")));
        }));
        assert!(is_due_after(|world| world.db_replaced(Some(0))));
        let upgrade = |world: &mut World| {
            enter(world, &Keys::One(key(b"k")), Refusal::BusyUpgrade);
        };
        assert!(is_due_after(upgrade));
        // The turn of a place for several keys may come at another one of them.
        let wanted = [b"l", b"m"].map(|name| Wanted {
            key_ref: key(name),
            mode: Mode::Exclusive,
        });
        let several = Keys::Several(Rc::new(Several::new(wanted.into_iter()).unwrap()));
        assert!(is_due_after(|world| enter(world, &several, Refusal::Busy)));
    }
}
