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
//!    downgrade. Only what asks for less than the hold has is granted at once.
//! 3. **A hold of another server's decision** counts only up to one second before its deadline, for
//!    renewals, checks and commands: the clocks of two servers differ by less than that.
//! 4. **A wall clock that is stepped forward** ends leases that clients still count on, so the
//!    guard begins anew. The steps are measured against a clock that nobody can set, at each grant.

use std::ffi::CStr;

use crate::lock::{Lock, Mode, Now, Token};

/// After what the server waits. Each includes the one before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// After nothing.
    #[default]
    Off,
    /// After a start, and a step of the wall clock.
    Restart,
    /// Also after a promotion.
    Failover,
}

/// What the settings of the server say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// After what it waits.
    pub scope: Scope,
    /// The longest lease, in milliseconds.
    pub max_ttl_ms: u64,
    /// How late an old primary may still grant, in milliseconds.
    pub slack_ms: u64,
    /// The rule that is left out, to see that it matters.
    #[cfg(test)]
    pub without: Option<Rule>,
}

/// The rules, by the numbers above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The wait after a start.
    Restart,
    /// The wait after a promotion.
    Promotion,
    /// The slack after a promotion.
    Slack,
    /// Waiters are not granted.
    Serving,
    /// Holders wait, too.
    Holders,
    /// The last second of a hold.
    LastSecond,
    /// Steps of the wall clock.
    Clock,
}

impl Settings {
    #[cfg(test)]
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    #[cfg(not(test))]
    #[inline]
    const fn has(&self, _rule: Rule) -> bool {
        true
    }
}

/// Why a guard is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The server has started, or the guard was turned on.
    Restart,
    /// The server was promoted.
    Promotion,
    /// The wall clock was stepped forward.
    Clock,
}

impl Reason {
    const ALL: [Self; 3] = [Self::Restart, Self::Promotion, Self::Clock];

    /// Its name in INFO and in the log.
    pub const fn name(self) -> &'static CStr {
        match self {
            Self::Restart => c"restart",
            Self::Promotion => c"promotion",
            Self::Clock => c"clock",
        }
    }
}

/// How much longer than a lease a server waits after its start, in milliseconds.
const AFTER_START_MS: u64 = 1_000;

/// By how many of a thousand the speeds of clocks may differ.
const DRIFT: i64 = 10;

/// The steps of the wall clock that are passed over, in microseconds.
const SMALL_STEPS_US: i64 = 2_000;

/// The guard of a server. Its instants are on a clock that goes on while the machine is suspended.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    settings: Settings,
    /// Whether no new grant may be made. It is set when the guard is looked at.
    is_closed: bool,
    /// When each reason for it ends.
    ends_us: [u64; Reason::ALL.len()],
    /// When it is to be looked at by the timer, on the monotonic clock.
    due_us: Option<u64>,
    /// A longest lease from before, and until when there may be such leases.
    longer_ms: Option<(u64, u64)>,
    looked: Option<Looked>,
}

/// The clocks when they were looked at last.
#[derive(Clone, Copy, Debug)]
struct Looked {
    /// How far the wall clock is ahead of the other one.
    ahead_us: i64,
    at_us: u64,
    /// How far it was stepped forward since the guard began last for it.
    stepped_us: i64,
}

