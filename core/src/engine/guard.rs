//! The guard: a server that may lack leases makes no new grant until all of them are over.
//!
//! A server that starts from an old file lacks the newest holds, and so does a replica that is
//! promoted, because replication is asynchronous. Every lease is at most `max-ttl` long. So a
//! server that grants nothing new for that long after its start cannot grant a lock that somebody
//! still believes it holds. After a promotion the old primary may go on for a while (`slack`), and
//! the guard lasts longer by that.
//!
//! # Rules
//!
//! 1. **Nothing new is granted** of what a [doubt](doubt) covers: no acquire, no hand-off, not one
//!    of several keys. The table of doubts says when one begins, how long it lasts and what it
//!    means for known holds.
//! 2. **A token that holds** waits as well, because this server may lack the record of its
//!    downgrade. Only a holder that becomes a reader is granted at once.
//! 3. **In the mode `quorum`** a majority decides ([`quorum`]), also about renewals.
//! 4. **Slots that move** ([`slots`]): no key is granted that is absent here.
//! 5. **A planned failover** ends the doubt of the promotion early. The old primary has come back
//!    and had decided nothing that this server lacks. Only its own doubts remain, which it has told
//!    ([`hand_over`]).
//!
//! Each was taken out of the world of servers (`simulation/servers/guarded.rs`), and two clients
//! believed then.

mod beats;
mod by_slot;
mod doubt;
mod event;
mod hand_over;
mod known;
mod leases;
pub mod quorum;
#[cfg(any(test, feature = "fault-injection"))]
mod rules;
mod settings;
pub mod slots;
mod stall;
pub(super) mod usable;
mod wall_clock;
#[cfg(any(test, feature = "fault-injection"))]
mod without;

use crate::lock::slot::slot_of;
use crate::lock::Now;
pub use doubt::Reason;
use doubt::{Doubt, Doubts, Known};
pub use event::GuardEvent;
use hand_over::HandOver;
use quorum::Quorum;
#[cfg(any(test, feature = "fault-injection"))]
pub use rules::Rule;
pub(super) use settings::BEAT_US;
pub use settings::{Scope, Settings, AFTER_START_MS, CLOCKS_APART_MS};
use slots::Cluster;
use wall_clock::WallClock;

/// The guard of a server. Its instants are on a clock that goes on while the machine is suspended.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    settings: Settings,
    doubts: Doubts,
    /// When it was looked at last. What follows is from then.
    at_us: u64,
    /// Why nothing new is granted on the whole server.
    pub(super) closed_by: Option<Reason>,
    /// Whether no majority lets holds be renewed.
    puts_off_renewals: bool,
    /// Until when it stays open, if no clock is stepped.
    quiet_until_us: u64,
    /// When it is to be looked at by the timer, on the monotonic clock.
    due_us: Option<u64>,
    /// When the leases are over that are longer than the settings say: those of older settings, of
    /// another server's, and those that came in.
    longer_until_us: u64,
    /// When a primary has looked at it last, or 0.
    looked_us: u64,
    wall_clock: WallClock,
    /// Who follows this server.
    quorum: Quorum,
    hand_over: HandOver,
    /// The slots at the last look. `None` before the first one, and outside of a cluster.
    cluster: Option<Cluster>,
    /// When the next beat is due, on the monotonic clock.
    pub(super) beat_due_us: Option<u64>,
    /// Whether the replicas are to be asked in the next turn of the timer.
    pub(super) is_asking: bool,
}

/// What has become of the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Began(Reason),
    /// It goes on for another reason.
    GoesOn(Reason),
    Ended,
}

