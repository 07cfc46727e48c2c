//! Commands that change nothing.

use std::rc::Rc;

use super::api::Purpose;
use super::clock;
use super::command_call::CommandCall;
use super::info_reply;
use super::lock_key::Key;
use super::stats;
use super::writes;
use crate::command::check::Check;
use crate::command::info::{self, Info, Waiter};
use crate::command::Error;
use crate::lock::TokenBuf;
use crate::wait::Listener;

pub(super) fn check(call: &mut CommandCall<'_>) -> Result<(), Error> {
    let check = Check::parse(call.args())?;
    let ctx = call.task.ctx();
    let key = call.key(Purpose::Read)?;
    ctx.reply(check.reply(key.lock(), clock::of_command()));
    Ok(())
}

pub(super) fn info(call: &mut CommandCall<'_>) -> Result<(), Error> {
    info::parse(call.args())?;
    let ctx = call.task.ctx();
    let mut key = call.key(Purpose::Read)?;
    let now = clock::of_command();
    let waiters = waiters_of(&mut key);
    match Info::of(key.lock(), key.deadline(now), waiters, now) {
        Some(info) => info_reply::send(ctx, &info),
        None => ctx.reply_null(),
    }
    Ok(())
}

/// The waiters of a key, in the order of its queue.
fn waiters_of(key: &mut Key<'_, '_>) -> Vec<Waiter> {
    let now_us = clock::monotonic_us();
    let (db, name) = (key.ctx().selected_db(), key.name());
    let waiters = key.parts().state.registry.waiters(db, name.bytes());
    waiters
        .map(|waiter| Waiter {
            token: TokenBuf::from(waiter.token.as_token()),
            mode: waiter.mode,
            waited_ms: now_us.saturating_sub(waiter.since_us) / 1_000,
            listener: waiter.listener.map(|listener| match listener {
                Listener::Client(client) => info::Listener::Client(client.id()),
                Listener::Channel(name) => info::Listener::Channel(Rc::clone(name)),
            }),
        })
        .collect()
}

pub(super) fn reset_stat(call: &mut CommandCall<'_>) -> Result<(), Error> {
    if call.argv.len() != 1 {
        return Err(Error::Arity);
    }
    call.task.state().contended.clear();
    stats::reset(&call.task.module().recent);
    call.task.ctx().reply_ok();
    Ok(())
}

pub(super) fn writable(call: &mut CommandCall<'_>) -> Result<(), Error> {
    if !writes::is_asking() {
        return Err(Error::ModuleOnly);
    }
    call.task.ctx().reply_ok();
    Ok(())
}
