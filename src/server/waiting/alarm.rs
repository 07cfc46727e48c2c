//! What happens without a command: deadlines, timeouts, and keys that were changed by others.
//!
//! One timer of the server's is set to the earliest thing that there is to do. Everything else here only marks keys and sets it.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void, CStr};

use redis_module::raw;

use super::super::announce::{self, Event};
use super::super::api::{Arg, Context, OwnedString};
use super::super::clock;
use super::super::data_type;
use super::super::keyspace::{Key, WrongType};
use super::super::open_key::Purpose;
use super::super::slot_migration;
use super::super::stats::counters::{TAKEN_BACK, TIMED_OUT};
use super::super::stats::departures;
use super::super::writes;
use super::client::{self, Outcome};
use super::room::{Due, Forfeit, Place};
use super::{dismiss_all, serve_changed, told, with};
use crate::command::Error;
use crate::lock::{Effect, Hold};

/// The longest that the timer sleeps, so that a wall clock which is set forward is noticed soon.
const LONGEST_SLEEP_US: u64 = 1_000_000;

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
    /// Whether the change that the server reports is our own.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Does `change`, which needs no mark as its key is served after it.
pub(crate) fn quietly(change: impl FnOnce()) {
    QUIET.set(true);
    change();
    QUIET.set(false);
}

/// Sets the timer, if there is something to do before it goes off.
pub(super) fn arm() {
    let due = with(|room| room.due());
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

/// Has these keys looked at, whether anybody waits for them or not.
pub(crate) fn look_at_later(places: impl Iterator<Item = Place>) {
    with(|room| places.for_each(|place| room.mark_anyway(place.db, &place.key)));
    arm();
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
        announce::flush(ctx);
    }
}

/// The server's own round, ten times a second by a clock that nobody can set. Its timers it measures by the wall clock: when that is set
/// back, they sleep for as long as it was set back by.
unsafe extern "C" fn on_round(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _subevent: u64,
    _data: *mut c_void,
) {
    told::rest();
    departures::settle();
    let (Some(armed), Some(ctx)) = (ARMED.get(), Context::detached()) else {
        return;
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
    for leaver in with(|room| room.take_timed_out(clock::monotonic_us())) {
        // Who stood behind it may be next.
        with(|room| room.mark(leaver.place.db, &leaver.place.key));
        TIMED_OUT.add_one();
        client::unblock(leaver, |_| Outcome::TimedOut);
    }
    with(|room| room.mark_woken(clock::now()));
    look_at_slots(ctx);
    if !with(|room| room.has_work()) {
        return arm();
    }
    if !ctx.is_primary() {
        // The new primary decides from now on. Who still waits here has been told so by the server.
        with(|room| (room.take_dirty(), room.take_forfeited()));
        return arm();
    }
    if ctx.must_not_write() {
        return arm_in(PAUSED_US);
    }
    if writes::are_refused(ctx) {
        return arm_in(REFUSED_US);
    }
    for forfeit in with(|room| room.take_forfeited()) {
        take_back(ctx, &forfeit);
    }
    for place in with(|room| room.take_dirty()) {
        look_at(ctx, &place);
    }
    arm();
}

/// Sends away who waits for a key that this node does not serve any more, though it may have it still.
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
    for place in with(|room| room.places()) {
        let name = OwnedString::new(ctx, &place.key);
        if !writes::are_served_here(ctx, name.arg()) {
            dismiss_all(&place, Error::TryAgain);
        }
    }
}

/// Serves a key outside a command, and mends it.
fn look_at(ctx: Context<'_>, place: &Place) {
    ctx.select_db(place.db);
    let name = OwnedString::new(ctx, &place.key);
    if !writes::are_served_here(ctx, name.arg()) {
        slot_migration::put_off(place);
        return dismiss_all(place, Error::TryAgain);
    }
    let opened = Key::open(ctx, name.arg(), Purpose::Write);
    match opened {
        // The clock is read after the server has looked at it, so that no grant is dated before the expiry that made room for it.
        Ok(mut key) => {
            let now = serve_changed(&mut key, place, clock::now());
            key.mend(now);
        }
        Err(WrongType) => dismiss_all(place, Error::WrongType),
    }
}

/// Ends a hold whose owner was gone before it heard of it. What the owner had before, and knows of, it has again.
fn take_back(ctx: Context<'_>, forfeit: &Forfeit) {
    let granted = &forfeit.granted;
    let place = &granted.place;
    ctx.select_db(place.db);
    let name = OwnedString::new(ctx, &place.key);
    if !writes::are_served_here(ctx, name.arg()) {
        return;
    }
    let Ok(mut key) = Key::open(ctx, name.arg(), Purpose::Write) else {
        return;
    };
    let now = clock::now();
    let token = granted.token.as_token();
    let stands = key.lock().and_then(|lock| lock.hold_of(token, now));
    if stands.is_some_and(|(_, hold)| hold.fence == granted.fence) {
        let now_ms = now.ms();
        let effect = match forfeit.before {
            Some((mode, hold)) if !hold.deadline.is_over(now_ms) => {
                let end = key.deadline(now).unwrap_or(hold.deadline);
                let deadline = hold.deadline.min(end);
                let hold = Hold { deadline, ..hold };
                Effect::Hold {
                    now_ms,
                    mode,
                    token,
                    hold,
                }
            }
            _ => Effect::Release { now_ms, token },
        };
        key.commit(&effect, true, now);
        // A conversion that is undone ends no hold.
        if matches!(effect, Effect::Release { .. }) {
            TAKEN_BACK.add_one();
            key.note(Event::Release);
        }
    }
    with(|room| room.mark(place.db, &place.key));
}

