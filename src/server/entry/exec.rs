//! LOCK.EXEC: a command that runs only if a token holds a lock now.
//!
//! The call is made with the rights of the caller (`C`), with the checks of a script (`S`), and
//! refused where memory is short (`M`). Its keys are those that the caller named, so that routing
//! and ACL see them. No key of ours is open across the call.

use std::ffi::{c_int, CString};

use redis_module::raw;

use crate::server::api::{call, Arg, Argv, CallError, Context};
use crate::server::host::module::Task;
use crate::server::observe::stats::counters;
use redis_lock_core::command::exec::{self, COMMAND_AT};
use redis_lock_core::command::Error;
use redis_lock_core::engine::{must_hold, serve_results, Count};
use redis_lock_core::planted::planted;

/// Runs the command if the token holds the lock.
pub(in crate::server) fn run(task: &mut Task<'_>) -> Result<(), Error> {
    let (token, command) = exec::parse(task.args())?;
    let name = CString::new(command).unwrap_or_default();
    let (ctx, argv) = (task.ctx(), task.argv());
    if let Err(error) = must_hold(task, token) {
        // Rights and what scripts refuse come first, so that NOTHELD tells nothing to those who may
        // not ask.
        let words = argv.words_from(COMMAND_AT);
        if let Some(refused) = task.caller().refusal_of(&words) {
            return Err(refused);
        }
        if error == Error::NotHeld {
            counters::add(Count::NotHeld, 1);
        }
        return Err(error);
    }
    let words = argv.words_from(COMMAND_AT.saturating_add(1));
    if planted("exec-runs-twice") {
        let _ = task.caller().call_for_client(&name, &words);
    }
    match task.caller().call_for_client(&name, &words) {
        Ok(reply) => {
            counters::add(Count::Executed, 1);
            reply.pass_on(ctx);
            serve_results(task);
        }
        Err(CallError::NotAllowed) => return Err(Error::NoPermission),
        Err(_) => return Err(Error::TryAgain),
    }
    Ok(())
}

/// Names the keys of the command to the server, when it asks for them. False when it does not ask.
pub(in crate::server) fn name_keys(ctx: Context<'_>, argv: Argv<'_>) -> bool {
    if !ctx.is_asked_for_keys() {
        return false;
    }
    let reads = raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS;
    // SAFETY: the server asks for the keys.
    let key_at = |at, uses| unsafe {
        call!(RedisModule_KeyAtPosWithFlags(ctx.as_ptr(), at, uses));
    };
    key_at(1, reads as c_int);
    let words = argv.words_from(COMMAND_AT);
    // The keys of a command within itself are of no use, because it is refused. To ask for them
    // would be endless.
    let command = words.first().map(|word| word.bytes());
    if command.is_none_or(exec::is_this) {
        return true;
    }
    let mut pointers: Vec<_> = words.iter().map(|word: &Arg<'_>| word.as_ptr()).collect();
    let (mut count, mut flags) = (0, std::ptr::null_mut());
    let argc = c_int::try_from(pointers.len()).unwrap_or(c_int::MAX);
    // SAFETY: the context and the words are alive. The server answers two arrays of `count`
    // numbers, which are ours until they are freed, or null.
    unsafe {
        let keys = call!(RedisModule_GetCommandKeysWithFlags(
            ctx.as_ptr(),
            pointers.as_mut_ptr(),
            argc,
            &mut count,
            &mut flags,
        ));
        if keys.is_null() {
            return true;
        }
        let len = usize::try_from(count).unwrap_or_default();
        let positions = std::slice::from_raw_parts(keys, len);
        let uses: &[c_int] = if flags.is_null() {
            &[]
        } else {
            std::slice::from_raw_parts(flags, len)
        };
        for (at, position) in positions.iter().enumerate() {
            let at_word = position.saturating_add(COMMAND_AT as c_int);
            let all = (raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_UPDATE) as c_int;
            key_at(at_word, uses.get(at).copied().unwrap_or(all));
        }
        call!(RedisModule_Free(keys.cast()));
        if !flags.is_null() {
            call!(RedisModule_Free(flags.cast()));
        }
    }
    true
}
