//! The one place where a lock changes: the value, the replicas, the events, the counters and the
//! histograms all follow from the effect and its cause.

use super::count::Count;
use super::event::Event;
use super::host::{Key, Name, Server};
use crate::lock::{Effect, Hold, Lock, Now, TokenBuf};
use crate::planted::planted;

/// How many holds that are over stay until the next grant.
const MANY_ENDED: usize = if cfg!(test) { 1 } else { 64 };

/// Why a lock changes.
#[derive(Clone, Copy, Debug)]
pub enum Cause {
    /// An acquire is granted at once.
    Acquired {
        /// Whether its token held the lock before.
        had_it: bool,
    },
    /// An acquire is granted after it has waited. Its wait is counted where its client is told,
    /// once for several keys.
    HandedOver {
        /// As above.
        had_it: bool,
    },
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
    /// A hold ends because its owner was gone before it heard of the grant.
    TakenBack,
    /// For the same reason its deadline comes forward (KEEP).
    TakenBackLater,
    /// The last hold has reached its deadline, and the key lacked a ttl.
    Expired,
    /// The key gets the ttl of its last hold again.
    TtlRepaired,
}

impl Cause {
    /// Whether the effect's token has a hold before, which lives.
    const fn had_it(self) -> bool {
        match self {
            Self::Acquired { had_it } | Self::HandedOver { had_it } => had_it,
            _ => true,
        }
    }

    /// The event that listeners get.
    const fn event(self) -> Option<Event> {
        match self {
            Self::Acquired { .. } => Some(Event::Acquire),
            Self::HandedOver { .. } => Some(Event::Handover),
            Self::Released(_) | Self::TakenBack | Self::Disconnected => Some(Event::Release),
            Self::Renewed
            | Self::ReleasedLater
            | Self::TakenBackLater
            | Self::DisconnectedLater => Some(Event::Renew),
            Self::Expired | Self::TtlRepaired => None,
        }
    }

    /// Whether the effect's hold is not bound to a connection any more.
    const fn unbinds(self) -> bool {
        !matches!(self, Self::Renewed | Self::TtlRepaired)
    }

    /// Adds it to the counters and the histograms.
    #[inline(always)]
    fn count<S: Server>(self, server: S, now: Now) {
        match self {
            Self::Acquired { had_it } | Self::HandedOver { had_it } => {
                server.count(Count::Acquired);
                if had_it {
                    server.count(Count::Reacquired);
                }
            }
            Self::Released(hold) => {
                server.count(Count::Released);
                server.held(&hold, now);
            }
            Self::ReleasedLater => server.count(Count::ReleasedLater),
            Self::Renewed => server.count(Count::Renewed),
            Self::Disconnected => server.count(Count::Disconnected),
            Self::DisconnectedLater => server.count(Count::DisconnectedLater),
            Self::TakenBack => server.count(Count::TakenBack),
            Self::TakenBackLater | Self::Expired | Self::TtlRepaired => {}
        }
    }
}

/// Carries an effect out: the value, the key's ttl, the replicas and the append-only file, WATCH
/// and CLIENT TRACKING, events and counters. False if nothing is done, which only a new lock can
/// meet ([`Key::apply`]).
#[inline(always)] // Each caller knows the cause, so most of this is decided when it is compiled.
pub(super) fn commit<K: Key>(key: &mut K, effect: &Effect<'_>, cause: Cause, now: Now) -> bool {
    if key.shared().bindings.are_any() {
        unbind(key, effect, cause, now);
    }
    let (server, before) = (key.server(), hold_count(key));
    let stays_here = (matches!(cause, Cause::Renewed) && planted("renewals-stay-here"))
        || (matches!(cause, Cause::HandedOver { .. }) && planted("hand-overs-stay-here"));
    let is_done = match stays_here {
        true => key.apply(effect),
        false => change(key, effect),
    };
    if !is_done {
        return false;
    }
    let dropped = dropped(effect, cause.had_it(), before, hold_count(key));
    let expired = dropped.saturating_add(matches!(cause, Cause::Expired).into());
    if expired > 0 {
        server.count_many(Count::Expired, expired);
        key.note(Event::Expire);
    }
    cause.count(server, now);
    if let Some(event) = cause.event() {
        key.note(event);
    }
    true
}

