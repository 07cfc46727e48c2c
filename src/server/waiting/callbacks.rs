//! What the server calls when something happens to a lock, or to all keys, outside the commands of this module.
//!
//! A callback runs in the middle of something of the server's. It marks what is to be looked at and sets the timer, no more.
//!
//! None of them is called for a key that is not a lock: the methods of the type are called for its values only, and the server's
//! events here are of whole databases. Keyspace events would be called for every key.

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use redis_module::raw;

use super::super::announce;
use super::super::api::{call, Arg, Context};
use super::super::data_type;
use super::super::stats::removals;
use super::super::sweep;
use super::{alarm, with};
use crate::lock::Lock;

thread_local! {
    /// Whether the change that the server reports is our own.
    static QUIET: Cell<bool> = const { Cell::new(false) };
    /// Whether a lock has left its key since the timer has run last, in a cluster.
    static HAS_LEFT: Cell<bool> = const { Cell::new(false) };
}

/// Does `change`, which needs no mark as its key is served after it.
pub(crate) fn quietly(change: impl FnOnce()) {
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
        ctx.on_server_event(raw::REDISMODULE_EVENT_CRON_LOOP, Some(alarm::on_round)),
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
    if with(|room| room.mark_db(db)) {
        alarm::arm();
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
        room.swap_dbs(info.dbnum_first, info.dbnum_second);
        let first = room.mark_db(Some(info.dbnum_first));
        room.mark_db(Some(info.dbnum_second)) || first
    });
    if marked {
        alarm::arm();
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
    removals::begin(lock);
    removals::note_expiry(lock, db.or_else(announce::only_db), name);
    let is_waited_for = with(|room| {
        room.deliveries.left(db, name.bytes());
        match db {
            Some(db) => room.mark_replaced(db, name.bytes()),
            None => room.mark_in_all_dbs(name.bytes()),
        }
    });
    if is_waited_for {
        alarm::arm();
    }
    let in_cluster = Context::detached().is_some_and(Context::is_cluster);
    if in_cluster && !HAS_LEFT.replace(true) {
        alarm::arm_at_once();
    }
}

/// A lock was loaded. One that comes by RESTORE may have no ttl: it is looked at once the command is over. One that comes from a
/// file, or from a primary, is looked at with all others after that.
pub(crate) fn lock_came(io: *mut raw::RedisModuleIO) {
    if Context::detached().is_none_or(Context::is_loading) {
        return sweep::request();
    }
    // SAFETY: the server passed `io` to the running method; the name, if there is one, lives as long as that.
    let name = unsafe { call!(RedisModule_GetKeyNameFromIO(io)) };
    if name.is_null() {
        return;
    }
    // SAFETY: as above. The static is not written after the load.
    let (name, db) = unsafe {
        let name = Arg::new(name.cast_mut());
        (name, raw::RedisModule_GetDbIdFromIO.map(|db_of| db_of(io)))
    };
    with(|room| room.mark_anyway(db, name.bytes()));
    alarm::arm();
}
