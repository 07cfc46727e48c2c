//! Which holds may be used while another server may have decided about them: renewed, checked, or
//! the condition of a command.

use super::doubt::Known;
use super::settings::CLOCKS_APART_MS;
use crate::lock::{Hold, Lock, Now, Token};

/// Which holds may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) enum Usable {
    /// All of them.
    #[default]
    All,
    /// Not all of them. For how many milliseconds those are not renewed that end by then.
    But(Known, u64),
}

impl Usable {
    pub(super) fn of_known(known: Known, boot_us: u64) -> Self {
        let left_us = known.not_renewed_until_us.saturating_sub(boot_us);
        let known = Known {
            not_renewed_until_us: 0,
            ..known
        };
        match known == Known::default() && left_us == 0 {
            true => Self::All,
            false => Self::But(known, left_us.div_ceil(1_000)),
        }
    }

    /// A lock whose hold of a token counts.
    #[inline]
    pub(in crate::engine) fn of<'l>(
        self,
        lock: Option<&'l Lock>,
        token: Token<'_>,
        now: Now,
    ) -> Option<&'l Lock> {
        match self {
            Self::All => lock,
            Self::But(..) => self.of_some(lock, token, now),
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
        let Self::But(known, _) = self else {
            return true;
        };
        let soon_ms = now.ms().saturating_add(CLOCKS_APART_MS);
        let ends_soon = known.without_last_second && hold.deadline.is_over(soon_ms);
        !(ends_soon || (known.without_lingering && hold.since.lingers()))
    }

    /// Whether a hold may be made longer.
    #[inline]
    pub(in crate::engine) fn may_extend(self, hold: &Hold, now: Now) -> bool {
        let last_ms = match self {
            Self::All => return true,
            Self::But(_, 0) => return self.has(hold, now),
            Self::But(_, ms) => ms.saturating_add(CLOCKS_APART_MS),
        };
        self.has(hold, now) && !hold.deadline.is_over(now.ms().saturating_add(last_ms))
    }

    /// Whether the hold of a token counts and is not renewed now.
    #[inline]
    pub(in crate::engine) fn puts_off(
        self,
        lock: Option<&Lock>,
        token: Token<'_>,
        now: Now,
    ) -> bool {
        self != Self::All && self.puts_off_some(lock, token, now)
    }

    #[cold]
    fn puts_off_some(self, lock: Option<&Lock>, token: Token<'_>, now: Now) -> bool {
        let own = lock.and_then(|lock| lock.hold_of(token, now));
        own.is_some_and(|(_, hold)| !self.may_extend(&hold, now))
    }
}
