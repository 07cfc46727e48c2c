//! The steps of the sweep ([`super::sweep`]).

use super::guard::Guard;
use super::guarding;
use super::host::Server;
use super::machine::Registry;
use super::sweep::{Findings, Run, Sweep};
use super::types::Types;

/// How long a step may take, and the pause after it.
const STEP_US: u64 = 500;
const REST_US: u64 = 5_000;
/// The number of buckets between two looks at the clock.
const BUCKETS: usize = 64;
/// The pause before the next try while the server loads.
const LATER_US: u64 = 100_000;

impl<T: Types> Sweep<T> {
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
            let mut findings = Findings {
                without_ttl: Vec::new(),
                latest: None,
            };
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
