//! The one place where a lock changes: the value, the replicas, the events, the counters and the histograms all follow from the
//! effect and its cause.

use super::lock_key::Key;
use super::notify::Event;
use super::propagation;
use super::stats::counters::{
    ACQUIRED, DISCONNECTED, DISCONNECTED_LATER, EXPIRED, HANDED_OVER, REACQUIRED, RELEASED,
    RELEASED_LATER, RENEWED, TAKEN_BACK,
};
use super::stats::times;
use crate::lock::{Effect, Hold, Lock, Now, TokenBuf};

/// Why a lock changes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cause {
    /// An acquire is granted at once. `had_it` says that its token held the lock before.
    Acquired { had_it: bool },
    /// An acquire is granted after it has waited.
    HandedOver { had_it: bool, waited_us: u64 },
    /// The same for one of several keys that are granted together. Their request is counted once, elsewhere.
    HandedOverWithOthers { had_it: bool },
    /// The owner releases this hold.
    Released(Hold),
    /// The owner releases its hold with ATLEAST: its deadline comes forward.
    ReleasedLater,
    /// The owner renews its hold.
    Renewed,
    /// A hold ends because its connection is lost (LINGER).
    Disconnected,
    /// For the same reason its deadline comes forward.
    DisconnectedLater,
    /// A hold is revoked, because its owner was gone before it heard of the grant.
    Revoked,
    /// A conversion is undone for the same reason: the owner has the hold that it had before.
    ConversionUndone,
    /// The last hold has reached its deadline, and the key lacked a ttl.
    Expired,
    /// The key gets the ttl of its last hold again.
    TtlRepaired,
}

impl Cause {
    /// Whether the effect's token has a hold before, which lives.
    const fn had_it(self) -> bool {
        match self {
            Self::Acquired { had_it }
            | Self::HandedOver { had_it, .. }
            | Self::HandedOverWithOthers { had_it } => had_it,
            _ => true,
        }
    }

    /// The event that listeners get.
    const fn event(self) -> Option<Event> {
        match self {
            Self::Acquired { .. } => Some(Event::Acquire),
            Self::HandedOver { .. } | Self::HandedOverWithOthers { .. } => Some(Event::Handover),
            Self::Released(_) | Self::Revoked | Self::Disconnected => Some(Event::Release),
            Self::Renewed | Self::ReleasedLater | Self::DisconnectedLater => Some(Event::Renew),
            Self::ConversionUndone | Self::Expired | Self::TtlRepaired => None,
        }
    }

    /// Whether the effect's hold is not bound to a connection any more.
    const fn unbinds(self) -> bool {
        !matches!(self, Self::Renewed | Self::TtlRepaired)
    }

    /// Adds it to the counters and the histograms.
    fn count(self, now: Now) {
        match self {
            Self::Acquired { had_it } | Self::HandedOverWithOthers { had_it } => {
                count_acquired(had_it);
            }
            Self::HandedOver { had_it, waited_us } => {
                count_acquired(had_it);
                HANDED_OVER.add_one();
                times::waited(waited_us);
            }
            Self::Released(hold) => {
                RELEASED.add_one();
                times::held(&hold, now);
            }
            Self::ReleasedLater => RELEASED_LATER.add_one(),
            Self::Renewed => RENEWED.add_one(),
            Self::Disconnected => DISCONNECTED.add_one(),
            Self::DisconnectedLater => DISCONNECTED_LATER.add_one(),
            Self::Revoked => TAKEN_BACK.add_one(),
            Self::ConversionUndone | Self::Expired | Self::TtlRepaired => {}
        }
    }
}

fn count_acquired(had_it: bool) {
    ACQUIRED.add_one();
    if had_it {
        REACQUIRED.add_one();
    }
}

