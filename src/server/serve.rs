//! Serving: waiters are queued, granted and dismissed. The rules of waiting itself are those of [`crate::wait`]; this is the
//! server's side of it.
//!
//! # The flow
//!
//! A request with BLOCK that cannot be granted enters the registry ([`enter`]). Whenever a hold ends later, its key is **served**
//! ([`serve`]): as long as a waiter is next, its request is granted as if it came now, the effect is carried out and replicated,
//! and the client is unblocked. No client wakes up to race.
//!
//! # Rules
//!
//! 1. **Where a grant may happen**: in a command of the module, before and after its own work (`execute`), and in the module's timer
//!    (`tick`). Nowhere else: a method of the type, a server event or a callback for a lost client runs in the middle of
//!    something else. A write there reaches replicas out of order, or not at all. Callbacks leave a note and set the timer to
//!    0 ms (`callbacks`).
//! 2. **What the timer may do.** It runs on replicas and while clients are paused. On a replica it grants nothing. While the server
//!    is paused it writes nothing, because a write then aborts the server; it retries shortly, and requests still time out. The
//!    same holds while the server refuses the writes of clients. In a cluster it first asks whether the key is still served
//!    here (`writes`); if not, it tells the waiters to try again.
//! 3. **Each blocked client is unblocked once**, by the code that takes the request out of the registry. A client that is not in
//!    the registry was unblocked already.
//! 4. **A grant that nobody hears of is revoked** ([`crate::wait::delivery`]). The server has then freed the outcome without a
//!    call for the reply (`blocked_client`), or freed the client before it has sent the reply (`delivery`). A client that may
//!    have read the reply keeps the hold.

use super::blocked_client::{self, BlockedClient, Outcome, Removed};
use super::clock;
use super::commit::Cause;
use super::limits;
use super::lock_key::{Key, Parts};
use super::module::State;
use super::stats::counters::DEADLOCKS;
use crate::command::acquire::Acquire;
use crate::command::Error;
use crate::lock::{Deadline, Now, Refusal};
use crate::wait::{Granted, KeyRef, NewWaiter, Step};

/// Whether a client waits now.
pub(super) enum Entered {
    Yes,
    No,
}

/// Lets the client of a refused request wait. `key_ref` is given when others wait for the key already.
///
/// # Errors
/// When as many wait as may.
pub(super) fn enter(
    key: &mut Key<'_, '_>,
    key_ref: Option<KeyRef>,
    acquire: &Acquire<'_>,
    refusal: Refusal,
    now: Now,
) -> Result<Entered, Error> {
    let Some(timeout) = acquire.block() else {
        return Ok(Entered::No);
    };
    let ctx = key.ctx();
    // Asked only here, because it is slow: inside MULTI, scripts and the like nobody may block. A replica that takes writes of
    // its own grants nothing later.
    if !ctx.may_block() {
        return Ok(Entered::No);
    }
    let name = key.name();
    let Parts { state, module, .. } = key.parts();
    let queue = key_ref
        .as_ref()
        .and_then(|key_ref| state.registry.queue(key_ref.db, &key_ref.name));
    let here = queue.map_or(0, |queue| queue.len());
    limits::admit((here, state.registry.len()))?;
    let callbacks = module.blocked.get();
    let Some(client) = callbacks.and_then(|callbacks| blocked_client::block(ctx, &callbacks))
    else {
        return Ok(Entered::No);
    };
    let since_us = clock::monotonic_us();
    let new_waiter = NewWaiter {
        listener: client,
        waiter: acquire.waiter(now),
        refusal,
        since_us,
        times_out_at_us: (timeout.ms > 0)
            .then(|| since_us.saturating_add(timeout.ms.saturating_mul(1_000))),
        is_server_generated: acquire.is_made(),
    };
    let key_ref = key_ref.unwrap_or_else(|| KeyRef::new(ctx.selected_db(), name.bytes()));
    state.registry.enter(key_ref.clone(), new_waiter);
    state.is_due_changed = true;
    // The key is watched for the waiter that is ahead of the others. The others only have their timeouts.
    if here == 0 || refusal == Refusal::BusyUpgrade {
        watch(key, &key_ref, now);
    }
    Ok(Entered::Yes)
}

