//! What a guard means for those who hold a lock already.

use super::settings::{Rule, Scope};
use super::usable::Usable;
use super::Guard;
use crate::lock::{Lock, Mode, Now, Token};

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

    pub(super) fn usable_at(&self, boot_us: u64) -> Usable {
        let of_others = self.others_until_us > boot_us;
        let last_second = of_others && self.settings.has(Rule::LastSecond);
        let lingering =
            (of_others || self.lacks_losses(boot_us)) && self.settings.has(Rule::Linger);
        let slack_us = self.slack_until_us.saturating_sub(boot_us);
        let slack_ms = match self.settings.has(Rule::Longer) {
            true => slack_us.div_ceil(1_000),
            false => 0,
        };
        match last_second || lingering || slack_ms > 0 {
            true => Usable::But {
                last_second,
                lingering,
                slack_ms,
            },
            false => Usable::All,
        }
    }

    /// Whether the hold of a token is not renewed now. It may be soon.
    #[inline]
    pub(in crate::engine) fn puts_off(
        &self,
        usable: Usable,
        lock: Option<&Lock>,
        token: Token<'_>,
        now: Now,
    ) -> bool {
        let may_be = self.puts_off_renewals || usable != Usable::All;
        may_be && self.puts_off_some(usable, lock, token, now)
    }

    #[cold]
    fn puts_off_some(
        &self,
        usable: Usable,
        lock: Option<&Lock>,
        token: Token<'_>,
        now: Now,
    ) -> bool {
        let own = lock.and_then(|lock| lock.hold_of(token, now));
        own.is_some_and(|(_, hold)| self.puts_off_renewals || !usable.may_extend(&hold, now))
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
        // A lost conversion may have been to any limit. Only a reader tolerates whoever came since.
        let is_less = mode == Mode::Shared && own != Mode::Shared;
        !self.settings.has(Rule::Holders) || (is_less && self.usable.may_extend(&hold, now))
    }

    /// Whether the ends of connections before the start may be missing.
    fn lacks_losses(&self, boot_us: u64) -> bool {
        let end_us = self.ends_us.get(super::Reason::Restart as usize);
        end_us.is_some_and(|us| self.started_until_us.min(*us) > boot_us)
    }

    /// Whether locks say which of their holds linger: who starts or is promoted must know.
    #[inline]
    pub(in crate::engine) fn marks_lingering(&self) -> bool {
        self.settings.scope != Scope::Off
    }

    /// The process has started, or was promoted.
    pub(in crate::engine) fn forgets_connections(&mut self) {
        let end_us = self.ends_us.get(super::Reason::Restart as usize);
        self.started_until_us = end_us.copied().unwrap_or_default();
    }
}
