//! The end of a step, where places for several keys are granted. The rules are those of
//! [`crate::rules`].
//!
//! Serving a key does not grant a place for several keys: it only notes that its turn may have
//! come. When the command or the timer has closed its key, it finishes the step ([`finish`],
//! [`finish_in_timer`]). Each place that was noted is then looked at, one key after the other, so
//! that no two keys are open at once. If it is its turn at all of them, all are taken under one
//! fence, and its clients are unblocked. All effects of a step reach replicas and the append-only
//! file as one transaction.
//!
//! In a cluster the keys are in one slot, but some of them may have moved to another node already.
//! So each key is asked about ([`Host::serves`]).

use super::claim::{self, Claim};
use super::count::Count;
use super::ending;
use super::host::{Host, Key, Parts, Server};
use super::look::undisturbed;
use super::machine::{Machine, Removed};
use super::serve::{self, serve_changed};
use crate::command::Error;
use crate::lock::{Fence, Now, Refusal};
use crate::wait::{Candidate, KeyRef, TurnAt};

/// Does what is left to do in a command before it ends, at its time.
#[inline]
pub fn finish<H: Host>(host: &mut H) {
    if host.machine().registry.is_unfinished() {
        let now = host.server().command_time();
        finish_all(host, now, false);
    }
}

/// The same in the timer. It leaves the keys that are to be served again to its next turn, which is
/// at once.
pub(super) fn finish_in_timer<H: Host>(host: &mut H) {
    if host.machine().registry.is_unfinished() {
        let now = host.server().now();
        finish_all(host, now, true);
    }
}

/// How many keys a step grants to places for several keys, about. The timer goes on with the rest.
const MOST_KEYS: usize = 1_000;

#[cold]
fn finish_all<H: Host>(host: &mut H, now: Now, is_timer: bool) {
    let server = host.server();
    let db = server.selected_db();
    let mut granted_keys = 0_usize;
    host.machine().registry.set_ending(true);
    loop {
        if is_timer {
            host.machine().registry.mark_unserved();
        }
        while let Some(key_ref) = host.machine().registry.take_unserved() {
            serve_again(host, &key_ref, now);
        }
        let Some(candidate) = host.machine().registry.take_candidate() else {
            break;
        };
        let is_enough = granted_keys >= MOST_KEYS || host.machine().has_overdue;
        let is_its_turn = match is_enough {
            true => Err(Error::TryAgain),
            false => undisturbed(host, |host| is_its_turn(host, &candidate, now)),
        };
        match is_its_turn {
            Ok(true) => {
                grant(host, &candidate, now);
                granted_keys = granted_keys.saturating_add(candidate.several.iter().count());
            }
            Ok(false) => {}
            Err(_) => {
                let first = &candidate.several.first().key_ref;
                host.machine().registry.mark(first);
            }
        }
    }
    host.machine().registry.set_ending(false);
    host.machine().is_due_changed = true;
    server.select_db(db);
}

fn serve_again<H: Host>(host: &mut H, key_ref: &KeyRef, now: Now) {
    let served = with_served_key(host, key_ref, |key| serve_changed(key, key_ref, now));
    if served.is_none() {
        // The timer tells its waiters what is wrong with it.
        host.machine().registry.mark(key_ref);
    }
}

