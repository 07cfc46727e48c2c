//! Eviction: with every policy but one the server deletes locks when memory is short, for they all have a ttl. It cannot be kept from
//! it, so the operator is warned, and what was evicted is counted ([`departures`]).
//!
//! [`departures`]: super::stats::departures

use std::ffi::{c_void, CStr};

use redis_module::raw;

use super::api::{Context, Level};
use super::waiting::told;

/// The only policy that spares locks.
const SPARES_LOCKS: &CStr = c"noeviction";

const WARNING: &CStr = c"maxmemory-policy can evict locks: when maxmemory is reached a holder may lose its lock before its deadline. \
      noeviction keeps them, and answers acquires with -OOM then";

/// Subscribes to changes of the policy, where the server tells of them: 6.2 refuses.
pub(super) fn subscribe(ctx: Context<'_>) {
    ctx.on_server_event(raw::REDISMODULE_EVENT_CONFIG, Some(on_config));
}

/// Writes a warning to the log when the server may evict locks.
pub(super) fn warn(ctx: Context<'_>) {
    let policy = ctx.server_info(c"memory", c"maxmemory_policy");
    if policy.is_some_and(|policy| policy.as_c_str() != SPARES_LOCKS) {
        ctx.log(Level::Warning, WARNING);
    }
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
    told::look_at_config(ctx);
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
