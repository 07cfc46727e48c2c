//! Atomic slot migration (`CLUSTER MIGRATESLOTS`): the module's part in the import and the export
//! of slots. Only Valkey has it, from 9 on.
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
//! A replica of the target gets everything that the target gets. If a migration fails, the target
//! deletes the keys that have arrived.
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
//! - **Waiters for a key in a slot that has left** are dismissed as soon as the source learns of
//!   it.
//! - **Fences continue to grow.** An effect carries its fence. A lock that is free at the fork has
//!   no effect, so the source sends its last fence right after each fork
//!   (`callbacks::send_last_fence`). It cannot do so while the writes of clients are paused, by an
//!   operator or by another migration. If that lasts until the slots have left, only the clocks
//!   order the fences.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};
use std::ops::RangeInclusive;

use redis_module::raw;

use crate::lock::slot::{key_in, slot_of};
use crate::lock::Lock;
use crate::server::api::Context;
use crate::server::observe::stats::held::Held;
use crate::server::settings::server_line::{Brand, ReleaseLine};

/// The option by which a module allows atomic slot migration. On other servers the bit may mean
/// something else.
const HANDLE_ATOMIC_SLOT_MIGRATION: c_int = 1 << 5;

/// Valkey's number of the event. In Redis it is the number of another event.
const ATOMIC_SLOT_MIGRATION: u64 = 19;

const IMPORT_STARTED: u64 = 0;
const EXPORT_STARTED: u64 = 1;
const IMPORT_ABORTED: u64 = 2;
const EXPORT_ABORTED: u64 = 3;
const IMPORT_COMPLETED: u64 = 4;
const EXPORT_COMPLETED: u64 = 5;

/// How soon the source tries again to send its last fence while the server is paused.
pub(in crate::server) const PAUSED_MS: u64 = 1;

/// The name of the key that carries a fence. It is never made; its slot is what the server goes by.
const FENCE_KEY: &str = "redis-lock:fence:";

/// The data of the event, in the server's layout.
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
    /// The locks that have arrived with it.
    arrived: Held,
}

impl Migration {
    fn has(&self, slot: u16) -> bool {
        self.slots.iter().any(|slots| slots.contains(&slot))
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
    /// Those that have ended well in this turn of the event loop: the server deletes their keys
    /// before it ends.
    exported: Vec<Migration>,
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

    /// Handles an event of a migration. Returns whether the slots of this node have changed.
    ///
    /// # Safety
    /// `subevent` and `data` are what the server passed to the callback of this event.
    pub(in crate::server) unsafe fn on_event(&self, subevent: u64, data: *const c_void) -> bool {
        // SAFETY: the data of this event is a structure of this kind.
        let Some(info) = (unsafe { data.cast::<Info>().as_ref() }) else {
            return false;
        };
        let mut parts = self.parts.borrow_mut();
        match subevent {
            IMPORT_STARTED => parts.imports.push(info.migration()),
            EXPORT_STARTED => parts.exports.push(info.migration()),
            // By now the locks that have arrived are deleted, or belong to this node.
            IMPORT_ABORTED | IMPORT_COMPLETED => drop(take(&mut parts.imports, &info.job_name)),
            EXPORT_COMPLETED => {
                let export = take(&mut parts.exports, &info.job_name);
                parts.exported.extend(export);
            }
            EXPORT_ABORTED => drop(take(&mut parts.exports, &info.job_name)),
            _ => {}
        }
        matches!(subevent, IMPORT_COMPLETED | EXPORT_COMPLETED)
    }

    /// Whether the slot of a key has been exported in this turn of the event loop. Its locks live
    /// on elsewhere, and the server deletes those that are left here.
    pub(in crate::server) fn has_left(&self, name: &[u8]) -> bool {
        any_has(&self.parts.borrow().exported, name)
    }

    /// Notes that another turn of the event loop has begun.
    pub(in crate::server) fn turn_begins(&self) {
        self.parts.borrow_mut().exported = Vec::new();
    }

    /// Whether slots are being exported to other nodes.
    pub(in crate::server) fn is_exporting(&self) -> bool {
        !self.parts.borrow().exports.is_empty()
    }

    /// A key in a slot of each export. These keys are never created: they only say to which target
    /// a fence goes.
    pub(in crate::server) fn keys_of_exports(&self) -> Vec<Vec<u8>> {
        let parts = self.parts.borrow();
        let exports = parts.exports.iter();
        let keys = exports.filter_map(|export| key_in(FENCE_KEY, |slot| export.has(slot)));
        keys.collect()
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
            // SAFETY: the server passes that many ranges, and they live as long as this callback.
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
