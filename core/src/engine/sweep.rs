//! The sweep: it goes through the whole keyspace in small steps, and finds locks that nothing else
//! would check.
//!
//! - **Locks without a ttl.** PERSIST removes the ttl, and a file or a primary may contain a lock
//!   without one. Its holds end as usual, but the key would stay for ever. So the sweep runs after
//!   the server has started, loaded a data set or been promoted.
//! - **Leases that are longer than a guard thinks.** They may be from before `lock.max-ttl` was
//!   set, so the sweep runs when a guard is set.
//!
//! The sweep only marks keys, and tells the guard. The timer does the rest, as for every marked
//! key. A server without locks does not sweep, and neither does a replica.

use std::rc::Rc;

use super::types::Types;
use crate::lock::{Deadline, Lock};

/// The sweep that is running or requested.
pub struct Sweep<T: Types> {
    pub(super) run: Option<Run<T>>,
    /// When the next step is due, on the monotonic clock. `None` without a sweep.
    pub(super) due_us: Option<u64>,
    /// Whether a sweep was requested since the last one began.
    pub(super) is_requested: bool,
}

/// The progress of a sweep.
pub(super) struct Run<T: Types> {
    pub(super) db: i32,
    pub(super) cursor: T::Cursor,
}

/// The results of a step.
pub struct Findings {
    pub(super) without_ttl: Vec<Rc<[u8]>>,
    /// When the longest lease ends.
    pub(super) latest: Option<Deadline>,
}

impl<T: Types> Default for Sweep<T> {
    fn default() -> Self {
        Self {
            run: None,
            due_us: None,
            is_requested: false,
        }
    }
}

#[cfg(test)]
impl<T: Types<Cursor: Copy>> Clone for Sweep<T> {
    fn clone(&self) -> Self {
        let run = |run: &Run<T>| Run { ..*run };
        Self {
            run: self.run.as_ref().map(run),
            ..*self
        }
    }
}

impl<T: Types> Sweep<T> {
    /// Requests a sweep of the whole keyspace, from the start.
    pub fn request(&mut self, now_us: u64) {
        self.is_requested = true;
        self.due_us.get_or_insert(now_us);
    }

    /// Lets the next step come now.
    #[cfg(test)]
    pub(super) fn hurry(&mut self) {
        self.due_us = self.due_us.map(|_| 0);
    }

    /// Requests another sweep after the running one, because keys have moved to where it has
    /// already been.
    pub fn start_over(&mut self) {
        self.is_requested |= self.due_us.is_some();
    }

    /// Cancels the sweep.
    pub fn cancel(&mut self) {
        *self = Self::default();
    }

    /// When the next step is due, on the monotonic clock.
    pub const fn due_at_us(&self) -> Option<u64> {
        self.due_us
    }
}

impl Findings {
    /// Looks at a lock of the database. `name` makes the name of its key.
    pub fn look_at(&mut self, lock: &Lock, has_ttl: bool, name: impl Fn() -> Rc<[u8]>) {
        if !has_ttl {
            self.without_ttl.push(name());
        }
        self.latest = self.latest.max(lock.latest_deadline());
    }
}
