//! Eviction: with every policy but one the server deletes locks when memory is short, for they all have a ttl. It cannot be kept from
//! it, so the operator is warned, and what was evicted is counted.

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, c_void, CStr};

use redis_module::raw;

use super::api::{Arg, Context, Level};
use super::waiting::told;

/// The only policy that spares locks.
const SPARES_LOCKS: &CStr = c"noeviction";

const WARNING: &CStr = c"maxmemory-policy can evict locks: when maxmemory is reached a holder may lose its lock before its deadline. \
      noeviction keeps them, and answers acquires with -OOM then";

thread_local! {
    static EVICTED: Cell<u64> = const { Cell::new(0) };
    /// The key that a lock was last seen to leave.
    static LEFT: RefCell<Left> = const { RefCell::new(Left::new()) };
}

struct Left {
    name: Vec<u8>,
    /// Whether nothing has been heard since of how it left.
    is_open: bool,
}

impl Left {
    const fn new() -> Self {
        Self {
            name: Vec::new(),
            is_open: false,
        }
    }
}

/// How many locks were evicted since the server has started.
pub(super) fn count() -> u64 {
    EVICTED.get()
}

/// Notes that a lock has left its key, before the server says why.
pub(super) fn has_left(name: &[u8]) {
    LEFT.with_borrow_mut(|left| {
        left.name.clear();
        left.name.extend_from_slice(name);
        left.is_open = true;
    });
}

/// Notes that it was for another reason.
pub(super) fn left_otherwise() {
    LEFT.with_borrow_mut(|left| left.is_open = false);
}

/// Subscribes to evictions, and to changes of the policy where the server tells of them (7.0+). False when the server refuses.
pub(super) fn subscribe(ctx: Context<'_>) -> bool {
    // 6.2 refuses the first one.
    ctx.on_server_event(raw::REDISMODULE_EVENT_CONFIG, Some(on_config));
    ctx.on_keyspace_event(raw::REDISMODULE_NOTIFY_EVICTED, Some(on_evicted))
}

/// Writes a warning to the log when the server may evict locks.
pub(super) fn warn(ctx: Context<'_>) {
    let policy = ctx.server_info(c"memory", c"maxmemory_policy");
    if policy.is_some_and(|policy| policy.as_c_str() != SPARES_LOCKS) {
        ctx.log(Level::Warning, WARNING);
    }
}

/// A key was evicted. If it was a lock, its `unlink` came just before.
unsafe extern "C" fn on_evicted(
    _ctx: *mut raw::RedisModuleCtx,
    _kind: c_int,
    _event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the server's own string, in its callback.
    let key = unsafe { Arg::new(key) };
    let was_lock = LEFT.with_borrow(|left| left.is_open && left.name == key.bytes());
    if was_lock {
        EVICTED.set(count().saturating_add(1));
    }
    left_otherwise();
    raw::REDISMODULE_OK as c_int
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
