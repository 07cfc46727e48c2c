//! Serving: waiters are queued, granted and dismissed. The rules of waiting itself are those of
//! [`crate::wait`]; this is the server's side of it.
//!
//! # The flow
//!
//! A request that cannot be granted may take a place in the queue ([`enter`]). A blocked client
//! listens for it (BLOCK), or a channel (NOTIFY), or nobody for a while (KEEP). Whenever a hold
//! ends later, its key is **served** ([`serve`]): as long as a waiter is next, its request is
//! granted as if it came now, the effect is carried out and replicated, and the client is
//! unblocked. No client wakes up to race. A grant to a channel is published before it is made, and
//! made only if somebody has received the message. In a cluster it is published only if somebody at
//! this node will receive it.
//!
//! # Rules
//!
//! 1. **Where a grant may happen**: in a command of the module, before and after its own work
//!    ([`super::command`]), and in the module's timer ([`super::tick`]). Nowhere else: a method of
//!    the type, a server event or a callback for a lost client runs in the middle of something
//!    else. A write there reaches replicas out of order, or not at all. Callbacks leave a note and
//!    set the timer to 0 ms (`server/entry/callbacks.rs`).
//! 2. **What the timer may do.** It runs on replicas and while clients are paused. On a replica it
//!    grants nothing. While the server is paused it writes nothing, because a write then aborts the
//!    server; it retries shortly, and requests still time out. The same holds while the server
//!    refuses the writes of clients. In a cluster it first asks whether the key is still served
//!    here ([`Host::serves`]); if not, it tells the waiters to try again.
//! 3. **Each blocked client is unblocked once**, by the code that takes the request out of the
//!    registry. A client that is not in the registry was unblocked already.
//! 4. **A grant that nobody hears of is revoked** ([`crate::wait::delivery`]). The server has then
//!    freed the outcome without a call for the reply ([`Server::unblock`]), or freed the client
//!    before it has sent the reply (`server/clients/delivery.rs`). A client that may have read the
//!    reply keeps the hold.

use std::rc::Rc;

use super::commit::{Cause, Commit};
use super::count::Count;
use super::ending::{dismiss, unheard};
use super::host::{ClientOf, ClientOfServer, Key, Name, Parts, Server, WrongType};
use super::linger;
use super::machine::{Machine, Registry};
use super::message::{Message, Outcome};
use crate::command::acquire::{Acquire, Wait};
use crate::command::Error;
use crate::lock::{Deadline, Now, Refusal};
use crate::wait::{
    self, At, By, Comer, Granted, KeyRef, Linger, Listener, NewRequest, Offer, Several, Step,
};

/// What has become of a request that was refused.
pub(super) enum Entered {
    /// Its client is blocked: the reply comes when the wait ends.
    Blocked,
    /// It is queued: the end of the wait is published.
    Queued,
    /// It does not wait.
    No,
}

/// Lets a refused request wait, or lets its token keep a place. `key_ref` is given when others wait
/// for the key already.
///
/// # Errors
/// When there are as many places as may be.
pub(super) fn enter<K: Key>(
    key: &mut K,
    key_ref: Option<KeyRef>,
    acquire: &Acquire<'_>,
    refusal: Refusal,
    linger: Option<Linger>,
    now: Now,
) -> Result<Entered, Error> {
    if acquire.wait().is_none() && acquire.keep_ms().is_none() && key_ref.is_none() {
        return Ok(Entered::No); // The usual case of a request that does not wait.
    }
    let server = key.server();
    let wait = wait_of(server, acquire);
    // A replica that takes writes of its own grants nothing later, and blocks nobody.
    if !matches!(wait, Some(Wait::Block(_))) && !server.is_primary() {
        return Ok(Entered::No);
    }
    let key_ref = key_ref.unwrap_or_else(|| KeyRef::new(server.selected_db(), key.name().bytes()));
    let Parts { machine, .. } = key.parts();
    let user = admit(server, &machine.registry, &key_ref, None, acquire, wait)?;
    let (listener, entered) = listen(server, wait);
    let request = NewRequest {
        user: user.as_deref(),
        ..request_of(server, acquire, listener, refusal, linger)
    };
    take_place(key, &key_ref, request, now);
    Ok(entered)
}

