//! One call of a command: its task and its words.

use std::ffi::c_int;

use redis_module::raw;

use super::api::{Argv, Context};
use super::clock;
use super::module::Task;
use super::several;
use crate::command::{Args, Error, Reply};

/// One call of a command.
pub(super) struct CommandCall<'c> {
    pub(super) task: Task<'c>,
    pub(super) argv: Argv<'c>,
}

impl<'c> CommandCall<'c> {
    /// Runs a command, and replies if it fails.
    ///
    /// # Safety
    /// The arguments are a handler's own, and `'c` does not outlive it.
    pub(super) unsafe fn run(
        ctx: *mut raw::RedisModuleCtx,
        argv: *mut *mut raw::RedisModuleString,
        argc: c_int,
        run: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> c_int {
        // SAFETY: the caller's word.
        let (task, argv, ctx) =
            unsafe { (Task::begin(ctx), Argv::new(argv, argc), Context::new(ctx)) };
        match task.map(|task| Self { task, argv }) {
            Some(mut call) => {
                if let Err(error) = run(&mut call) {
                    call.task.ctx().reply(Reply::Error(error));
                }
                several::finish(&mut call.task, clock::of_command);
            }
            None => ctx
                .into_iter()
                .for_each(|ctx| ctx.reply(Reply::Error(Error::Busy))),
        }
        raw::REDISMODULE_OK as c_int
    }

    /// A cursor over the arguments after the key.
    pub(super) fn args(&self) -> Args<impl Iterator<Item = &'c [u8]>> {
        Args::new(self.argv.after_key())
    }
}
