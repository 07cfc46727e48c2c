//! The end of a step, where places for several keys are granted. The rules are those of [`crate::wait`].
//!
//! Serving a key does not grant a place for several keys: it only notes that its turn may have come. When the command or the timer has
//! closed its key, it finishes the step ([`finish`], [`finish_in_timer`]). Each place that was noted is then looked at, one key after the
//! other, so that no two keys are open at once. If it is its turn at all of them, all are taken under one fence, and its clients are
//! unblocked. All effects of a step reach replicas and the append-only file as one transaction.
//!
//! In a cluster the keys are in one slot, but some of them may have moved to another node already. So each key is asked about
//! ([`writes`]).

use std::collections::BTreeSet;

use super::api::{OwnedString, Purpose};
use super::blocked_client::{self, Outcome, Removed};
use super::channel;
use super::clock;
use super::commit::Cause;
use super::linger;
use super::lock_key::{Key, Parts};
use super::module::{wait_ended, State, Task};
use super::serve::{self, serve_changed};
use super::stats::counters::{HANDED_OVER, MACQUIRED, PASSED_OVER, UNHEARD};
use super::stats::times;
use super::writes;
use crate::command::Error;
use crate::lock::{Now, Refusal};
use crate::wait::{Candidate, GrantedSeveral, KeyRef, Listener, Offer, Rest, Several, Turn};

/// Does what is left to do in a command before it ends, at its time.
#[inline]
pub(super) fn finish(task: &mut Task<'_>, now: impl FnOnce() -> Now) {
    if task.state().registry.is_unfinished() {
        finish_all(task, now(), &mut None);
    }
}

/// The same in the timer. `touched` are the keys that it has changed. On 6.2 the deletion of a key that has expired overtakes what the
/// same timer has replicated, so these are not opened again: their places wait until the timer fires again, which is at once.
pub(super) fn finish_in_timer(task: &mut Task<'_>, touched: BTreeSet<KeyRef>) {
    if task.state().registry.is_unfinished() {
        finish_all(task, clock::now(), &mut Some(touched));
    }
}

/// Has all keys of a place served before the step ends.
pub(super) fn serve_all_later(task: &mut Task<'_>, several: &Several) {
    let registry = &mut task.state().registry;
    for one in several.iter() {
        registry.serve_later(one.key_ref.clone());
    }
}

#[cold]
fn finish_all(task: &mut Task<'_>, now: Now, touched: &mut Option<BTreeSet<KeyRef>>) {
    let ctx = task.ctx();
    let db = ctx.selected_db();
    loop {
        if touched.is_some() {
            task.state().registry.mark_unserved();
        }
        while let Some(key_ref) = task.state().registry.take_unserved() {
            serve_again(task, &key_ref, now);
        }
        let Some(candidate) = task.state().registry.take_candidate() else {
            break;
        };
        let has = |touched: &BTreeSet<KeyRef>| {
            let mut all = candidate.several.iter();
            all.any(|one| touched.contains(&one.key_ref))
        };
        if touched.as_ref().is_some_and(has) {
            task.state().registry.put_off_candidate(&candidate);
        } else if is_its_turn(task, &candidate, now) {
            grant(task, &candidate, now, touched);
        }
    }
    task.state().is_due_changed = true;
    ctx.select_db(db);
}

fn serve_again(task: &mut Task<'_>, key_ref: &KeyRef, now: Now) {
    let served = with_key(task, key_ref, |key| serve_if_waited_for(key, key_ref, now));
    if served.is_none() {
        mark(task, key_ref);
    }
}

/// Opens a key for a moment. `None` where it is not served here any more, or has a value of another type.
fn with_key<R>(
    task: &mut Task<'_>,
    key_ref: &KeyRef,
    act: impl FnOnce(&mut Key<'_, '_>) -> R,
) -> Option<R> {
    let ctx = task.ctx();
    ctx.select_db(key_ref.db);
    let name = OwnedString::new(ctx, &key_ref.name);
    if !writes::are_served_here(task.caller(), name.arg()) {
        return None;
    }
    let mut key = Key::open(task, name.arg(), Purpose::Write).ok()?;
    Some(act(&mut key))
}

/// Has the timer look at a key, which tells its waiters what is wrong with it.
fn mark(task: &mut Task<'_>, key_ref: &KeyRef) {
    task.state().registry.mark(key_ref.db, &key_ref.name);
}

