//! Atomic slot migration: the module's part in the import and the export of slots. Valkey has it
//! from 9 on (`CLUSTER MIGRATESLOTS`), Redis from 8.4 on (`CLUSTER MIGRATION`).
//!
//! # The steps of a migration
//!
//! 1. The source forks. The child writes each key of the slots as commands, by `aof_rewrite` of the
//!    type: `LOCK._APPLY` and `PEXPIREAT`. The target carries them out before it owns the slots.
//!    They come from a client that counts as a primary.
//! 2. Changes on the source after the fork follow.
//! 3. The source pauses the writes of its clients and all expiry. The target takes the slots and
//!    tells the cluster.
//! 4. The source learns of it, deletes the keys and ends the pause.
//!
//! A replica of the target gets all that the target gets. If a migration fails, the target deletes
//! what has arrived.
//!
//! Redis differs in two steps. The child sends RESTORE for each key, and asks the module what else
//! to send. The source deletes the keys some time after step 4, mostly on another thread.
//!
//! # Consequences
//!
//! - **A slot that is being imported belongs to another node.** So the timer grants nothing in it
//!   and repairs no ttl ([`writes`](crate::server::replication::writes)). Repairs are put off until
//!   the slot is here.
//! - **Locks that have arrived are not held here yet.** They are counted apart
//!   ([`Migrations::held`]), and their end is counted on the source ([`Migrations::leaves`]). Two
//!   cases are counted wrongly until the import ends: a lock that RENAME or MOVE has put under
//!   another key, and locks that a replica got by a full synchronization.
//! - **The pause binds the module, too.** The server forbids effects outside commands during it, so
//!   the timer waits.
//! - **Waiters for a key in a slot that has left** are dismissed when the source learns of it.
//! - **Fences continue to grow.** An effect carries its fence. A lock that is free at the fork has
//!   no effect, so the source sends its last fence. On Redis the child does. On Valkey the source
//!   does right after each fork (`callbacks::send_last_fence`). It cannot do so while the writes of
//!   clients are paused, by an operator or by another migration. If that lasts until the slots have
//!   left, only the clocks order the fences.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void, CStr};
use std::ops::RangeInclusive;

use redis_module::raw;

use crate::server::api::{optional, Context};
use crate::server::observe::stats::held::Held;
use crate::server::settings::server_line::{Brand, ReleaseLine};
use redis_lock_core::lock::slot::{key_in, slot_of};
use redis_lock_core::lock::Lock;

/// The option by which a module allows atomic slot migration. On other servers the bit may mean
/// something else.
const HANDLE_ATOMIC_SLOT_MIGRATION: c_int = 1 << 5;

/// Valkey's number of the event. In Redis it is the number of another event.
const ATOMIC_SLOT_MIGRATION: u64 = 19;

/// What the event tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Step {
    ImportStarted,
    ImportAborted,
    ImportCompleted,
    ExportStarted,
    ExportAborted,
    ExportCompleted,
    /// The child of the source is about to write the keys. The callback runs in that child.
    SnapshotBegins,
}

/// The steps in the order of Valkey's numbers.
const OF_VALKEY: [Step; 6] = [
    Step::ImportStarted,
    Step::ExportStarted,
    Step::ImportAborted,
    Step::ExportAborted,
    Step::ImportCompleted,
    Step::ExportCompleted,
];

/// The steps in the order of Redis's numbers.
const OF_REDIS: [Step; 7] = [
    Step::ImportStarted,
    Step::ImportAborted,
    Step::ImportCompleted,
    Step::ExportStarted,
    Step::ExportAborted,
    Step::ExportCompleted,
    Step::SnapshotBegins,
];

/// How soon the source tries again to send its last fence while the server is paused.
pub(in crate::server) const PAUSED_MS: u64 = 1;

/// The name of the key that carries a fence. It is never made; its slot is what the server goes by.
const FENCE_KEY: &str = "redis-lock:fence:";

/// The data of the event, in Valkey's layout.
#[repr(C)]
struct Info {
    version: u64,
    job_name: [c_char; 41],
    slot_ranges: *const SlotRange,
    num_slot_ranges: u32,
}

#[repr(C)]
struct SlotRange {
    start: c_int,
    end: c_int,
}

/// Slots that move together.
#[derive(Debug)]
pub(in crate::server) struct Migration {
    /// Its name at the server.
    job: Box<CStr>,
    slots: Vec<RangeInclusive<u16>>,
    /// The locks that have arrived with it.
    arrived: Held,
}

impl Migration {
    fn new(job: &CStr, slots: Vec<RangeInclusive<u16>>) -> Self {
        Self {
            job: job.into(),
            slots,
            arrived: Held::default(),
        }
    }

    fn has(&self, slot: u16) -> bool {
        self.slots.iter().any(|slots| slots.contains(&slot))
    }

