//! Beats: what a primary tells its replicas of its guard.

use super::doubt::Doubt;
use super::quorum::Replicas;
use super::settings::BEAT_US;
use super::Guard;
use crate::command::guard::Beat;
use crate::lock::Now;

/// The pause between two beats while the first answer of a replica may come at any moment.
const SOON_BEAT_US: u64 = 20_000;

impl Guard {
    /// The next beat is due now, if there are any.
    pub(in crate::engine) fn beat_now(&mut self) {
        self.beat_due_us = self.has_beats().then_some(0);
    }

    /// The next beat is due after a while, or soon where a replica has just come.
    pub(in crate::engine) fn beat_later(&mut self, boot_us: u64, monotonic_us: u64) {
        // What a member has acknowledged is heard of with the next beat, and must be fresh then.
        let fresh_us = self.settings.fresh_ms.saturating_mul(1_000);
        let pause_us = match self.asks_replicas() {
            true if self.quorum.expects_somebody(boot_us) => SOON_BEAT_US,
            true => BEAT_US.min(fresh_us / 4),
            false => BEAT_US,
        };
        self.beat_due_us = Some(monotonic_us.saturating_add(pause_us));
    }

    /// What this primary tells its replicas.
    pub(in crate::engine) fn beat(&self, boot_us: u64, now: Now) -> Beat {
        let longest_ms = self.longest_ms(boot_us);
        // The primary before this one may still decide: the next one must not go on from here.
        let all = self.doubts.of_server(boot_us);
        let mut all = all.chain(self.doubts.of_slots(None, boot_us));
        let puts_off = |one: &Doubt| one.known.not_renewed_until_us > boot_us;
        let is_second = self.puts_off_renewals || all.any(puts_off);
        Beat {
            left_ms: match self.all_closed_for(None, boot_us) {
                _ if is_second || self.is_any_moving(None) => None,
                _ if self.wall_clock.was_set_back(boot_us) => None,
                None => Some(0),
                Some((0, _)) => None,
                Some((ms, _)) => Some(ms),
            },
            longest_ms,
            wait_ms: longest_ms.saturating_add(self.settings.slack_ms),
            clock_us: now.us(),
        }
    }

    /// The replicas have changed, or have answered.
    pub(in crate::engine) fn replicas_are(&mut self, replicas: &Replicas, boot_us: u64) {
        #[cfg(any(test, feature = "fault-injection"))]
        let replicas = &self.quorum.with_gone(replicas, &self.settings);
        self.quorum.hear(replicas, boot_us);
        self.quiet_until_us = 0;
    }

    /// Notes that what is sent from now on, after so much, is younger than now.
    pub(in crate::engine) fn note_sent(&mut self, offset: u64, boot_us: u64) {
        self.quorum.note_sent(offset, boot_us, &self.settings);
    }

    /// The primary of this server tells it of its guard. True where its leases are longer than what
    /// this server knew of.
    pub(in crate::engine) fn hear(&mut self, beat: Beat, at_us: u64, now: Now) -> bool {
        let longest_ms = beat.longest_ms;
        self.hand_over.hear(beat, at_us, now);
        self.leases_may_be(longest_ms, at_us)
    }
}