/// Opens a key for a moment. `None` where it is not served here any more, or has a value of another
/// type.
fn with_served_key<H: Host, R>(
    host: &mut H,
    key_ref: &KeyRef,
    act: impl FnOnce(&mut H::Key<'_>) -> R,
) -> Option<R> {
    host.server().select_db(key_ref.db);
    let name = host.name(&key_ref.name);
    if !host.serves(&name) {
        return None;
    }
    claim::with_key(host, key_ref, act).ok()
}

/// Whether a place may be granted now. It is an error where that is to be seen later.
fn is_its_turn<H: Host>(host: &mut H, candidate: &Candidate, now: Now) -> Result<bool, Error> {
    let server = host.server();
    host.drain();
    if serve::is_demoted(server, host.machine()) {
        return Err(Error::TryAgain);
    }
    // The end of the guard has the keys looked at again.
    let mut all = candidate.several.iter();
    let guard = &host.machine().guard;
    if all.any(|one| guard.holds_back_for(&one.key_ref.name, true)) {
        return Ok(false);
    }
    Ok(candidate.several.iter().all(|one| {
        let key_ref = &one.key_ref;
        let turn = with_served_key(host, key_ref, |key| {
            let Parts { lock, machine, .. } = key.parts();
            let turn = machine.registry.turn_of(candidate, key_ref, lock, now);
            if turn == TurnAt::Nobody {
                // Nobody may have told of the lock that is there.
                serve::watch(key, key_ref, now);
            }
            turn
        });
        match turn {
            None => drop(host.machine().registry.mark(key_ref)),
            Some(TurnAt::Other) => host.machine().registry.serve_later([key_ref].into_iter()),
            Some(TurnAt::Its | TurnAt::Nobody) => {}
        }
        turn == Some(TurnAt::Its)
    }))
}

/// Tells the channel of a place whose turn has come, if it has one. Whether somebody has heard it.
fn tell_channel<H: Host>(host: &mut H, candidate: &Candidate, fence: Fence, at: Now) -> bool {
    let server = host.server();
    let offer = host
        .machine()
        .registry
        .offer_candidate(candidate, fence, at);
    let is_heard = match &offer {
        Some(offer) if host.may_be_heard(&offer.channel) => {
            serve::publish_offer(server, host.machine(), offer)
        }
        Some(offer) => {
            ending::unheard(server, host.machine(), &offer.channel);
            false
        }
        None => false,
    };
    if let Some(offer) = offer.filter(|_| !is_heard) {
        ending::end_unheard(server, host.machine(), &offer.request);
    }
    is_heard
}

/// Grants all requests of a place whose turn has come.
fn grant<H: Host>(host: &mut H, candidate: &Candidate, now: Now) {
    let (server, machine) = (host.server(), host.machine());
    let keys = candidate.several.iter().map(|one| &one.key_ref);
    for removed in machine.registry.end_lost(candidate, server.leaving()) {
        machine.left(&removed, server.monotonic_us());
    }
    let longest_ms = machine.guard.longest_ttl_ms();
    let too_long = machine.registry.end_too_long(candidate, longest_ms);
    refuse(server, machine, too_long, Refusal::TtlTooLong);
    let at = server.meanwhile(now, true);
    let Some(fence) = host.shared().fences.with(|fences| fences.next(at)) else {
        let machine = host.machine();
        let all = machine.registry.end_candidate(candidate);
        refuse(server, machine, all, Refusal::FencesExhausted);
        return machine.registry.serve_later(keys);
    };
    let is_heard = tell_channel(host, candidate, fence, at);
    // A client may have gone since.
    host.drain();
    let registry = &mut host.machine().registry;
    let all = registry.grant_candidate(candidate, fence, at);
    let Some(last) = all.last() else {
        return host.machine().registry.serve_later(keys);
    };
    let claim = Claim {
        token: candidate.token(),
        grant: last.grant,
        // The last request says what the holds are bound to, too.
        linger: (last.removed.linger, last.is_for_channel()),
        first_word: None,
    };
    let several = &candidate.several;
    // A token that got one of the keys meanwhile by a lock from elsewhere has waited for its end.
    let wanted = several.iter().map(|one| (one.mode, None));
    let name = |nth| several.iter().nth(nth).map(|one| one.key_ref.clone());
    if claim.take(host, wanted, name).is_err() {
        return all
            .into_iter()
            .for_each(|one| serve::tell_failed(server, one));
    }
    // The others have asked again for what the first one has.
    let more = all
        .len()
        .saturating_sub(1)
        .saturating_mul(candidate.several.iter().count());
    server.count_many(Count::Acquired, more);
    server.count_many(Count::Reacquired, more);
    for granted in all {
        server.count(Count::Macquired);
        host.shared().deliveries.begin(&granted);
        serve::tell_granted(server, host.machine(), granted);
    }
    if is_heard {
        host.shared().deliveries.hear(fence);
    }
}

/// Tells those who can never be granted their keys.
fn refuse<S: Server>(
    server: S,
    machine: &mut Machine<S::Types>,
    removed: Vec<Removed<S::Types>>,
    refusal: Refusal,
) {
    for removed in removed {
        ending::tell(server, machine, removed, Some(Error::of_refusal(refusal)));
    }
}
