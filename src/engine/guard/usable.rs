//! Which holds may be used while another server may have decided about them: renewed, checked, or
//! the condition of a command.
//!
//! After a promotion the old primary may have ended a hold, and have granted the lock to another
//! client, and this server may lack both. Holds that end by a deadline are left out in their last
//! second, because clocks differ. A hold with LINGER ends with a connection: nobody here knows when
//! that was, so it is left out altogether. After a start the same records may be missing, but the
//! clock is the same.

use super::settings::CLOCKS_APART_MS;
use crate::lock::{Hold, Lock, Now, Token};

/// Which holds may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) enum Usable {
    /// All of them.
    #[default]
    All,
    /// Not all of them.
    But {
        /// Those in their last second are left out.
        last_second: bool,
        /// Those that linger are left out.
        lingering: bool,
        /// For how many milliseconds the old primary may still grant. A hold that ends by then is
        /// not made longer.
        slack_ms: u64,
    },
}

impl Usable {
    /// A lock whose hold of a token may be used.
    #[inline]
    pub(in crate::engine) fn of<'l>(
        self,
        lock: Option<&'l Lock>,
        token: Token<'_>,
        now: Now,
    ) -> Option<&'l Lock> {
        match self {
            Self::All => lock,
            Self::But { .. } => self.of_some(lock, token, now),
        }
    }

    #[cold]
    fn of_some<'l>(self, lock: Option<&'l Lock>, token: Token<'_>, now: Now) -> Option<&'l Lock> {
        lock.filter(|lock| {
            let own = lock.hold_of(token, now);
            own.is_some_and(|(_, hold)| self.has(&hold, now))
        })
    }

    fn has(self, hold: &Hold, now: Now) -> bool {
        let Self::But {
            last_second,
            lingering,
            ..
        } = self
        else {
            return true;
        };
        let soon_ms = now.ms().saturating_add(CLOCKS_APART_MS);
        let ends_soon = last_second && hold.deadline.is_over(soon_ms);
        !(ends_soon || (lingering && hold.since.lingers()))
    }

    /// Whether a hold may be made longer.
    #[inline]
    pub(in crate::engine) fn may_extend(self, hold: &Hold, now: Now) -> bool {
        match self {
            Self::All => true,
            Self::But { slack_ms: 0, .. } => self.has(hold, now),
            Self::But { slack_ms, .. } => {
                let last_ms = slack_ms.saturating_add(CLOCKS_APART_MS);
                let ends_early = hold.deadline.is_over(now.ms().saturating_add(last_ms));
                self.has(hold, now) && !ends_early
            }
        }
    }
}