/// Whether it is on, and for how long it is closed.
impl Guard {
    /// Whether there is any.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.settings.scope != Scope::Off
    }

    /// Whether nothing new is granted on the whole server.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.closed_by.is_some()
    }

    /// Whether no new grant of a key may be made, which may be absent.
    #[inline]
    pub(super) fn is_closed_for<'n>(
        &self,
        name: impl FnOnce() -> &'n [u8],
        is_absent: bool,
    ) -> bool {
        self.is_closed() || (self.has_slots() && self.is_slot_closed(name(), is_absent))
    }

    /// The same of the hand-off to waiters.
    #[inline]
    pub(super) fn holds_back_for(&self, name: &[u8], is_absent: bool) -> bool {
        let is_closed = self.is_closed_for(|| name, is_absent);
        #[cfg(any(test, feature = "fault-injection"))]
        let is_closed = is_closed && self.settings.has(Rule::Serving);
        is_closed
    }

    /// Whether replicas are told of the guard, and slots are looked at.
    pub(super) fn has_beats(&self) -> bool {
        self.settings.scope >= Scope::Failover
    }

    /// Whether replicas are asked what they have received.
    pub(super) fn asks_replicas(&self) -> bool {
        self.settings.scope == Scope::Quorum
    }

    /// For how many milliseconds the whole server grants nothing new (0: nobody knows), and why.
    /// `None` when open.
    pub fn closed_for(&self, boot_us: u64) -> Option<(u64, Reason)> {
        if !self.is_on() {
            return None;
        }
        let mut majority = None;
        if self.asks_replicas() && self.quorum.has_begun() {
            let longest_ms = self.longest_ms(boot_us);
            match self.quorum.opens_us(boot_us, &self.settings, longest_ms) {
                Some(opens_us) => majority = Some((opens_us, self.quorum.began_by())),
                None => return Some((0, Reason::Alone)),
            }
        }
        let timed = self.doubts.of_server(boot_us);
        let timed = timed.map(|doubt| (doubt.until_us, doubt.why));
        longest(timed.chain(majority), boot_us)
    }

    /// For how many milliseconds no new grant of a key, or of some, is made (0: nobody knows), and
    /// why.
    pub fn all_closed_for(&self, name: Option<&[u8]>, boot_us: u64) -> Option<(u64, Reason)> {
        let whole = self.closed_for(boot_us);
        if let Some((0, _)) = whole {
            return whole;
        }
        let slot = name.map(slot_of);
        let timed = self.doubts.of_slots(slot, boot_us);
        let timed = longest(timed.map(|one| (one.until_us, one.why)), boot_us);
        let moving = self.is_any_moving(slot).then_some((0, Reason::Slot));
        whole
            .into_iter()
            .chain(timed)
            .chain(moving)
            .max_by_key(|(ms, _)| *ms)
    }

    /// How many members are fresh, this one included. 0 where no majority decides.
    pub fn members_fresh(&self, boot_us: u64) -> usize {
        match self.asks_replicas() && self.quorum.has_begun() {
            true => self.quorum.fresh(boot_us, &self.settings),
            false => 0,
        }
    }
}

/// The one that lasts longest, in milliseconds from now.
fn longest(all: impl Iterator<Item = (u64, Reason)>, boot_us: u64) -> Option<(u64, Reason)> {
    let (end_us, why) = all.max_by_key(|(end_us, why)| (*end_us, *why as u8))?;
    let left_us = end_us.checked_sub(boot_us).filter(|us| *us > 0);
    Some((left_us?.div_ceil(1_000), why))
}

/// What begins and ends it.
impl Guard {
    /// Takes new settings. Leases under the old ones are over only later.
    pub(super) fn set(&mut self, settings: Settings, boot_us: u64) {
        if settings.max_ttl_ms < self.settings.max_ttl_ms {
            self.leases_may_be(self.settings.max_ttl_ms, boot_us);
        }
        self.settings = settings;
        if !self.has_beats() {
            self.forget_slots(); // Nobody looks at them any more.
        }
        if !self.is_on() {
            self.doubts = Doubts::default();
            self.wall_clock = WallClock::default();
        }
    }

