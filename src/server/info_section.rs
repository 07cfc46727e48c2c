//! The module's section of INFO: `INFO lock`.

use std::ffi::{c_int, CStr};
use std::ptr;

use redis_module::raw;

use super::api::{call, Context};
use super::module::Module;
use super::stats::times::{self, Times};
use super::stats::{counters, held};

/// Registers the section. False if the server refuses it.
pub(super) fn register(ctx: Context<'_>) -> bool {
    // SAFETY: the context is that of the load; the callback has the required signature.
    let status = unsafe { call!(RedisModule_RegisterInfoFunc(ctx.as_ptr(), Some(on_info))) };
    status == raw::REDISMODULE_OK as c_int
}

/// The server puts the module's name before each field: `lock_waiters`.
unsafe extern "C" fn on_info(info: *mut raw::RedisModuleInfoCtx, _for_crash_report: c_int) {
    // SAFETY: the server's own structure, in its callback. A section without a name gets the name
    // of the module.
    let status = unsafe { call!(RedisModule_InfoAddSection(info, ptr::null())) };
    if status != raw::REDISMODULE_OK as c_int {
        return; // The client asked for another section.
    }
    // A slot that is being imported still belongs to another node.
    let held = held::now().minus(Module::get().migrations.held());
    add(info, c"held_exclusive", held.exclusive);
    add(info, c"held_shared", held.shared);
    add(info, c"held_counted", held.counted);
    add(info, c"held_keys", held.keys());
    // A report of a crash may be asked for in the middle of a change.
    if let Some((places, waited_keys)) = Module::get().place_counts() {
        let gauge = |name, n| add(info, name, u64::try_from(n).unwrap_or_default());
        gauge(c"waiters", places.all());
        gauge(c"waiters_blocked", places.clients);
        gauge(c"waiters_notified", places.channels);
        gauge(c"waiters_absent", places.absent);
        gauge(c"waited_keys", waited_keys);
    }
    if let Some(bound) = Module::get().bindings.count() {
        add(
            info,
            c"held_bound",
            u64::try_from(bound).unwrap_or_default(),
        );
    }
    for (field, counter) in &counters::ALL {
        add(info, field, counter.get());
    }
    add_times(info, Times::Waits);
    add_times(info, Times::Holds);
}

/// Adds a histogram's summary, in microseconds.
fn add_times(info: *mut raw::RedisModuleInfoCtx, of: Times) {
    let Some(times) = times::summary(of) else {
        return;
    };
    let names = match of {
        Times::Waits => [
            c"wait_count",
            c"wait_usec_p50",
            c"wait_usec_p90",
            c"wait_usec_p99",
            c"wait_usec_p999",
            c"wait_usec_max",
        ],
        Times::Holds => [
            c"hold_count",
            c"hold_usec_p50",
            c"hold_usec_p90",
            c"hold_usec_p99",
            c"hold_usec_p999",
            c"hold_usec_max",
        ],
    };
    let values = [
        times.count,
        times.p50,
        times.p90,
        times.p99,
        times.p999,
        times.max,
    ];
    for (name, value) in names.into_iter().zip(values) {
        add(info, name, value);
    }
}

fn add(info: *mut raw::RedisModuleInfoCtx, field: &CStr, value: u64) {
    // SAFETY: the structure is alive during the callback, which is the only caller; the server
    // copies the name.
    unsafe {
        call!(RedisModule_InfoAddFieldULongLong(
            info,
            field.as_ptr(),
            value
        ))
    };
}
