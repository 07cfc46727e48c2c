//! Waiting: clients that are blocked until they get a hold.
//!
//! # How it flows
//!
//! A request with BLOCK that cannot be granted enters the [`room`] ([`enter`]). Whatever ends a hold later, the key is **served**
//! ([`serve`]): as long as the core says that somebody is next, that request is granted as if it came now, its effect is carried out
//! and replicated, and its client is unblocked. Nobody wakes up to race.
//!
//! # Rules
//!
//! 1. **Where a grant may happen.** In a command of ours, before and after it does its own work ([`commands`]); and in our
//!    timer ([`alarm`]). Nowhere else: a notification, an `unlink` of the type, a server event or a callback for a client that is gone runs
//!    in the middle of something of the server's, and a write there reaches replicas out of order or not at all. These only
//!    **mark** the key and set the timer to 0 ms. The mark needs no reader but the timer, for a command serves its key anyhow.
//! 2. **What the timer may do.** It runs on replicas and while clients are paused. On a replica it grants nothing. While the
//!    server is paused it writes nothing, for a write then ends the server, and tries again shortly; requests still time out. The
//!    same while the server refuses the writes of clients, as its disk fails or too few replicas follow it. In a cluster it first
//!    asks whether the key is still served here; if not, its waiters are told to try again.
//! 3. **Who may call UnblockClient.** Whoever takes the request out of the room ([`room::Room::leave`]), and exactly once: a client that
//!    is not in the room was unblocked already. That is: a grant, a timeout, an error for all, a client that is gone.
//! 4. **A grant that nobody hears of** is taken back: the server frees the outcome without having called for the reply
//!    ([`client`]), or frees the client before it has sent the reply ([`told`]), and the timer ends the hold and serves the key
//!    ([`deliveries`]).
//!    Unless the same owner has learned of it otherwise: another request of its token was answered. A client that may have read the
//!    reply has the hold.
//! 5. **Nothing is borrowed across the module API.** The room is borrowed around calls of the core only ([`with`]).
//!
//! [`commands`]: super::commands

pub(super) mod alarm;
pub(super) mod callbacks;
pub(super) mod client;
pub(super) mod deliveries;
pub(super) mod limits;
mod room;
pub(super) mod told;

use std::cell::RefCell;
use std::rc::Rc;

use super::announce::Event;
use super::api::{Arg, Context};
use super::clock;
use super::fences;
use super::keyspace::Key;
use super::stats::{self, counters};
use crate::command::acquire::Acquire;
use crate::command::info::Waiter as WaiterInfo;
use crate::command::Error;
use crate::lock::queue::{Next, Ticket, Waiter};
use crate::lock::{Fence, Lock, Now, Refusal, Waiting};
use client::Outcome;
use deliveries::Revoked;
pub(super) use room::Place;
use room::{Leaver, Newcomer, Room};

thread_local! {
    static ROOM: RefCell<Room> = RefCell::new(Room::default());
}

/// Lends the room to `act`, which must not call the module API.
fn with<R>(act: impl FnOnce(&mut Room) -> R) -> R {
    ROOM.with_borrow_mut(act)
}

/// How many wait, and for how many keys; `None` in the middle of a change.
pub(super) fn counts() -> Option<(u64, u64)> {
    ROOM.with(|room| {
        let room = room.try_borrow().ok()?;
        let count = |n| u64::try_from(n).ok();
        Some((count(room.len())?, count(room.keys())?))
    })
}

/// The place of a key that is waited for; `None`, fast, when nobody waits for it.
pub(super) fn place_of(ctx: Context<'_>, key: Arg<'_>) -> Option<Place> {
    if with(|room| room.is_empty()) {
        return None;
    }
    let db = ctx.selected_db();
    with(|room| room.place(db, key.bytes()))
}