    /// Takes new settings while the server runs. What is turned on begins now. Whether there may be
    /// leases that are longer than these settings and the last ones say.
    pub(super) fn change(&mut self, settings: Settings, boot_us: u64) -> bool {
        let (before, was_closed) = (self.settings, self.closed_for(boot_us).is_some());
        let (was_on, did_ask) = (self.is_on(), self.asks_replicas());
        if settings.scope == Scope::Off && was_on {
            self.longer_until_us = 0; // What there is will be found when it is turned on again.
        }
        self.set(settings, boot_us);
        let is_news = settings.scope > before.scope;
        // What a majority has kept closed stays so without one, or with a smaller one.
        let is_given_up = did_ask && !self.asks_replicas() && was_closed;
        #[cfg(any(test, feature = "fault-injection"))]
        let (is_news, is_given_up) = (
            is_news && settings.has(Rule::TurnedOn),
            is_given_up && settings.has(Rule::GivenUp),
        );
        if is_news || is_given_up {
            self.begin(Reason::Restart, boot_us);
        }
        // The old primary may be told of a longer lease while it still grants.
        let slack = self.doubts.why(Reason::Promotion);
        let is_in_slack = slack.is_some_and(|one| one.known.not_renewed_until_us > boot_us);
        let is_longer = settings.max_ttl_ms > before.max_ttl_ms && is_in_slack;
        if is_given_up || is_longer {
            self.begin(Reason::Promotion, boot_us);
        }
        let is_easier = settings.fresh_ms > before.fresh_ms || settings.members < before.members;
        if did_ask && self.asks_replicas() && was_closed && is_easier {
            self.quorum.begin(self.quorum.began_by(), boot_us);
        }
        self.is_on() && !was_on // There may have been no longest lease at all.
    }

    fn doubt_of(&self, why: Reason, at_us: u64) -> Option<Doubt> {
        Doubt::of(why, &self.settings, self.longest_ms(at_us), at_us)
    }

    /// A doubt begins, as far as the mode has it.
    pub(super) fn begin(&mut self, why: Reason, at_us: u64) {
        let Some(mut doubt) = self.doubt_of(why, at_us) else {
            return;
        };
        if matches!(why, Reason::Restart | Reason::Promotion) {
            self.forget_slots();
            if self.asks_replicas() {
                self.quorum.begin(why, at_us);
            }
        }
        if why == Reason::Promotion {
            self.looked_us = at_us;
            self.leases_may_be(self.hand_over.longest_ms(), at_us);
            if !self.asks_replicas() {
                // The slack of the primary before may be longer.
                let wait_us = self.hand_over.wait_ms().saturating_mul(1_000);
                let more_us = at_us.saturating_add(wait_us).saturating_sub(doubt.until_us);
                #[cfg(any(test, feature = "fault-injection"))]
                let more_us = if self.settings.hears_of_slack() {
                    more_us
                } else {
                    0
                };
                doubt.put_off(more_us);
            }
            self.hand_over.is_promoted(at_us, &self.settings);
        }
        self.doubts.add(doubt);
    }

    /// The first look at the slots after a start or a promotion. Until then they may have come or
    /// gone, and the doubt about all of them lasts as long as one that begins now.
    fn begins_with_slots(&mut self, boot_us: u64) {
        for why in [Reason::Restart, Reason::Promotion] {
            let until_us = self.doubt_of(why, boot_us).map_or(0, |one| one.until_us);
            if let Some(doubt) = self.doubts.why(why) {
                doubt.until_us = until_us.max(doubt.until_us);
            }
        }
    }

    fn forget_slots(&mut self) {
        self.cluster = None;
        self.doubts.forget_slots();
    }

    /// This server is a replica: nobody follows it, and it tells nobody anything.
    pub(super) fn stand_down(&mut self) {
        self.quorum = Quorum::default();
        self.forget_slots();
        self.beat_due_us = None;
        self.looked_us = 0;
    }

