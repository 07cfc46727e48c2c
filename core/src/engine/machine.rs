//! What the machine remembers.
//!
//! It has two parts. The [`Machine`] belongs to commands and the timer, one at a time. The other
//! part is [`Shared`] with callbacks, which may run in the middle of a command. Each of its parts
//! is borrowed only within its own methods, which call nothing that calls back.

use std::rc::Rc;

use super::bindings::Bindings;
use super::deliveries::Deliveries;
use super::fences::Fences;
use super::guard::Guard;
use super::inbox::Inbox;
use super::sweep::Sweep;
use super::types::Types;
use crate::wait::{self, Due};

/// How often a node of a cluster checks that it still serves the slots of its waiters: nothing
/// tells it when one was taken from it. The server checks its own blocked clients as often.
const CHECK_SLOTS_US: u64 = 1_000_000;

/// Everybody who waits on a server.
pub(super) type Registry<T> = wait::Registry<<T as Types>::Client, <T as Types>::Hasher>;

/// A request that has left the registry.
pub(super) type Removed<T> = wait::Removed<<T as Types>::Client>;

/// How a request has come to its place.
pub(super) type Came<T> = wait::Came<<T as Types>::Client>;

/// What commands and the timer work on.
#[derive(Default)]
pub struct Machine<T: Types> {
    /// Everybody who waits.
    pub registry: Registry<T>,
    /// The keys for which they have waited the longest.
    pub contended: wait::Contended<T::Hasher>,
    /// The search for locks that nothing else would check.
    pub sweep: Sweep<T>,
    /// When the slots of waiters were checked, on the monotonic clock; `None` when they are to be
    /// checked now.
    pub slots_checked_us: Option<u64>,
    /// When the pass began to look at waited keys, on the monotonic clock.
    pub looked_us: u64,
    /// Whether the server has become a replica, and perhaps a primary again.
    pub was_demoted: bool,
    /// Whether more was over than a turn had time for. Nothing is handed over until it has ended.
    pub has_overdue: bool,
    /// When the server was last seen to keep clients from writing while a place was absent, on the
    /// monotonic clock; 0 is never.
    pub refused_us: u64,
    /// When it was asked whether it takes them, on the same clock.
    pub refusal_asked_us: u64,
    /// When a cycle of waits was logged last, on the monotonic clock; `None` is never.
    pub cycle_logged_us: Option<u64>,
    /// A result of LOCK.ONCE that did not exist when it was looked at last, and the number of
    /// changes by then.
    pub absent_result: Option<(Rc<[u8]>, u64)>,
    /// Whether new grants may be made.
    pub guard: Guard,
    /// Whether something may be due earlier than before.
    pub is_due_changed: bool,
}

/// What callbacks use, too.
pub struct Shared<T: Types> {
    /// What callbacks have seen.
    pub inbox: Inbox<T::Client>,
    /// The fence clock.
    pub fences: Fences,
    /// What holds are bound to.
    pub bindings: Bindings,
    /// Grants on their way to blocked clients.
    pub deliveries: Deliveries,
}

#[cfg(test)]
impl<T: Types<Hasher: Clone, Cursor: Copy>> Clone for Machine<T> {
    fn clone(&self) -> Self {
        Self {
            registry: self.registry.clone(),
            contended: self.contended.clone(),
            sweep: self.sweep.clone(),
            absent_result: self.absent_result.clone(),
            guard: self.guard.clone(),
            ..*self
        }
    }
}

#[cfg(test)]
impl<T: Types> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self {
            inbox: self.inbox.clone(),
            fences: self.fences.clone(),
            bindings: self.bindings.clone(),
            deliveries: self.deliveries.clone(),
        }
    }
}

impl<T: Types> Default for Shared<T> {
    fn default() -> Self {
        Self {
            inbox: Inbox::default(),
            fences: Fences::default(),
            bindings: Bindings::default(),
            deliveries: Deliveries::default(),
        }
    }
}

impl<T: Types> Shared<T> {
    /// Tells callbacks whether the names of keys matter that locks leave: only while somebody
    /// waits. For the end of each command, and before each call that may come back.
    #[inline]
    pub fn note_names_matter(&self, machine: &Machine<T>) {
        self.inbox.set_names_matter(!machine.registry.is_empty());
    }
}

impl<T: Types> Machine<T> {
    /// Notes for which keys a request has waited that was granted, has timed out, or has lost its
    /// client.
    #[inline]
    pub(super) fn wait_ended(&mut self, removed: &Removed<T>, now_us: u64) {
        if removed.listener.is_none() {
            return; // Nobody has waited.
        }
        let waited_us = now_us.saturating_sub(removed.uncounted_us);
        for key in removed.keys.iter() {
            self.contended.add(key, waited_us);
        }
    }

    /// When there is something to do without a command.
    pub fn due(&self) -> Due {
        let mut due = self.registry.due();
        let slots_at_us = self.registry.slots().has_put_off().then(|| {
            self.slots_checked_us
                .map_or(0, |us| us.saturating_add(CHECK_SLOTS_US))
        });
        // What a turn of the timer had no time for.
        let has_rest =
            self.was_demoted || self.registry.is_passing() || self.registry.slots().is_asking();
        let rest_at_us = has_rest.then_some(0);
        let more = [
            self.sweep.due_us,
            slots_at_us,
            rest_at_us,
            self.guard.due_us(),
        ];
        for at_us in more.into_iter().flatten() {
            due.times_out_at_us = Some(due.times_out_at_us.map_or(at_us, |other| other.min(at_us)));
        }
        due
    }

    /// Whether the slots of waiters are to be checked. Notes that they are.
    pub(super) fn must_check_slots(&mut self, now_us: u64) -> bool {
        let is_fresh = |checked_us: u64| now_us.saturating_sub(checked_us) < CHECK_SLOTS_US;
        let is_asking = self.registry.slots().is_asking();
        if self
            .slots_checked_us
            .is_some_and(|us| is_asking || is_fresh(us))
        {
            return false;
        }
        self.slots_checked_us = Some(now_us);
        true
    }
}
