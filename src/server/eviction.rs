//! Eviction: with every policy but one the server deletes locks when memory is short, because they all have a ttl. The module
//! cannot prevent it. So it warns the operator, and counts what was evicted ([`removals`]).
//!
//! [`removals`]: super::stats::removals

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

use redis_module::raw;

use super::api::{call, Context, Level};

/// The only policy that spares locks.
const SPARES_LOCKS: &CStr = c"noeviction";

const WARNING: &CStr = c"maxmemory-policy can evict locks: when maxmemory is reached a holder may lose its lock before its deadline. \
      noeviction keeps them, and answers acquires with -OOM then";

/// Whether the server tells of changes of its policy.
static HEARS: AtomicBool = AtomicBool::new(false);
/// Whether the policy takes locks, as far as the server has told.
static TAKES_LOCKS: AtomicBool = AtomicBool::new(true);

/// Notes whether the server says when its policy changes.
pub(super) fn set_hears(hears: bool) {
    HEARS.store(hears, Ordering::Relaxed);
}

/// Writes a warning to the log when the server may evict locks.
pub(super) fn warn(ctx: Context<'_>) {
    let takes_locks = takes_locks(ctx);
    TAKES_LOCKS.store(takes_locks, Ordering::Relaxed);
    if takes_locks {
        ctx.log(Level::Warning, WARNING);
    }
}

/// Whether the server evicts keys now: its memory is above the limit, and its policy takes locks. It frees memory before it runs a
/// command, so what a command deletes is deleted below the limit.
pub(super) fn is_under_way(ctx: Context<'_>) -> bool {
    // SAFETY: the function takes nothing and answers a number: 0 where there is no limit.
    let used = unsafe { call!(RedisModule_GetUsedMemoryRatio()) };
    let hears = HEARS.load(Ordering::Relaxed);
    used > 1.0
        && match hears {
            true => TAKES_LOCKS.load(Ordering::Relaxed),
            false => takes_locks(ctx),
        }
}

fn takes_locks(ctx: Context<'_>) -> bool {
    let policy = ctx.server_info(c"memory", c"maxmemory_policy");
    policy.is_some_and(|policy| policy.as_c_str() != SPARES_LOCKS)
}
