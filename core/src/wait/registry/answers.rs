//! Results answer those who wait for them in place of a hold (LOCK.ONCE).

use std::hash::{BuildHasher, Hash};
use std::rc::Rc;

use super::Registry;
use crate::rules::key_ref::KeyRef;
use crate::rules::leave::Removed;

impl<L: Copy + Eq + Hash, S: BuildHasher + Default> Registry<L, S> {
    /// Whether a result may answer anybody.
    pub fn has_results(&self) -> bool {
        !self.book.results.is_empty()
    }

    /// Whether a result may answer somebody who waits for this lock.
    #[inline]
    pub fn waits_for_result(&self, key: &KeyRef) -> bool {
        self.has_results() && self.book.results.of_lock(key).next().is_some()
    }

    /// The names of the results that may answer those who wait for a lock.
    pub fn results_of(&self, key: &KeyRef) -> Vec<Rc<[u8]>> {
        self.book.results.of_lock(key).cloned().collect()
    }

    /// Ends the first place that a result answers. The caller answers its requests: those for this
    /// result by it.
    pub fn end_for_result(&mut self, key: &KeyRef, result: &[u8]) -> Option<Vec<Removed<L>>> {
        let id = self.book.results.first(key, result)?;
        Some(self.end(id))
    }
}
