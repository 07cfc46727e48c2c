//! Atomic slot migration (`CLUSTER MIGRATESLOTS`): what the module does for slots that come and for slots that go.
//! Only Valkey has it, from 9 on.
//!
//! # What happens, in this order
//!
//! 1. The source forks. The child writes each key of the slots as commands, by `aof_rewrite` of the type. The target carries
//!    these out before it owns the slots: `LOCK._APPLY` and `PEXPIREAT`, from a client that counts as a primary.
//! 2. What changes on the source from the fork on follows them.
//! 3. The source pauses its clients' writes and all expiry. The target takes the slots and tells everybody.
//! 4. The source hears of it, deletes the keys and ends the pause.
//!
//! A replica of the target gets all that the target gets. A migration that fails has the target delete what has come.
//!
//! # What follows
//!
//! - **A slot that is being imported is not this node's.** So the timer hands nothing on in it and mends nothing
//!   ([`writes`](super::writes)). What needs mending is put off until the slot is here.
//! - **What has come is not held here yet.** It is counted apart ([`Arrivals`], [`held`]), and what ends it was done elsewhere
//!   ([`leaves`]). Two cases are not told apart until the import ends: a lock that RENAME or MOVE has put under another key, and
//!   what came to a replica with a full synchronization, of which the server says nothing.
//! - **The pause binds the module, too.** The server forbids effects outside commands while it lasts. The timer waits.
//! - **Whoever waits for a key of a slot that has gone** is sent away as soon as the source hears of it.
//! - **Fences go on.** An effect carries its fence along. A lock that is free at the fork has no effect. So the source sends
//!   its last fence right after each fork ([`send_last_fence`]). It cannot while clients' writes are paused, by an operator or
//!   by another migration. Where that lasts until the slots have gone, the clocks alone order the fences.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};
use std::ops::RangeInclusive;

use redis_module::raw;

use super::api::{Context, OwnedString};
use super::fences;
use super::lock_key::Key;
use super::propagation;
use super::server_line::{Brand, Line};
use super::stats::held::Held;
use super::waiting::timer;
use crate::lock::slot::{key_in, slot_of};
use crate::lock::Lock;

/// Says that a module can live with it. Elsewhere the bit may mean something else.
const HANDLE_ATOMIC_SLOT_MIGRATION: c_int = 1 << 5;

/// Valkey's number of the event. Redis has another event under it.
const ATOMIC_SLOT_MIGRATION: u64 = 19;

const IMPORT_STARTED: u64 = 0;
const EXPORT_STARTED: u64 = 1;
const IMPORT_ABORTED: u64 = 2;
const EXPORT_ABORTED: u64 = 3;
const IMPORT_COMPLETED: u64 = 4;
const EXPORT_COMPLETED: u64 = 5;

/// How soon the last fence is tried to be sent again while the server is paused.
const PAUSED_MS: u64 = 1;

/// The name of the key that carries a fence. It is never made; its slot is what the server goes by.
const FENCE_KEY: &str = "redis-lock:fence:";

/// The data of the event, in the server's form.
#[repr(C)]
struct Info {
    version: u64,
    job_name: [c_char; JOB_LEN + 1],
    slot_ranges: *const SlotRange,
    num_slot_ranges: u32,
}

#[repr(C)]
struct SlotRange {
    start: c_int,
    end: c_int,
}

const JOB_LEN: usize = 40;

/// The name of a migration.
type Job = [c_char; JOB_LEN + 1];

/// Slots that move together.
#[derive(Debug)]
struct Migration {
    job: Job,
    slots: Vec<RangeInclusive<u16>>,
    /// The part of what is held that has come with it.
    arrived: Held,
}

impl Migration {
    fn has(&self, slot: u16) -> bool {
        self.slots.iter().any(|slots| slots.contains(&slot))
    }
}

/// The migrations that are going on.
#[derive(Debug, Default)]
struct Migrations {
    imports: Vec<Migration>,
    exports: Vec<Migration>,
}

thread_local! {
    static MIGRATIONS: RefCell<Migrations> = const {
        RefCell::new(Migrations { imports: Vec::new(), exports: Vec::new() })
    };
}

fn with<R>(act: impl FnOnce(&mut Migrations) -> R) -> R {
    MIGRATIONS.with_borrow_mut(act)
}

/// Lends the import that a key comes with, if any does.
fn with_import_of<R>(name: &[u8], act: impl FnOnce(&mut Migration) -> R) -> Option<R> {
    with(|migrations| {
        if migrations.imports.is_empty() {
            return None; // The usual case: no slot need be made out.
        }
        let slot = slot_of(name);
        let mut imports = migrations.imports.iter_mut();
        imports.find(|import| import.has(slot)).map(act)
    })
}

/// The options of a module that can live with atomic slot migration, where the server knows them.
pub(super) fn options(ctx: Context<'_>) -> c_int {
    match is_known(ctx) {
        true => HANDLE_ATOMIC_SLOT_MIGRATION,
        false => 0,
    }
}

/// Has migrations noticed, where the server knows them. False when it refuses.
pub(super) fn subscribe(ctx: Context<'_>) -> bool {
    !is_known(ctx)
        || (ctx.on_server_event(ATOMIC_SLOT_MIGRATION, Some(on_migration))
            && ctx.on_server_event(raw::REDISMODULE_EVENT_FORK_CHILD, Some(on_fork)))
}

