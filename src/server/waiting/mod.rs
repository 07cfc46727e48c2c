//! Waiting: clients that are blocked until they get a hold. The rules of waiting itself are those of [`crate::wait`]; this is the
//! server's side of it.
//!
//! # How it flows
//!
//! A request with BLOCK that cannot be granted enters the registry ([`enter`]). Whatever ends a hold later, the key is **served**
//! ([`serve`]): as long as somebody is next, that request is granted as if it came now, its effect is carried out and replicated,
//! and its client is unblocked. Nobody wakes up to race.
//!
//! # Rules
//!
//! 1. **Where a grant may happen.** In a command of the module, before and after it does its own work ([`commands`]), and in the
//!    module's timer ([`timer`]). Nowhere else: a method of the type, a server event or a callback for a client that is gone runs in
//!    the middle of something else, and a write there reaches replicas out of order or not at all. These only **mark** the key and
//!    set the timer to 0 ms ([`callbacks`]). Only the timer reads the mark, because a command serves its key anyhow.
//! 2. **What the timer may do.** It runs on replicas and while clients are paused. On a replica it grants nothing. While the server
//!    is paused it writes nothing, because a write then aborts the server; it tries again shortly, and requests still time out. The
//!    same holds while the server refuses the writes of clients. In a cluster it first asks whether the key is still served here
//!    ([`writes`](super::writes)); if not, its waiters are told to try again.
//! 3. **Who may call UnblockClient.** Whatever takes the request out of the registry ([`crate::wait::Registry::dismiss_all`] and others), exactly
//!    once. A client that is not in the registry was unblocked already. That is: a grant, a timeout, an error for all, a client that
//!    is gone.
//! 4. **A grant that nobody hears of** is taken back ([`crate::wait::delivery`]). The server has then freed the outcome without a
//!    call for the reply ([`client`]), or freed the client before it has sent the reply ([`delivery`]). A client that may have read
//!    the reply has the hold.
//! 5. **Nothing is borrowed across the module API** but its clock. The registry is borrowed around calls of the core only ([`with`]).
//!
//! [`commands`]: super::commands

pub(super) mod callbacks;
pub(super) mod client;
pub(super) mod delivery;
pub(super) mod limits;
pub(super) mod timer;

use std::cell::RefCell;
use std::rc::Rc;

use super::api::{Arg, Context};
use super::clock;
use super::fences;
use super::lock_key::Key;
use super::notify::Event;
use super::stats::{self, counters};
use crate::command::acquire::Acquire;
use crate::command::info::Waiter as WaiterInfo;
use crate::command::Error;
use crate::lock::{Ask, Fence, Now, Refusal, TokenBuf, Waiting};
use crate::wait::{self, KeyRef, Listener, NewRequest, Revoked, Step};
use client::{BlockedClient, Outcome};

type Registry = wait::Registry<BlockedClient, foldhash::fast::RandomState>;
type Removed = wait::Removed<BlockedClient>;

thread_local! {
    static REGISTRY: RefCell<Registry> = RefCell::new(Registry::default());
}

/// Lends the registry to `act`, which must not call the module API but for its clock.
fn with<R>(act: impl FnOnce(&mut Registry) -> R) -> R {
    REGISTRY.with_borrow_mut(act)
}

/// How many wait, and for how many keys; `None` in the middle of a change.
pub(super) fn counts() -> Option<(u64, u64)> {
    REGISTRY.with(|registry| {
        let registry = registry.try_borrow().ok()?;
        let count = |n| u64::try_from(n).ok();
        Some((count(registry.len())?, count(registry.waited_key_count())?))
    })
}

/// The reference to a key that is waited for; `None`, fast, when nobody waits for it.
pub(super) fn key_ref_of(ctx: Context<'_>, key: Arg<'_>) -> Option<KeyRef> {
    if with(|registry| registry.is_empty()) {
        return None;
    }
    let db = ctx.selected_db();
    with(|registry| registry.key_ref(db, key.bytes()))
}