/// What has become of the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Began(Reason),
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
        self.is_closed
    }

    /// Whether waiters are not granted.
    #[inline]
    pub(super) fn holds_back(&self) -> bool {
        self.is_closed && self.settings.has(Rule::Serving)
    }

    /// For how many milliseconds it is closed yet, and why. `None` when it is open.
    pub fn closed_for(&self, boot_us: u64) -> Option<(u64, Reason)> {
        let ends = Reason::ALL.into_iter().zip(self.ends_us);
        let (reason, end_us) = ends.max_by_key(|(_, end_us)| *end_us)?;
        let left_us = end_us.checked_sub(boot_us).filter(|us| *us > 0);
        Some((left_us.filter(|_| self.is_on())?.div_ceil(1_000), reason))
    }

    pub(super) fn due_us(&self) -> Option<u64> {
        self.due_us
    }

    /// The longest lease that there may be, in milliseconds.
    fn longest_ms(&self, boot_us: u64) -> u64 {
        let longer = self.longer_ms.filter(|(_, until_us)| *until_us > boot_us);
        let longer_ms = longer.map_or(0, |(ms, _)| ms);
        self.settings.max_ttl_ms.max(longer_ms)
    }

    /// Takes new settings. Leases under the old ones are over only later.
    pub(super) fn set(&mut self, settings: Settings, boot_us: u64) {
        let longest_ms = self.longest_ms(boot_us);
        if settings.max_ttl_ms < longest_ms {
            let until_us = boot_us.saturating_add(longest_ms.saturating_mul(1_000));
            self.longer_ms = Some((longest_ms, until_us));
        }
        self.settings = settings;
        if !self.is_on() {
            self.ends_us = [0; Reason::ALL.len()];
            self.looked = None;
        }
    }

    /// Begins for a reason. False if the mode does not say so.
    pub(super) fn begin(&mut self, reason: Reason, boot_us: u64) -> bool {
        let (settings, longest_ms) = (self.settings, self.longest_ms(boot_us));
        let (least, rule, more_ms) = match reason {
            Reason::Restart => (Scope::Restart, Rule::Restart, AFTER_START_MS),
            Reason::Promotion if settings.has(Rule::Slack) => {
                (Scope::Failover, Rule::Promotion, settings.slack_ms)
            }
            Reason::Promotion => (Scope::Failover, Rule::Promotion, 0),
            Reason::Clock => (Scope::Restart, Rule::Clock, AFTER_START_MS),
        };
        let begins = settings.scope >= least && settings.has(rule);
        if begins {
            let us = longest_ms.saturating_add(more_ms).saturating_mul(1_000);
            if let Some(end_us) = self.ends_us.get_mut(reason as usize) {
                *end_us = boot_us.saturating_add(us).max(*end_us);
            }
        }
        begins
    }

    /// Ends the guard of a start, because nothing can be missing.
    pub(super) fn lacks_nothing(&mut self) {
        if let Some(end_us) = self.ends_us.get_mut(Reason::Restart as usize) {
            *end_us = 0;
        }
    }

    /// Whether the wall clock was stepped forward since it was looked at last.
    fn was_stepped(&mut self, wall_us: u64, boot_us: u64) -> bool {
        let difference = i128::from(wall_us).saturating_sub(i128::from(boot_us));
        let ahead_us = i64::try_from(difference).unwrap_or_default();
        let before = self.looked.unwrap_or(Looked {
            ahead_us,
            at_us: boot_us,
            stepped_us: 0,
        });
        let passed_us = i64::try_from(boot_us.saturating_sub(before.at_us)).unwrap_or(i64::MAX);
        let drift_us = passed_us.saturating_mul(DRIFT).div_euclid(1_000);
        let grown_us = ahead_us.saturating_sub(before.ahead_us);
        let step_us = grown_us.saturating_sub(drift_us).max(0);
        let stepped_us = before.stepped_us.saturating_add(step_us);
        let was_stepped = stepped_us > SMALL_STEPS_US;
        self.looked = Some(Looked {
            ahead_us,
            at_us: boot_us,
            stepped_us: if was_stepped { 0 } else { stepped_us },
        });
        was_stepped
    }

    /// Looks at the clocks. Answers what has become of it.
    pub(super) fn look(&mut self, now: Now, boot_us: u64, monotonic_us: u64) -> Option<Change> {
        let before = self.is_closed;
        if self.was_stepped(now.us(), boot_us) {
            self.begin(Reason::Clock, boot_us);
        }
        let closed_for = self.closed_for(boot_us);
        self.is_closed = closed_for.is_some();
        let due_us = |ms: u64| monotonic_us.saturating_add(ms.saturating_mul(1_000));
        self.due_us = closed_for.map(|(ms, _)| due_us(ms));
        match (before, closed_for) {
            (false, Some((_, reason))) => Some(Change::Began(reason)),
            (true, None) => Some(Change::Ended),
            _ => None,
        }
    }

    /// Whether holds count only up to a second before their deadlines.
    #[inline]
    pub(super) fn leaves_out_last_second(&self, boot_us: impl FnOnce() -> u64) -> bool {
        let [_, promotion_ends_us, _] = self.ends_us;
        self.is_on() && promotion_ends_us > boot_us() && self.settings.has(Rule::LastSecond)
    }

    /// Whether a request may be granted at once.
    #[inline(always)] // It is open nearly always.
    pub(super) fn may_take(&self, lock: Option<&Lock>, of: (Token<'_>, Mode), now: Now) -> bool {
        !self.is_closed || self.asks_for_less(lock, of, now)
    }

    #[cold]
    fn asks_for_less(&self, lock: Option<&Lock>, of: (Token<'_>, Mode), now: Now) -> bool {
        let (token, mode) = of;
        let own = lock.and_then(|lock| lock.hold_of(token, now));
        let has_rule = self.settings.has(Rule::Holders);
        own.is_some_and(|(own, _)| !has_rule || mode.tolerates() > own.tolerates())
    }
}

/// What callbacks note of the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardEvent {
    /// Something after which leases may be missing, and when, on the clock that goes on while the
    /// machine is suspended.
    Began(Reason, u64),
    /// The server has loaded everything that it had.
    LacksNothing,
    /// The settings have changed.
    SettingsChanged,
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: u64 = 1_000_000;

    fn settings(max_ttl_ms: u64) -> Settings {
        Settings {
            scope: Scope::Restart,
            max_ttl_ms,
            ..Settings::default()
        }
    }

    fn guard() -> Guard {
        let mut guard = Guard::default();
        guard.set(settings(10_000), 0);
        guard
    }

    /// How the guard changes where the wall clock is so far ahead of the other one.
    fn look(guard: &mut Guard, boot_us: u64, ahead_us: u64) -> Option<Change> {
        guard.look(Now::from_micros(boot_us + ahead_us), boot_us, boot_us)
    }

    #[test]
    fn small_steps_of_the_wall_clock_add_up() {
        let mut guard = guard();
        let mut ahead_us = 5_000;
        assert_eq!(look(&mut guard, 0, ahead_us), None);
        for boot_us in 1..=3 {
            ahead_us += 600;
            assert_eq!(look(&mut guard, boot_us, ahead_us), None, "{boot_us}");
        }
        let began = Some(Change::Began(Reason::Clock));
        assert_eq!(look(&mut guard, 4, ahead_us + 600), began);
        assert_eq!(guard.closed_for(4), Some((11_000, Reason::Clock)));
    }

    #[test]
    fn clocks_of_other_speed_and_steps_back_are_passed_over() {
        let mut guard = guard();
        for second in 0..1_000 {
            let boot_us = second * SECOND_US;
            // 1 % fast, and then an hour back.
            let ahead_us = if second < 900 { boot_us / 100 } else { 0 };
            assert_eq!(look(&mut guard, boot_us, ahead_us), None, "{second}");
        }
    }

    #[test]
    fn leases_under_a_larger_setting_count_until_they_are_over() {
        let mut guard = guard();
        guard.set(settings(1_000), SECOND_US);
        guard.begin(Reason::Restart, 2 * SECOND_US);
        assert_eq!(
            guard.closed_for(2 * SECOND_US),
            Some((11_000, Reason::Restart))
        );
        guard.begin(Reason::Restart, 12 * SECOND_US);
        assert_eq!(
            guard.closed_for(12 * SECOND_US),
            Some((2_000, Reason::Restart))
        );
    }

    #[test]
    fn the_reason_that_ends_last_is_named() {
        let mut guard = guard();
        assert!(
            !guard.begin(Reason::Promotion, 0),
            "the scope does not say so"
        );
        assert!(guard.begin(Reason::Restart, 0));
        guard.set(
            Settings {
                scope: Scope::Failover,
                slack_ms: 5_000,
                ..settings(10_000)
            },
            0,
        );
        assert!(guard.begin(Reason::Promotion, 0));
        assert_eq!(guard.closed_for(0), Some((15_000, Reason::Promotion)));
        guard.lacks_nothing();
        assert_eq!(
            look(&mut guard, 0, 0),
            Some(Change::Began(Reason::Promotion))
        );
        assert_eq!(look(&mut guard, 15 * SECOND_US, 0), Some(Change::Ended));
        guard.begin(Reason::Promotion, 15 * SECOND_US);
        guard.set(Settings::default(), 15 * SECOND_US);
        assert_eq!(guard.closed_for(15 * SECOND_US), None);
    }
}
