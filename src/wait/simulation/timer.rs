//! What the shell's timer does. Each function has its twin there.

use std::collections::BTreeSet;

use super::shell::{key_ref, place, Shell, Value};
use super::{Event, Place, Scene, DBS};
use crate::wait::delivery::find_in;
use crate::wait::{KeyRef, Revoked, ANY_DB};

/// How often the patrol and the look at the slots are due, on the monotonic clock.
const PATROL_EVERY_US: u64 = 100_000;
const SLOTS_EVERY_US: u64 = 1_000_000;
const PATROL: usize = 1_000;

impl Shell {
    fn has_come(seen_us: Option<u64>, every_us: u64, scene: &Scene) -> bool {
        seen_us.is_none_or(|seen_us| scene.mono_us - seen_us >= every_us)
    }

    /// Whether the timer goes off now.
    pub(super) fn is_due(&self, scene: &Scene) -> bool {
        let due = self.registry.due().idle_us(scene.now(), scene.mono_us);
        due == Some(0)
            || self.is_sweep_due
            || (due.is_some() && Self::has_come(self.patrolled_us, PATROL_EVERY_US, scene))
            || self.slots_seen_us.is_none()
    }

    /// Whether it goes off again in the same instant.
    pub(super) fn is_unsettled(&self) -> bool {
        self.registry.has_work() || self.is_sweep_due
    }

    pub(super) fn run_timer(&mut self, scene: &Scene) {
        for removed in self.registry.take_timed_out(scene.mono_us) {
            self.registry
                .mark(removed.key_ref.db, &removed.key_ref.name);
            self.tell(removed, Event::Null);
        }
        self.registry.mark_woken(scene.now());
        self.look_at_slots(scene);
        if !scene.is_primary {
            for key_ref in self.registry.waited_keys() {
                self.dismiss_all(&key_ref, Event::TryAgain);
            }
            self.registry.take_dirty();
            self.registry.deliveries.clear_revoked();
            (self.is_sweep_due, self.is_sweep_requested) = (false, false);
            return;
        }
        self.patrol(scene);
        self.sweep(scene);
        if !self.registry.has_work() || scene.refuses_writes {
            return;
        }
        for revoked in self.registry.take_revoked(scene.mono_us) {
            self.take_back(revoked, scene);
        }
        let mut touched = BTreeSet::new();
        for key_ref in self.registry.take_dirty() {
            let before = self.fences.0.last();
            self.look_at(&key_ref, scene);
            // A key that was granted is not opened again by this timer.
            if self.fences.0.last() != before {
                touched.insert(key_ref);
            }
        }
        self.finish(scene, Some(touched));
    }

    fn look_at_slots(&mut self, scene: &Scene) {
        if !Self::has_come(self.slots_seen_us, SLOTS_EVERY_US, scene) {
            return;
        }
        self.slots_seen_us = Some(scene.mono_us);
        self.registry.mark_put_off();
        for key_ref in self.registry.waited_keys() {
            if !scene.serves(place(&key_ref)) {
                self.dismiss_all(&key_ref, Event::TryAgain);
            }
        }
    }

    fn patrol(&mut self, scene: &Scene) {
        if !Self::has_come(self.patrolled_us, PATROL_EVERY_US, scene) {
            return;
        }
        self.patrolled_us = Some(scene.mono_us);
        for key_ref in self.registry.next_of_patrol(PATROL) {
            let at = place(&key_ref);
            self.look_up(at, scene);
            match self.lock(at).and(self.end(at)) {
                Some(_) => self.watch(at, &key_ref, scene.now()),
                None => drop(self.registry.mark(key_ref.db, &key_ref.name)),
            }
        }
    }

    /// A whole look through the keyspace.
    fn sweep(&mut self, _scene: &Scene) {
        if !self.is_sweep_due {
            return;
        }
        self.is_sweep_requested = false;
        let sought = self.registry.deliveries.sought();
        for (at, value) in &self.values {
            let Value::Lock(lock, end) = value else {
                continue;
            };
            if end.is_none() {
                self.registry.mark_anyway(Some(at.db.into()), &[at.name]);
            }
            for fence in find_in(lock, &sought) {
                self.registry.deliveries.found(fence, &key_ref(*at));
            }
        }
        if !self.is_sweep_requested {
            self.registry.deliveries.give_up();
            self.is_sweep_due = false;
        }
    }

    fn look_at(&mut self, key: &KeyRef, scene: &Scene) {
        if key.db == ANY_DB {
            for db in 0..DBS {
                let at = Place {
                    db,
                    name: key.name[0],
                };
                self.look_up(at, scene);
                if self.lock(at).is_some() {
                    self.look_at(&key_ref(at), scene);
                }
            }
            return;
        }
        let at = place(key);
        if !scene.serves(at) {
            self.dismiss_all(key, Event::TryAgain);
            if self.lock(at).is_some() {
                self.registry.put_off(key.clone());
            }
            return;
        }
        if self.look_up(at, scene) && self.lock(at).is_none() {
            return self.dismiss_all(key, Event::WrongType);
        }
        self.serve_changed(at, key, scene);
        self.repair_ttl(at, scene.now());
    }

    fn take_back(&mut self, revoked: Revoked, scene: &Scene) {
        let (at, now) = (place(&revoked.key_ref), scene.now());
        if !scene.serves(at) {
            return;
        }
        let token = revoked.token.as_token();
        self.look_up(at, scene);
        let hold = self.lock(at).and_then(|lock| lock.hold_of(token, now));
        if hold.is_some_and(|(_, hold)| hold.fence == revoked.fence) {
            let lock = self.lock(at).unwrap();
            let effect = revoked.undo(lock, self.end(at), now);
            self.commit(at, &effect);
            let key = &revoked.key_ref;
            // It is served when all are taken back.
            self.registry.mark(key.db, &key.name);
        } else if revoked.has_left {
            self.registry.deliveries.seek(revoked);
            self.request_sweep();
        }
    }
}
