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
//! Each was taken out of the world of servers (`simulation/servers/guarded.rs`), and two clients
//! believed then.
//!
//! 1. **No new grant** while the guard is closed: no acquire, no hand-off, not one of several keys.
//! 2. **A token that holds** waits as well, because this server may lack the record of its
//!    downgrade. Only a holder that becomes a reader is granted at once.
//! 3. **A hold of another server's decision** counts only up to one second before its deadline, for
//!    renewals, checks and commands: the clocks of two servers differ by less than that. One that
//!    ends with a connection (LINGER) does not count ([`usable`]). None is made longer that ends
//!    while the old primary may grant (`slack`): that one hands the lock on then.
//! 4. **A wall clock that is stepped forward** ends leases that clients still count on, so the
//!    guard begins anew. The steps are measured against a clock that nobody can set, at each grant.
//! 5. **A primary that has stood still** for longer than the slack may have been replaced. It
//!    decides and renews nothing before it has read what the others have sent ([`stall`]).
//! 6. **In the mode `quorum`** a majority decides ([`quorum`]), also about renewals.
//! 7. **A planned hand-over** ends the guard early. The old primary has come back and had decided
//!    nothing that this server lacks. Only the rest of its own guard remains, which it has told.
//!    The clocks of the two must agree, because holds end by the clock of this server now. In a
//!    group of more than three, other members count from before as well ([`quorum`]).

mod beats;
mod by_slot;
mod event;
mod hand_over;
mod holders;
mod leases;
pub mod quorum;
mod settings;
pub mod slots;
mod stall;
pub(super) mod usable;
mod wall_clock;

use crate::lock::{Lock, Mode, Now, Token};
use crate::planted::planted;
pub use event::GuardEvent;
use hand_over::HandOver;
use quorum::Quorum;
pub(super) use settings::BEAT_US;
pub use settings::{Reason, Rule, Scope, Settings, CLOCKS_APART_MS};
use slots::Slots;
use usable::Usable;
use wall_clock::WallClock;

/// How much longer than a lease a server waits after its start, in milliseconds.
pub const AFTER_START_MS: u64 = 1_000;

/// The pause between two beats while the first answer of a replica may come at any moment.
const SOON_BEAT_US: u64 = 20_000;

/// The guard of a server. Its instants are on a clock that goes on while the machine is suspended.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    settings: Settings,
    /// Why no new grant may be made. It is set when the guard is looked at.
    pub(super) closed_by: Option<Reason>,
    /// Whether holds are not renewed.
    puts_off_renewals: bool,
    /// Until when it stays open, if no clock is stepped.
    quiet_until_us: u64,
    /// When each reason for it ends.
    ends_us: [u64; Reason::TIMED.len()],
    /// Until when there may be holds that another server has decided about.
    others_until_us: u64,
    /// When the guard of the start ends, if nothing else has begun it anew.
    started_until_us: u64,
    /// Until when an old primary may still grant, by the slack.
    slack_until_us: u64,
    /// Which holds may be used. It is set when the guard is looked at.
    usable: Usable,
    /// When it is to be looked at by the timer, on the monotonic clock.
    due_us: Option<u64>,
    /// When the leases are over that are longer than the settings say: those of older settings, of
    /// another server's, and those that came in.
    longer_until_us: u64,
    /// How long a majority must follow at least, in microseconds, whatever the settings have become
    /// since it was asked first. 0 while the guard is open.
    least_wait_us: u64,
    /// When it was looked at last in this role, or 0.
    looked_us: u64,
    wall_clock: WallClock,
    /// Who follows this server.
    quorum: Quorum,
    hand_over: HandOver,
    slots: Slots,
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

