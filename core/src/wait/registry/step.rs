//! The end of a step: what is left is done.

use std::hash::BuildHasher;

use super::Registry;
use crate::rules::key_ref::KeyRef;

impl<L, S: BuildHasher> Registry<L, S> {
    /// Whether the step must not end yet: see [`Registry::take_candidate`] and
    /// [`Registry::take_unserved`]. Not where its end has begun already.
    pub fn is_unfinished(&self) -> bool {
        !self.agenda.step.is_empty() && !self.agenda.step.is_running
    }

    /// The end of the step begins, or is over.
    pub fn set_ending(&mut self, is_running: bool) {
        self.agenda.step.is_running = is_running;
    }

    /// Has keys served before the step ends.
    pub fn serve_later<'k>(&mut self, keys: impl Iterator<Item = &'k KeyRef>) {
        self.agenda.step.unserved.extend(keys.cloned());
    }

    /// A key that is to be served before the step ends. Keys come before candidates.
    pub fn take_unserved(&mut self) -> Option<KeyRef> {
        self.agenda.step.unserved.pop_first()
    }

    /// Has the keys marked that are to be served, because the step cannot go on.
    pub fn mark_unserved(&mut self) {
        while let Some(key) = self.agenda.step.unserved.pop_first() {
            self.mark(&key);
        }
    }
}
