//! What happens without a command: deadlines, timeouts, and keys that were changed by others.
//!
//! One timer of the server's is set to the earliest thing that there is to do. Everything else here only marks keys and sets it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::rc::Rc;

use redis_module::raw;

use super::super::api::{Context, OwnedString};
use super::super::clock;
use super::super::lock_key::{Key, WrongType};
use super::super::notify::{self, Event};
use super::super::open_key::Purpose;
use super::super::stats::counters::{TAKEN_BACK, TIMED_OUT};
use super::super::sweep;
use super::super::writes;
use super::client::{self, Outcome};
use super::{callbacks, delivery, dismiss_all, serve_changed, watch, with};
use crate::command::Error;
use crate::lock::{Effect, Lock, Now};
use crate::wait::{Due, KeyRef, Revoked, ANY_DB};

/// The longest that the timer sleeps while somebody waits. A wall clock that is set forward is noticed by then, and a key that is waited
/// for and was given another end by PEXPIRE or PERSIST.
const LONGEST_SLEEP_US: u64 = 100_000;

/// How many waited keys are looked at in that time. With more of them, each has its turn later.
const PATROL: usize = 1_000;

/// How often a node of a cluster looks whether it still serves the slots of those who wait: it is told by nothing when one was taken
/// from it. As long as the server takes with its own blocked clients.
const SLOTS_LOOKED_AT_US: u64 = 1_000_000;
/// By how much the server's timer must be late to be given up. An honest one is a millisecond or two.
const OVERDUE_US: u64 = 20_000;

/// How soon the timer looks again while the server is paused.
const PAUSED_US: u64 = 10_000;

/// How soon the timer looks again while the server refuses writes, which may last for hours.
const REFUSED_US: u64 = 50_000;

/// How late the timer is when the server must have stood still, by a stopped process or machine.
const STALLED_US: u64 = 100_000;

/// How long the timer then waits, for the server to hear first what happened meanwhile: that its replicas have left, that it is one.
const LISTEN_US: u64 = 20_000;

/// The timer that is set.
#[derive(Clone, Copy)]
struct Armed {
    id: raw::RedisModuleTimerID,
    /// When it goes off, on the monotonic clock.
    at_us: u64,
    /// Whether it was set to go off in this very turn of the server's loop.
    at_once: bool,
    /// What it was set for; nothing when it has a reason of its own.
    due: Due,
    /// Whether the server listens until then. That such a timer is late says nothing new: on a server whose every turn takes long, all
    /// of them are, and would be put off for ever.
    listens: bool,
}

thread_local! {
    static ARMED: Cell<Option<Armed>> = const { Cell::new(None) };
    /// When the slots were looked at, on the monotonic clock; `None` when they are to be looked at now.
    static SLOTS_SEEN_US: Cell<Option<u64>> = const { Cell::new(None) };
    /// Until when nothing is done after the server has stood still, on the monotonic clock.
    static LISTENS_UNTIL_US: Cell<u64> = const { Cell::new(0) };
    /// When waited keys were looked at by the patrol, on the monotonic clock.
    static PATROLLED_US: Cell<u64> = const { Cell::new(0) };
}

/// Sets the timer, if there is something to do before it goes off.
pub(super) fn arm() {
    let (mut due, put_off) = with(|registry| (registry.due(), registry.has_put_off()));
    let slots_at_us = put_off.then(|| {
        SLOTS_SEEN_US
            .get()
            .map_or(0, |us| us.saturating_add(SLOTS_LOOKED_AT_US))
    });
    for at_us in sweep::due_at_us().into_iter().chain(slots_at_us) {
        due.times_out_at_us = Some(due.times_out_at_us.map_or(at_us, |other| other.min(at_us)));
    }
    // The usual case: no clock need be read.
    if ARMED.get().is_some_and(|armed| armed.due.covers(&due)) {
        return;
    }
    if let Some(idle_us) = due.idle_us(clock::now(), clock::monotonic_us()) {
        arm_for(due, idle_us);
    }
}

/// Sets the timer to go off in this turn of the server's loop.
pub(crate) fn arm_at_once() {
    arm_in(0);
}

/// Has the slots looked at in this turn of the server's loop.
pub(crate) fn look_at_slots_at_once() {
    SLOTS_SEEN_US.set(None);
    arm_at_once();
}

fn arm_in(idle_us: u64) {
    arm_for(Due::default(), idle_us);
}

