//! The module's section of INFO: `INFO lock`.

use std::ffi::{c_int, CStr, CString};
use std::ptr;

use redis_module::raw;

use crate::server::api::clock;
use crate::server::api::{call, Context};
use crate::server::host::module::Module;
use crate::server::observe::stats::recent::Recent;
use crate::server::observe::stats::times::{self, Summary, Times};
use crate::server::observe::stats::{counters, held};
use crate::server::settings::limits;
use redis_lock_core::engine::guard;
use redis_lock_core::engine::Count;

/// Registers the section. False if the server refuses it.
pub(in crate::server) fn register(ctx: Context<'_>) -> bool {
    // SAFETY: the context is that of the load; the callback has the required signature.
    let status = unsafe { call!(RedisModule_RegisterInfoFunc(ctx.as_ptr(), Some(on_info))) };
    status == raw::REDISMODULE_OK as c_int
}

/// The server puts the module's name before each field: `lock_waiters`.
unsafe extern "C" fn on_info(info: *mut raw::RedisModuleInfoCtx, for_crash_report: c_int) {
    // SAFETY: the server's own structure, in its callback. A section without a name gets the name
    // of the module.
    let status = unsafe { call!(RedisModule_InfoAddSection(info, ptr::null())) };
    if status != raw::REDISMODULE_OK as c_int {
        return; // The client asked for another section.
    }
    // A slot that is being imported still belongs to another node.
    let held = held::now().minus(Module::get().migrations.held());
    let names = [c"held_exclusive", c"held_shared", c"held_counted"];
    for (name, n) in names.into_iter().zip(held.by_mode()) {
        add(info, name, n);
    }
    add(info, c"held_keys", held.keys());
    let gauge = |name, n| add(info, name, u64::try_from(n).unwrap_or_default());
    // A report of a crash may be asked for in the middle of a change.
    if let Some((places, waited_keys, bytes)) = Module::get().place_counts() {
        gauge(c"waiters", places.all());
        gauge(c"waiters_blocked", places.clients as usize);
        gauge(c"waiters_notified", places.channels as usize);
        gauge(c"waiters_absent", places.absent as usize);
        gauge(c"waited_keys", waited_keys);
        gauge(c"waiting", places.waiting());
        gauge(c"waiting_bytes", bytes);
    }
    if let Some(bound) = Module::get().shared.bindings.count() {
        gauge(c"held_bound", bound);
    }
    let closed_for = Module::get().guard_closed_for();
    let state = match (limits::guard().scope, closed_for) {
        (guard::Scope::Off, _) => c"off",
        (_, None) => c"open",
        (_, Some((_, reason))) => reason.name(),
    };
    // SAFETY: the structure is alive during the callback; the server copies the words.
    unsafe {
        call!(RedisModule_InfoAddFieldCString(
            info,
            c"guard".as_ptr(),
            state.as_ptr()
        ))
    };
    add(info, c"guard_left_ms", closed_for.map_or(0, |(ms, _)| ms));
    let fresh = Module::get().guard_members_fresh();
    gauge(c"guard_members_fresh", fresh);
    for (of, field) in Count::ALL {
        add(info, field, counters::value(of));
    }
    for (of, name) in TIMES {
        add_times(info, name, "", times::summary(times::counts(of)));
    }
    if for_crash_report == 0 {
        add_window(info, &Module::get().recent);
    }
}

/// The histograms, with the beginning of their names.
const TIMES: [(Times, &str); 2] = [(Times::Waits, "wait"), (Times::Holds, "hold")];

/// Adds what has happened in the last minute.
fn add_window(info: *mut raw::RedisModuleInfoCtx, recent: &Recent) {
    let now_us = clock::monotonic_us();
    recent.advance(now_us);
    let Some(growth) = recent.growth_at(now_us) else {
        return;
    };
    for (name, growth) in growth.counters() {
        add_named(info, format!("{name}_1m"), growth);
    }
    for (of, name) in TIMES {
        add_times(info, name, "_1m", growth.times(of));
    }
}

/// Adds a histogram's summary, in microseconds.
fn add_times(info: *mut raw::RedisModuleInfoCtx, name: &str, suffix: &str, times: Option<Summary>) {
    let Some(times) = times else {
        return;
    };
    add_named(info, format!("{name}_count{suffix}"), times.count);
    let values = [
        ("p50", times.p50),
        ("p90", times.p90),
        ("p99", times.p99),
        ("p999", times.p999),
        ("max", times.max),
    ];
    for (part, value) in values {
        add_named(info, format!("{name}_usec_{part}{suffix}"), value);
    }
}

fn add_named(info: *mut raw::RedisModuleInfoCtx, field: String, value: u64) {
    // There is no NUL in the names.
    if let Ok(field) = CString::new(field) {
        add(info, &field, value);
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