    /// A key in one of its slots. This key is never created: it only says to which target a fence
    /// goes.
    pub(in crate::server) fn key_for_fence(&self) -> Option<Vec<u8>> {
        key_in(FENCE_KEY, |slot| self.has(slot))
    }
}

/// The migrations in progress.
#[derive(Debug, Default)]
pub(in crate::server) struct Migrations {
    parts: RefCell<Parts>,
}

#[derive(Debug, Default)]
struct Parts {
    imports: Vec<Migration>,
    exports: Vec<Migration>,
    /// Those whose keys the server deletes, because they live on elsewhere. Valkey does it before
    /// the end of this turn of the event loop.
    left: Vec<Migration>,
}

/// The module options for atomic slot migration, on servers that know it.
pub(in crate::server) fn options(ctx: Context<'_>) -> c_int {
    match is_known(ctx) {
        true => HANDLE_ATOMIC_SLOT_MIGRATION,
        false => 0,
    }
}

/// Subscribes to migrations and forks, on servers that know migrations. False if the server
/// refuses.
pub(in crate::server) fn subscribe(
    ctx: Context<'_>,
    on_migration: raw::RedisModuleEventCallback,
    on_fork: raw::RedisModuleEventCallback,
) -> bool {
    if is_redis() {
        return ctx.on_server_event(raw::REDISMODULE_EVENT_CLUSTER_SLOT_MIGRATION, on_migration);
    }
    !is_known(ctx)
        || (ctx.on_server_event(ATOMIC_SLOT_MIGRATION, on_migration)
            && ctx.on_server_event(raw::REDISMODULE_EVENT_FORK_CHILD, on_fork))
}

fn is_known(ctx: Context<'_>) -> bool {
    matches!(
        ReleaseLine::of(ctx),
        Some(ReleaseLine(Brand::Valkey, 9.., _))
    )
}

/// Whether this is a Redis with atomic slot migration: Valkey lacks the function.
fn is_redis() -> bool {
    optional!(RedisModule_ClusterPropagateForSlotMigration).is_some()
}

/// The holds of a key before a replicated command changes it, if its slot is being imported.
#[must_use]
pub(in crate::server) struct Before(Option<Held>);

impl Migrations {
    /// The locks and holds in slots that are being imported. Nothing in the middle of a change.
    pub(in crate::server) fn held(&self) -> Held {
        let parts = self.parts.try_borrow();
        let imports = parts.iter().flat_map(|parts| parts.imports.iter());
        imports.fold(Held::default(), |sum, import| sum.plus(import.arrived))
    }

    /// Notes the holds of a key that a replicated command is about to change.
    pub(in crate::server) fn before(&self, name: &[u8], lock: Option<&Lock>) -> Before {
        let is_import = self.with_import_of(name, |_| ()).is_some();
        Before(is_import.then(|| Held::of_key(lock)))
    }

    /// Counts the change of the command.
    pub(in crate::server) fn after(&self, before: Before, name: &[u8], lock: Option<&Lock>) {
        let Some(before) = before.0 else {
            return;
        };
        let now = Held::of_key(lock);
        self.with_import_of(name, |import| {
            import.arrived = import.arrived.minus(before).plus(now);
        });
    }

    /// Counts a lock that is loaded under this key.
    pub(in crate::server) fn arrives(&self, name: &[u8], lock: &Lock) {
        self.with_import_of(name, |import| {
            import.arrived = import.arrived.plus(Held::of_key(Some(lock)));
        });
    }

    /// Counts a lock that leaves this key. Returns whether the key's slot is being imported.
    pub(in crate::server) fn leaves(&self, name: &[u8], lock: &Lock) -> bool {
        let gone = self.with_import_of(name, |import| {
            import.arrived = import.arrived.minus(Held::of_key(Some(lock)));
        });
        gone.is_some()
    }

    /// Follows a step of a migration.
    pub(in crate::server) fn follow(&self, step: Step, migration: Migration) {
        let mut parts = self.parts.borrow_mut();
        let Parts {
            imports,
            exports,
            left,
        } = &mut *parts;
        match step {
            Step::ImportStarted => imports.push(migration),
            Step::ExportStarted => exports.push(migration),
            // By now the locks that have arrived belong to this node, or Valkey has deleted them.
            // Redis deletes them later.
            Step::ImportCompleted => drop(take(imports, &migration)),
            Step::ImportAborted => leave(left, take(imports, &migration)),
            Step::ExportCompleted => leave(left, take(exports, &migration)),
            Step::ExportAborted => drop(take(exports, &migration)),
            Step::SnapshotBegins => {}
        }
    }

    /// Whether the slot of a key has just been exported, or its import was given up. Its locks live
    /// on elsewhere, and the server deletes those that are left here.
    pub(in crate::server) fn has_left(&self, name: &[u8]) -> bool {
        if !any_has(&self.parts.borrow().left, name) {
            return false;
        }
        // SAFETY: the function takes a number.
        let is_here = optional!(RedisModule_ClusterCanAccessKeysInSlot)
            .is_some_and(|is_here| unsafe { is_here(slot_of(name).into()) != 0 });
        !is_here
    }

