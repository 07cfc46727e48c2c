//! Commands that change nothing.

use super::info_reply;
use crate::server::api::{clock, Argv, Context};
use crate::server::host::module::Task;
use crate::server::observe::stats;
use crate::server::replication::writes;
use redis_lock_core::command::info::{self, Info};
use redis_lock_core::command::Error;
use redis_lock_core::engine::host::{Host, Key as _, Parts, Purpose};
use redis_lock_core::wait::KeyRef;

pub(in crate::server) fn info(task: &mut Task<'_>) -> Result<(), Error> {
    let shown = info::parse(task.args())?;
    let ctx = task.ctx();
    let mut key = task.open_key(Purpose::Read)?;
    let (db, key_name) = (key.server().selected_db(), key.name());
    let (name, now, now_us) = (key_name.bytes(), clock::of_command(), clock::monotonic_us());
    let key_end = key.deadline();
    let Parts { lock, machine, .. } = key.parts();
    let closed_for = machine.guard.all_closed_for(Some(name), clock::boot_us());
    let guard_ms = closed_for.map(|(ms, _)| ms);
    let registry = &mut machine.registry;
    if registry.is_behind() {
        registry.follow_changes(&KeyRef::new(db, name));
    }
    let waiters: Vec<_> = registry.waiters(db, name).take(shown.waiters).collect();
    let count = registry.counts_of(db, name).waiting();
    match Info::of(lock, key_end, shown.holders, count, guard_ms, now) {
        Some(info) => info_reply::send(ctx, &info, &waiters, now, now_us),
        None => ctx.reply_null(),
    }
    Ok(())
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

/// Answers LOCK._WRITABLE, if the module itself has called it. It may be in the middle of a step,
/// so this is no task, which would end the step.
pub(in crate::server) fn answer_writable(ctx: Context<'_>, _: Argv<'_>) -> bool {
    let is_asking = writes::is_asking();
    if is_asking {
        ctx.reply_ok();
    }
    is_asking
}
