//! The commands as the server calls them: which function runs for which name.

use std::ffi::{c_int, CStr};

use redis_module::raw;

use super::api::{call, Argv, Context, Level};
use super::command_docs::{self, Docs};
use super::module::Task;
use super::propagation::{APPLY, RELEASE};
use super::writes::WRITABLE;
use super::{execute, replay};
use crate::command::{acquire, rlock, wlock, Args, Error, Reply};

/// A command's handler, as the server calls it.
type Handler = unsafe extern "C" fn(
    *mut raw::RedisModuleCtx,
    *mut *mut raw::RedisModuleString,
    c_int,
) -> c_int;

struct Command {
    name: &'static CStr,
    handler: Handler,
    flags: &'static CStr,
    /// The flags where `blocking` can be one of them (7.0+).
    blocking: Option<&'static CStr>,
    /// The ACL categories, for servers that can be told (7.2+). Of a module's command nothing follows from its flags.
    acl_categories: &'static CStr,
    docs: Docs,
}

const COMMANDS: [Command; 10] = [
    Command {
        name: c"lock.acquire",
        handler: handler!(|call| execute::take_hold(call, acquire::MODE)),
        flags: TAKES,
        blocking: Some(TAKES_BLOCKING),
        acl_categories: c"write fast blocking",
        docs: command_docs::ACQUIRE,
    },
    Command {
        name: c"rwlock.wlock",
        handler: handler!(|call| execute::take_hold(call, wlock::MODE)),
        flags: TAKES,
        blocking: Some(TAKES_BLOCKING),
        acl_categories: c"write fast blocking",
        docs: command_docs::WLOCK,
    },
    Command {
        name: c"rwlock.rlock",
        handler: handler!(|call| execute::take_hold(call, rlock::MODE)),
        flags: TAKES,
        blocking: Some(TAKES_BLOCKING),
        acl_categories: c"write fast blocking",
        docs: command_docs::RLOCK,
    },
    Command {
        name: c"lock.release",
        handler: handler!(execute::release),
        flags: CHANGES,
        blocking: None,
        acl_categories: c"write fast",
        docs: command_docs::RELEASE,
    },
    Command {
        name: c"lock.renew",
        handler: handler!(execute::renew),
        flags: CHANGES,
        blocking: None,
        acl_categories: c"write fast",
        docs: command_docs::RENEW,
    },
    Command {
        name: c"lock.info",
        handler: handler!(execute::info),
        flags: c"readonly",
        blocking: None,
        acl_categories: c"read slow",
        docs: command_docs::INFO,
    },
    Command {
        name: c"lock.resetstat",
        handler: handler!(execute::reset_stat),
        flags: c"admin deny-script allow-loading allow-stale",
        blocking: None,
        acl_categories: c"admin dangerous slow",
        docs: command_docs::RESETSTAT,
    },
    Command {
        name: APPLY,
        handler: handler!(replay::apply),
        flags: INTERNAL,
        blocking: None,
        acl_categories: c"write admin dangerous slow",
        docs: command_docs::APPLY,
    },
    Command {
        name: RELEASE,
        handler: handler!(replay::apply_release),
        flags: INTERNAL,
        blocking: None,
        acl_categories: c"write admin dangerous slow",
        docs: command_docs::APPLY_RELEASE,
    },
    Command {
        name: WRITABLE,
        handler: handler!(execute::writable),
        flags: ASKS,
        blocking: None,
        acl_categories: c"write admin dangerous fast",
        docs: command_docs::WRITABLE,
    },
];

/// Refused when memory is short.
const TAKES: &CStr = c"write deny-oom fast";
const TAKES_BLOCKING: &CStr = c"write deny-oom fast blocking";
/// Never refused for lack of memory: releasing must always work.
const CHANGES: &CStr = c"write fast";
/// Not deny-oom: a replica must follow its primary, and a file must load.
const INTERNAL: &CStr = c"write deny-script admin";
/// On 6.2 a script asks it.
const ASKS: &CStr = c"write admin fast";

/// Makes the `extern "C"` function of a command from one that gets a [`Call`].
macro_rules! handler {
    ($run:expr) => {{
        unsafe extern "C" fn handler(
            ctx: *mut raw::RedisModuleCtx,
            argv: *mut *mut raw::RedisModuleString,
            argc: c_int,
        ) -> c_int {
            // SAFETY: the server called the handler with these, and `run` returns before the handler does.
            unsafe { Call::run(ctx, argv, argc, $run) }
        }
        handler as Handler
    }};
}
use handler;

/// One call of a command.
pub(super) struct Call<'c> {
    pub(super) task: Task<'c>,
    pub(super) argv: Argv<'c>,
}

impl<'c> Call<'c> {
    /// # Safety
    /// The arguments are a handler's own, and `'c` does not outlive it.
    unsafe fn run(
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

/// Registers all commands. False when the server refuses one.
pub(super) fn register(ctx: Context<'_>) -> bool {
    COMMANDS.iter().all(|command| {
        let registered = create(ctx, command) && describe(ctx, command);
        if !registered {
            ctx.log(Level::Warning, c"a command could not be registered");
        }
        registered
    })
}

fn create(ctx: Context<'_>, command: &Command) -> bool {
    // 6.2 does not know the flag `blocking`.
    command
        .blocking
        .is_some_and(|flags| create_with(ctx, command, flags))
        || create_with(ctx, command, command.flags)
}

fn create_with(ctx: Context<'_>, command: &Command, flags: &'static CStr) -> bool {
    let key_at = command.docs.key_position();
    let step = key_at;
    // SAFETY: the context is alive, and the server copies the strings.
    let status = unsafe {
        call!(RedisModule_CreateCommand(
            ctx.as_ptr(),
            command.name.as_ptr(),
            Some(command.handler),
            flags.as_ptr(),
            key_at,
            key_at,
            step,
        ))
    };
    status == raw::REDISMODULE_OK as c_int
}

/// Says what the command is, to servers that can be told: arity, key flags and docs from 7.0 on, ACL categories from 7.2 on.
fn describe(ctx: Context<'_>, command: &Command) -> bool {
    // SAFETY: the statics are not written after the load.
    let (Some(command_of), Some(set_info)) =
        (unsafe { (raw::RedisModule_GetCommand, raw::RedisModule_SetCommandInfo) })
    else {
        return true;
    };
    // SAFETY: the context is alive; the command was created just now.
    let handle = unsafe { command_of(ctx.as_ptr(), command.name.as_ptr()) };
    if handle.is_null() {
        return false;
    }
    // SAFETY: the server copies what it is given, strings and arrays, before it returns.
    let told = command
        .docs
        .with_info(|info| unsafe { set_info(handle, info) });
    if told != raw::REDISMODULE_OK as c_int {
        return false;
    }
    // SAFETY: the static is not written after the load.
    let Some(set_categories) = (unsafe { raw::RedisModule_SetCommandACLCategories }) else {
        return true;
    };
    // SAFETY: the command exists; the server reads the string before it returns.
    let status = unsafe { set_categories(handle, command.acl_categories.as_ptr()) };
    status == raw::REDISMODULE_OK as c_int
}