    /// Notes that another turn of the event loop has begun. Redis may delete the keys much later.
    pub(in crate::server) fn turn_begins(&self) {
        if !is_redis() {
            self.parts.borrow_mut().left = Vec::new();
        }
    }

    /// Whether slots are being exported to other nodes.
    pub(in crate::server) fn is_exporting(&self) -> bool {
        !self.parts.borrow().exports.is_empty()
    }

    /// Whether a replicated command without keys may fail an export: Valkey 9.1 tests a flag then
    /// that it has not set (`read_flags` in `VM_Replicate`).
    pub(in crate::server) fn may_fail_by_beats(&self) -> bool {
        !is_redis() && self.is_exporting()
    }

    /// A key in a slot of each export, for its fence.
    pub(in crate::server) fn keys_of_exports(&self) -> Vec<Vec<u8>> {
        let parts = self.parts.borrow();
        let exports = parts.exports.iter();
        exports.filter_map(Migration::key_for_fence).collect()
    }

    /// Passes the import of a key's slot to `act`, if there is one.
    fn with_import_of<R>(&self, name: &[u8], act: impl FnOnce(&mut Migration) -> R) -> Option<R> {
        let mut parts = self.parts.borrow_mut();
        if parts.imports.is_empty() {
            return None; // The usual case. It saves computing the slot.
        }
        let slot = slot_of(name);
        let mut imports = parts.imports.iter_mut();
        imports.find(|import| import.has(slot)).map(act)
    }
}

/// Whether one of these moves the slot of a key.
fn any_has(migrations: &[Migration], name: &[u8]) -> bool {
    if migrations.is_empty() {
        return false; // The usual case. It saves computing the slot.
    }
    let slot = slot_of(name);
    migrations.iter().any(|migration| migration.has(slot))
}

/// Removes the migration of the same name.
fn take(migrations: &mut Vec<Migration>, like: &Migration) -> Option<Migration> {
    let at = migrations.iter().position(|m| m.job == like.job)?;
    Some(migrations.swap_remove(at))
}

/// Adds slots that have left in place of those that have left before, so that there are never many.
fn leave(left: &mut Vec<Migration>, migration: Option<Migration>) {
    let Some(migration) = migration else {
        return;
    };
    let is_again = |slots: &RangeInclusive<u16>| {
        let of_migration = migration.slots.iter();
        let mut of_migration =
            of_migration.filter(|new| new.start() <= slots.start() && slots.end() <= new.end());
        of_migration.next().is_some()
    };
    left.retain(|old| !old.slots.iter().all(is_again));
    left.push(migration);
}

/// Reads an event.
///
/// # Safety
/// `subevent` and `data` are what the server passed to the callback of this event.
pub(in crate::server) unsafe fn read_event(
    subevent: u64,
    data: *const c_void,
) -> Option<(Step, Migration)> {
    let subevent = usize::try_from(subevent).ok()?;
    // SAFETY: each server passes a structure of its own kind.
    unsafe {
        match is_redis() {
            true => Some((
                *OF_REDIS.get(subevent)?,
                of_redis(
                    data.cast::<raw::RedisModuleClusterSlotMigrationInfo>()
                        .as_ref()?,
                ),
            )),
            false => Some((
                *OF_VALKEY.get(subevent)?,
                of_valkey(data.cast::<Info>().as_ref()?),
            )),
        }
    }
}

/// # Safety
/// The structure is one that Valkey has passed.
unsafe fn of_valkey(info: &Info) -> Migration {
    let count = usize::try_from(info.num_slot_ranges).unwrap_or_default();
    // SAFETY: the server passes that many ranges, and they live as long as this callback. The name
    // ends with NUL.
    let (ranges, job) = unsafe {
        let ranges = match info.slot_ranges.is_null() {
            true => &[],
            false => std::slice::from_raw_parts(info.slot_ranges, count),
        };
        (ranges, CStr::from_ptr(info.job_name.as_ptr()))
    };
    let slots = ranges.iter().filter_map(|range| {
        let start = u16::try_from(range.start).ok()?;
        Some(start..=u16::try_from(range.end).ok()?)
    });
    Migration::new(job, slots.collect())
}

/// # Safety
/// The structure is one that Redis has passed.
unsafe fn of_redis(info: &raw::RedisModuleClusterSlotMigrationInfo) -> Migration {
    // SAFETY: the server passes as many ranges as it says, and they live as long as this callback.
    // The name ends with NUL.
    let (ranges, job) = unsafe {
        let ranges = match info.slots.as_ref() {
            None => &[],
            Some(all) => {
                let count = usize::try_from(all.num_ranges).unwrap_or_default();
                all.ranges.as_slice(count)
            }
        };
        (ranges, CStr::from_ptr(info.task_id))
    };
    let slots = ranges.iter().map(|range| range.start..=range.end);
    Migration::new(job, slots.collect())
}