fn is_known(ctx: Context<'_>) -> bool {
    matches!(Line::of(ctx), Some(Line(Brand::Valkey, 9.., _)))
}

/// The part of what is held that belongs to slots which are being imported. Nothing in the middle of a change.
pub(super) fn held() -> Held {
    MIGRATIONS.with(|migrations| {
        let migrations = migrations.try_borrow();
        let imports = migrations.iter().flat_map(|m| m.imports.iter());
        imports.fold(Held::default(), |sum, import| sum.plus(import.arrived))
    })
}

/// A key that a command from elsewhere is about to change: what it held before, if its slot is being imported.
#[must_use]
pub(super) struct Arrivals(Option<Held>);

impl Arrivals {
    pub(super) fn before(key: &Key<'_>) -> Self {
        let is_import = with_import_of(key.name().bytes(), |_| ()).is_some();
        Self(is_import.then(|| Held::of_key(key.lock())))
    }

    pub(super) fn after(self, key: &Key<'_>) {
        let Some(before) = self.0 else {
            return;
        };
        let now = Held::of_key(key.lock());
        with_import_of(key.name().bytes(), |import| {
            import.arrived = import.arrived.minus(before).plus(now);
        });
    }
}

/// A lock is loaded under this key.
pub(super) fn arrives(name: &[u8], lock: &Lock) {
    with_import_of(name, |import| {
        import.arrived = import.arrived.plus(Held::of_key(Some(lock)));
    });
}

/// A lock leaves this key. Answers whether its slot is being imported.
pub(super) fn leaves(name: &[u8], lock: &Lock) -> bool {
    let gone = with_import_of(name, |import| {
        import.arrived = import.arrived.minus(Held::of_key(Some(lock)));
    });
    gone.is_some()
}

unsafe extern "C" fn on_migration(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    // SAFETY: the data of this event is a structure of this kind.
    let Some(info) = (unsafe { data.cast::<Info>().as_ref() }) else {
        return;
    };
    match subevent {
        IMPORT_STARTED => {
            let import = info.migration();
            with(|migrations| migrations.imports.push(import));
        }
        EXPORT_STARTED => {
            let export = info.migration();
            with(|migrations| migrations.exports.push(export));
        }
        // What has come is deleted by now.
        IMPORT_ABORTED => drop(with(|m| take(&mut m.imports, &info.job_name))),
        IMPORT_COMPLETED => {
            drop(with(|m| take(&mut m.imports, &info.job_name)));
            // What needs mending was put off until now.
            timer::look_at_slots_at_once();
        }
        EXPORT_ABORTED => drop(with(|m| take(&mut m.exports, &info.job_name))),
        EXPORT_COMPLETED => {
            drop(with(|m| take(&mut m.exports, &info.job_name)));
            timer::look_at_slots_at_once();
        }
        _ => {}
    }
}

fn take(migrations: &mut Vec<Migration>, job: &Job) -> Option<Migration> {
    let at = migrations.iter().position(|m| m.job == *job)?;
    Some(migrations.swap_remove(at))
}

impl Info {
    fn migration(&self) -> Migration {
        let count = usize::try_from(self.num_slot_ranges).unwrap_or_default();
        let ranges = if self.slot_ranges.is_null() {
            &[]
        } else {
            // SAFETY: the server passes that many ranges, which live as long as this callback.
            unsafe { std::slice::from_raw_parts(self.slot_ranges, count) }
        };
        let slots = ranges.iter().filter_map(|range| {
            let start = u16::try_from(range.start).ok()?;
            Some(start..=u16::try_from(range.end).ok()?)
        });
        Migration {
            job: self.job_name,
            slots: slots.collect(),
            arrived: Held::default(),
        }
    }
}

/// A child of the server is born: it may be the one that writes the keys of a migration. From now on the server sends on what
/// changes in its slots.
unsafe extern "C" fn on_fork(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    _data: *mut c_void,
) {
    let is_exporting = with(|migrations| !migrations.exports.is_empty());
    if subevent != raw::REDISMODULE_SUBEVENT_FORK_CHILD_BORN || !is_exporting {
        return;
    }
    // The event comes a moment too early, before the server has noted that the child is there. The source cannot be asked to
    // pause before this timer: the server reads no word of the target between the two.
    if let Some(ctx) = Context::detached() {
        ctx.create_timer(0, send_last_fence);
    }
}

/// Sends the last fence to the targets. One that is still to come belongs to an effect, which is sent as well.
unsafe extern "C" fn send_last_fence(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    // SAFETY: the server's own context, in its callback.
    let Some(ctx) = (unsafe { Context::new(ctx) }).filter(|ctx| ctx.is_primary()) else {
        return;
    };
    let keys = with(|migrations| {
        let exports = migrations.exports.iter();
        let keys = exports.filter_map(|export| key_in(FENCE_KEY, |slot| export.has(slot)));
        keys.collect::<Vec<_>>()
    });
    let Some(fence) = fences::last().filter(|_| !keys.is_empty()) else {
        return;
    };
    if ctx.must_not_write() {
        ctx.create_timer(PAUSED_MS, send_last_fence);
        return;
    }
    for key in keys {
        let key = OwnedString::new(ctx, key.as_bytes());
        propagation::send_fence(ctx, key.arg(), fence);
    }
}