impl Guard {
    /// Whether there is any.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.settings.scope != Scope::Off
    }

    /// Whether no new grant may be made.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.closed_by.is_some()
    }

    /// Whether waiters are not granted.
    #[inline]
    pub(super) fn holds_back(&self) -> bool {
        self.is_closed() && self.settings.has(Rule::Serving)
    }

    /// Whether replicas are told of the guard.
    pub(super) fn has_beats(&self) -> bool {
        self.settings.scope >= Scope::Failover
    }

    /// Whether replicas are asked what they have received.
    pub(super) fn asks_replicas(&self) -> bool {
        self.settings.scope == Scope::Quorum
    }

    /// For how many milliseconds it is closed yet (0: nobody knows), and why. `None` when open.
    pub fn closed_for(&self, boot_us: u64) -> Option<(u64, Reason)> {
        if !self.is_on() {
            return None;
        }
        let timed = Reason::TIMED.into_iter().zip(self.ends_us);
        let mut last = timed.max_by_key(|(_, end_us)| *end_us)?;
        if self.asks_replicas() && self.quorum.has_begun() {
            let Some(since_us) = self.quorum.followed_since_us(boot_us, &self.settings) else {
                return Some((0, Reason::Alone));
            };
            let wait_us = self.quorum_wait_us(boot_us).max(self.least_wait_us);
            let opens_us = since_us.saturating_add(wait_us);
            if since_us > 0 && opens_us > last.1 {
                last = (self.quorum.began_by(), opens_us);
            }
        }
        let (reason, end_us) = last;
        let left_us = end_us.checked_sub(boot_us).filter(|us| *us > 0);
        Some((left_us?.div_ceil(1_000), reason))
    }

    /// Whether renewals wait, too.
    fn must_put_off_renewals(&self, boot_us: u64) -> bool {
        let settings = &self.settings;
        if !self.asks_replicas() || !self.quorum.has_begun() {
            return self.looks_around(boot_us);
        }
        let Some(since_us) = self.quorum.renewed_since_us(boot_us, settings) else {
            return true;
        };
        let wait_us = settings.with_drift_us(settings.fresh_ms);
        let is_early = since_us > 0 && boot_us < since_us.saturating_add(wait_us);
        is_early && settings.has(Rule::RenewalWait)
    }

    /// How long a majority must have followed, in microseconds.
    fn quorum_wait_us(&self, boot_us: u64) -> u64 {
        let settings = &self.settings;
        let parts = if settings.has(Rule::WholeWait) { 1 } else { 2 };
        let lease_ms = self.longest_ms(boot_us).div_euclid(parts);
        match settings.has(Rule::Wait) {
            true => settings.with_drift_us(lease_ms.saturating_add(settings.fresh_ms)),
            false => 0,
        }
    }

    /// How many members are fresh, this one included. 0 where no majority decides.
    pub fn members_fresh(&self, boot_us: u64) -> usize {
        match self.asks_replicas() && self.quorum.has_begun() {
            true => self.quorum.fresh(boot_us, &self.settings),
            false => 0,
        }
    }

    pub(super) fn due_us(&self) -> Option<u64> {
        match (self.due_us, self.beat_due_us) {
            (Some(end), Some(beat)) => Some(end.min(beat)),
            (end, beat) => end.or(beat),
        }
    }

    /// The next beat is due now, if there are any.
    pub(super) fn beat_now(&mut self) {
        self.beat_due_us = self.has_beats().then_some(0);
    }

    /// The next beat is due after a while, or soon where a replica has just come.
    pub(super) fn beat_later(&mut self, boot_us: u64, monotonic_us: u64) {
        let is_soon = (self.asks_replicas() && self.quorum.expects_somebody(boot_us))
            || self.slots.expects_answer(boot_us);
        // What a member has acknowledged is heard of with the next beat, and must be fresh then.
        let fresh_us = self.settings.fresh_ms.saturating_mul(1_000);
        let pause_us = match is_soon {
            true => SOON_BEAT_US,
            false if self.asks_replicas() => BEAT_US.min(fresh_us / 4),
            false => BEAT_US,
        };
        self.beat_due_us = Some(monotonic_us.saturating_add(pause_us));
    }

    /// This server is a replica: nobody follows it, and it tells nobody anything.
    pub(super) fn stand_down(&mut self) {
        self.quorum = Quorum::default();
        self.slots = Slots::default();
        self.beat_due_us = None;
        self.started_until_us = 0;
        self.least_wait_us = 0;
        self.looked_us = 0;
    }

    /// Takes new settings. Leases under the old ones are over only later.
    pub(super) fn set(&mut self, settings: Settings, boot_us: u64) {
        if settings.max_ttl_ms < self.settings.max_ttl_ms {
            self.leases_may_be(self.settings.max_ttl_ms, boot_us);
        }
        self.settings = settings;
        if !self.has_beats() {
            self.slots = Slots::default(); // Nobody looks at them any more.
        }
        if !self.is_on() {
            self.ends_us = [0; Reason::TIMED.len()];
            self.wall_clock = WallClock::default();
        }
    }

    /// Takes new settings while the server runs. What is turned on begins now. Whether there may be
    /// leases that are longer than these settings and the last ones say.
    pub(super) fn change(&mut self, settings: Settings, boot_us: u64) -> bool {
        let (was_on, did_beat, did_ask) = (self.is_on(), self.has_beats(), self.asks_replicas());
        let (before, was_closed) = (self.settings, self.closed_for(boot_us).is_some());
        if settings.scope == Scope::Off && was_on {
            self.longer_until_us = 0; // What there is will be found when it is turned on again.
        }
        self.set(settings, boot_us);
        let (has_beats, asks) = (self.has_beats(), self.asks_replicas());
        let knows_more = [
            (self.is_on(), was_on),
            (has_beats, did_beat),
            (asks, did_ask),
        ];
        let is_news = knows_more.contains(&(true, false)) && settings.has(Rule::TurnedOn);
        // What a majority has kept closed stays so without one, or with a smaller one.
        let is_given_up = did_ask && !asks && was_closed && settings.has(Rule::GivenUp);
        if is_news || is_given_up {
            self.begin(Reason::Restart, boot_us);
        }
        // The old primary may be told of a longer lease while it still grants.
        let is_longer = settings.max_ttl_ms > before.max_ttl_ms && self.slack_until_us > boot_us;
        if is_given_up || is_longer {
            self.begin(Reason::Promotion, boot_us);
        }
        let is_easier = settings.fresh_ms > before.fresh_ms || settings.members < before.members;
        if did_ask && asks && was_closed && is_easier {
            self.quorum.begin(self.quorum.began_by(), boot_us);
        }
        self.is_on() && !was_on // There may have been no longest lease at all.
    }

    /// Begins for a reason, as far as the mode says so.
    pub(super) fn begin(&mut self, reason: Reason, boot_us: u64) {
        let (settings, longest_ms) = (self.settings, self.longest_ms(boot_us));
        let their_wait_ms = match reason {
            Reason::Promotion => self.hand_over.wait_ms(),
            _ => 0,
        };
        let (least, rule, more_ms) = match reason {
            Reason::Promotion if settings.has(Rule::Slack) => {
                (Scope::Failover, Rule::Promotion, settings.slack_ms)
            }
            Reason::Promotion => (Scope::Failover, Rule::Promotion, 0),
            Reason::Restart => (Scope::Restart, Rule::Restart, AFTER_START_MS),
            Reason::Clock | Reason::Stall | Reason::Alone | Reason::Slot => {
                (Scope::Restart, Rule::Clock, AFTER_START_MS)
            }
        };
        if settings.scope < least || !settings.has(rule) {
            return;
        }
        let wait_ms = match settings.has(Rule::Slack) {
            true => longest_ms.saturating_add(more_ms).max(their_wait_ms),
            false => longest_ms.saturating_add(more_ms),
        };
        let mut us = wait_ms.saturating_mul(1_000);
        if planted("half-the-guard") {
            us /= 2;
        }
        if reason != Reason::Clock {
            self.slots = Slots::default();
            if self.asks_replicas() {
                self.quorum.begin(reason, boot_us);
            }
        }
        if reason == Reason::Promotion {
            self.looked_us = boot_us;
            self.leases_may_be(self.hand_over.longest_ms(), boot_us);
            let wait_us = self.quorum_wait_us(boot_us);
            self.hand_over.is_promoted(boot_us, wait_us, &settings);
            if self.asks_replicas() {
                us = 0;
                self.others_until_us = boot_us.saturating_add(wait_us);
            } else {
                self.others_until_us = boot_us.saturating_add(us);
                let slack_us = us.saturating_sub(longest_ms.saturating_mul(1_000));
                self.slack_until_us = boot_us.saturating_add(slack_us);
            }
        }
        if let Some(end_us) = self.ends_us.get_mut(reason as usize) {
            *end_us = boot_us.saturating_add(us).max(*end_us);
        }
    }

    /// Ends the guard of a start, because nothing can be missing.
    pub(super) fn lacks_nothing(&mut self) {
        if let Some(end_us) = self.ends_us.get_mut(Reason::Restart as usize) {
            *end_us = 0;
        }
    }

    /// Whether a look would change nothing: it is open, and no clock says otherwise.
    #[inline]
    pub(super) fn is_quiet(&self, now: Now, boot_us: u64) -> bool {
        boot_us < self.quiet_until_us && !self.wall_clock.must_look(now.us(), boot_us)
    }

    /// Looks at the clocks. Answers what has become of it.
    pub(super) fn look(&mut self, now: Now, boot_us: u64, monotonic_us: u64) -> Option<Change> {
        let (drift, set_back_us) = (self.settings.drift, self.wall_clock.set_back_us());
        if self.wall_clock.was_stepped(now.us(), boot_us, drift) {
            self.begin(Reason::Clock, boot_us);
        }
        if self.wall_clock.set_back_us() != set_back_us {
            // The replicas are not to compare their clocks with what the last beat says.
            self.beat_now();
        }
        let closed_for = self.closed_for(boot_us);
        if closed_for.is_some() {
            self.least_wait_us = self.quorum_wait_us(boot_us).max(self.least_wait_us);
        } else {
            // All leases are over that this server may have lacked.
            self.least_wait_us = 0;
            (self.others_until_us, self.started_until_us) = (0, 0);
        }
        self.usable = self.usable_at(boot_us);
        self.puts_off_renewals = self.must_put_off_renewals(boot_us);
        self.quiet_until_us = match (closed_for, self.puts_off_renewals) {
            (None, false) => {
                let fresh_until_us = self.quorum.fresh_until_us(boot_us, &self.settings);
                fresh_until_us.min(self.slots.next_end_us())
            }
            _ => 0,
        };
        let due_us = |ms: u64| monotonic_us.saturating_add(ms.saturating_mul(1_000));
        let timed = closed_for.filter(|(_, reason)| *reason != Reason::Alone);
        self.due_us = timed.map(|(ms, _)| due_us(ms));
        self.slots_due(boot_us, monotonic_us);
        let closed_by = closed_for.map(|(_, reason)| reason);
        let before = std::mem::replace(&mut self.closed_by, closed_by);
        match (before, closed_by) {
            (None, Some(reason)) => Some(Change::Began(reason)),
            (Some(_), None) => Some(Change::Ended),
            (Some(before), Some(reason)) if before != reason => Some(Change::GoesOn(reason)),
            _ => None,
        }
    }

    /// Whether a request may be granted at once.
    #[inline(always)] // It is open nearly always.
    pub(super) fn may_take<'n>(
        &self,
        name: impl FnOnce() -> &'n [u8],
        lock: Option<&Lock>,
        of: (Token<'_>, Mode),
        now: Now,
    ) -> bool {
        !self.is_closed_for(name) || (!self.puts_off_renewals && self.asks_for_less(lock, of, now))
    }
}

#[cfg(test)]
mod tests;
