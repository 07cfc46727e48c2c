//! Doubts: why nothing new is granted, where, until when, and what that means for known holds.
//!
//! [`Doubt::of`] is the table of `docs/FAILOVER.md`.

use std::collections::BTreeMap;
use std::ffi::CStr;

use super::settings::{Scope, Settings, AFTER_START_MS};

/// How long a primary that has stood still decides nothing new, in microseconds: it reads what the
/// other servers have sent meanwhile.
const LOOKS_AROUND_US: u64 = 2_000_000;

/// Why nothing new is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The process has started, or the guard was turned on.
    Restart,
    /// The server was promoted.
    Promotion,
    /// The wall clock was stepped forward.
    Clock,
    /// The process has stood still, and may have been replaced meanwhile.
    Stall,
    /// No majority of the servers follows this one.
    Alone,
    /// A slot has come, or moves.
    Slot,
}

impl Reason {
    /// Its name in INFO and in the log.
    pub const fn name(self) -> &'static CStr {
        match self {
            Self::Restart => c"restart",
            Self::Promotion => c"promotion",
            Self::Clock => c"clock",
            Self::Stall => c"stall",
            Self::Alone => c"alone",
            Self::Slot => c"slot",
        }
    }
}

/// What a doubt means for the holds that this server knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) struct Known {
    /// Those in their last second do not count, because the clocks of two servers differ.
    pub(super) without_last_second: bool,
    /// Those that end with a connection (LINGER) do not count: nobody here knows when it was lost.
    pub(super) without_lingering: bool,
    /// Those that end by then, or within a second after it, are not renewed: another server may
    /// hand their locks on. 0 is none of them, and `u64::MAX` all.
    pub(super) not_renewed_until_us: u64,
}

impl Known {
    /// Another server may have decided about them until then.
    const fn of_others(until_us: u64) -> Self {
        Self {
            without_last_second: true,
            without_lingering: true,
            not_renewed_until_us: until_us,
        }
    }

    /// What two doubts mean together.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            without_last_second: self.without_last_second || other.without_last_second,
            without_lingering: self.without_lingering || other.without_lingering,
            not_renewed_until_us: self.not_renewed_until_us.max(other.not_renewed_until_us),
        }
    }
}

/// A reason for which nothing new is granted. Instants are on a clock that goes on while the
/// machine is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Doubt {
    pub(super) why: Reason,
    pub(super) until_us: u64,
    pub(super) known: Known,
}

impl Doubt {
    /// The doubt that begins for a reason, if the mode has it. `longest_ms` is the longest lease
    /// that there may be: M in `docs/FAILOVER.md`.
    pub(super) fn of(
        why: Reason,
        settings: &Settings,
        longest_ms: u64,
        at_us: u64,
    ) -> Option<Self> {
        let (scope, slack_ms) = (settings.scope, settings.slack_ms);
        let after = |ms: u64| longest_ms.saturating_add(ms).saturating_mul(1_000);
        let of_others = match scope {
            Scope::Failover => {
                Known::of_others(at_us.saturating_add(slack_ms.saturating_mul(1_000)))
            }
            _ => Known::of_others(0),
        };
        let (least, wait_us, known) = match why {
            Reason::Restart if scope == Scope::Restart => {
                let known = Known {
                    without_lingering: true,
                    ..Known::default()
                };
                (Scope::Restart, after(AFTER_START_MS), known)
            }
            Reason::Restart => {
                let wait_ms = match scope {
                    Scope::Failover => slack_ms.max(AFTER_START_MS),
                    _ => AFTER_START_MS,
                };
                (Scope::Restart, after(wait_ms), of_others)
            }
            Reason::Clock => (Scope::Restart, after(AFTER_START_MS), Known::default()),
            Reason::Promotion | Reason::Slot => {
                (Scope::Failover, settings.wait_us(longest_ms), of_others)
            }
            Reason::Stall if scope == Scope::Failover => {
                let known = Known {
                    not_renewed_until_us: u64::MAX,
                    ..Known::default()
                };
                (Scope::Failover, LOOKS_AROUND_US, known)
            }
            Reason::Stall | Reason::Alone => return None,
        };
        let doubt = (scope >= least).then_some(Self {
            why,
            until_us: at_us.saturating_add(wait_us),
            known,
        });
        #[cfg(any(test, feature = "fault-injection"))]
        let doubt = doubt.and_then(|doubt| doubt.leave_out(settings, at_us));
        doubt
    }
}