/// Whether the lock of a key lasts longer than its last hold. `None` if there is no lock.
pub(super) fn lacks_ttl<K: Key>(key: &K) -> Option<bool> {
    let latest = key.lock()?.latest_deadline()?;
    Some(key.deadline().is_none_or(|deadline| deadline > latest))
}

/// Lets the key end with its last hold again, after a command that took its ttl away or brought in
/// a lock without one.
pub(super) fn repair_ttl<K: Key>(key: &mut K, now: Now) {
    let Some(lock) = key.lock() else {
        return;
    };
    let Some(latest) = lock.latest_deadline() else {
        return;
    };
    if lock.is_free(now) {
        let last = lock.holders().pop();
        let last = last.map(|(token, _)| TokenBuf::from(token.as_token()));
        if let Some(token) = last {
            drop_ended(key, &token, now);
        }
    } else if lacks_ttl(key) == Some(true) {
        commit(
            key,
            &Effect::Cap { deadline: latest },
            Cause::TtlRepaired,
            now,
        );
    }
}

/// Drops the holds that are over, where there are many. A grant drops all of them; whoever is
/// refused, and the timer, would pay for them again and again. An end that PEXPIRE has given to the
/// key stays that of the key: a later PEXPIRE may move it.
#[inline]
pub(super) fn drop_many_ended<K: Key>(key: &mut K, now: Now) {
    let lock = key.lock();
    let ended = lock.and_then(|lock| lock.one_of_many_ended(MANY_ENDED, now));
    let Some(token) = ended.map(TokenBuf::from) else {
        return;
    };
    if cap_from_outside(key).is_none() {
        drop_ended(key, &token, now);
    }
}

/// Drops the holds that are over. That of this token is one of them.
fn drop_ended<K: Key>(key: &mut K, token: &TokenBuf, now: Now) {
    let (now_ms, token) = (now.ms(), token.as_token());
    commit(key, &Effect::Release { now_ms, token }, Cause::Expired, now);
}

/// Forgets what the holds are bound to that this change ends, or gives anew.
#[cold]
fn unbind<K: Key>(key: &K, effect: &Effect<'_>, cause: Cause, now: Now) {
    let Some(lock) = key.lock() else {
        return;
    };
    let own = match effect {
        Effect::Hold { token, .. } | Effect::Release { token, .. } => lock.fence_of(*token),
        Effect::Cap { .. } => None,
    };
    let own = own.filter(|_| cause.unbinds());
    let (db, name) = (key.server().selected_db(), key.name());
    let bindings = &key.shared().bindings;
    let forget = |fence| bindings.change(|all| all.forget(db, name.bytes(), fence));
    lock.ended(now).for_each(forget);
    own.into_iter().for_each(forget);
}

#[inline(always)]
fn change<K: Key>(key: &mut K, effect: &Effect<'_>) -> bool {
    let ends_lock =
        matches!(effect, Effect::Release { .. }) && key.lock().is_some_and(|lock| lock.len() == 1);
    // A key that goes takes its ttl along.
    if !ends_lock {
        if let Some(cap) = cap_from_outside(key) {
            key.apply(&cap);
            key.replicate(&cap, false);
        }
    }
    let is_done = key.apply(effect);
    if is_done {
        key.replicate(effect, ends_lock);
    }
    is_done
}

/// How many holds the lock has, including those that are over.
#[inline]
fn hold_count<K: Key>(key: &K) -> usize {
    key.lock().map_or(0, Lock::len)
}

/// The effect that must come first because an EXPIRE has brought the key's end before that of its
/// holds.
#[inline]
pub(super) fn cap_from_outside<K: Key>(key: &K) -> Option<Effect<'static>> {
    key.lock()?.cap(key.deadline()?)
}

/// How many holds a change has dropped beside its own, because they were over, when there were
/// `before` and are `after` it. `had_it` says whether the effect's token had a hold that lived: an
/// end is decided only for such a hold.
fn dropped(effect: &Effect<'_>, had_it: bool, before: usize, after: usize) -> usize {
    let expected = match effect {
        Effect::Hold { .. } if !had_it => before.saturating_add(1),
        Effect::Release { .. } => before.saturating_sub(1),
        Effect::Hold { .. } | Effect::Cap { .. } => before,
    };
    expected.saturating_sub(after)
}
