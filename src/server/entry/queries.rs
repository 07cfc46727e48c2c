//! Commands that change nothing.

use std::rc::Rc;

use super::info_reply;
use crate::command::info::{self, Info, ShownListener, ShownWaiter};
use crate::command::Error;
use crate::engine::host::{Host, Key as _, Purpose};
use crate::lock::TokenBuf;
use crate::server::api::clock;
use crate::server::host::lock_key::Key;
use crate::server::host::module::Task;
use crate::server::observe::stats;
use crate::server::replication::writes;
use crate::wait::{KeyRef, Listener};

pub(in crate::server) fn info(task: &mut Task<'_>) -> Result<(), Error> {
    let shown = info::parse(task.args())?;
    let ctx = task.ctx();
    let mut key = task.open_key(Purpose::Read)?;
    let (name, boot_us) = (key.name(), clock::boot_us());
    let guard = &key.parts().machine.guard;
    let closed_for = guard.all_closed_for(Some(name.bytes()), boot_us);
    let guard_ms = closed_for.map(|(ms, _)| ms);
    let now = clock::of_command();
    let waiters = waiters_of(&mut key, shown.waiters);
    let (lock, deadline) = (key.lock(), key.deadline(now));
    match Info::of(lock, deadline, shown.holders, waiters, guard_ms, now) {
        Some(info) => info_reply::send(ctx, &info),
        None => ctx.reply_null(),
    }
    Ok(())
}

/// The first waiters of a key, in the order of its queue, and the number of all.
fn waiters_of(key: &mut Key<'_, '_>, shown: usize) -> (Vec<ShownWaiter>, usize) {
    let now_us = clock::monotonic_us();
    let (db, name) = (key.server().selected_db(), key.name());
    let registry = &mut key.parts().machine.registry;
    if registry.is_behind() {
        registry.follow_changes(&KeyRef::new(db, name.bytes()));
    }
    let first = registry.waiters(db, name.bytes()).take(shown);
    let first = first.map(|waiter| ShownWaiter {
        token: TokenBuf::from(waiter.token.as_token()),
        mode: waiter.mode,
        waited_ms: now_us.saturating_sub(waiter.since_us) / 1_000,
        listener: waiter.listener.map(|listener| match listener {
            Listener::Client(client) => ShownListener::Client(client.id()),
            Listener::Channel(name) => ShownListener::Channel(Rc::clone(name)),
        }),
    });
    (
        first.collect(),
        registry.counts_of(db, name.bytes()).waiting(),
    )
}

pub(in crate::server) fn reset_stat(task: &mut Task<'_>) -> Result<(), Error> {
    if task.argv().len() != 1 {
        return Err(Error::Arity);
    }
    task.machine().contended.clear();
    stats::reset(&task.module().recent);
    task.ctx().reply_ok();
    Ok(())
}

pub(in crate::server) fn writable(task: &mut Task<'_>) -> Result<(), Error> {
    if !writes::is_asking() {
        return Err(Error::ModuleOnly);
    }
    task.ctx().reply_ok();
    Ok(())
}
