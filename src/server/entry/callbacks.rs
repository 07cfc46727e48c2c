//! Every entry from the server but the commands and the type's other methods: see
//! `docs/ARCHITECTURE.md`, "Callbacks".
//!
//! A callback runs in the middle of something of the server's. It leaves a note and sets the timer,
//! and never serves a key itself. Only the timer, which runs alone, does more.
//!
//! None of them runs for a key that is not a lock: the methods of the type are called for its
//! values only, and the server's events here are of whole databases. Keyspace events would be
//! called for every key.

// Long because: it is the one list of what the server calls.

/// Makes the `extern "C"` function of a server event from one that gets the context, the subevent
/// and the data of the event. The server never leaves the context out.
macro_rules! on_event {
    ($run:ident) => {{
        unsafe extern "C" fn on_event(
            ctx: *mut raw::RedisModuleCtx,
            _event: raw::RedisModuleEvent,
            subevent: u64,
            data: *mut c_void,
        ) {
            // SAFETY: the server's own context, in its callback; the data are those of this event.
            unsafe {
                if let Some(ctx) = Context::new(ctx) {
                    $run(ctx, subevent, data);
                }
            }
        }
        Some(on_event)
    }};
}

mod replication;

use std::ffi::{c_int, c_void, CStr};
use std::num::NonZeroU64;

use redis_module::raw;

use crate::server::api::clock;
use crate::server::api::lock_type;
use crate::server::api::{call, Arg, Context, OwnedString};
use crate::server::clients::blocked_client::{self, BlockedClient, Callbacks, Note};
use crate::server::cluster::slot_migration::{self, Step};
use crate::server::host::ends;
use crate::server::host::module::{Module, Task};
use crate::server::replication::propagation;
use crate::server::settings::eviction;
use redis_lock_core::engine::guard::GuardEvent;
use redis_lock_core::engine::{tick, Outcome};
use redis_lock_core::lock::Lock;

/// What the server calls for a blocked client. `on_timeout` says whether this server can unblock a
/// client by CLIENT UNBLOCK TIMEOUT while it is being granted.
pub(in crate::server) fn of_blocked_client(on_timeout: bool) -> Callbacks {
    Callbacks {
        on_reply: Some(on_reply),
        on_timeout: if on_timeout {
            Some(on_unblock_timeout)
        } else {
            None
        },
        on_free: Some(on_free),
        on_gone: Some(on_gone),
    }
}

/// Subscribes to the server's events. False when it refuses one that the module needs.
pub(in crate::server) fn subscribe(ctx: Context<'_>) -> bool {
    let hears = ctx.on_server_event(raw::REDISMODULE_EVENT_CONFIG, on_event!(on_config));
    eviction::set_notified(hears);
    let heard = [
        ctx.on_server_event(raw::REDISMODULE_EVENT_FLUSHDB, on_event!(on_flush)),
        ctx.on_server_event(raw::REDISMODULE_EVENT_SWAPDB, on_event!(on_swap)),
        ctx.on_server_event(raw::REDISMODULE_EVENT_CRON_LOOP, on_event!(on_round)),
        replication::subscribe(ctx),
        slot_migration::subscribe(ctx, on_event!(on_migration), on_event!(on_fork)),
    ];
    heard.iter().all(|heard| *heard)
}

/// Names what is to be called when a connection is lost, once somebody says LINGER.
pub(in crate::server) fn prepare_bindings() {
    Module::get().connections.set_callback(ON_CLIENT);
}

/// The module's timer fires.
pub(in crate::server) unsafe extern "C" fn on_timer(
    ctx: *mut raw::RedisModuleCtx,
    _data: *mut c_void,
) {
    if !Module::get().timer.fires() {
        return;
    }
    // SAFETY: the server's own context, in its callback.
    if let Some(mut task) = unsafe { Task::begin(ctx, None) } {
        let module = task.module();
        module.migrations.turn_begins();
        if let Some(pause_us) = tick::run(&mut task) {
            task.machine().is_due_changed = false;
            module.timer.arm_in(pause_us);
        } else if module.shared.bindings.look(|all| all.has_untold()) {
            module.timer.arm_at_once();
        }
    }
}

/// The server's own round, ten times a second by a clock that nobody can set.
fn on_round(_ctx: Context<'_>, _subevent: u64, _data: *mut c_void) {
    let module = Module::get();
    module.recent.advance(clock::monotonic_us());
    if let Some(ctx) = Context::detached() {
        module.forced.tell_rest(ctx);
    }
    if module.timer.is_armed() {
        module.timer.replace_overdue();
    } else if module.shared.inbox.has_notes() {
        // No timer can be set while the server loads.
        module.timer.arm_at_once();
    }
}

