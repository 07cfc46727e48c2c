//! A primary that has stood still, and may have been replaced meanwhile.

use super::doubt::Reason;
use super::Guard;

/// How long it may stand still at least, whatever the slack says, in milliseconds.
const LEAST_STALL_MS: u64 = 1_000;

impl Guard {
    /// Notes a look of a primary, which looks with each beat. One that has not looked for longer
    /// than the slack has stood still, and another one may be in its place: commands that have
    /// waited come before the messages that say so.
    pub(in crate::engine) fn note_look(&mut self, boot_us: u64) {
        let looked_us = std::mem::replace(&mut self.looked_us, boot_us);
        let most_ms = self.settings.slack_ms.max(LEAST_STALL_MS);
        let stood_us = boot_us.saturating_sub(looked_us);
        if looked_us > 0 && stood_us > most_ms.saturating_mul(1_000) {
            self.begin(Reason::Stall, boot_us);
        }
    }

    /// A primary that had just looked has done so until now.
    #[cfg(test)]
    pub(in crate::engine) fn goes_on(&mut self, since_us: u64, until_us: u64) {
        if self.looked_us == since_us {
            self.looked_us = until_us;
        }
    }
}
