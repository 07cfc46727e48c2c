//! How long the longest lease may last, by the settings and by what has come from elsewhere.

use super::settings::{Reason, Rule};
use super::{Guard, AFTER_START_MS};

impl Guard {
    /// The longest ttl of a grant, in milliseconds. A request may have begun to wait when it was
    /// longer.
    #[inline]
    pub(in crate::engine) fn longest_ttl_ms(&self) -> u64 {
        match self.settings.max_ttl_ms {
            ms if ms > 0 && self.settings.has(Rule::Waiting) => ms,
            _ => u64::MAX,
        }
    }

    /// Why the next start is to wait: the guard is closed, or some slots are.
    pub(in crate::engine) fn reason_to_remember(&self) -> Option<Reason> {
        match self.closed_by {
            // A slot has come as by a promotion, whatever else there is.
            _ if self.slots_closed() > 0 => Some(Reason::Slot),
            Some(Reason::Alone) => Some(self.quorum.began_by()),
            closed_by => closed_by,
        }
    }

    /// How long the longest lease may last that there is or that is granted now, in milliseconds.
    pub fn longest_ms(&self, boot_us: u64) -> u64 {
        let left_us = self.longer_until_us.saturating_sub(boot_us);
        self.settings.max_ttl_ms.max(left_us.div_ceil(1_000))
    }

    /// A lease has come from elsewhere, or there may be one. A guard waits for its end. True where
    /// leases are longer than what this server knew of.
    pub(in crate::engine) fn long_lease_came(&mut self, left_ms: u64, at_us: u64) -> bool {
        let is_news = self.leases_may_be(left_ms, at_us);
        let end_us = self.longer_until_us.saturating_add(AFTER_START_MS * 1_000);
        let timed = Reason::TIMED.into_iter().zip(&mut self.ends_us);
        // A server that has stood still only reads what the others have sent.
        let timed = timed.filter(|(reason, _)| *reason != Reason::Stall);
        // Holds that do not count stay out of use for as long.
        let unused = [&mut self.started_until_us, &mut self.others_until_us];
        for until_us in timed.map(|(_, until_us)| until_us).chain(unused) {
            if *until_us > at_us {
                *until_us = end_us.max(*until_us);
            }
        }
        is_news
    }

    /// There may be leases of that length. The next guard waits for their end. True where they are
    /// longer than what this server knew of.
    pub(in crate::engine) fn leases_may_be(&mut self, ms: u64, boot_us: u64) -> bool {
        let max_ttl_ms = self.settings.max_ttl_ms;
        let is_news = ms > max_ttl_ms && self.longest_ms(boot_us) <= max_ttl_ms;
        let over_us = boot_us.saturating_add(ms.saturating_mul(1_000));
        self.longer_until_us = over_us.max(self.longer_until_us);
        is_news
    }
}