/// Grants each waiter that is next, until none is: before a command does its own work, at the time that this returns.
pub(super) fn serve(key: &mut Key<'_, '_>, key_ref: &KeyRef, now: Now) -> Now {
    let (now, has_changed) = serve_all(key, key_ref, now);
    if has_changed {
        watch(key, key_ref, now);
    }
    now
}

/// The same where the key has changed, or may have.
pub(super) fn serve_changed(key: &mut Key<'_, '_>, key_ref: &KeyRef, now: Now) -> Now {
    let (now, _) = serve_all(key, key_ref, now);
    watch(key, key_ref, now);
    now
}

/// The time by then, and whether the key has changed by it, or was marked as changed.
fn serve_all(key: &mut Key<'_, '_>, key_ref: &KeyRef, mut now: Now) -> (Now, bool) {
    let mut has_changed = false;
    while let Some(step) = next_step(key, key_ref, now, has_changed) {
        has_changed = true;
        match step {
            Step::Granted(granted) => {
                now = granted.at;
                hand_over(key, granted);
            }
            Step::Refused(removed, refusal) => dismiss(removed, Error::of_refusal(refusal)),
        }
    }
    // A mark may say that the key has lost its ttl, and the timer will not look at it now.
    if key.parts().state.registry.unmark(key_ref) {
        key.repair_ttl(now);
        has_changed = true;
    }
    (now, has_changed)
}

/// Takes out the waiter that is next, granted or refused.
fn next_step(
    key: &mut Key<'_, '_>,
    key_ref: &KeyRef,
    now: Now,
    has_gone_on: bool,
) -> Option<Step<BlockedClient>> {
    // A lease counts from its grant, and there may be thousands in one step.
    let granted_at = |now| clock::meanwhile(now, has_gone_on);
    let Parts {
        lock,
        state,
        module,
    } = key.parts();
    // A client may have gone since.
    module.drain(state);
    let registry = &mut state.registry;
    let step = module
        .fences
        .with(|fences| registry.grant_next(key_ref, lock, now, granted_at, fences));
    if let Some(Step::Refused(_, Refusal::Deadlock)) = &step {
        DEADLOCKS.add_one();
    }
    step
}

/// Carries out a grant, and tells its client.
fn hand_over(key: &mut Key<'_, '_>, granted: Granted<BlockedClient>) {
    let waited_us = clock::monotonic_us().saturating_sub(granted.removed.since_us);
    let cause = Cause::HandedOver {
        had_it: granted.had_it,
        waited_us,
    };
    key.commit(&granted.effect(), cause, granted.at);
    blocked_client::unblock_granted(granted);
}

/// Answers everybody who waits for a key with an error.
pub(super) fn dismiss_all(state: &mut State, key_ref: &KeyRef, error: Error) {
    for ticket in state.registry.tickets(key_ref) {
        if let Some(removed) = state.registry.remove(ticket) {
            dismiss(removed, error);
        }
    }
}

fn dismiss(removed: Removed, error: Error) {
    blocked_client::unblock(removed, |_| Outcome::Error(error));
}

/// Has the key looked at when the passing of time alone may make a waiter next.
pub(super) fn watch(key: &mut Key<'_, '_>, key_ref: &KeyRef, now: Now) {
    // A key that was given an earlier end from outside takes its holds with it.
    let by_key = key.lock().and_then(|_| key.deadline(now));
    let Parts { lock, state, .. } = key.parts();
    let queue = state.registry.queue(key_ref.db, &key_ref.name);
    let by_holds = queue.and_then(|queue| queue.wakes_at(lock, now));
    let earliest: Option<Deadline> = by_holds.into_iter().chain(by_key).min();
    // The deadline itself still counts.
    let at_ms = earliest.map(|deadline| deadline.ms().saturating_add(1));
    state.registry.set_wake(key_ref, at_ms);
    state.is_due_changed = true;
}
