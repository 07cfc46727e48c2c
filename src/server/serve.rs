//! Serving: waiters are queued, granted and dismissed. The rules of waiting itself are those of [`crate::wait`]; this is the
//! server's side of it.
//!
//! # The flow
//!
//! A request that cannot be granted may take a place in the queue ([`enter`]). A blocked client listens for it (BLOCK), or a
//! channel (NOTIFY), or nobody for a while (KEEP). Whenever a hold ends later, its key is **served** ([`serve`]): as long as a
//! waiter is next, its request is granted as if it came now, the effect is carried out and replicated, and the client is
//! unblocked. No client wakes up to race. A grant to a channel is published before it is made, and made only if somebody has
//! received the message.
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

use super::api::Context;
use super::blocked_client::{self, BlockedClient, Outcome, Removed};
use super::channel;
use super::clock;
use super::commit::Cause;
use super::limits;
use super::linger;
use super::lock_key::{Key, Parts};
use super::module::{wait_ended, Module, State};
use super::stats::counters::{DEADLOCKS, PASSED_OVER, RESUMED, UNHEARD};
use crate::command::acquire::{Acquire, Wait};
use crate::command::Error;
use crate::lock::{Deadline, Now, Refusal};
use crate::wait::{self, At, Granted, KeyRef, Linger, Listener, NewRequest, Offer, Rest, Step};

/// What has become of a request that was refused.
pub(super) enum Entered {
    /// Its client is blocked: the reply comes when the wait ends.
    Blocked,
    /// It is queued: the end of the wait is published.
    Queued,
    /// It does not wait.
    No,
}

/// Lets a refused request wait, or lets its token keep a place. `key_ref` is given when others wait for the key already.
///
/// # Errors
/// When there are as many places as may be.
pub(super) fn enter(
    key: &mut Key<'_, '_>,
    key_ref: Option<KeyRef>,
    acquire: &Acquire<'_>,
    refusal: Refusal,
    linger: Option<Linger>,
    now: Now,
) -> Result<Entered, Error> {
    if acquire.wait().is_none() && acquire.keep_ms().is_none() && key_ref.is_none() {
        return Ok(Entered::No); // The usual case of a request that does not wait.
    }
    let ctx = key.ctx();
    // A replica that takes writes of its own grants nothing later.
    if !ctx.is_primary() {
        return Ok(Entered::No);
    }
    let key_ref = key_ref.unwrap_or_else(|| KeyRef::new(ctx.selected_db(), key.name().bytes()));
    let (listener, entered) = listener_of(key, &key_ref, acquire)?;
    let request = request_of(acquire, listener, refusal, linger, now);
    take_place(key, &key_ref, request, now);
    Ok(entered)
}

/// The request as the registry wants it.
pub(super) fn request_of<'a>(
    acquire: &'a Acquire<'_>,
    listener: Option<Listener<BlockedClient>>,
    refusal: Refusal,
    linger: Option<Linger>,
    now: Now,
) -> NewRequest<'a, BlockedClient> {
    let now_us = clock::monotonic_us();
    let waits = acquire.wait().filter(|_| listener.is_some());
    let timeout_ms = waits.map_or(0, |wait| wait.timeout().ms);
    NewRequest {
        token: acquire.ask().token,
        mode: acquire.ask().mode,
        ttl: acquire.ask().ttl,
        listener,
        times_out_at_us: (timeout_ms > 0)
            .then(|| now_us.saturating_add(timeout_ms.saturating_mul(1_000))),
        keep_ms: acquire.keep_ms(),
        is_server_generated: acquire.is_made(),
        linger,
        refusal,
        now,
        now_us,
    }
}

/// What listens for a request; nothing when it does not wait, or may not.
fn listener_of(
    key: &mut Key<'_, '_>,
    key_ref: &KeyRef,
    acquire: &Acquire<'_>,
) -> Result<(Option<Listener<BlockedClient>>, Entered), Error> {
    let ctx = key.ctx();
    let Parts { state, module, .. } = key.parts();
    let registry = &state.registry;
    let wait = wait_of(ctx, acquire);
    let takes_place = wait.is_some() || acquire.keep_ms().is_some();
    let (db, name) = (key_ref.db, &key_ref.name);
    let here = registry.len_of(db, name);
    // A token that has a place already takes none.
    let has_place = here > 0 && registry.has_place(key_ref, acquire.ask().token);
    if takes_place && !has_place {
        limits::admit((here, registry.len()))?;
    }
    Ok(listen(ctx, module, wait))
}

/// How a request waits here. Asked only where it cannot be granted, because it is slow: inside MULTI, scripts and the like nobody may
/// block.
pub(super) fn wait_of<'a>(ctx: Context<'_>, acquire: &Acquire<'a>) -> Option<Wait<'a>> {
    let may = |wait: &Wait<'_>| matches!(wait, Wait::Notify(..)) || ctx.may_block();
    acquire.wait().filter(may)
}

