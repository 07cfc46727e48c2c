//! LOCK.ACQUIRE and its kind: the request is decided, and waits if it has to.

use super::arrive::{self, Arrival, Stay};
use super::command::{change, Decided, Done, Scene, Taker};
use super::commit::Cause;
use super::count::Count;
use super::host::{ClientOfServer, Host, Key, Name, Purpose, Server};
use super::once::Look;
use super::{deadlock, guarding, linger};
use crate::command::acquire::{Acquire, Asked};
use crate::command::{Error, Reply};
use crate::lock::{Lock, Now, Refusal, Token, Waiting};

/// LOCK.ACQUIRE, RWLOCK.WLOCK and RWLOCK.RLOCK.
///
/// # Errors
/// What the client gets in place of a hold.
pub fn take_hold<H: Host>(host: &mut H, acquire: &Acquire<'_>) -> Result<(), Error> {
    match acquire.result() {
        None => take(host, acquire, None),
        Some(asked) => take_or_look(host, acquire, asked),
    }
}

/// LOCK.ONCE.
#[cold]
fn take_or_look<H: Host>(
    host: &mut H,
    acquire: &Acquire<'_>,
    asked: Asked<'_>,
) -> Result<(), Error> {
    take(host, acquire, Some(&Look::new(asked)))
}

#[inline(always)] // A plain acquire pays for no look.
fn take<'r, H: Host>(
    host: &mut H,
    acquire: &'r Acquire<'r>,
    look: Option<&'r Look<'r>>,
) -> Result<(), Error> {
    let server = host.server();
    let linger = linger::of_request(server, acquire)?;
    let token = acquire.ask().token;
    let taker = Taker {
        token,
        linger,
        look,
    };
    let (arrival, now) = match change(host, Some(taker), false, |scene| {
        decide_acquire(acquire, look, scene)
    })? {
        Done::Reply(reply) => {
            match reply {
                Reply::Error(Error::Deadlock) => server.count(Count::Deadlocks),
                Reply::Value(_) => server.count(Count::ResultsFound),
                Reply::Pair(..) if look.is_some() => server.count(Count::ResultsFound),
                _ => {}
            }
            server.reply(reply);
            return Ok(());
        }
        Done::Refused(mut key, key_ref, refusal, now) => {
            guarding::note_refused(&mut key, false);
            let arrival = match arrive::enter(&mut key, key_ref, acquire, refusal, linger) {
                Ok(Some(arrival)) => arrival,
                Ok(None) => return answer_not_granted(server, Ok(Stay::No)),
                Err(error) => return answer_not_granted(server, Err(error)),
            };
            if !deadlock::may_close(&mut key, &arrival, now) {
                arrive::arrived(&mut key, arrival.keys.first(), arrival.entered, now);
                return answer_not_granted(server, Ok(arrival.stay));
            }
            (arrival, now)
        }
    };
    // The search opens other keys, so this one is closed by now.
    stay_or_leave(host, token, arrival, now)
}

/// Goes on with a request that has arrived, unless its wait has closed a cycle.
#[cold]
fn stay_or_leave<H: Host>(
    host: &mut H,
    token: Token<'_>,
    mut arrival: Arrival<H::Server>,
    now: Now,
) -> Result<(), Error> {
    if deadlock::refuse(host, token, &mut arrival) {
        return Ok(());
    }
    let key_ref = arrival.keys.first();
    let key = host.open_key(Purpose::Write);
    let arrived = key.map(|mut key| arrive::arrived(&mut key, key_ref, arrival.entered, now));
    if arrived.is_err() {
        // The timer tells what is wrong with it.
        host.machine().registry.mark(key_ref);
    }
    answer_not_granted(host.server(), Ok(arrival.stay))
}

#[inline(always)] // As its caller.
fn decide_acquire<'r, K: Key>(
    acquire: &'r Acquire<'r>,
    look: Option<&'r Look<'r>>,
    scene: Scene<'_, '_, K>,
) -> Decided<'r> {
    let Some((value, is_early)) = look.and_then(Look::found) else {
        return decide_hold(acquire, scene);
    };
    if is_early {
        if let Decided::Change(effect, cause, Reply::Fence(fence)) = decide_hold(acquire, scene) {
            return Decided::Change(effect, cause, Reply::Pair(value, fence));
        }
    }
    Decided::Same(Reply::Value(value))
}

#[inline]
fn decide_hold<'r, K: Key>(acquire: &'r Acquire<'r>, scene: Scene<'_, '_, K>) -> Decided<'r> {
    let ask = acquire.ask();
    if scene.waits_for_others_too(ask.token) {
        return Decided::Same(Reply::Error(Error::Partial));
    }
    let of = (ask.token, ask.mode);
    if !scene
        .guard
        .may_take(|| scene.name.bytes(), scene.lock, of, scene.now)
    {
        return Decided::Wait(Refusal::Busy);
    }
    let waiting = scene
        .queue
        .map_or_else(Waiting::default, |(key_ref, registry)| {
            registry.ahead_of(key_ref, (ask.token, ask.mode), scene.lock, scene.now)
        });
    match Lock::acquire(scene.lock, ask, scene.now, waiting, scene.fences) {
        Ok(grant) => {
            let had_it = grant.had_it;
            let reply = acquire.reply(grant.hold.fence);
            Decided::Change(grant.effect(ask.token), Cause::Acquired { had_it }, reply)
        }
        Err(refusal @ (Refusal::Busy | Refusal::BusyUpgrade)) => Decided::Wait(refusal),
        Err(refusal) => Decided::Same(Reply::Error(Error::of_refusal(refusal))),
    }
}

/// Answers an acquire that was not granted at once, and counts it: its client waits, or gets null
/// or an error.
pub(super) fn answer_not_granted<S: Server>(
    server: S,
    stay: Result<Stay<ClientOfServer<S>>, Error>,
) -> Result<(), Error> {
    match &stay {
        Ok(Stay::Blocked(_) | Stay::Queued) => server.count(Count::Waited),
        Ok(Stay::No) => server.count(Count::Refused),
        Err(Error::QueueFull(_)) => server.count(Count::QueueFull),
        Err(_) => {}
    }
    match stay? {
        Stay::Blocked(_) => {} // The reply comes when the wait ends.
        Stay::Queued => server.reply(Reply::Queued),
        Stay::No => server.reply(Reply::Null),
    }
    Ok(())
}