fn arm_for(due: Due, idle_us: u64) {
    let Some(ctx) = Context::detached() else {
        return;
    };
    let listens_us = listens_for_us(ARMED.get());
    let listens = idle_us < listens_us;
    let idle_us = idle_us.max(listens_us);
    // The server counts in milliseconds.
    let sleep_ms = idle_us.min(LONGEST_SLEEP_US).div_ceil(1_000);
    let at_us = clock::monotonic_us().saturating_add(sleep_ms.saturating_mul(1_000));
    let at_once = sleep_ms == 0;
    if let Some(armed) = ARMED.get() {
        // The server may be a millisecond or two late with a timer that has waited, but not with one that need not.
        if armed.at_once || (!at_once && armed.at_us <= at_us) {
            return; // It goes off early enough, and is set anew then.
        }
        ctx.stop_timer(armed.id);
    }
    ARMED.set(Some(Armed {
        id: ctx.create_timer(sleep_ms, on_timer),
        at_us,
        at_once,
        due,
        listens,
    }));
}

/// For how much longer the server is to listen and do nothing. That it has stood still is seen by the timer, which should have gone off.
fn listens_for_us(armed: Option<Armed>) -> u64 {
    let now_us = clock::monotonic_us();
    let is_late = |armed: Armed| !armed.listens && now_us.saturating_sub(armed.at_us) > STALLED_US;
    if armed.is_some_and(is_late) {
        LISTENS_UNTIL_US.set(now_us.saturating_add(LISTEN_US));
    }
    LISTENS_UNTIL_US.get().saturating_sub(now_us)
}

unsafe extern "C" fn on_timer(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    // It has gone off, and must not be stopped any more.
    if listens_for_us(ARMED.take()) > 0 {
        return arm_in(0);
    }
    // SAFETY: the server's own context, in its callback.
    if let Some(ctx) = unsafe { Context::new(ctx) } {
        run(ctx);
        notify::flush(ctx);
    }
}

/// The server's own round, ten times a second by a clock that nobody can set. Its timers it measures by the wall clock: when that is set
/// back, they sleep for as long as it was set back by.
pub(super) unsafe extern "C" fn on_round(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _subevent: u64,
    _data: *mut c_void,
) {
    delivery::rest();
    let Some(ctx) = Context::detached() else {
        return;
    };
    let Some(armed) = ARMED.get() else {
        // A sweep may have been asked for by a load, in which no timer is set.
        return arm();
    };
    if clock::monotonic_us() > armed.at_us.saturating_add(OVERDUE_US) {
        ctx.stop_timer(armed.id);
        // It may be the whole server that was late.
        listens_for_us(ARMED.take());
        arm_in(0);
    }
}

/// Does all that is due.
fn run(ctx: Context<'_>) {
    callbacks::nothing_has_moved();
    for removed in with(|registry| registry.take_timed_out(clock::monotonic_us())) {
        // The waiter behind it may be next.
        with(|registry| registry.mark(removed.key_ref.db, &removed.key_ref.name));
        TIMED_OUT.add_one();
        client::unblock(removed, |_| Outcome::TimedOut);
    }
    with(|registry| registry.mark_woken(clock::now()));
    look_at_slots(ctx);
    if !ctx.is_primary() {
        // The new primary decides from now on. Most servers have told everybody so who waited here. Valkey 9.1 has not: it leaves clients
        // blocked that can be redirected.
        for key_ref in with(|registry| registry.waited_keys()) {
            dismiss_all(&key_ref, Error::TryAgain);
        }
        with(|registry| (registry.take_dirty(), registry.deliveries.clear_revoked()));
        sweep::cancel();
        return arm();
    }
    if ctx.must_not_write() {
        // What is due stays due: without a rest the timer would go off in every turn of the server's loop.
        let is_due = with(|registry| registry.has_work()) || sweep::due_at_us().is_some();
        return if is_due { arm_in(PAUSED_US) } else { arm() };
    }
    patrol(ctx);
    sweep::step(ctx);
    if !with(|registry| registry.has_work()) {
        return arm();
    }
    if writes::are_refused(ctx) {
        return arm_in(REFUSED_US);
    }
    for (key_ref, revoked) in take_work(ctx) {
        look_at(ctx, &key_ref, revoked);
    }
    arm();
}

/// Looks at some of the keys that are waited for, as nobody tells of PEXPIRE and PERSIST.
fn patrol(ctx: Context<'_>) {
    let now_us = clock::monotonic_us();
    if now_us.saturating_sub(PATROLLED_US.get()) < LONGEST_SLEEP_US {
        return;
    }
    PATROLLED_US.set(now_us);
    for key_ref in with(|registry| registry.next_of_patrol(PATROL)) {
        ctx.select_db(key_ref.db);
        let name = OwnedString::new(ctx, &key_ref.name);
        let now = clock::now();
        let opened = Key::open(ctx, name.arg(), Purpose::Write);
        match opened {
            Ok(key) if key.lock().is_some() && key.deadline(now).is_some() => {
                watch(&key, &key_ref, now);
            }
            _ => drop(with(|registry| registry.mark(key_ref.db, &key_ref.name))),
        }
    }
}