/// FLUSHDB and FLUSHALL, which do not unlink the keys one by one.
unsafe fn on_flush(_ctx: Context<'_>, subevent: u64, data: *mut c_void) {
    // SAFETY: the data of this event is a structure of this kind.
    let Some(info) = (unsafe { data.cast::<raw::RedisModuleFlushInfo>().as_ref() }) else {
        return;
    };
    let module = Module::get();
    module.shared.inbox.may_change();
    module.removals.forget();
    let db = (info.dbnum >= 0).then_some(info.dbnum);
    if subevent == raw::REDISMODULE_SUBEVENT_FLUSHDB_START {
        ends::flushed(module, db);
        module.shared.bindings.change(|all| all.empty_db(db));
    }
    if module.shared.inbox.do_names_matter() {
        module.leave(Note::Emptied { db });
    }
}

/// SWAPDB, after which the same waiters wait for other keys.
unsafe fn on_swap(_ctx: Context<'_>, _subevent: u64, data: *mut c_void) {
    // SAFETY: the data of this event is a structure of this kind.
    let info = unsafe { data.cast::<raw::RedisModuleSwapDbInfo>().as_ref() };
    if let Some(info) = info {
        let module = Module::get();
        let (one, other) = (info.dbnum_first, info.dbnum_second);
        let bindings = &module.shared.bindings;
        bindings.change(|all| all.swap_dbs(one, other));
        module.leave(Note::Swapped(one, other));
    }
}

/// CONFIG SET.
unsafe fn on_config(ctx: Context<'_>, _subevent: u64, data: *mut c_void) {
    // SAFETY: the data of this event is a structure of this kind.
    let Some(changes) = (unsafe { data.cast::<raw::RedisModuleConfigChangeV1>().as_ref() }) else {
        return;
    };
    let module = Module::get();
    replication::subscribe_to_links(ctx);
    module.leave(Note::Guard(GuardEvent::SettingsChanged));
    if changes.config_names.is_null() {
        return;
    }
    let count = usize::try_from(changes.num_changes).unwrap_or_default();
    // SAFETY: the structure has as many names as it says, strings that end with NUL.
    let is_policy = unsafe {
        let names = std::slice::from_raw_parts(changes.config_names, count);
        names
            .iter()
            .any(|name| CStr::from_ptr(*name) == c"maxmemory-policy")
    };
    if is_policy {
        eviction::warn(ctx);
    }
}

/// A lock has left its key: DEL, expiry, eviction, overwriting, RENAME, MOVE, a slot that goes.
pub(in crate::server) unsafe extern "C" fn on_unlink2(
    key: *mut raw::RedisModuleKeyOptCtx,
    value: *const c_void,
) {
    // SAFETY: the server's own structure, in its callback; the name lives as long. The value, one
    // of our type, is alive yet.
    let (name, db, lock) = unsafe {
        let name = Arg::new(call!(RedisModule_GetKeyNameFromOptCtx(key)).cast_mut());
        let db = call!(RedisModule_GetDbIdFromOptCtx(key));
        (name, db, lock_type::lock_at(value))
    };
    lock_left(db, name, lock);
}

fn lock_left(db: c_int, name: Arg<'_>, lock: Option<&Lock>) {
    let module = Module::get();
    let Some(lock) = lock.filter(|_| !module.shared.inbox.is_own_change()) else {
        return;
    };
    module.shared.inbox.may_change();
    let migrations = &module.migrations;
    if migrations.leaves(name.bytes(), lock) || migrations.has_left(name.bytes()) {
        // Its end is counted where it is held.
        module.removals.forget();
    } else if let Some(cause) = module.removals.begin(lock) {
        ends::lock_ended(module, db, name, lock, cause);
    }
    let bindings = &module.shared.bindings;
    if bindings.are_any() {
        bindings.change(|all| all.lock_left(db, name.bytes(), lock));
    }
    if module.shared.inbox.do_names_matter() {
        let name = name.bytes().into();
        module.leave(Note::Left { db, name });
    }
    let is_in_cluster = Context::detached().is_some_and(Context::is_cluster);
    if is_in_cluster && !module.shared.inbox.lock_left() {
        module.timer.arm_at_once();
    }
}

/// An atomic slot migration begins or ends.
unsafe fn on_migration(ctx: Context<'_>, subevent: u64, data: *mut c_void) {
    let module = Module::get();
    // SAFETY: the server passed these to the callback of this event.
    let Some((step, migration)) = (unsafe { slot_migration::read_event(subevent, data) }) else {
        return;
    };
    if step == Step::SnapshotBegins {
        let (key, fence) = (migration.key_for_fence(), module.shared.fences.last());
        if let Some((key, fence)) = key.zip(fence) {
            let key = OwnedString::new(ctx, &key);
            propagation::send_fence_before_snapshot(ctx, key.arg(), fence);
        }
        return;
    }
    module.migrations.follow(step, migration);
    if matches!(step, Step::ImportCompleted | Step::ExportCompleted) {
        // Repairs were put off until now, and waiters may have to go.
        module.leave(Note::SlotsChanged);
    }
}