fn is_its_turn(task: &mut Task<'_>, candidate: &Candidate, now: Now) -> bool {
    candidate.several.iter().all(|one| {
        let key_ref = &one.key_ref;
        let turn = with_key(task, key_ref, |key| {
            let Parts { lock, state, .. } = key.parts();
            let turn = state.registry.is_turn_of(candidate, key_ref, lock, now);
            if turn == Turn::Nobody {
                // Nobody may have told of the lock that is there.
                serve::watch(key, key_ref, now);
            }
            turn
        });
        match turn {
            None => mark(task, key_ref),
            Some(Turn::Other) => task.state().registry.serve_later(key_ref.clone()),
            Some(Turn::Its | Turn::Nobody) => {}
        }
        turn == Some(Turn::Its)
    })
}

/// Grants all requests of a place whose turn has come.
fn grant(
    task: &mut Task<'_>,
    candidate: &Candidate,
    now: Now,
    touched: &mut Option<BTreeSet<KeyRef>>,
) {
    let at = clock::meanwhile(now, true);
    let module = task.module();
    let Ok(fence) = module.fences.with(|fences| fences.next(at)) else {
        return refuse(task, candidate);
    };
    let offer = task.state().registry.offer_several(candidate, fence, at);
    let is_heard = offer.is_some_and(|offer| is_heard(task, candidate, offer));
    let state = task.state();
    // A client may have gone since.
    module.drain(state);
    let granted = state.registry.grant_several(candidate, fence, at, is_heard);
    let Some(granted) = granted else {
        return;
    };
    for one in granted.several.iter() {
        with_key(task, &one.key_ref, |key| {
            let own = key
                .lock()
                .and_then(|lock| lock.hold_of(candidate.token(), at));
            let had_it = own.is_some();
            let effect = granted.effect(one.mode);
            key.commit(&effect, Cause::HandedOverWithOthers { had_it }, at);
            if let Some(linger) = granted.linger() {
                linger::bind(key, candidate.token(), fence, linger);
            }
            serve_if_waited_for(key, &one.key_ref, at);
        });
        if let Some(touched) = touched {
            touched.insert(one.key_ref.clone());
        }
    }
    tell(task.state(), granted);
}

fn serve_if_waited_for(key: &mut Key<'_, '_>, key_ref: &KeyRef, now: Now) {
    let registry = &key.parts().state.registry;
    if registry.len_of(key_ref.db, &key_ref.name) > 0 {
        serve_changed(key, key_ref, now);
    }
}

/// Publishes the hold, and answers whether somebody has received the message. If nobody has, the request has left.
fn is_heard(task: &mut Task<'_>, candidate: &Candidate, offer: Offer) -> bool {
    let event = channel::Event::Granted(offer.fence());
    let (name, token) = (&offer.key_ref.name, candidate.token());
    if channel::publish(task.ctx(), &offer.channel, event, name, token) {
        return true;
    }
    UNHEARD.add_one();
    let removed = task.state().registry.unheard(offer, clock::monotonic_us());
    if removed.is_some_and(|removed| removed.rest == Rest::Ended) {
        PASSED_OVER.add_one();
        serve_all_later(task, &candidate.several);
    }
    false
}

/// Tells the clients of their grant. A channel has heard of it before.
fn tell(state: &mut State, granted: GrantedSeveral<blocked_client::BlockedClient>) {
    let now_us = clock::monotonic_us();
    for (removed, grant) in granted.requests {
        HANDED_OVER.add_one();
        MACQUIRED.add_one();
        wait_ended(&mut state.contended, &removed, now_us);
        times::waited(now_us.saturating_sub(removed.since_us));
        if let (Some(Listener::Client(client)), Some(grant)) = (removed.listener, grant) {
            let outcome = Outcome::Granted(grant, removed.is_server_generated);
            blocked_client::unblock(client, outcome);
        }
    }
}

/// Ends a place that can never be granted.
fn refuse(task: &mut Task<'_>, candidate: &Candidate) {
    let ctx = task.ctx();
    let removed: Vec<Removed> = task.state().registry.end_candidate(candidate);
    for removed in removed {
        serve::dismiss(ctx, removed, Error::of_refusal(Refusal::FencesExhausted));
    }
}