/// Sends away the waiters of keys that this node does not serve any more, though it may have them still.
fn look_at_slots(ctx: Context<'_>) {
    let now_us = clock::monotonic_us();
    let is_fresh = |seen_us: u64| now_us.saturating_sub(seen_us) < SLOTS_LOOKED_AT_US;
    if SLOTS_SEEN_US.get().is_some_and(is_fresh) {
        return;
    }
    SLOTS_SEEN_US.set(Some(now_us));
    if !ctx.is_cluster() {
        return;
    }
    with(|registry| registry.mark_put_off());
    for key_ref in with(|registry| registry.waited_keys()) {
        let name = OwnedString::new(ctx, &key_ref.name);
        if !writes::are_served_here(ctx, name.arg()) {
            dismiss_all(&key_ref, Error::TryAgain);
        }
    }
}

/// Takes the keys that are to be looked at, each with the holds that are to be taken back there.
///
/// Each comes once. On 6.2 the deletion of a key that has expired overtakes what the same timer has replicated, so that a key must not
/// be opened again after a change.
fn take_work(ctx: Context<'_>) -> BTreeMap<KeyRef, Vec<Revoked>> {
    let now_us = clock::monotonic_us();
    let (dirty, revoked) = with(|registry| {
        // First, as it marks keys.
        let revoked = registry.take_revoked(now_us);
        (registry.take_dirty(), revoked)
    });
    let mut work = BTreeMap::new();
    for key_ref in dirty {
        if key_ref.db == ANY_DB {
            let key_refs = key_refs_of(ctx, &key_ref.name).into_iter();
            work.extend(key_refs.map(|key_ref| (key_ref, Vec::new())));
        } else {
            work.insert(key_ref, Vec::new());
        }
    }
    for revoked in revoked {
        let here: &mut Vec<_> = work.entry(revoked.key_ref.clone()).or_default();
        here.push(revoked);
    }
    work
}

/// The databases that have a lock under a key: 6.2 does not say to which one a lock has come.
fn key_refs_of(ctx: Context<'_>, key: &Rc<[u8]>) -> Vec<KeyRef> {
    let name = OwnedString::new(ctx, key);
    let has_lock = |_: &i32| {
        let opened = Key::open(ctx, name.arg(), Purpose::Write);
        opened.is_ok_and(|opened| opened.lock().is_some())
    };
    let dbs = (0..).take_while(|db| ctx.select_db(*db)).filter(has_lock);
    dbs.map(|db| KeyRef {
        db,
        name: Rc::clone(key),
    })
    .collect()
}

/// Takes holds of a key back, serves it outside a command, and sets its ttl again if it has lost it.
fn look_at(ctx: Context<'_>, key_ref: &KeyRef, revoked: Vec<Revoked>) {
    ctx.select_db(key_ref.db);
    let name = OwnedString::new(ctx, &key_ref.name);
    if !writes::are_served_here(ctx, name.arg()) {
        dismiss_all(key_ref, Error::TryAgain);
        // A lock that has come before its slot may have no ttl.
        let key = Key::open(ctx, name.arg(), Purpose::Read);
        if key.is_ok_and(|key| key.lock().is_some()) {
            with(|registry| registry.put_off(key_ref.clone()));
        }
        return;
    }
    let opened = Key::open(ctx, name.arg(), Purpose::Write);
    match opened {
        // The clock is read after the server has looked at it, so that no grant is dated before the expiry that made room for it.
        Ok(mut key) => {
            let now = clock::now();
            for revoked in revoked {
                take_back(&mut key, revoked, now);
            }
            let now = serve_changed(&mut key, key_ref, now);
            key.repair_ttl(now);
        }
        Err(WrongType) => {
            revoked.into_iter().for_each(seek);
            dismiss_all(key_ref, Error::WrongType);
        }
    }
}

/// Ends a hold whose owner was gone before it heard of it. The owner has again whatever it had before and knows of.
fn take_back(key: &mut Key<'_>, revoked: Revoked, now: Now) {
    let token = revoked.token.as_token();
    let stands = |lock: &&Lock| {
        let hold = lock.hold_of(token, now);
        hold.is_some_and(|(_, hold)| hold.fence == revoked.fence)
    };
    let undo = |lock| revoked.undo(lock, key.deadline(now), now);
    let Some(effect) = key.lock().filter(stands).map(undo) else {
        return seek(revoked);
    };
    key.commit(&effect, true, now);
    // A conversion that is undone ends no hold.
    if matches!(effect, Effect::Release { .. }) {
        TAKEN_BACK.add_one();
        key.note(Event::Release);
    }
}

/// Has a hold looked for that is not where it was granted, if its lock has left since.
fn seek(revoked: Revoked) {
    if revoked.has_left {
        with(|registry| registry.deliveries.seek(revoked));
        sweep::request();
    }
}