/// Shows the waiters of a key to a decision.
pub(super) fn while_waiting<R>(
    key_ref: Option<&KeyRef>,
    ask: Ask<'_>,
    decide: impl FnOnce(Waiting<'_>) -> R,
) -> R {
    match key_ref {
        Some(key_ref) => with(|registry| {
            let ahead = registry.ahead_of(key_ref, ask.token, ask.mode);
            decide(ahead.as_waiting())
        }),
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
    let (here, everywhere) = with(|registry| {
        let here = registry.len_of(db, key.name().bytes());
        (here, registry.len())
    });
    limits::admit((here, everywhere))?;
    let Some(client) = client::block(ctx) else {
        return Ok(Entered::No);
    };
    let since_us = clock::monotonic_us();
    let ask = acquire.ask();
    let new_request = NewRequest {
        token: ask.token,
        mode: ask.mode,
        ttl: ask.ttl,
        listener: Some(Listener::Client(client)),
        times_out_at_us: (timeout.ms > 0)
            .then(|| since_us.saturating_add(timeout.ms.saturating_mul(1_000))),
        keep_ms: None,
        is_server_generated: acquire.is_made(),
        refusal,
        now,
        now_us: since_us,
    };
    let key_ref = KeyRef::new(db, key.name().bytes());
    let entered = with(|registry| registry.enter(&key_ref, new_request));
    // Only who is ahead of the others is watched for; the others are there for their timeouts.
    if entered.must_serve() {
        watch(key, &key_ref, now);
    } else {
        timer::arm();
    }
    Ok(Entered::Yes)
}

/// Whether a client waits now.
pub(super) enum Entered {
    Yes,
    No,
}

/// Grants whoever is next at a place, until nobody is: before a command does its work, which it then does at the time that this returns.
pub(super) fn serve(key: &mut Key<'_>, key_ref: &KeyRef, now: Now) -> Now {
    let (now, changed) = serve_all(key, key_ref, now);
    if changed {
        watch(key, key_ref, now);
    }
    now
}

/// The same where the key has changed, or may have.
pub(super) fn serve_changed(key: &mut Key<'_>, key_ref: &KeyRef, now: Now) -> Now {
    let (now, _) = serve_all(key, key_ref, now);
    watch(key, key_ref, now);
    now
}

/// The time by then, and whether the key has changed by it, or was marked as changed.
fn serve_all(key: &mut Key<'_>, key_ref: &KeyRef, mut now: Now) -> (Now, bool) {
    let mut changed = false;
    while let Some(step) = grant_next(key, key_ref, now, changed) {
        changed = true;
        match step {
            Step::Granted(granted) => {
                now = granted.at;
                key.commit(&granted.effect(), granted.had_it, now);
                key.note(Event::Handover);
                let waited_us = clock::monotonic_us().saturating_sub(granted.removed.since_us);
                stats::handed_over(waited_us, granted.had_it);
                client::unblock_granted(granted);
            }
            // No channel is named yet.
            Step::Offered(offer) => {
                drop(with(|registry| {
                    registry.unheard(offer, clock::monotonic_us())
                }));
            }
            Step::Refused(removed, refusal) => dismiss(removed, Error::of_refusal(refusal)),
        }
    }
    // A mark may say that the key has lost its ttl, and the timer will not look at it now.
    if with(|registry| registry.unmark(key_ref)) {
        key.repair_ttl(now);
        changed = true;
    }
    (now, changed)
}

/// Takes out the waiter that is next, granted or refused.
fn grant_next(
    key: &Key<'_>,
    key_ref: &KeyRef,
    now: Now,
    has_gone_on: bool,
) -> Option<Step<BlockedClient>> {
    // A lease counts from its grant, and there may be thousands in one step.
    let granted_at = |now| clock::meanwhile(now, has_gone_on);
    let step = with(|registry| {
        fences::with(|fences| registry.grant_next(key_ref, key.lock(), now, granted_at, fences))
    });
    if let Some(Step::Refused(_, Refusal::Deadlock)) = &step {
        counters::DEADLOCKS.add_one();
    }
    step
}

/// Answers everybody who waits for a key with an error.
fn dismiss_all(key_ref: &KeyRef, error: Error) {
    for removed in with(|registry| registry.dismiss_all(key_ref)) {
        dismiss(removed, error);
    }
}

fn dismiss(removed: Removed, error: Error) {
    client::unblock(removed, |_| Outcome::Error(error));
}

/// Has the key looked at when the passing of time alone may make somebody next.
fn watch(key: &Key<'_>, key_ref: &KeyRef, now: Now) {
    let by_holds = with(|registry| registry.wakes_at(key_ref, key.lock(), now));
    // A key that was given an earlier end from outside takes its holds with it.
    let by_key = key.lock().and_then(|_| key.deadline(now));
    let earliest = match (by_holds, by_key) {
        (Some(holds), Some(key)) => Some(holds.min(key)),
        (holds, key) => holds.or(key),
    };
    // The deadline itself still counts.
    let at_ms = earliest.map(|deadline| deadline.ms().saturating_add(1));
    with(|registry| registry.set_wake(key_ref, at_ms));
    timer::arm();
}

/// Notes that the owner of a hold knows of it.
pub(super) fn acknowledge(ctx: Context<'_>, key: Arg<'_>, fence: Fence) {
    if with(|registry| registry.deliveries.is_waiting()) {
        let db = ctx.selected_db();
        with(|registry| registry.deliveries.acknowledge(db, key.bytes(), fence));
    }
}

/// The holds that are to be taken back and are not where they were granted.
pub(super) fn sought() -> Vec<Revoked> {
    with(|registry| registry.deliveries.sought())
}

/// Marks what a sweep has found in a database: locks without a ttl, and holds that are looked for.
pub(super) fn take_findings(db: i32, without_ttl: &[Rc<[u8]>], found: &[(Fence, Rc<[u8]>)]) {
    with(|registry| {
        for key in without_ttl {
            registry.mark_anyway(Some(db), key);
        }
        for (fence, name) in found {
            let name = Rc::clone(name);
            registry.deliveries.found(*fence, &KeyRef { db, name });
        }
    });
}

/// Ends the search for holds that were not found.
pub(super) fn give_up_search() {
    with(|registry| registry.deliveries.give_up());
}

/// Those who wait for a key, for LOCK.INFO.
pub(super) fn waiters(ctx: Context<'_>, key: Arg<'_>, now: Now) -> Vec<WaiterInfo> {
    let db = ctx.selected_db();
    with(|registry| {
        let waiters = registry.waiters(db, key.bytes());
        waiters
            .map(|waiter| WaiterInfo {
                token: TokenBuf::from(waiter.token.as_token()),
                mode: waiter.mode,
                waited_ms: now.ms().saturating_sub(waiter.since_ms),
            })
            .collect()
    })
}
