//! Serving: waiters are queued, granted and dismissed, by the rules of [`crate::wait`]. A key is
//! **served** in a command of the module, before and after its own work, and in the timer. Nowhere
//! else: a write in the middle of something else reaches replicas out of order, or not at all.

use std::rc::Rc;

use super::commit::{repair_ttl, Cause};
use super::count::Count;
use super::ending::{end_unheard, tell, unheard};
use super::host::{ClientOf, ClientOfServer, Found, Key, Name, Parts, Server, WrongType};
use super::linger;
use super::machine::{Machine, Registry};
use super::message::{Message, Outcome};
use super::once;
use crate::command::acquire::{Acquire, Wait};
use crate::command::Error;
use crate::lock::{Deadline, Now, Refusal};
use crate::wait::{
    At, By, Comer, Entered, Granted, KeyRef, Keys, Linger, Listener, NewRequest, Offer, Step, Terms,
};

/// How a request that was refused goes on.
pub(super) enum Stay {
    /// Its client is blocked: the reply comes when the wait ends.
    Blocked,
    /// It is queued: the end of the wait is published.
    Queued,
    /// It does not wait.
    No,
}

/// Lets a refused request wait, or lets its token keep a place. `key_ref` is given when others wait
/// for the key already.
pub(super) fn enter<K: Key>(
    key: &mut K,
    key_ref: Option<KeyRef>,
    acquire: &Acquire<'_>,
    refusal: Refusal,
    linger: Option<Linger>,
    now: Now,
) -> Result<Stay, Error> {
    if !acquire.may_stay() && key_ref.is_none() {
        return Ok(Stay::No); // The usual case of a request that does not wait.
    }
    let (server, name, machine) = (key.server(), key.name(), key.parts().machine);
    let keys = Keys::One(key_ref.unwrap_or_else(|| {
        let registry = &machine.registry;
        registry.new_key_ref(server.selected_db(), name.bytes())
    }));
    let (stay, entered) = take_place(server, machine, &keys, acquire, refusal, linger)?;
    match entered {
        // A new place changes nothing for the others. The key is watched for it if it is the first.
        Entered::Waits(At::NewHead) => watch(key, keys.first(), now),
        // Others matter now, or other instants.
        entered if entered.must_serve() => drop(serve_changed(key, keys.first(), now)),
        _ => {}
    }
    Ok(stay)
}

/// Takes a refused request for one key or several to its place, if it waits or leaves one. The
/// caller serves the keys.
pub(super) fn take_place<S: Server>(
    server: S,
    machine: &mut Machine<S::Types>,
    keys: &Keys,
    acquire: &Acquire<'_>,
    refusal: Refusal,
    linger: Option<Linger>,
) -> Result<(Stay, Entered), Error> {
    let wait = wait_of(server, acquire);
    // A replica that takes writes of its own grants nothing later, and blocks nobody.
    if !matches!(wait, Some(Wait::Block(_))) && !server.is_primary() {
        return Ok((Stay::No, Entered::No));
    }
    let cancelled = machine.registry.end_cancelled(keys, acquire.ask().token);
    for removed in cancelled {
        tell(server, machine, removed, Some(Error::Cancelled));
    }
    let user = admit(server, &machine.registry, keys, acquire, wait)?;
    let (listener, stay) = listen(server, wait);
    let (ask, now_us) = (acquire.ask(), server.monotonic_us());
    let timeout_ms = wait
        .filter(|_| listener.is_some())
        .map(Wait::timeout_ms)
        .filter(|ms| *ms > 0);
    let entered = machine.registry.enter(
        keys,
        NewRequest {
            token: ask.token,
            mode: keys.several().map_or(ask.mode, |all| all.first().mode),
            ttl: ask.ttl,
            listener,
            times_out_at_us: timeout_ms.map(|ms| now_us.saturating_add(ms.saturating_mul(1_000))),
            keep_ms: acquire.keep_ms(),
            is_server_generated: acquire.is_made(),
            linger,
            result: acquire.result().map(|asked| asked.name),
            user: user.as_deref(),
            refusal,
            now_us,
        },
    );
    machine.is_due_changed = true;
    if entered.is_resumed() {
        server.count(Count::Resumed);
    }
    Ok((stay, entered))
}