/// Blocks the client of the running command, or names its channel.
pub(super) fn listen(
    ctx: Context<'_>,
    module: &Module,
    wait: Option<Wait<'_>>,
) -> (Option<Listener<BlockedClient>>, Entered) {
    match wait {
        None => (None, Entered::No),
        Some(Wait::Notify(_, channel)) => (Some(Listener::channel(channel)), Entered::Queued),
        Some(Wait::Block(_)) => {
            let callbacks = module.blocked.get();
            let client = callbacks.and_then(|callbacks| blocked_client::block(ctx, &callbacks));
            let entered = client.map_or(Entered::No, |_| Entered::Blocked);
            (client.map(Listener::Client), entered)
        }
    }
}

fn take_place(
    key: &mut Key<'_, '_>,
    key_ref: &KeyRef,
    request: NewRequest<'_, BlockedClient>,
    now: Now,
) {
    let Parts { state, .. } = key.parts();
    let registry = &mut state.registry;
    let entered = registry.enter(key_ref, request);
    state.is_due_changed = true;
    if entered.is_resumed() {
        RESUMED.add_one();
    }
    match entered {
        // A new place changes nothing for the others. The key is watched for it if it is the first.
        wait::Entered::Waits(At::NewHead) => watch(key, key_ref, now),
        // Others matter now, or other instants.
        entered if entered.must_serve() => {
            serve_changed(key, key_ref, now);
        }
        _ => {}
    }
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
            Step::Offered(offer) => now = offer_to_channel(key, offer),
            Step::Refused(removed, refusal) => {
                dismiss(key.ctx(), removed, Error::of_refusal(refusal));
            }
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
        ..
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

/// Carries out a grant, and tells the client that waits for it. A channel has heard of it before.
fn hand_over(key: &mut Key<'_, '_>, granted: Granted<BlockedClient>) {
    let now_us = clock::monotonic_us();
    let waited_us = now_us.saturating_sub(granted.removed.since_us);
    wait_ended(&mut key.parts().state.contended, &granted.removed, now_us);
    let cause = Cause::HandedOver {
        had_it: granted.had_it,
        waited_us,
    };
    key.commit(&granted.effect(), cause, granted.at);
    if let Some(linger) = granted.removed.linger {
        let token = granted.removed.token.as_token();
        linger::bind(key, token, granted.hold.fence, linger);
    }
    if let (Some(Listener::Client(client)), Some(grant)) =
        (&granted.removed.listener, granted.grant())
    {
        let outcome = Outcome::Granted(grant, granted.removed.is_server_generated);
        blocked_client::unblock(*client, outcome);
    }
}

/// Publishes a grant, and makes it if somebody has received the message. Answers when that was.
fn offer_to_channel(key: &mut Key<'_, '_>, offer: Offer) -> Now {
    let (ctx, at) = (key.ctx(), offer.at);
    let event = channel::Event::Granted(offer.fence());
    let token = offer.token.as_token();
    let is_heard = channel::publish(ctx, &offer.channel, event, &offer.key_ref.name, token);
    let registry = &mut key.parts().state.registry;
    if is_heard {
        if let Some(granted) = registry.heard(offer) {
            hand_over(key, granted);
        }
    } else {
        UNHEARD.add_one();
        let removed = registry.unheard(offer, clock::monotonic_us());
        if removed.is_some_and(|removed| removed.rest == Rest::Ended) {
            PASSED_OVER.add_one();
        }
    }
    at
}

/// Answers everybody who waits for a key with an error, and ends all its places.
pub(super) fn dismiss_all(ctx: Context<'_>, state: &mut State, key_ref: &KeyRef, error: Error) {
    for removed in state.registry.dismiss_all(key_ref) {
        dismiss(ctx, removed, error);
    }
}

pub(super) fn dismiss(ctx: Context<'_>, removed: Removed, error: Error) {
    tell(
        ctx,
        removed,
        Outcome::Error(error),
        channel::Event::Error(error),
    );
}

/// Answers a request whose timeout has passed. A place at which nobody listens ends without a word.
pub(super) fn end_wait(ctx: Context<'_>, removed: Removed) {
    tell(ctx, removed, Outcome::Null, channel::Event::TimedOut);
}

/// Answers the client that waits at a place which its token has given up. Nothing is published.
pub(super) fn give_up(removed: Removed) {
    if let Some(Listener::Client(client)) = removed.listener {
        blocked_client::unblock(client, Outcome::Null);
    }
}

/// Tells whatever has listened for a request how its wait has ended.
fn tell(ctx: Context<'_>, removed: Removed, outcome: Outcome, event: channel::Event) {
    match removed.listener {
        Some(Listener::Client(client)) => blocked_client::unblock(client, outcome),
        Some(Listener::Channel(name)) => {
            let token = removed.token.as_token();
            channel::publish(ctx, &name, event, &removed.key_ref.name, token);
        }
        None => {}
    }
}

/// Has the key looked at when the passing of time alone may make a waiter next.
pub(super) fn watch(key: &mut Key<'_, '_>, key_ref: &KeyRef, now: Now) {
    // A key that was given an earlier end from outside takes its holds with it.
    let by_key = key.lock().and_then(|_| key.deadline(now));
    let Parts { lock, state, .. } = key.parts();
    let by_holds = state.registry.wakes_at(key_ref, lock, now);
    let earliest: Option<Deadline> = by_holds.into_iter().chain(by_key).min();
    // The deadline itself still counts.
    let at_ms = earliest.map(|deadline| deadline.ms().saturating_add(1));
    state.registry.set_wake(key_ref, at_ms);
    state.is_due_changed = true;
}
