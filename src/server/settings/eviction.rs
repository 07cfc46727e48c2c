//! Eviction. All locks have a ttl, so with every policy except `noeviction` the server deletes
//! locks when memory is short. The module cannot prevent that. It warns the operator and counts
//! evicted locks ([`removals`]).
//!
//! [`removals`]: crate::server::observe::stats::removals

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

use redis_module::raw;

use crate::server::api::{call, Context, Level, ServerInfo};

/// The only policy that never deletes locks.
const KEEPS_LOCKS: &CStr = c"noeviction";

const WARNING: &CStr = c"maxmemory-policy can evict locks: at maxmemory a holder may lose its lock before its deadline. \
      With noeviction the server keeps locks and answers acquires with -OOM instead";

/// Whether the server notifies the module when its policy changes.
static IS_NOTIFIED: AtomicBool = AtomicBool::new(false);
/// Whether the last known policy can delete locks.
static MAY_EVICT_LOCKS: AtomicBool = AtomicBool::new(true);

/// Notes whether the server notifies the module when its policy changes.
pub(in crate::server) fn set_notified(is_notified: bool) {
    IS_NOTIFIED.store(is_notified, Ordering::Relaxed);
}

/// Writes a warning to the log if the server may evict locks.
pub(in crate::server) fn warn(ctx: Context<'_>) {
    let may_evict_locks = may_evict_locks(ctx);
    MAY_EVICT_LOCKS.store(may_evict_locks, Ordering::Relaxed);
    if may_evict_locks {
        ctx.log(Level::Warning, WARNING);
    }
}

/// Whether the server is evicting keys: its memory is above the limit, and its policy can delete
/// locks. The server frees memory before it runs a command, so memory is below the limit when a
/// command deletes a key.
pub(in crate::server) fn is_under_way(ctx: Context<'_>) -> bool {
    // SAFETY: the function takes no arguments and returns a number, which is 0 if there is no
    // limit.
    let used = unsafe { call!(RedisModule_GetUsedMemoryRatio()) };
    let is_notified = IS_NOTIFIED.load(Ordering::Relaxed);
    used > 1.0
        && match is_notified {
            true => MAY_EVICT_LOCKS.load(Ordering::Relaxed),
            false => may_evict_locks(ctx),
        }
}

fn may_evict_locks(ctx: Context<'_>) -> bool {
    let policy = ServerInfo::field_of(ctx, c"memory", c"maxmemory_policy");
    policy.is_some_and(|policy| policy.as_c_str() != KEEPS_LOCKS)
}
