//! What a guard means for those who hold a lock already.

use super::doubt::Known;
#[cfg(any(test, feature = "fault-injection"))]
use super::rules::Rule;
use super::usable::Usable;
use super::Guard;
use crate::lock::slot::slot_of;
use crate::lock::{Lock, Mode, Now, Token};

impl Guard {
    /// Which holds of a key may be used now.
    #[inline]
    pub(in crate::engine) fn usable<'n>(
        &self,
        name: impl FnOnce() -> &'n [u8],
        boot_us: impl FnOnce() -> u64,
    ) -> Usable {
        match self.doubts.is_empty() && !self.puts_off_renewals {
            true => Usable::All,
            false => self.usable_at(name(), boot_us()),
        }
    }

    #[cold]
    fn usable_at(&self, name: &[u8], boot_us: u64) -> Usable {
        let all = self.doubts.of_server(boot_us);
        let all = all.chain(self.doubts.of_slots(Some(slot_of(name)), boot_us));
        let mut known = all.fold(Known::default(), |known, one| known.and(one.known));
        if self.puts_off_renewals {
            known.not_renewed_until_us = u64::MAX;
        }
        Usable::of_known(known, boot_us)
    }

    /// Whether a request may be granted at once.
    #[inline(always)] // It is open nearly always.
    pub(in crate::engine) fn may_take<'n>(
        &self,
        name: impl Fn() -> &'n [u8],
        lock: Option<&Lock>,
        of: (Token<'_>, Mode),
        now: Now,
    ) -> bool {
        !self.is_closed_for(&name, lock.is_none()) || self.asks_for_less(name(), lock, of, now)
    }

    /// Whether a token that has a hold asks for less than that, and may use it.
    #[cold]
    fn asks_for_less(
        &self,
        name: &[u8],
        lock: Option<&Lock>,
        (token, mode): (Token<'_>, Mode),
        now: Now,
    ) -> bool {
        let Some((own, hold)) = lock.and_then(|lock| lock.hold_of(token, now)) else {
            return false;
        };
        #[cfg(any(test, feature = "fault-injection"))]
        if !self.settings.has(Rule::Holders) {
            return !self.puts_off_renewals;
        }
        // A lost conversion may have been to any limit. Only a reader tolerates whoever came since.
        let is_less = mode == Mode::Shared && own != Mode::Shared;
        is_less && self.usable_at(name, self.at_us).may_extend(&hold, now)
    }

    /// Whether locks say which of their holds linger: who starts or is promoted must know.
    #[inline]
    pub(in crate::engine) fn marks_lingering(&self) -> bool {
        self.is_on()
    }
}
