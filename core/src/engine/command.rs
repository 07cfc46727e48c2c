//! Commands at work: the key is opened and served, the request decided, the decision carried out,
//! the key served again, the reply sent. All of it is one step of the server.

// Long because: the flow of a command is read in one piece.

use std::collections::BTreeSet;

use super::commit::{commit, drop_many_ended, repair_ttl, Cause};
use super::count::Count;
use super::guard::Guard;
use super::host::{Host, Key, Name, Parts, Purpose, Server, TypesOfKey};
use super::machine::{Machine, Registry, Removed};
use super::once::Look;
use super::serve;
use super::{ending, guarding, linger, overdue, several};
use crate::command::{Error, Reply};
use crate::lock::{Deadline, Effect, FenceClock, Lock, Now, Refusal, Token, Ttl};
use crate::wait::{KeyRef, Keys, Linger};

/// The word that is the key of a command with one key.
const KEY_AT: usize = 1;

/// What a decision is made on.
pub(super) struct Scene<'s, 'f, K: Key + 's> {
    pub(super) name: K::Name,
    pub(super) lock: Option<&'s Lock>,
    pub(super) now: Now,
    /// Who waits for the key, if anybody does.
    pub(super) queue: Option<(&'s KeyRef, &'s RegistryOf<K>)>,
    pub(super) fences: &'f mut FenceClock,
    pub(super) guard: &'s Guard,
    /// When the key ends by itself, if [`change`] was to ask for it.
    pub(super) key_end: Option<Deadline>,
}

type RegistryOf<K> = Registry<<<K as Key>::Server as Server>::Types>;

impl<K: Key> Scene<'_, '_, K> {
    /// Whether a token has a place for this key together with others.
    pub(super) fn waits_for_others_too(&self, token: Token<'_>) -> bool {
        self.queue.is_some_and(|(key_ref, registry)| {
            registry.has_several() && registry.waits_otherwise(&Keys::One(key_ref.clone()), token)
        })
    }
}

/// Whoever takes a hold.
#[derive(Clone, Copy)]
pub(super) struct Taker<'t> {
    pub(super) token: Token<'t>,
    /// What its hold is bound to.
    pub(super) linger: Option<Linger>,
    /// Its look at the result that it takes in place of a hold.
    pub(super) look: Option<&'t Look<'t>>,
}

/// What a command comes to on the lock as it stands.
pub(super) enum Decided<'r> {
    /// The lock changes.
    Change(Effect<'r>, Cause, Reply<'r>),
    /// Nothing changes.
    Same(Reply<'r>),
    /// The lock does not change. This token holds nothing and gives up its place.
    GiveUp(Token<'r>, Reply<'r>),
    /// Nothing changes now: the client may wait, if it said so.
    Wait(Refusal),
}

/// What is left to do after a decision.
pub(super) enum Done<'r, K> {
    /// The reply is to be sent.
    Reply(Reply<'r>),
    /// The request was refused. `KeyRef` is there when others wait for the key.
    Refused(K, Option<KeyRef>, Refusal, Now),
}