/// A child of the server is born: it may be the one that writes the keys of a migration. From now
/// on the server sends on what changes in its slots.
fn on_fork(_ctx: Context<'_>, subevent: u64, _data: *mut c_void) {
    let is_exporting = Module::get().migrations.is_exporting();
    if subevent != raw::REDISMODULE_SUBEVENT_FORK_CHILD_BORN || !is_exporting {
        return;
    }
    // The event comes a moment too early, before the server has noted that the child is there. The
    // source cannot be asked to pause before this timer: the server reads nothing from the target
    // between the two.
    if let Some(ctx) = Context::detached() {
        ctx.create_timer(0, send_last_fence);
    }
}

/// Sends the last fence to the targets. One that is still to come belongs to an effect, which is
/// sent as well.
unsafe extern "C" fn send_last_fence(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    // SAFETY: the server's own context, in its callback.
    let Some(ctx) = (unsafe { Context::new(ctx) }).filter(|ctx| ctx.is_primary()) else {
        return;
    };
    let module = Module::get();
    let keys = module.migrations.keys_of_exports();
    let Some(fence) = module.shared.fences.last().filter(|_| !keys.is_empty()) else {
        return;
    };
    if ctx.must_not_write() {
        ctx.create_timer(slot_migration::PAUSED_MS, send_last_fence);
        return;
    }
    for key in keys {
        let key = OwnedString::new(ctx, &key);
        propagation::send_fence(ctx, key.arg(), fence);
    }
}

/// The server asks for the reply of a client that was unblocked.
unsafe extern "C" fn on_reply(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    // SAFETY: the server's own context, in its callback.
    let Some(ctx) = (unsafe { Context::new(ctx) }) else {
        return raw::REDISMODULE_ERR as c_int;
    };
    // SAFETY: the context is that of a reply callback.
    match unsafe { blocked_client::outcome_of(ctx) } {
        Some(outcome) => outcome.reply(|reply| ctx.reply(reply)),
        None => ctx.reply_null(),
    }
    raw::REDISMODULE_OK as c_int
}

/// The server has done with an outcome: sent to the client, or never to be sent. It asks for the
/// reply of each client that is still there.
unsafe extern "C" fn on_free(ctx: *mut raw::RedisModuleCtx, outcome: *mut c_void) {
    let module = Module::get();
    // SAFETY: the server passed these.
    let taken = unsafe { blocked_client::take_outcome(ctx, outcome, &module.spare_outcome) };
    if let Some((Outcome::Granted(delivery, _), is_gone)) = taken {
        if !is_gone {
            module.shared.delivered(&delivery);
        } else if module.shared.lost(&delivery) {
            module.timer.arm_at_once();
        }
    }
}

/// A client is gone: it was killed, its connection broke, CLIENT UNBLOCK ERROR has answered it, or
/// the server became a replica.
unsafe extern "C" fn on_gone(
    _ctx: *mut raw::RedisModuleCtx,
    client: *mut raw::RedisModuleBlockedClient,
) {
    Module::get().leave(Note::Gone(BlockedClient::new(client)));
}

/// CLIENT UNBLOCK TIMEOUT.
unsafe extern "C" fn on_unblock_timeout(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    // SAFETY: the server's own context, in its callback.
    if let Some(ctx) = unsafe { Context::new(ctx) } {
        ctx.reply_null();
        // SAFETY: the context is that of a timeout callback.
        let client = unsafe { BlockedClient::of_timeout(ctx) };
        Module::get().leave(Note::Gone(client));
    }
    raw::REDISMODULE_OK as c_int
}

const ON_CLIENT: raw::RedisModuleEventCallback = on_event!(on_client);

/// A client is freed, for any reason: from the first LINGER on.
unsafe fn on_client(_ctx: Context<'_>, subevent: u64, data: *mut c_void) {
    let module = Module::get();
    if subevent != raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED {
        return;
    }
    // SAFETY: the data of this event is a structure of this kind.
    let Some(info) = (unsafe { data.cast::<raw::RedisModuleClientInfo>().as_ref() }) else {
        return;
    };
    let client = NonZeroU64::new(info.id);
    if let Some(client) = client.filter(|client| module.ends_something(*client)) {
        module.leave(Note::Disconnected(client));
    }
}
