//! The commands as the server calls them: which function runs for which specification.

use std::ffi::c_int;

use redis_module::raw;

use super::command_call::CommandCall;
use super::register::Handler;
use super::{execute, replay};
use crate::command::spec::Spec;
use crate::command::{
    acquire, apply, apply_release, info, release, renew, resetstat, rlock, wlock, writable,
};

/// Every command, with its handler.
pub(super) const COMMANDS: [(&Spec, Handler); 10] = [
    (
        &acquire::SPEC,
        handler!(|call| execute::take_hold(call, acquire::MODE)),
    ),
    (
        &wlock::SPEC,
        handler!(|call| execute::take_hold(call, wlock::MODE)),
    ),
    (
        &rlock::SPEC,
        handler!(|call| execute::take_hold(call, rlock::MODE)),
    ),
    (&release::SPEC, handler!(execute::release)),
    (&renew::SPEC, handler!(execute::renew)),
    (&info::SPEC, handler!(execute::info)),
    (&resetstat::SPEC, handler!(execute::reset_stat)),
    (&apply::SPEC, handler!(replay::apply)),
    (&apply_release::SPEC, handler!(replay::apply_release)),
    (&writable::SPEC, handler!(execute::writable)),
];

/// Makes the `extern "C"` function of a command from one that gets a [`CommandCall`].
macro_rules! handler {
    ($run:expr) => {{
        unsafe extern "C" fn handler(
            ctx: *mut raw::RedisModuleCtx,
            argv: *mut *mut raw::RedisModuleString,
            argc: c_int,
        ) -> c_int {
            // SAFETY: the server called the handler with these, and `run` returns before the handler does.
            unsafe { CommandCall::run(ctx, argv, argc, $run) }
        }
        handler as Handler
    }};
}
use handler;
