//! The server's one fence clock.
//!
//! # Where a server begins
//!
//! A promoted server does not know the newest fences of the primary before it: they were given and
//! not replicated, or given by a clock that is ahead of its own. So it begins [`HEAD_START_US`]
//! above its clock and [`NOT_REPLICATED`] above all that it has seen. It goes on from there one by
//! one until its clock has caught up. A server that starts does the same: it may be such a primary,
//! killed before it could save what it gave.

use std::cell::{Cell, RefCell};

use crate::lock::{Fence, FenceClock, Now};
use crate::planted::planted;

/// How far above its clock a server begins. It is more than the difference of clocks that NTP
/// keeps. It is small enough that a slot which moves to another node, whose clock alone goes on,
/// does not go back for long.
const HEAD_START_US: u64 = 1_000_000;

/// More fences than are given and not replicated before a promotion. It matters only where fences
/// are ahead of every clock and go up one by one. It is small against [`HEAD_START_US`], so that
/// servers which follow one another soon do not run away.
const NOT_REPLICATED: u64 = 100_000;

/// The fence clock, and where it begins.
#[derive(Default)]
pub struct Fences {
    clock: RefCell<FenceClock>,
    /// Where the next fence begins. It is not in `clock` before somebody asks for a fence: it was
    /// not given, and a server that has given none has none to save.
    beginning: Cell<Option<Fence>>,
}

#[cfg(test)]
impl Clone for Fences {
    fn clone(&self) -> Self {
        let fences = Self::default();
        self.last()
            .into_iter()
            .for_each(|last| fences.observe(last));
        fences.beginning.set(self.beginning.get());
        fences
    }
}

impl Fences {
    /// Lends the clock to `decide`.
    pub fn with<R>(&self, decide: impl FnOnce(&mut FenceClock) -> R) -> R {
        if let Some(beginning) = self.beginning.take() {
            self.observe(beginning);
        }
        decide(&mut self.clock.borrow_mut())
    }

    /// Takes notice of a fence that came by replication, from a file or by RESTORE.
    pub fn observe(&self, fence: Fence) {
        self.clock.borrow_mut().observe(fence);
    }

    /// The largest fence given or seen.
    pub fn last(&self) -> Option<Fence> {
        self.clock.borrow().last()
    }

    /// Lets the next fence begin ahead, because the server starts or is promoted.
    pub fn begin_ahead(&self, now: Now) {
        if planted("fences-begin-again") {
            return;
        }
        let by_clock = now.us().saturating_add(HEAD_START_US);
        let by_seen = self
            .last()
            .map_or(0, |seen| seen.get().saturating_add(NOT_REPLICATED));
        // Near the largest fence of all there is no room, and nothing to gain.
        let Some(ahead) = Fence::new(by_clock.max(by_seen)) else {
            return;
        };
        let before = self.beginning.get().map_or(0, Fence::get);
        if ahead.get() > before {
            self.beginning.set(Some(ahead));
        }
    }
}