/// Checks whether there is room for a request, if it waits or leaves a place. Answers the user
/// against whose share it counts.
///
/// # Errors
/// When as much waits as may wait.
pub(super) fn admit<S: Server>(
    server: S,
    registry: &Registry<S::Types>,
    key_ref: &KeyRef,
    several: Option<&Several>,
    acquire: &Acquire<'_>,
    wait: Option<Wait<'_>>,
) -> Result<Option<Box<[u8]>>, Error> {
    let by = match wait {
        Some(Wait::Block(_)) => By::Client,
        Some(Wait::Notify(_, channel)) => By::Channel(channel),
        None if acquire.keep_ms().is_some() => By::Nobody,
        None => return Ok(None),
    };
    let (limits, user) = server.limits(registry.counts().waiting());
    let comer = Comer {
        token: acquire.ask().token,
        several,
        by,
        user: user.as_deref(),
    };
    let admitted = registry.admit(key_ref, &comer, &limits);
    admitted.map_err(Error::QueueFull)?;
    Ok(user)
}

/// The request as the registry wants it.
pub(super) fn request_of<'a, S: Server>(
    server: S,
    acquire: &'a Acquire<'_>,
    listener: Option<Listener<ClientOfServer<S>>>,
    refusal: Refusal,
    linger: Option<Linger>,
) -> NewRequest<'a, ClientOfServer<S>> {
    let now_us = server.monotonic_us();
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
        user: None,
        refusal,
        now_us,
    }
}

/// How a request waits here. Asked only where it cannot be granted, because it is slow: inside
/// MULTI, scripts and the like nobody may block.
pub(super) fn wait_of<'a, S: Server>(server: S, acquire: &Acquire<'a>) -> Option<Wait<'a>> {
    let may = |wait: &Wait<'_>| matches!(wait, Wait::Notify(..)) || server.may_block();
    acquire.wait().filter(may)
}

/// Blocks the client of the running command, or names its channel.
pub(super) fn listen<S: Server>(
    server: S,
    wait: Option<Wait<'_>>,
) -> (Option<Listener<ClientOfServer<S>>>, Entered) {
    match wait {
        None => (None, Entered::No),
        Some(Wait::Notify(_, channel)) => (Some(Listener::channel(channel)), Entered::Queued),
        Some(Wait::Block(_)) => {
            let client = server.block();
            let entered = client.map_or(Entered::No, |_| Entered::Blocked);
            (client.map(Listener::Client), entered)
        }
    }
}

