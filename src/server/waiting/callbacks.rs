//! What the server calls when something happens to a lock, or to all keys, outside the commands of this module.
//!
//! A callback runs in the middle of something of the server's. It marks what is to be looked at and sets the timer, no more.
//!
//! None of them is called for a key that is not a lock: the methods of the type are called for its values only, and the server's
//! events here are of whole databases. Keyspace events would be called for every key.

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use redis_module::raw;

use super::super::api::{Arg, Context};
use super::super::data_type;
use super::super::notify;
use super::super::slot_migration;
use super::super::stats::removals;
use super::super::sweep;
use super::{timer, with};
use crate::lock::Lock;

thread_local! {
    /// Whether the change that the server reports is our own.
    static QUIET: Cell<bool> = const { Cell::new(false) };
    /// Whether a lock has left its key since the timer has run last, in a cluster.
    static HAS_LEFT: Cell<bool> = const { Cell::new(false) };
}

/// Does `change`, which needs no mark as its key is served after it.
pub(crate) fn suppress_unlink(change: impl FnOnce()) {
    QUIET.set(true);
    change();
    QUIET.set(false);
}

/// Whether the change that the server reports is our own.
pub(crate) fn is_quiet() -> bool {
    QUIET.get()
}

/// Whether an absent key may be one that MIGRATE has just taken to another node of the cluster, in this very transaction.
pub(crate) fn may_have_moved() -> bool {
    HAS_LEFT.get()
}

/// The timer has come: what has left is known to the cluster by now.
pub(super) fn nothing_has_moved() {
    HAS_LEFT.set(false);
}

/// Subscribes to what can end a hold without a command of ours. False when the server refuses.
pub(crate) fn subscribe(ctx: Context<'_>) -> bool {
    let heard = [
        ctx.on_server_event(raw::REDISMODULE_EVENT_FLUSHDB, Some(on_flush)),
        ctx.on_server_event(raw::REDISMODULE_EVENT_SWAPDB, Some(on_swap)),
        ctx.on_server_event(raw::REDISMODULE_EVENT_CRON_LOOP, Some(timer::on_round)),
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
    removals::forget();
    let db = (info.dbnum >= 0).then_some(info.dbnum);
    if with(|registry| registry.mark_db(db)) {
        timer::arm();
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
    if with(|registry| registry.swap_dbs(info.dbnum_first, info.dbnum_second)) {
        timer::arm();
    }
    sweep::start_over();
}

/// A lock has left its key: DEL, expiry, eviction, overwriting, RENAME, MOVE, a slot that goes. From 7.0 on.
pub(crate) unsafe extern "C" fn on_unlink2(
    key: *mut raw::RedisModuleKeyOptCtx,
    value: *const c_void,
) {
    // SAFETY: the statics are not written after the load.
    let (Some(name_of), Some(db_of)) = (unsafe {
        (
            raw::RedisModule_GetKeyNameFromOptCtx,
            raw::RedisModule_GetDbIdFromOptCtx,
        )
    }) else {
        return;
    };
    // SAFETY: the server's own structure, in its callback; the name lives as long. The value, one of our type, is alive yet.
    let (name, db, lock) = unsafe {
        let name = Arg::new(name_of(key).cast_mut());
        (name, db_of(key), data_type::lock_at(value))
    };
    lock_left(Some(db), name, lock);
}

/// The same on 6.2, which does not say in which database.
pub(crate) unsafe extern "C" fn on_unlink(key: *mut raw::RedisModuleString, value: *const c_void) {
    // SAFETY: the server's own string, in its callback. The value, one of our type, is alive yet.
    let (name, lock) = unsafe { (Arg::new(key), data_type::lock_at(value)) };
    lock_left(None, name, lock);
}

fn lock_left(db: Option<c_int>, name: Arg<'_>, lock: Option<&Lock>) {
    let Some(lock) = lock.filter(|_| !QUIET.get()) else {
        return;
    };
    if slot_migration::leaves(name.bytes(), lock) {
        // Whatever ends it is counted where it is held.
        removals::forget();
    } else {
        removals::begin(lock);
        removals::note_expiry(lock, db.or_else(notify::only_db), name);
    }
    let is_waited_for = with(|registry| {
        registry.deliveries.left(db, name.bytes());
        match db {
            Some(db) => registry.mark_replaced(db, name.bytes()),
            None => registry.mark_in_all_dbs(name.bytes()),
        }
    });
    if is_waited_for {
        timer::arm();
    }
    let in_cluster = Context::detached().is_some_and(Context::is_cluster);
    if in_cluster && !HAS_LEFT.replace(true) {
        timer::arm_at_once();
    }
}

/// A lock was loaded. One that comes by RESTORE may have no ttl: it is looked at once the command is over. One that comes from a
/// file, or from a primary, is looked at with all others after that.
pub(crate) fn lock_came(io: *mut raw::RedisModuleIO, name: Option<Arg<'_>>) {
    if Context::detached().is_none_or(Context::is_loading) {
        return sweep::request();
    }
    let Some(name) = name else {
        return;
    };
    // SAFETY: the server passed `io` to the running method. The static is not written after the load.
    let db = unsafe { raw::RedisModule_GetDbIdFromIO.map(|db_of| db_of(io)) };
    with(|registry| registry.mark_anyway(db, name.bytes()));
    timer::arm();
}
