//! Serving: waiters are queued, granted and dismissed, by [`crate::rules`]. A key is
//! **served** in a command of the module, before and after its own work, and in the timer. Nowhere
//! else: a write in the middle of something else reaches replicas out of order, or not at all.

use std::rc::Rc;

use super::commit::{repair_ttl, Cause};
use super::count::Count;
use super::ending::{end_unheard, tell, unheard};
use super::host::{ClientOf, ClientOfServer, Found, Key, Parts, Server, WrongType};
use super::linger;
use super::machine::Machine;
use super::message::{Message, Outcome};
use super::once;
use crate::command::Error;
use crate::lock::{Deadline, Now, Refusal};
use crate::wait::{Granted, KeyRef, Offer, Step, Terms};

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
const MOST_STEPS: u32 = 300;

/// The time by then, and whether the key has changed by it, or was marked as changed.
fn serve_all<K: Key>(key: &mut K, key_ref: &KeyRef, mut now: Now) -> (Now, bool) {
    if key.parts().machine.has_overdue {
        key.parts().machine.registry.mark(key_ref);
        return (now, false);
    }
    let Ok(answered) = once::answer(key, key_ref) else {
        key.parts().machine.registry.mark(key_ref);
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
                        key.parts().machine.registry.mark(key_ref);
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
                    key.parts().machine.registry.mark(key_ref);
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
            key.parts().machine.registry.mark(key_ref);
            return (now, true);
        }
    }
    // A mark may say that the key has lost its ttl, and the timer will not look at it now.
    if key.parts().machine.registry.agenda.marks.remove(key_ref) {
        repair_ttl(key, now);
        has_changed = true;
    }
    if answered.is_rest {
        key.parts().machine.registry.mark(key_ref);
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
        is_first: !has_gone_on,
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
