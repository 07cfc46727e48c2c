//! Eviction: with every policy but one the server deletes locks when memory is short, for they all have a ttl. It cannot be kept from
//! it, so the operator is warned, and what was evicted is counted ([`removals`]).
//!
//! [`removals`]: super::stats::removals

use std::ffi::{c_void, CStr};
use std::sync::atomic::{AtomicBool, Ordering};

use redis_module::raw;

use super::api::{call, Context, Level};
use super::waiting::delivery;

/// The only policy that spares locks.
const SPARES_LOCKS: &CStr = c"noeviction";

const WARNING: &CStr = c"maxmemory-policy can evict locks: when maxmemory is reached a holder may lose its lock before its deadline. \
      noeviction keeps them, and answers acquires with -OOM then";

/// Whether the server tells of changes of its policy.
static HEARS: AtomicBool = AtomicBool::new(false);
/// Whether the policy takes locks, as far as the server has told.
static TAKES_LOCKS: AtomicBool = AtomicBool::new(true);

/// Subscribes to changes of the policy, where the server tells of them: 6.2 refuses.
pub(super) fn subscribe(ctx: Context<'_>) {
    let hears = ctx.on_server_event(raw::REDISMODULE_EVENT_CONFIG, Some(on_config));
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

/// CONFIG SET. A module has one callback for an event, so that others who depend on settings are told from here.
unsafe extern "C" fn on_config(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _subevent: u64,
    data: *mut c_void,
) {
    // SAFETY: the data of this event is a structure of this kind; the context is the server's own, in its callback.
    let (changes, ctx) = unsafe {
        (
            data.cast::<raw::RedisModuleConfigChangeV1>().as_ref(),
            Context::new(ctx),
        )
    };
    let (Some(changes), Some(ctx)) = (changes, ctx) else {
        return;
    };
    if changes.config_names.is_null() {
        return;
    }
    let count = usize::try_from(changes.num_changes).unwrap_or_default();
    delivery::look_at_config(ctx);
    // SAFETY: the structure has as many names as it says, strings that end with NUL.
    let is_policy = unsafe {
        let names = std::slice::from_raw_parts(changes.config_names, count);
        names
            .iter()
            .any(|name| CStr::from_ptr(*name) == c"maxmemory-policy")
    };
    if is_policy {
        warn(ctx);
    }
}
