//! Entries from the server about its role and its links.

use std::ffi::c_void;

use redis_module::raw;

use crate::server::api::clock;
use crate::server::api::Context;
use crate::server::clients::blocked_client::Note;
use crate::server::host::module::Module;
use crate::server::settings::limits;
use redis_lock_core::engine::guard::{GuardEvent, Reason, Scope};

/// Subscribes to changes of the role. False when the server refuses.
pub(super) fn subscribe(ctx: Context<'_>) -> bool {
    subscribe_to_links(ctx);
    ctx.on_server_event(
        raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
        on_event!(on_role_change),
    )
}

/// Subscribes to links that begin and end, once a guard is set. The server looks at each
/// subscription whenever it has an event to tell, which it has in each turn after a grant.
pub(super) fn subscribe_to_links(ctx: Context<'_>) {
    let module = Module::get();
    if limits::guard().scope == Scope::Off || !module.links.watch() {
        return;
    }
    let event = raw::REDISMODULE_EVENT_MASTER_LINK_CHANGE;
    ctx.on_server_event(event, on_event!(on_primary_link));
    ctx.on_server_event(
        raw::REDISMODULE_EVENT_REPLICA_CHANGE,
        on_event!(on_replica_change),
    );
    if module.links.find(ctx) {
        module.leave(Note::Guard(GuardEvent::Linked));
    }
}

/// A promotion, or a demotion.
fn on_role_change(_ctx: Context<'_>, role: u64, _data: *mut c_void) {
    let module = Module::get();
    if role == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_REPLICA {
        // The server may be a primary again before the timer runs. The timer is not set: the server
        // tells the blocked clients first.
        module.shared.inbox.leave(Note::Demoted);
        module.shared.bindings.change(|all| all.clear());
    }
    if role == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER {
        module.shared.fences.begin_ahead(clock::now());
        let begins = GuardEvent::Began(Reason::Promotion, clock::boot_us(), limits::guard());
        if let Some(ctx) = Context::detached() {
            module.links.is_promoted(ctx);
        }
        module.leave(Note::Guard(begins));
        // A replica repairs nothing, so the new primary does what the old one has not done.
        module.leave(Note::SweepWanted);
    }
}

/// The link to the primary is up, or down.
fn on_primary_link(_ctx: Context<'_>, subevent: u64, _data: *mut c_void) {
    let module = Module::get();
    match Context::detached() {
        Some(ctx) if subevent == raw::REDISMODULE_SUBEVENT_MASTER_LINK_UP => {
            module.links.is_up(ctx);
            module.leave(Note::Guard(GuardEvent::Linked));
        }
        _ => module.links.is_down(),
    }
}

/// A replica has come or gone.
fn on_replica_change(_ctx: Context<'_>, _subevent: u64, _data: *mut c_void) {
    let module = Module::get();
    let is_on = limits::guard().scope >= Scope::Failover;
    if let Some(ctx) = Context::detached().filter(|_| is_on) {
        let events = module.links.replicas_changed(ctx).into_iter().flatten();
        events.for_each(|event| module.leave(Note::Guard(event)));
    }
}