/// Opens the key, serves its waiters, decides, does what was decided, and serves again. `taker`
/// takes a hold with it, and then needs no place any more. `asks_end` says that the decision needs
/// the key's own end.
#[inline(always)] // Each command knows what it may decide.
pub(super) fn change<'k, 'r, H: Host>(
    host: &'k mut H,
    taker: Option<Taker<'_>>,
    asks_end: bool,
    decide: impl FnOnce(Scene<'_, '_, H::Key<'k>>) -> Decided<'r>,
) -> Result<Done<'r, H::Key<'k>>, Error> {
    let mut key = key_to_change(host)?;
    let (mut key_ref, now) = serve_waiters(&mut key, taker.is_some());
    if let Some(look) = taker.and_then(|taker| taker.look) {
        look.look(&mut key)?;
        key_ref = waited_key_ref(&mut key);
    }
    match decide_on(&mut key, key_ref.as_ref(), now, asks_end, decide) {
        Decided::Change(mut effect, cause, reply) => {
            if let Some(linger) = taker.and_then(|taker| taker.linger) {
                linger::mark_in(&mut effect, linger, &key.parts().machine.guard);
            }
            if matches!(cause, Cause::Renewed) && key.parts().machine.guard.marks_lingering() {
                linger::mark_renewed(&key, &mut effect);
            }
            let fence = effect.fence().or(match &cause {
                Cause::Released(hold) => Some(hold.fence),
                _ => None,
            });
            if !commit(&mut key, &effect, cause, now) {
                return Err(Error::Changed);
            }
            if let (Some(taker), Some(fence)) = (&taker, fence) {
                let linger = taker.linger.into_iter();
                linger.for_each(|linger| linger::bind(&key, taker.token, fence, linger, true));
            }
            if let Some(key_ref) = &key_ref {
                if let Some(taker) = taker {
                    key.parts().machine.registry.lock_granted(key_ref);
                    let since_us = resume(&mut key, key_ref, taker.token);
                    note_resumed(key.server(), since_us);
                }
                serve::serve_changed(&mut key, key_ref, now);
            }
            // Also the owner that ends its hold knows of it.
            let is_new = matches!(cause, Cause::Acquired { had_it: false });
            if let Some(fence) = fence.filter(|_| !is_new) {
                key.shared().deliveries.hear(fence);
            }
            Ok(Done::Reply(reply))
        }
        Decided::Same(reply) => {
            repair_ttl(&mut key, now);
            // A request that can never be granted takes its token's place along.
            if let (Some(key_ref), Some(taker)) = (&key_ref, taker) {
                if resume(&mut key, key_ref, taker.token).is_some() {
                    key.server().count(Count::Resumed);
                }
                serve::serve_changed(&mut key, key_ref, now);
            }
            Ok(Done::Reply(reply))
        }
        Decided::GiveUp(token, reply) => {
            repair_ttl(&mut key, now);
            if let Some(key_ref) = &key_ref {
                give_up_place(&mut key, key_ref, token, now);
            }
            Ok(Done::Reply(reply))
        }
        Decided::Wait(refusal) => {
            drop_many_ended(&mut key, now);
            Ok(Done::Refused(key, key_ref, refusal, now))
        }
    }
}

/// Opens the key for a command that may change it. [`serve_waiters`] comes next.
#[inline]
pub(super) fn key_to_change<H: Host>(host: &mut H) -> Result<H::Key<'_>, Error> {
    overdue::end_first(host);
    check_that_it_is_here(host, KEY_AT)?;
    if host.machine().registry.has_several() {
        serve_first(host)?;
    }
    host.open_key(Purpose::Write)
}

/// Serves the key, and then grants the places for this key and others whose turn has come.
#[cold]
fn serve_first<H: Host>(host: &mut H) -> Result<(), Error> {
    let mut key = host.open_key(Purpose::Write)?;
    serve_waiters(&mut key, false);
    drop(key);
    several::finish(host);
    Ok(())
}

/// Refuses a key that is absent because it has gone to another node of the cluster: it may be held
/// there. The server itself sends clients there, but not in the running transaction. `at` is its
/// word.
#[inline]
pub(super) fn check_that_it_is_here<H: Host>(host: &mut H, at: usize) -> Result<(), Error> {
    let may_lack_keys = host.shared().inbox.has_lock_left();
    if may_lack_keys
        && host.open_word(at, Purpose::Write)?.lock().is_none()
        && !host.serves_word(at)
    {
        return Err(Error::TryAgain);
    }
    Ok(())
}

/// The reference to a key that is waited for; `None`, fast, when nobody waits for it.
#[inline]
pub(super) fn waited_key_ref<K: Key>(key: &mut K) -> Option<KeyRef> {
    let (server, name) = (key.server(), key.name());
    let registry = &key.parts().machine.registry;
    if registry.is_empty() {
        return None;
    }
    registry.key_ref(server.selected_db(), name.bytes())
}

/// Serves those who wait for a key. Returns the key if somebody waits for it, and the time of the
/// last grant. `may_grant` says whether the command itself may grant something.
#[inline(always)] // Nobody waits for most keys.
pub(super) fn serve_waiters<K: Key>(key: &mut K, may_grant: bool) -> (Option<KeyRef>, Now) {
    let server = key.server();
    let mut now = server.command_time();
    let key_ref = waited_key_ref(key);
    if key_ref.is_some() {
        // Who is granted later in this step gets a later time.
        guarding::look_if_on(server, key.parts().machine, || server.now());
    } else if may_grant {
        guarding::look_if_on(server, key.parts().machine, || now);
    }
    let is_lost = key.shared().bindings.has_lost();
    let has_changed = is_lost && linger::bring_forward(key, now);
    if let Some(key_ref) = &key_ref {
        now = match has_changed {
            true => serve::serve_changed(key, key_ref, now),
            false => serve::serve(key, key_ref, now),
        };
    }
    (key_ref, now)
}