/// Shows those who wait at a place to a decision.
pub(super) fn while_waiting<R>(place: Option<&Place>, decide: impl FnOnce(Waiting<'_>) -> R) -> R {
    match place {
        Some(place) => with(|room| decide(room.waiting(place.db, &place.key))),
        None => decide(Waiting::default()),
    }
}

/// Has the client of a refused request wait.
pub(super) fn enter(
    ctx: Context<'_>,
    key: &Key<'_>,
    acquire: &Acquire<'_>,
    refusal: Refusal,
    now: Now,
) -> Result<Entered, Error> {
    let Some(timeout) = acquire.block() else {
        return Ok(Entered::No);
    };
    // Asked only here, as it is slow: inside MULTI, scripts and the like nobody may block. A replica that takes writes of its own
    // grants nothing later.
    if !ctx.may_block() {
        return Ok(Entered::No);
    }
    let db = ctx.selected_db();
    let (here, everywhere) = with(|room| {
        let here = room.queue(db, key.name().bytes());
        (here.map_or(0, |queue| queue.len()), room.len())
    });
    limits::admit((here, everywhere))?;
    let Some(client) = client::block(ctx) else {
        return Ok(Entered::No);
    };
    let since_us = clock::monotonic_us();
    let newcomer = Newcomer {
        client,
        waiter: acquire.waiter(now),
        refusal,
        since_us,
        times_out_at_us: (timeout.ms > 0)
            .then(|| since_us.saturating_add(timeout.ms.saturating_mul(1_000))),
        made: acquire.is_made(),
    };
    let place = Place {
        db,
        key: key.name().bytes().into(),
    };
    with(|room| room.enter(place.clone(), newcomer));
    // Only who is ahead of the others is watched for; the others are there for their timeouts.
    if here == 0 || refusal == Refusal::BusyUpgrade {
        watch(key, &place, now);
    } else {
        alarm::arm();
    }
    Ok(Entered::Yes)
}

/// Whether a client waits now.
pub(super) enum Entered {
    Yes,
    No,
}

/// Grants whoever is next at a place, until nobody is: before a command does its work, which it then does at the time that this returns.
pub(super) fn serve(key: &mut Key<'_>, place: &Place, now: Now) -> Now {
    let (now, changed) = serve_all(key, place, now);
    if changed {
        watch(key, place, now);
    }
    now
}

/// The same where the key has changed, or may have.
pub(super) fn serve_changed(key: &mut Key<'_>, place: &Place, now: Now) -> Now {
    let (now, _) = serve_all(key, place, now);
    watch(key, place, now);
    now
}

/// The time by then, and whether the key has changed by it, or was marked as changed.
fn serve_all(key: &mut Key<'_>, place: &Place, mut now: Now) -> (Now, bool) {
    let mut changed = false;
    while let Some(next) = with(|room| room.next(place, key.lock(), now)) {
        let (ticket, waiter) = match next {
            Next::Grant(ticket, waiter) => (ticket, waiter),
            Next::Deadlock(ticket) => {
                changed = true;
                counters::DEADLOCKS.add_one();
                dismiss(with(|room| room.leave(ticket)), Error::Deadlock);
                continue;
            }
        };
        // A lease counts from its grant, and there may be thousands in one step.
        now = clock::meanwhile(now, changed);
        changed = true;
        if !grant(key, ticket, &waiter, now) {
            break;
        }
    }
    // A mark may say that the key has lost its ttl, and the timer will not look at it now.
    if with(|room| room.unmark(place)) {
        key.mend(now);
        changed = true;
    }
    (now, changed)
}

/// Grants one request if the lock lets it in. False when it does not.
fn grant(key: &mut Key<'_>, ticket: Ticket, waiter: &Waiter, now: Now) -> bool {
    let token = waiter.token.as_token();
    let decided = fences::with(|fences| {
        Lock::acquire(key.lock(), waiter.ask(), now, Waiting::default(), fences)
    });
    match decided {
        Ok(grant) => {
            let before = key.lock().and_then(|lock| lock.hold_of(token, now));
            let leaver = with(|room| {
                let leaver = room.leave(ticket)?;
                let delivery = room.deliveries.granted(&leaver.place, grant.fence, before);
                Some((leaver, delivery))
            });
            let Some((leaver, delivery)) = leaver else {
                return false;
            };
            key.commit(&grant.effect, grant.had_it, now);
            key.note(Event::Handover);
            let waited_us = clock::monotonic_us().saturating_sub(leaver.since_us);
            stats::handed_over(waited_us, grant.had_it);
            client::unblock(leaver, |leaver| {
                Outcome::granted(leaver, grant.fence, delivery)
            });
            true
        }
        Err(Refusal::FencesExhausted) => {
            dismiss(with(|room| room.leave(ticket)), Error::FencesExhausted);
            true
        }
        Err(_) => false,
    }
}

/// Answers everybody who waits at a place with an error.
fn dismiss_all(place: &Place, error: Error) {
    for ticket in with(|room| room.tickets(place)) {
        dismiss(with(|room| room.leave(ticket)), error);
    }
    with(|room| room.unmark(place));
}

fn dismiss(leaver: Option<Leaver>, error: Error) {
    if let Some(leaver) = leaver {
        client::unblock(leaver, |_| Outcome::Error(error));
    }
}

/// Sets the alarm for the instant at which time alone may make somebody next.
fn watch(key: &Key<'_>, place: &Place, now: Now) {
    let by_holds = with(|room| {
        let queue = room.queue(place.db, &place.key)?;
        queue.wakes_at(key.lock(), now)
    });
    // A key that was given an earlier end from outside takes its holds with it.
    let by_key = key.lock().and_then(|_| key.deadline(now));
    let earliest = match (by_holds, by_key) {
        (Some(holds), Some(key)) => Some(holds.min(key)),
        (holds, key) => holds.or(key),
    };
    // The deadline itself still counts.
    let at_ms = earliest.map(|deadline| deadline.ms().saturating_add(1));
    with(|room| room.set_wake(place, at_ms));
    alarm::arm();
}

/// Notes that the owner of a hold knows of it.
pub(super) fn acknowledge(ctx: Context<'_>, key: Arg<'_>, fence: Fence) {
    if with(|room| room.deliveries.is_waiting()) {
        let db = ctx.selected_db();
        with(|room| room.deliveries.acknowledge(db, key.bytes(), fence));
    }
}

/// The holds that are to be taken back and are not where they were granted.
pub(super) fn sought() -> Vec<Revoked> {
    with(|room| room.deliveries.sought())
}

/// Marks what a sweep has found in a database: locks that their keys outlive, and holds that are looked for.
pub(super) fn take_findings(db: i32, outliving: &[Rc<[u8]>], found: &[(Fence, Rc<[u8]>)]) {
    with(|room| {
        for key in outliving {
            room.mark_anyway(Some(db), key);
        }
        for (fence, key) in found {
            let key = Rc::clone(key);
            room.deliveries.found(*fence, &Place { db, key });
        }
    });
}

/// Ends the search for holds that were not found.
pub(super) fn give_up_search() {
    with(|room| room.deliveries.give_up());
}

/// Those who wait for a key, for LOCK.INFO.
pub(super) fn waiters(ctx: Context<'_>, key: Arg<'_>, now: Now) -> Vec<WaiterInfo> {
    let db = ctx.selected_db();
    with(|room| {
        let queue = room.queue(db, key.bytes());
        let waiters = queue.into_iter().flat_map(|queue| queue.iter());
        waiters
            .map(|(_, waiter)| WaiterInfo {
                token: waiter.token.clone(),
                mode: waiter.mode,
                waited_ms: now.ms().saturating_sub(waiter.since_ms),
            })
            .collect()
    })
}