fn take_place<K: Key>(
    key: &mut K,
    key_ref: &KeyRef,
    request: NewRequest<'_, ClientOf<K>>,
    now: Now,
) {
    let server = key.server();
    let machine = key.parts().machine;
    let entered = machine.registry.enter(key_ref, request);
    machine.is_due_changed = true;
    if entered.is_resumed() {
        server.count(Count::Resumed);
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

/// Grants each waiter that is next, until none is: before a command does its own work, at the time
/// that this returns. Mostly nothing has happened since the key was served last.
pub(super) fn serve<K: Key>(key: &mut K, key_ref: &KeyRef, now: Now) -> Now {
    let server = key.server();
    let Parts {
        machine, shared, ..
    } = key.parts();
    shared.drain(server, machine);
    if !machine.guard.is_on() && !machine.registry.may_be_due(key_ref, now) {
        return now;
    }
    let (now, has_changed) = serve_all(key, key_ref, now);
    if has_changed {
        watch(key, key_ref, now);
    }
    now
}

/// The same where the key has changed, or may have.
pub(super) fn serve_changed<K: Key>(key: &mut K, key_ref: &KeyRef, now: Now) -> Now {
    let (now, _) = serve_all(key, key_ref, now);
    watch(key, key_ref, now);
    now
}

/// The time by then, and whether the key has changed by it, or was marked as changed.
fn serve_all<K: Key>(key: &mut K, key_ref: &KeyRef, mut now: Now) -> (Now, bool) {
    let mut has_changed = false;
    // The server cannot be asked while the key is open.
    let must_ask = key.server().is_cluster();
    let mut asked: Option<Rc<[u8]>> = None;
    while let Some(step) = next_step(key, key_ref, now, has_changed) {
        has_changed = true;
        match step {
            Step::Granted(granted) => {
                now = granted.at;
                hand_over(key, granted);
            }
            Step::Offered(offer) if must_ask && asked.as_ref() != Some(&offer.channel) => {
                match key.may_be_heard(&offer.channel) {
                    // What the key has now decides again.
                    Ok(true) => asked = Some(offer.channel),
                    Ok(false) => unheard(key.server(), key.parts().machine, &offer.channel),
                    Err(WrongType) => {
                        key.parts().machine.registry.mark(key_ref.db, &key_ref.name);
                        return (now, true);
                    }
                }
            }
            Step::Offered(offer) => now = offer_to_channel(key, offer),
            Step::Refused(removed, refusal) => {
                let server = key.server();
                dismiss(
                    server,
                    key.parts().machine,
                    removed,
                    Error::of_refusal(refusal),
                );
            }
        }
    }
    // A mark may say that the key has lost its ttl, and the timer will not look at it now.
    if key.parts().machine.registry.unmark(key_ref) {
        key.repair_ttl(now);
        has_changed = true;
    }
    (now, has_changed)
}

/// Takes out the waiter that is next, granted or refused.
fn next_step<K: Key>(
    key: &mut K,
    key_ref: &KeyRef,
    now: Now,
    has_gone_on: bool,
) -> Option<Step<ClientOf<K>>> {
    // A lease counts from its grant, and there may be thousands in one step.
    let server = key.server();
    let granted_at = |now| server.meanwhile(now, has_gone_on);
    let Parts {
        lock,
        machine,
        shared,
        ..
    } = key.parts();
    // A client may have gone since.
    shared.drain(server, machine);
    if machine.guard.holds_back_for(&key_ref.name) {
        machine.guard.refused(&key_ref.name);
        return None;
    }
    let registry = &mut machine.registry;
    let step = shared
        .fences
        .with(|fences| registry.grant_next(key_ref, lock, now, granted_at, fences));
    if let Some(Step::Refused(_, Refusal::Deadlock)) = &step {
        server.count(Count::Deadlocks);
    }
    step
}

/// Carries out a grant, and tells the client that waits for it. A channel has heard of it before.
fn hand_over<K: Key>(key: &mut K, mut granted: Granted<ClientOf<K>>) {
    let server = key.server();
    let linger = granted.removed.linger;
    linger::mark(&mut granted.hold, linger, &key.parts().machine.guard);
    let now_us = server.monotonic_us();
    let waited_us = now_us.saturating_sub(granted.removed.since_us);
    key.parts().machine.wait_ended(&granted.removed, now_us);
    let cause = Cause::HandedOver {
        had_it: granted.had_it,
        waited_us,
    };
    key.commit(&granted.effect(), cause, granted.at);
    if let Some(linger) = linger {
        let token = granted.removed.token.as_token();
        linger::bind(key, token, granted.hold.fence, linger);
    }
    if let (Some(Listener::Client(client)), Some(grant)) =
        (&granted.removed.listener, granted.grant())
    {
        let outcome = Outcome::Granted(grant, granted.removed.is_server_generated);
        server.unblock(*client, outcome);
    }
}

/// Publishes a grant, and makes it if somebody has received the message. Answers when that was.
fn offer_to_channel<K: Key>(key: &mut K, offer: Offer) -> Now {
    let (server, at) = (key.server(), offer.at);
    if publish_offer(server, key.parts().machine, &offer) {
        if let Some(granted) = key.parts().machine.registry.heard(offer) {
            hand_over(key, granted);
        }
    }
    at
}

/// Publishes a grant before it is made. Answers whether somebody has received it.
pub(super) fn publish_offer<S: Server>(
    server: S,
    machine: &mut Machine<S::Types>,
    offer: &Offer,
) -> bool {
    let message = Message::Granted(offer.fence());
    let token = offer.token.as_token();
    let is_heard = server.publish(&offer.channel, message, &offer.key_ref.name, token);
    if !is_heard {
        unheard(server, machine, &offer.channel);
    }
    is_heard
}

/// Has the key looked at when the passing of time alone may make a waiter next.
pub(super) fn watch<K: Key>(key: &mut K, key_ref: &KeyRef, now: Now) {
    if !key.parts().machine.registry.is_waited_for(key_ref) {
        return; // The last waiter has left, and nothing is due earlier.
    }
    // A key that was given an earlier end from outside takes its holds with it.
    let by_key = key.lock().and_then(|_| key.deadline(now));
    let Parts { lock, machine, .. } = key.parts();
    let by_holds = machine.registry.wakes_at(key_ref, lock, now);
    let earliest: Option<Deadline> = by_holds.into_iter().chain(by_key).min();
    // The deadline itself still counts.
    let at_ms = earliest.map(|deadline| deadline.ms().saturating_add(1));
    machine.registry.set_wake(key_ref, at_ms);
    machine.is_due_changed = true;
}
