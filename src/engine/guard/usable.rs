//! Which holds may be used while another server may have decided about them: renewed, checked, or
//! the condition of a command.
//!
//! After a promotion the old primary may have ended a hold, and have granted the lock to another
//! client, and this server may lack both. Holds that end by a deadline are left out in their last
//! second, because clocks differ. A hold with LINGER ends with a connection: nobody here knows when
//! that was, so it is left out altogether. After a start the same records may be missing, but the
//! clock is the same.

use super::settings::{Rule, Scope};
use super::{Guard, CLOCKS_APART_MS};
use crate::lock::{Hold, Lock, Mode, Now, Token};

/// Which holds may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Usable {
    /// All of them.
    All,
    /// Not all of them.
    But {
        /// Those in their last second are left out.
        last_second: bool,
        /// Those that linger are left out.
        lingering: bool,
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
        } = self
        else {
            return true;
        };
        let soon_ms = now.ms().saturating_add(CLOCKS_APART_MS);
        let ends_soon = last_second && hold.deadline.is_over(soon_ms);
        !(ends_soon || (lingering && hold.since.lingers()))
    }
}

impl Guard {
    /// Which holds may be used now.
    #[inline]
    pub(in crate::engine) fn usable(&mut self, boot_us: impl FnOnce() -> u64) -> Usable {
        let until_us = self.others_until_us.max(self.started_until_us);
        if until_us == 0 || !self.is_on() {
            return Usable::All;
        }
        let boot_us = boot_us();
        if until_us <= boot_us {
            // From now on no clock need be read.
            (self.others_until_us, self.started_until_us) = (0, 0);
        }
        self.usable_at(boot_us)
    }

    fn usable_at(&self, boot_us: u64) -> Usable {
        let of_others = self.others_until_us > boot_us;
        let last_second = of_others && self.settings.has(Rule::LastSecond);
        let lingering =
            (of_others || self.lacks_losses(boot_us)) && self.settings.has(Rule::Linger);
        match last_second || lingering {
            true => Usable::But {
                last_second,
                lingering,
            },
            false => Usable::All,
        }
    }

    pub(super) fn look_at_lingering(&mut self, boot_us: u64) {
        let usable = self.usable_at(boot_us);
        self.leaves_out_lingering = matches!(
            usable,
            Usable::But {
                lingering: true,
                ..
            }
        );
    }

    /// Whether a token that has a hold asks for less than that, and may use it.
    #[cold]
    pub(super) fn asks_for_less(
        &self,
        lock: Option<&Lock>,
        of: (Token<'_>, Mode),
        now: Now,
    ) -> bool {
        let (token, mode) = of;
        let Some((own, hold)) = lock.and_then(|lock| lock.hold_of(token, now)) else {
            return false;
        };
        let is_less = mode.tolerates() > own.tolerates();
        let is_left_out = self.leaves_out_lingering && hold.since.lingers();
        !self.settings.has(Rule::Holders) || (is_less && !is_left_out)
    }

    /// Whether the ends of connections before the start may be missing.
    fn lacks_losses(&self, boot_us: u64) -> bool {
        let end_us = self.ends_us.get(super::Reason::Restart as usize);
        end_us.is_some_and(|us| self.started_until_us.min(*us) > boot_us)
    }

    /// Whether locks say which of their holds linger: a server that is promoted must know.
    #[inline]
    pub(in crate::engine) fn marks_lingering(&self) -> bool {
        self.settings.scope >= Scope::Failover
    }

    /// The process has started, or was promoted.
    pub(in crate::engine) fn forgets_connections(&mut self) {
        let end_us = self.ends_us.get(super::Reason::Restart as usize);
        self.started_until_us = end_us.copied().unwrap_or_default();
    }
}