impl Key<'_, '_> {
    /// Carries an effect out: the value, the key's ttl, the replicas and the append-only file, WATCH and CLIENT TRACKING, events and
    /// counters.
    #[inline(always)] // Each caller knows the cause, so most of this is decided when it is compiled.
    pub(super) fn commit(&mut self, effect: &Effect<'_>, cause: Cause, now: Now) {
        if self.module().bindings.are_any() {
            self.unbind(effect, cause, now);
        }
        let before = self.hold_count();
        self.change(effect, now);
        let dropped = dropped(effect, cause.had_it(), before, self.hold_count());
        let expired = dropped.saturating_add(matches!(cause, Cause::Expired).into());
        if expired > 0 {
            EXPIRED.add(expired);
            self.note(Event::Expire);
        }
        cause.count(now);
        if let Some(event) = cause.event() {
            self.note(event);
        }
    }

    /// Forgets what the holds are bound to that this change ends, or gives anew.
    #[cold]
    fn unbind(&self, effect: &Effect<'_>, cause: Cause, now: Now) {
        let Some(lock) = self.lock() else {
            return;
        };
        let own = match effect {
            Effect::Hold { token, .. } | Effect::Release { token, .. } => lock.fence_of(*token),
            Effect::Cap { .. } => None,
        };
        let own = own.filter(|_| cause.unbinds());
        let (db, name, bindings) = (
            self.ctx().selected_db(),
            self.name(),
            &self.module().bindings,
        );
        for fence in lock.ended(now).chain(own) {
            bindings.forget(db, name.bytes(), fence);
        }
    }

    fn change(&mut self, effect: &Effect<'_>, now: Now) {
        let ends_lock = matches!(effect, Effect::Release { .. })
            && self.lock().is_some_and(|lock| lock.len() == 1);
        // A key that goes takes its ttl along.
        if !ends_lock {
            if let Some(cap) = self.cap_from_outside(now) {
                self.apply(&cap, now);
                self.replicate(&cap, false);
            }
        }
        self.apply(effect, now);
        self.replicate(effect, ends_lock);
        self.ctx().signal_modified(self.name());
    }

    fn replicate(&mut self, effect: &Effect<'_>, ends_lock: bool) {
        let (ctx, argv, name) = (self.ctx(), self.argv(), self.name());
        let record = &mut self.parts().state.record;
        propagation::send(ctx, argv, name, effect, ends_lock, record);
    }

    /// Lets the key end with its last hold again, after a command that took its ttl away or brought in a lock without one.
    pub(super) fn repair_ttl(&mut self, now: Now) {
        let Some(lock) = self.lock() else {
            return;
        };
        let Some(latest) = lock.latest_deadline() else {
            return;
        };
        if lock.is_free(now) {
            let last = lock.holders().pop();
            let last = last.map(|(token, _)| TokenBuf::from(token.as_token()));
            if let Some(token) = last {
                let (now_ms, token) = (now.ms(), token.as_token());
                self.commit(&Effect::Release { now_ms, token }, Cause::Expired, now);
            }
        } else if self.deadline(now).is_none_or(|deadline| deadline > latest) {
            self.commit(&Effect::Cap { deadline: latest }, Cause::TtlRepaired, now);
        }
    }

    /// How many holds the lock has, including those that are over.
    fn hold_count(&self) -> usize {
        self.lock().map_or(0, Lock::len)
    }

    /// The effect that must come first because an EXPIRE has brought the key's end before that of its holds.
    fn cap_from_outside(&self, now: Now) -> Option<Effect<'static>> {
        self.lock()?.cap(self.deadline(now)?)
    }
}

/// How many holds a change has dropped beside its own, because they were over, when there were `before` and are `after` it.
/// `had_it` says whether the effect's token had a hold that lived: an end is decided only for such a hold.
fn dropped(effect: &Effect<'_>, had_it: bool, before: usize, after: usize) -> usize {
    let expected = match effect {
        Effect::Hold { .. } if !had_it => before.saturating_add(1),
        Effect::Release { .. } => before.saturating_sub(1),
        Effect::Hold { .. } | Effect::Cap { .. } => before,
    };
    expected.saturating_sub(after)
}