#[inline(always)]
fn decide_on<'r, K: Key>(
    key: &mut K,
    key_ref: Option<&KeyRef>,
    now: Now,
    asks_end: bool,
    decide: impl FnOnce(Scene<'_, '_, K>) -> Decided<'r>,
) -> Decided<'r> {
    let name = key.name();
    let key_end = asks_end.then(|| key.deadline()).flatten();
    let Parts {
        lock,
        machine,
        shared,
    } = key.parts();
    let queue = key_ref.map(|key_ref| (key_ref, &machine.registry));
    shared.fences.with(|fences| {
        decide(Scene {
            name,
            lock,
            now,
            queue,
            fences,
            guard: &machine.guard,
            key_end,
        })
    })
}

/// Ends the place without a listener of a token that has just been granted its hold, or never can
/// be. Answers since when it was there.
fn resume<K: Key>(key: &mut K, key_ref: &KeyRef, token: Token<'_>) -> Option<u64> {
    let keys = Keys::One(key_ref.clone());
    key.parts().machine.registry.resume(&keys, token)
}

/// Counts a place that its token has taken up again with a grant, if it has, and how long it has
/// waited.
pub(super) fn note_resumed<S: Server>(server: S, since_us: Option<u64>) {
    if let Some(since_us) = since_us {
        server.count(Count::Resumed);
        server.waited(server.monotonic_us().saturating_sub(since_us));
    }
}

/// LOCK.RELEASE.
///
/// # Errors
/// If the key has a value of another type, or has moved.
pub fn release<H: Host>(host: &mut H, token: Token<'_>, at_least_ms: u64) -> Result<(), Error> {
    let server = host.server();
    let outcome = change(host, None, at_least_ms > 0, |scene| {
        let now = scene.now;
        let ended = scene.lock.and_then(|lock| match at_least_ms {
            0 => lock
                .release(token, now)
                .map(|(effect, hold)| (effect, Some(hold))),
            ms => lock.release_at_least(token, ms, scene.key_end, now),
        });
        match ended {
            Some((effect, hold)) => {
                let cause = hold.map_or(Cause::ReleasedLater, Cause::Released);
                Decided::Change(effect, cause, Reply::Done(true))
            }
            None => Decided::GiveUp(token, Reply::Done(false)),
        }
    })?;
    if let Done::Reply(reply) = outcome {
        if reply == Reply::Done(false) {
            server.count(Count::NotOwner);
        }
        server.reply(reply);
    }
    Ok(())
}

/// Ends the place of a token that holds nothing, if it has one.
fn give_up_place<K: Key>(key: &mut K, key_ref: &KeyRef, token: Token<'_>, now: Now) {
    let server = key.server();
    let removed = key.parts().machine.registry.give_up(key_ref, token);
    end_waits(key, key_ref, removed, now, |_, removed| {
        ending::give_up(server, removed);
    });
}

/// Tells those whose places have ended, and serves the keys that they waited for.
pub(super) fn end_waits<K: Key>(
    key: &mut K,
    key_ref: &KeyRef,
    removed: Vec<Removed<TypesOfKey<K>>>,
    now: Now,
    tell: impl Fn(&mut Machine<TypesOfKey<K>>, Removed<TypesOfKey<K>>),
) {
    if removed.is_empty() {
        return;
    }
    let machine = key.parts().machine;
    // A place for several keys has ended as a whole.
    let keys = removed.iter().flat_map(|one| one.keys.iter());
    let others: BTreeSet<_> = keys.filter(|other| *other != key_ref).collect();
    machine.registry.serve_later(others.into_iter());
    for removed in removed {
        tell(machine, removed);
    }
    serve::serve_changed(key, key_ref, now);
}

/// LOCK.RENEW.
///
/// # Errors
/// If the key has a value of another type, or has moved.
pub fn renew<H: Host>(host: &mut H, token: Token<'_>, ttl: Ttl) -> Result<(), Error> {
    let server = host.server();
    guarding::look_if_on(server, host.machine(), || server.command_time());
    let outcome = change(host, None, false, |scene| {
        let name = || scene.name.bytes();
        let usable = scene.guard.usable(name, || server.boot_us());
        let lock = usable.of(scene.lock, token, scene.now);
        if usable.puts_off(lock, token, scene.now) {
            return Decided::Same(Reply::Error(Error::NotYet));
        }
        match lock.and_then(|lock| lock.renew(token, ttl, scene.now)) {
            Some(effect) => Decided::Change(effect, Cause::Renewed, Reply::Done(true)),
            None => Decided::Same(Reply::Done(false)),
        }
    })?;
    if let Done::Reply(reply) = outcome {
        if reply == Reply::Done(false) {
            server.count(Count::LostRenewals);
        }
        server.reply(reply);
    }
    Ok(())
}