/// All doubts of a server.
#[derive(Clone, Debug, Default)]
pub(super) struct Doubts {
    /// Those about everything, at most one for each reason.
    server: Vec<Doubt>,
    /// Those about a slot.
    slots: BTreeMap<u16, Doubt>,
}

impl Doubts {
    pub(super) fn is_empty(&self) -> bool {
        self.server.is_empty() && self.slots.is_empty()
    }

    /// A doubt begins, or goes on for longer.
    pub(super) fn add(&mut self, doubt: Doubt) {
        match self.server.iter_mut().find(|one| one.why == doubt.why) {
            Some(one) => one.go_on(doubt),
            None => self.server.push(doubt),
        }
    }

    /// The same for a slot.
    pub(super) fn add_to_slot(&mut self, slot: u16, doubt: Doubt) {
        let one = self.slots.entry(slot).or_insert(doubt);
        one.go_on(doubt);
    }

    /// Forgets the doubt about everything for that reason.
    pub(super) fn end(&mut self, why: Reason) {
        self.server.retain(|one| one.why != why);
    }

    /// Forgets the doubts about slots.
    pub(super) fn forget_slots(&mut self) {
        self.slots.clear();
    }

    /// Time has passed. Whether a slot has no doubt any more.
    pub(super) fn pass(&mut self, boot_us: u64) -> bool {
        let before = self.slots.len();
        self.server.retain(|one| one.until_us > boot_us);
        self.slots.retain(|_, one| one.until_us > boot_us);
        self.slots.len() < before
    }

    /// A lease may last until then: no doubt about leases ends before it.
    pub(super) fn last_until(&mut self, end_us: u64) {
        let all = self.server.iter_mut().chain(self.slots.values_mut());
        for one in all.filter(|one| one.why != Reason::Stall) {
            one.until_us = end_us.max(one.until_us);
        }
    }

    /// The doubt about everything for that reason.
    pub(super) fn why(&mut self, why: Reason) -> Option<&mut Doubt> {
        self.server.iter_mut().find(|one| one.why == why)
    }

    /// The doubts about everything that last now.
    pub(super) fn of_server(&self, boot_us: u64) -> impl Iterator<Item = &Doubt> {
        let all = self.server.iter();
        all.filter(move |one| one.until_us > boot_us)
    }

    /// The doubts about slots: about this one, or all.
    pub(super) fn of_slots(&self, slot: Option<u16>, boot_us: u64) -> impl Iterator<Item = &Doubt> {
        let is_meant = move |one: &u16| slot.is_none_or(|slot| slot == *one);
        let all = self.slots.iter().filter(move |(one, _)| is_meant(one));
        let all = all.map(|(_, doubt)| doubt);
        all.filter(move |one| one.until_us > boot_us)
    }

    /// Whether there is one about a slot.
    pub(super) fn is_of_slot(&self, slot: u16) -> bool {
        self.slots.contains_key(&slot)
    }

    /// How many slots have one.
    pub(super) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// When the first one about a slot ends.
    pub(super) fn next_slot_us(&self) -> u64 {
        let ends_us = self.slots.values().map(|one| one.until_us);
        ends_us.min().unwrap_or(u64::MAX)
    }
}

impl Doubt {
    /// It lasts longer, because the other server may grant for longer.
    pub(super) fn put_off(&mut self, more_us: u64) {
        self.until_us = self.until_us.saturating_add(more_us);
        let not_renewed_us = &mut self.known.not_renewed_until_us;
        *not_renewed_us = not_renewed_us.saturating_add(more_us);
    }

    fn go_on(&mut self, other: Self) {
        self.until_us = other.until_us.max(self.until_us);
        self.known = self.known.and(other.known);
    }
}
