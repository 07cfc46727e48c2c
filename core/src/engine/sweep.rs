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

use super::guard::Guard;
use super::guarding;
use super::host::Server;
use super::machine::Registry;
use super::types::Types;
use crate::lock::{Deadline, Lock};

/// How long a step may take, and the pause after it.
const STEP_US: u64 = 500;
const REST_US: u64 = 5_000;
/// The number of buckets between two looks at the clock.
const BUCKETS: usize = 64;
/// The pause before the next try while the server loads.
const LATER_US: u64 = 100_000;

/// The sweep that is running or requested.
#[derive(Default)]
pub struct Sweep<T: Types> {
    run: Option<Run<T>>,
    /// When the next step is due, on the monotonic clock. `None` without a sweep.
    pub(super) due_us: Option<u64>,
    /// Whether a sweep was requested since the last one began.
    is_requested: bool,
}

/// The progress of a sweep.
struct Run<T: Types> {
    db: i32,
    cursor: T::Cursor,
}

/// The results of a step.
#[derive(Default)]
pub struct Findings {
    without_ttl: Vec<Rc<[u8]>>,
    /// When the longest lease ends.
    latest: Option<Deadline>,
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

    /// Does the next step if it is due, and marks the keys that it finds. Only on a primary.
    pub fn step<S: Server<Types = T>>(
        &mut self,
        server: S,
        registry: &mut Registry<T>,
        guard: &mut Guard,
    ) {
        let now_us = server.monotonic_us();
        if self.due_us.is_none_or(|due_us| due_us > now_us) {
            return;
        }
        if server.is_loading() {
            self.due_us = Some(now_us.saturating_add(LATER_US));
            return;
        }
        if !server.has_locks() {
            return self.cancel();
        }
        let run = match self.run.take() {
            Some(run) => Some(run),
            None => {
                self.is_requested = false;
                server.begin_scan().map(|cursor| Run { db: 0, cursor })
            }
        };
        let Some(mut run) = run else {
            return self.cancel();
        };
        let is_over = run.go_on(server, registry, guard, now_us.saturating_add(STEP_US));
        if !is_over {
            self.run = Some(run);
        } else if !self.is_requested {
            return self.cancel();
        }
        self.due_us = Some(server.monotonic_us().saturating_add(REST_US));
    }
}

impl<T: Types> Run<T> {
    /// Continues until a time. True if all databases have been swept.
    fn go_on<S: Server<Types = T>>(
        &mut self,
        server: S,
        registry: &mut Registry<T>,
        guard: &mut Guard,
        until_us: u64,
    ) -> bool {
        while server.select_db(self.db) {
            let mut findings = Findings::default();
            let has_more = (0..BUCKETS).all(|_| server.scan(&mut self.cursor, &mut findings));
            if let Some(latest) = findings.latest {
                guarding::note_lease(server, guard, latest, server.now());
            }
            for key in findings.without_ttl {
                registry.mark_anyway(self.db, &key);
            }
            if !has_more {
                self.db = self.db.saturating_add(1);
                match server.begin_scan() {
                    Some(cursor) => self.cursor = cursor,
                    None => return true,
                }
            }
            if server.monotonic_us() > until_us {
                return false;
            }
        }
        true
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
