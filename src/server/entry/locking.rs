//! The commands that lock: their arguments are parsed, what settings and rights say is checked, and
//! the machine does the rest ([`redis_lock_core::engine`]).

use std::ffi::c_int;

use redis_module::raw;

use crate::server::api::{call, Arg, Argv, Context};
use crate::server::clients::channel;
use crate::server::host::module::Task;
use crate::server::settings::limits;
use redis_lock_core::command::acquire::{Acquire, AskedMode, Wait};
use redis_lock_core::command::macquire::{key_count, Macquire};
use redis_lock_core::command::once::{self, RESULT_AT};
use redis_lock_core::command::{
    cancel as cancel_args, check as check_args, release as release_args, renew as renew_args,
};
use redis_lock_core::command::{Args, Error};
use redis_lock_core::engine::macquire::FIRST_KEY;
use redis_lock_core::engine::{self, cancel as waits, command, macquire};

pub(in crate::server) fn take_hold(task: &mut Task<'_>, wanted: AskedMode) -> Result<(), Error> {
    let acquire = Acquire::parse(wanted, task.args())?;
    check_request(task, &acquire, task.argv().key())?;
    engine::take_hold(task, &acquire)
}

pub(in crate::server) fn take_once(task: &mut Task<'_>) -> Result<(), Error> {
    let acquire = once::parse(task.args())?;
    let (key, result) = (task.argv().key(), task.argv().word(RESULT_AT));
    if key.map(Arg::bytes) == result.map(Arg::bytes) {
        return Err(Error::SameKeys);
    }
    check_request(task, &acquire, key)?;
    engine::take_hold(task, &acquire)
}

pub(in crate::server) fn take_all(task: &mut Task<'_>) -> Result<(), Error> {
    let request = Macquire::parse(Args::new(task.argv().after_name()))?;
    check_request(task, request.acquire(), task.argv().word(FIRST_KEY))?;
    macquire::run(task, &request)
}

pub(in crate::server) fn release(task: &mut Task<'_>) -> Result<(), Error> {
    let (token, at_least_ms) = release_args::parse(task.args())?;
    limits::check_ttl(at_least_ms)?;
    command::release(task, token, at_least_ms)
}

pub(in crate::server) fn cancel(task: &mut Task<'_>) -> Result<(), Error> {
    let token = cancel_args::parse(task.args())?;
    waits::run(task, token)
}

pub(in crate::server) fn renew(task: &mut Task<'_>) -> Result<(), Error> {
    let (token, ttl) = renew_args::parse(task.args())?;
    limits::check_ttl(ttl.ms())?;
    command::renew(task, token, ttl)
}

pub(in crate::server) fn check(task: &mut Task<'_>) -> Result<(), Error> {
    let token = check_args::parse(task.args())?;
    engine::check(task, token)
}

/// Checks what a request says beside its hold. `key` is its first key.
fn check_request(
    task: &Task<'_>,
    acquire: &Acquire<'_>,
    key: Option<Arg<'_>>,
) -> Result<(), Error> {
    limits::check_grace(acquire)?;
    limits::check_ttl(acquire.ask().ttl.ms())?;
    match (acquire.wait(), key) {
        (Some(Wait::Notify(_, name)), Some(key)) => channel::check(task.ctx(), key, name),
        _ => Ok(()),
    }
}

/// Names the keys to the server, when it asks for them. False when it does not ask.
pub(in crate::server) fn name_keys(ctx: Context<'_>, argv: Argv<'_>) -> bool {
    if !ctx.is_asked_for_keys() {
        return false;
    }
    let count = argv.after_name().next().and_then(key_count);
    let last = count.map_or(0, |count| count.saturating_add(FIRST_KEY));
    // A request with fewer words is malformed.
    for at in FIRST_KEY..last.min(argv.len()) {
        let at = c_int::try_from(at).unwrap_or_default();
        // SAFETY: the server asks for the keys.
        unsafe { call!(RedisModule_KeyAtPos(ctx.as_ptr(), at)) };
    }
    true
}
