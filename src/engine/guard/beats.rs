//! What a primary tells its replicas of its guard, and what a replica makes of it once it is
//! promoted.

use super::hand_over::HandOver;
use super::quorum::Replicas;
use super::settings::Reason;
use super::Guard;
use crate::command::guard::Beat;
use crate::lock::Now;

impl Guard {
    /// What this primary tells its replicas.
    pub(in crate::engine) fn beat(&self, boot_us: u64, now: Now) -> Beat {
        let longest_ms = self.longest_ms(boot_us);
        let wait_us = self.quorum_wait_us(boot_us);
        // The primary before this one may still decide: the next one must not go on from here.
        let is_second = self.slack_until_us > boot_us || self.must_put_off_renewals(boot_us);
        Beat {
            // A replica that is promoted knows nothing of slots that are closed here, nor of those
            // that go to another node, where locks of theirs may be granted.
            left_ms: match self.all_closed_for(None, boot_us) {
                _ if is_second || self.slots.is_handing_over() => None,
                _ if self.wall_clock.was_set_back(boot_us) => None,
                None => Some(0),
                Some((_, Reason::Alone)) => None,
                Some((ms, _)) => Some(ms),
            },
            longest_ms,
            wait_ms: longest_ms.saturating_add(self.settings.slack_ms),
            clock_us: now.us(),
            followers: self.quorum.followers(boot_us, wait_us, &self.settings),
        }
    }

    /// The replicas have changed, or have answered.
    pub(in crate::engine) fn replicas_are(&mut self, replicas: &Replicas, boot_us: u64) {
        self.quorum.hear(replicas, boot_us, &self.settings);
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

    /// This server follows a primary from now on.
    pub(in crate::engine) fn linked(&mut self, boot_us: u64) {
        self.hand_over = HandOver::of_link(boot_us);
        // What this server may have lacked since its start comes with the data of its primary.
        self.started_until_us = 0;
        if self.has_beats() {
            self.lacks_nothing();
        }
    }

    /// The primary before has come back, and follows this server without a copy: it had decided
    /// nothing that is not known here. `name` is that of the replica.
    pub(in crate::engine) fn old_primary_is_back(&mut self, name: &[u8], at_us: u64) {
        if let Some(rest_us) = self.hand_over.rest_us(at_us, &self.settings) {
            if let Some(end_us) = self.ends_us.get_mut(Reason::Promotion as usize) {
                *end_us = rest_us;
            }
            self.others_until_us = self.others_until_us.min(rest_us);
            self.slack_until_us = 0;
            let followers = self.hand_over.take_followers();
            self.quorum.goes_on_with(name, followers, &self.settings);
        }
    }
}