    /// This server follows a primary from now on. What it may have lacked since its start comes
    /// with the data of its primary.
    pub(super) fn linked(&mut self) {
        self.hand_over = HandOver::default();
        if self.has_beats() {
            self.doubts.end(Reason::Restart);
        } else if let Some(doubt) = self.doubts.why(Reason::Restart) {
            doubt.known = Known::default();
        }
    }

    /// The primary before has come back, and follows this server without a copy: it had decided
    /// nothing that is not known here. `name` is that of the replica.
    pub(super) fn old_primary_is_back(&mut self, name: &[u8], at_us: u64) {
        let Some(rest_us) = self.hand_over.rest_us(at_us) else {
            return;
        };
        #[cfg(any(test, feature = "fault-injection"))]
        let rest_us = if self.settings.has(Rule::Rest) {
            rest_us
        } else {
            0
        };
        if let Some(doubt) = self.doubts.why(Reason::Promotion) {
            doubt.until_us = rest_us;
            doubt.known.not_renewed_until_us = 0;
        }
        self.quorum.goes_on_with(name);
    }
}

/// Looks.
impl Guard {
    /// Whether a look would change nothing: it is open, and no clock says otherwise.
    #[inline]
    pub(super) fn is_quiet(&self, now: Now, boot_us: u64) -> bool {
        boot_us < self.quiet_until_us && !self.wall_clock.must_look(now.us(), boot_us)
    }

    /// Looks at the clocks. Answers what has become of it.
    pub(super) fn look(&mut self, now: Now, boot_us: u64, monotonic_us: u64) -> Option<Change> {
        let set_back_us = self.wall_clock.set_back_us();
        if self.wall_clock.was_stepped(now.us(), boot_us) {
            self.begin(Reason::Clock, boot_us);
            // A replica that is promoted as planned is to know of it.
            self.beat_now();
        }
        if self.wall_clock.set_back_us() != set_back_us {
            // The replicas are not to compare their clocks with what the last beat says.
            self.beat_now();
        }
        self.at_us = boot_us;
        let closed_for = self.closed_for(boot_us);
        match closed_for {
            Some(_) if self.asks_replicas() => {
                let longest_ms = self.longest_ms(boot_us);
                self.quorum.stays_closed(&self.settings, longest_ms);
            }
            Some(_) => {}
            None => self.quorum.is_open(),
        }
        let renews_us = match self.asks_replicas() && self.quorum.has_begun() {
            true => self.quorum.renews_us(boot_us, &self.settings),
            false => Some(0),
        };
        self.puts_off_renewals = renews_us.is_none_or(|us| us > boot_us);
        let next_slot_us = self.doubts.next_slot_us();
        self.quiet_until_us = match closed_for.is_some() || self.puts_off_renewals {
            true => 0,
            false => {
                let fresh_until_us = self.quorum.fresh_until_us(boot_us, &self.settings);
                fresh_until_us.min(next_slot_us)
            }
        };
        let timed = closed_for.filter(|(_, reason)| *reason != Reason::Alone);
        let ends_us = timed.map(|(ms, _)| boot_us.saturating_add(ms.saturating_mul(1_000)));
        let slot_ends_us = (next_slot_us < u64::MAX).then_some(next_slot_us);
        let next_us = ends_us.into_iter().chain(slot_ends_us).min();
        self.due_us = next_us.map(|us| monotonic_us.saturating_add(us.saturating_sub(boot_us)));
        let closed_by = closed_for.map(|(_, reason)| reason);
        let before = std::mem::replace(&mut self.closed_by, closed_by);
        match (before, closed_by) {
            (None, Some(reason)) => Some(Change::Began(reason)),
            (Some(_), None) => Some(Change::Ended),
            (Some(before), Some(reason)) if before != reason => Some(Change::GoesOn(reason)),
            _ => None,
        }
    }

    pub(super) fn due_us(&self) -> Option<u64> {
        self.due_us.into_iter().chain(self.beat_due_us).min()
    }
}

#[cfg(test)]
mod tests;
