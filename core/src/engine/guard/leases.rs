//! How long the longest lease may last, by the settings and by what has come from elsewhere.

#[cfg(any(test, feature = "fault-injection"))]
use super::rules::Rule;
use super::settings::AFTER_START_MS;
use super::Guard;

impl Guard {
    /// The longest ttl of a grant, in milliseconds. A request may have begun to wait when it was
    /// longer.
    #[inline]
    pub(in crate::engine) fn longest_ttl_ms(&self) -> u64 {
        #[cfg(any(test, feature = "fault-injection"))]
        if !self.settings.has(Rule::Waiting) {
            return u64::MAX;
        }
        match self.settings.max_ttl_ms {
            0 => u64::MAX,
            ms => ms,
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
        self.doubts.last_until(end_us);
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