/// Checks whether there is room for a request, if it waits or leaves a place. Answers the user
/// against whose share it counts.
fn admit<S: Server>(
    server: S,
    registry: &Registry<S::Types>,
    keys: &Keys,
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
        keys,
        by,
        result: acquire.result().map(|asked| asked.name),
        user: user.as_deref(),
    };
    registry.admit(&comer, &limits).map_err(Error::QueueFull)?;
    Ok(user)
}

/// How a request waits here. Asked only where it cannot be granted, because it is slow: inside
/// MULTI, scripts and the like nobody may block.
fn wait_of<'a, S: Server>(server: S, acquire: &Acquire<'a>) -> Option<Wait<'a>> {
    let may = |wait: &Wait<'_>| matches!(wait, Wait::Notify(..)) || server.may_block();
    acquire.wait().filter(may)
}

/// Blocks the client of the running command, or names its channel.
fn listen<S: Server>(
    server: S,
    wait: Option<Wait<'_>>,
) -> (Option<Listener<ClientOfServer<S>>>, Stay) {
    match wait {
        None => (None, Stay::No),
        Some(Wait::Notify(_, channel)) => (Some(Listener::channel(channel)), Stay::Queued),
        Some(Wait::Block(_)) => {
            let client = server.block();
            let stay = client.map_or(Stay::No, |_| Stay::Blocked);
            (client.map(Listener::Client), stay)
        }
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
    let is_open = !machine.guard.is_closed() && !machine.guard.has_slots();
    let registry = &machine.registry;
    if is_open && !registry.may_be_due(key_ref, now) && !registry.waits_for_result(key_ref) {
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

/// How many waiters of a key are granted or refused in one go.
const MOST_STEPS: u32 = 1_000;

/// The time by then, and whether the key has changed by it, or was marked as changed.
fn serve_all<K: Key>(key: &mut K, key_ref: &KeyRef, mut now: Now) -> (Now, bool) {
    if key.parts().machine.has_overdue {
        key.parts().machine.registry.mark(key_ref.db, &key_ref.name);
        return (now, false);
    }
    let Ok(answered) = once::answer(key, key_ref) else {
        key.parts().machine.registry.mark(key_ref.db, &key_ref.name);
        return (now, true);
    };
    let mut has_changed = answered.is_any;
    let mut absent: Option<Rc<[u8]>> = None;
    // The server cannot be asked while the key is open.
    let must_ask = key.server().is_cluster();
    let mut asked: Option<Rc<[u8]>> = None;
    let mut steps_left = MOST_STEPS;
    while let Some(step) = next_step(key, key_ref, absent.as_deref(), now, has_changed) {
        has_changed = true;
        steps_left = steps_left.saturating_sub(1);
        match step {
            Step::Granted(granted) => {
                now = granted.grant.at;
                if !hand_over(key, granted) {
                    steps_left = 0;
                }
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
            Step::Unheard(one) => end_unheard(key.server(), key.parts().machine, &one),
            Step::Asks(name) => match key.result(&name, false) {
                Ok(Found::Nothing | Found::OtherType) => absent = Some(name),
                // It is answered in the next turn.
                Ok(Found::Value(..) | Found::Elsewhere) => steps_left = 0,
                Err(WrongType) => {
                    key.parts().machine.registry.mark(key_ref.db, &key_ref.name);
                    return (now, true);
                }
            },
            Step::Refused(removed, refusal) => {
                let error = Some(Error::of_refusal(refusal));
                tell(key.server(), key.parts().machine, removed, error);
            }
        }
        if steps_left == 0 {
            // A million readers may be next, or something has changed the key. The timer goes on at
            // once.
            key.parts().machine.registry.mark(key_ref.db, &key_ref.name);
            return (now, true);
        }
    }
    // A mark may say that the key has lost its ttl, and the timer will not look at it now.
    if key.parts().machine.registry.marks.remove(key_ref) {
        repair_ttl(key, now);
        has_changed = true;
    }
    if answered.is_rest {
        key.parts().machine.registry.mark(key_ref.db, &key_ref.name);
    }
    (now, has_changed)
}

/// Whether the server has become a replica, and the timer has not sent all away yet.
#[inline]
pub(super) fn is_demoted<S: Server>(server: S, machine: &Machine<S::Types>) -> bool {
    machine.was_demoted && !server.is_primary()
}

/// Takes out the waiter that is next, granted or refused.
fn next_step<K: Key>(
    key: &mut K,
    key_ref: &KeyRef,
    absent: Option<&[u8]>,
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
    // A client may have gone since, or the server may have become a replica.
    shared.drain(server, machine);
    if is_demoted(server, machine) {
        return None; // The timer sends all away.
    }
    if machine.guard.holds_back_for(&key_ref.name, lock.is_none()) {
        machine.guard.refused(&key_ref.name);
        return None;
    }
    let terms = Terms {
        longest_ms: machine.guard.longest_ttl_ms(),
        absent,
    };
    let registry = &mut machine.registry;
    let step = shared
        .fences
        .with(|fences| registry.grant_next(key_ref, lock, &terms, now, granted_at, fences));
    if let Some(Step::Refused(_, Refusal::Deadlock)) = &step {
        server.count(Count::Deadlocks);
    }
    step
}

/// Carries out a grant, and tells the client that waits for it. A channel has heard of it before.
/// False if it has failed.
fn hand_over<K: Key>(key: &mut K, granted: Granted<ClientOf<K>>) -> bool {
    let (grant, text) = (granted.grant, granted.removed.token.text());
    let cause = Cause::HandedOver {
        had_it: grant.had_it,
    };
    let linger = (granted.removed.linger, granted.is_for_channel());
    let is_done = linger::give(key, text.as_token(), grant, linger, cause);
    if is_done {
        key.shared().deliveries.begin(&granted);
        tell_granted(key.server(), key.parts().machine, granted);
    } else {
        tell_failed(key.server(), granted);
    }
    is_done
}

/// Tells the client of a grant that something has undone meanwhile to ask again. A channel has
/// heard of a hold that has ended by force.
#[cold]
pub(super) fn tell_failed<S: Server>(server: S, granted: Granted<ClientOfServer<S>>) {
    if let Some((client, _)) = granted.into_delivery() {
        server.unblock(client, Outcome::Error(Error::Changed));
    }
}

/// Counts a request that was granted after it has waited, and tells its client. A channel has heard
/// of it before.
pub(super) fn tell_granted<S: Server>(
    server: S,
    machine: &mut Machine<S::Types>,
    granted: Granted<ClientOfServer<S>>,
) {
    let now_us = server.monotonic_us();
    server.count(Count::HandedOver);
    server.waited(now_us.saturating_sub(granted.removed.since_us));
    machine.wait_ended(&granted.removed, now_us);
    let is_server_generated = granted.removed.is_server_generated;
    if let Some((client, grant)) = granted.into_delivery() {
        server.unblock(client, Outcome::Granted(grant, is_server_generated));
    }
}

/// Publishes a grant, and makes it if somebody has received the message. Answers when that was.
fn offer_to_channel<K: Key>(key: &mut K, offer: Offer) -> Now {
    let (server, at) = (key.server(), offer.grant.at);
    if publish_offer(server, key.parts().machine, &offer) {
        if let Some(granted) = key.parts().machine.registry.heard(offer) {
            // The owner knows of the hold, whatever becomes of a client that waited for it, too.
            key.shared().deliveries.hear(granted.grant.hold.fence);
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
    let message = Message::Granted(offer.grant.hold.fence);
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
    let by_key = key.lock().and_then(|_| key.deadline());
    let Parts { lock, machine, .. } = key.parts();
    let by_holds = machine.registry.wakes_at(key_ref, lock, now);
    let earliest: Option<Deadline> = by_holds.into_iter().chain(by_key).min();
    // The deadline itself still counts.
    let at_ms = earliest.map(|deadline| deadline.ms().saturating_add(1));
    machine.registry.set_wake(key_ref, at_ms);
    machine.is_due_changed = true;
}