/// Subscribes to what can end a hold without a command of ours. False when the server refuses.
pub(crate) fn subscribe(ctx: Context<'_>) -> bool {
    let generic = raw::REDISMODULE_NOTIFY_GENERIC;
    // GENERIC is EXPIRE and the like: that a key goes is seen by `on_unlink`.
    let heard = [
        ctx.on_server_event(raw::REDISMODULE_EVENT_FLUSHDB, Some(on_flush)),
        ctx.on_server_event(raw::REDISMODULE_EVENT_SWAPDB, Some(on_swap)),
        ctx.on_server_event(raw::REDISMODULE_EVENT_CRON_LOOP, Some(on_round)),
        ctx.on_keyspace_event(generic, Some(on_generic_event)),
    ];
    heard.iter().all(|heard| *heard)
}

/// FLUSHDB and FLUSHALL, which do not unlink the keys one by one.
unsafe extern "C" fn on_flush(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _subevent: u64,
    data: *mut c_void,
) {
    // SAFETY: the data of this event is a structure of this kind.
    let Some(info) = (unsafe { data.cast::<raw::RedisModuleFlushInfo>().as_ref() }) else {
        return;
    };
    let db = (info.dbnum >= 0).then_some(info.dbnum);
    if with(|room| room.mark_db(db)) {
        arm();
    }
}

/// SWAPDB, after which the same waiters wait for other keys.
unsafe extern "C" fn on_swap(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _subevent: u64,
    data: *mut c_void,
) {
    // SAFETY: the data of this event is a structure of this kind.
    let Some(info) = (unsafe { data.cast::<raw::RedisModuleSwapDbInfo>().as_ref() }) else {
        return;
    };
    let marked = with(|room| {
        room.swap_marks(info.dbnum_first, info.dbnum_second);
        let first = room.mark_db(Some(info.dbnum_first));
        room.mark_db(Some(info.dbnum_second)) || first
    });
    if marked {
        arm();
    }
}

/// EXPIRE, RENAME, RESTORE and the like.
unsafe extern "C" fn on_generic_event(
    ctx: *mut raw::RedisModuleCtx,
    _kind: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the server passes the name of the event, a string that ends with NUL, and the key's, both its own in its callback.
    let (event, name) = unsafe { (CStr::from_ptr(event), Arg::new(key)) };
    departures::hear(event, name);
    // These leave a lock without a ttl. EXPIRE may leave one that is too long, but is too common with other keys to look at each.
    let loses_ttl = event == c"persist" || event == c"restore";
    // And these take such a one elsewhere before it is mended, within one transaction.
    let moves = event == c"rename_to" || event == c"move_to";
    let may_need_mending = loses_ttl || (moves && with(|room| room.has_work()));
    if may_need_mending || !with(|room| room.is_empty()) {
        // SAFETY: the server's own context, in its callback.
        if unsafe { Context::new(ctx) }.is_some_and(|ctx| {
            let db = ctx.selected_db();
            with(|room| {
                if may_need_mending {
                    room.mark_anyway(db, name.bytes());
                }
                room.mark(db, name.bytes()) || may_need_mending
            })
        }) {
            arm();
        }
    }
    raw::REDISMODULE_OK as c_int
}

/// A lock has left its key: DEL, expiry, eviction, overwriting, RENAME, MOVE, a slot that goes. From 7.0 on.
pub(crate) unsafe extern "C" fn on_unlink2(
    key: *mut raw::RedisModuleKeyOptCtx,
    value: *const c_void,
) {
    if QUIET.get() {
        return;
    }
    // SAFETY: the statics are not written after the load.
    let (Some(name_of), Some(db_of)) = (unsafe {
        (
            raw::RedisModule_GetKeyNameFromOptCtx,
            raw::RedisModule_GetDbIdFromOptCtx,
        )
    }) else {
        return;
    };
    // SAFETY: the server's own structure, in its callback; the name lives as long.
    let (name, db) = unsafe { (Arg::new(name_of(key).cast_mut()), db_of(key)) };
    // SAFETY: the value that leaves, one of our type, is alive yet.
    let lock = slot_migration::leaves(name.bytes(), unsafe { data_type::lock_at(value) });
    departures::begin(name.bytes(), lock);
    if with(|room| room.mark(db, name.bytes())) {
        arm();
    }
}

/// The same on 6.2, which does not say in which database.
pub(crate) unsafe extern "C" fn on_unlink(key: *mut raw::RedisModuleString, value: *const c_void) {
    if QUIET.get() {
        return;
    }
    // SAFETY: the server's own string, in its callback.
    let name = unsafe { Arg::new(key) };
    // SAFETY: the value that leaves, one of our type, is alive yet.
    departures::begin(name.bytes(), unsafe { data_type::lock_at(value) });
    if with(|room| room.mark_in_all_dbs(name.bytes())) {
        arm();
    }
}
