//! Grants that were lost are taken back. Which ones is known to [`crate::wait::Deliveries`].

use super::commit::{commit, Cause};
use super::host::{Key, Server};
use super::machine::Machine;
use crate::lock::{Effect, Lock, Now};
use crate::wait::Revoked;

/// Ends a hold whose owner was gone before it heard of it. The owner has again what it had before
/// and knows of.
pub(super) fn revoke<K: Key>(key: &mut K, revoked: Revoked, now: Now) {
    let text = revoked.token.text();
    let token = text.as_token();
    let stands = |lock: &&Lock| {
        let hold = lock.hold_of(token, now);
        hold.is_some_and(|(_, hold)| hold.fence == revoked.fence)
    };
    let undo = |lock: &Lock| lock.give_back(token, revoked.before, key.deadline(), now);
    let Some(effect) = key.lock().filter(stands).map(undo) else {
        return seek(key.server(), key.parts().machine, revoked);
    };
    let cause = match effect {
        Effect::Release { .. } => Cause::Revoked,
        _ => Cause::ConversionUndone,
    };
    commit(key, &effect, cause, now);
}

/// Has a hold looked for that is not where it was granted, if its lock has left since.
pub(super) fn seek<S: Server>(server: S, machine: &mut Machine<S::Types>, revoked: Revoked) {
    if revoked.has_left {
        machine.registry.deliveries.seek(revoked);
        machine.sweep.request(server.monotonic_us());
    }
}
