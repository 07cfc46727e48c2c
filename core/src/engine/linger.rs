//! LINGER at work: holds are bound to connections, and end soon after these are lost. Holds of
//! which nobody has heard end in the same way.
//!
//! A callback only notes that a connection or a grant is lost. The next command on the key brings
//! the deadline forward before it does its own work, or the timer does, whichever is first.

use super::commit::{commit, Cause};
use super::guard::Guard;
use super::host::{key_ref_of, Key, Name, Server};
use crate::command::acquire::Acquire;
use crate::command::Error;
use crate::lock::{Effect, Fence, Grant, Hold, Now, Token};
use crate::wait::{Linger, LostEnd};

/// What the hold of a request is bound to.
pub(super) fn of_request<S: Server>(
    server: S,
    acquire: &Acquire<'_>,
) -> Result<Option<Linger>, Error> {
    let Some(ms) = acquire.linger_ms() else {
        return Ok(None);
    };
    let client = server.connection().ok_or(Error::LingerWithoutConnection)?;
    Ok(Some(Linger { client, ms }))
}

/// Marks a hold that is granted, or removes the mark: after a promotion the next server must know
/// which holds end with connections. Without such a guard the bytes of a lock say nothing of it.
#[inline]
fn mark(hold: &mut Hold, linger: Option<Linger>, guard: &Guard) {
    let lingers = linger.is_some() && guard.marks_lingering();
    hold.since = hold.since.marked(lingers);
}

/// The same in an effect.
#[cold]
pub(super) fn mark_in(effect: &mut Effect<'_>, linger: Linger, guard: &Guard) {
    if let Effect::Hold { hold, .. } = effect {
        mark(hold, Some(linger), guard);
    }
}

/// Marks a hold that is renewed, if it was granted before there was a guard.
#[cold]
pub(super) fn mark_renewed<K: Key>(key: &K, effect: &mut Effect<'_>) {
    if let Effect::Hold { hold, .. } = effect {
        let (db, name) = (key.server().selected_db(), key.name());
        let bindings = &key.shared().bindings;
        let is_bound = bindings.look(|all| all.has(db, name.bytes(), hold.fence));
        hold.since = hold.since.marked(is_bound || hold.since.lingers());
    }
}

/// Binds a hold that was just granted. `is_told` says whether its owner knows. A grant without
/// LINGER has unbound it before.
#[cold]
pub(super) fn bind<K: Key>(key: &K, token: Token<'_>, fence: Fence, linger: Linger, is_told: bool) {
    let bindings = &key.shared().bindings;
    bindings.change(|all| all.bind(key_ref_of(key), token, fence, linger, is_told));
}

/// Whether a hold is bound to the connection of a request that is granted it.
#[cold]
fn binds<K: Key>(key: &K, fence: Fence, linger: Linger) -> bool {
    let (db, name) = (key.server().selected_db(), key.name());
    let bindings = &key.shared().bindings;
    bindings.look(|all| all.binds(db, name.bytes(), fence, linger.client))
}

/// Gives a hold to a token: marked, carried out, and bound. `is_told` says whether the owner knows
/// already. False if that has failed ([`commit`]).
#[inline(always)] // Each caller knows the cause.
pub(super) fn give<K: Key>(
    key: &mut K,
    token: Token<'_>,
    mut grant: Grant,
    (linger, is_told): (Option<Linger>, bool),
    cause: Cause,
) -> bool {
    mark(&mut grant.hold, linger, &key.parts().machine.guard);
    let fence = grant.hold.fence;
    let is_told = is_told || linger.is_some_and(|linger| binds(key, fence, linger));
    let is_done = commit(key, &grant.effect(token), cause, grant.at);
    if let Some(linger) = linger.filter(|_| is_done) {
        bind(key, token, fence, linger, is_told);
    }
    is_done
}

/// Carries out what lost connections and unheard grants mean for the holds of a key. Whether the
/// key has changed.
#[cold]
pub(super) fn bring_forward<K: Key>(key: &mut K, now: Now) -> bool {
    let key_ref = key_ref_of(key);
    // A replica that takes writes of its own may have bound some.
    if !key.server().is_primary() {
        key.shared().bindings.change(|all| all.clear());
        return false;
    }
    let mut has_changed = false;
    let lost = key.shared().bindings.change(|all| all.take_lost(&key_ref));
    for lost in lost {
        let end = key.lock().map(|lock| (lock, key.deadline()));
        let end = end.and_then(|(lock, key_deadline)| lost.end(lock, key_deadline, now));
        if let Some((effect, ended)) = end {
            let cause = match (lost.end, ended) {
                (LostEnd::At(_), Some(_)) => Cause::Disconnected,
                (LostEnd::At(_), None) => Cause::DisconnectedLater,
                (LostEnd::Unheard(_), Some(_)) => Cause::TakenBack,
                (LostEnd::Unheard(_), None) => Cause::TakenBackLater,
            };
            commit(key, &effect, cause, now);
            has_changed = true;
        }
    }
    has_changed
}
