//! The commands as the server calls them: bytes in, one decision, one reply out.

mod replay;

use std::ffi::{c_int, CStr};

use redis_module::raw;

use super::api::{call, Argv, Context, Level};
use super::clock;
use super::command_docs::{self, Docs};
use super::fences;
use super::info_reply;
use super::lock_key::{Key, WrongType};
use super::notify::{self, Event};
use super::open_key::Purpose;
use super::propagation::{APPLY, RELEASE};
use super::stats::{self, counters};
use super::waiting::{self, callbacks, Entered};
use super::writes::{self, WRITABLE};
use crate::command::acquire::Acquire;
use crate::command::info::{self, Info};
use crate::command::release::Release;
use crate::command::renew::Renew;
use crate::command::{acquire, rlock, wlock, Args, Decision, Error, Reply};
use crate::lock::{Mode, Now, Refusal};
use crate::wait::KeyRef;

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
        handler: handler!(|call| take_hold(call, acquire::MODE)),
        flags: TAKES,
        blocking: Some(TAKES_BLOCKING),
        acl_categories: c"write fast blocking",
        docs: command_docs::ACQUIRE,
    },
    Command {
        name: c"rwlock.wlock",
        handler: handler!(|call| take_hold(call, wlock::MODE)),
        flags: TAKES,
        blocking: Some(TAKES_BLOCKING),
        acl_categories: c"write fast blocking",
        docs: command_docs::WLOCK,
    },
    Command {
        name: c"rwlock.rlock",
        handler: handler!(|call| take_hold(call, rlock::MODE)),
        flags: TAKES,
        blocking: Some(TAKES_BLOCKING),
        acl_categories: c"write fast blocking",
        docs: command_docs::RLOCK,
    },
    Command {
        name: c"lock.release",
        handler: handler!(release),
        flags: CHANGES,
        blocking: None,
        acl_categories: c"write fast",
        docs: command_docs::RELEASE,
    },
    Command {
        name: c"lock.renew",
        handler: handler!(renew),
        flags: CHANGES,
        blocking: None,
        acl_categories: c"write fast",
        docs: command_docs::RENEW,
    },
    Command {
        name: c"lock.info",
        handler: handler!(info),
        flags: c"readonly",
        blocking: None,
        acl_categories: c"read slow",
        docs: command_docs::INFO,
    },
    Command {
        name: c"lock.resetstat",
        handler: handler!(reset_stat),
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
        handler: handler!(writable),
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

/// Makes the `extern "C"` face of a handler: one that gets a [`Call`] and answers with what it could not do.
macro_rules! handler {
    ($run:expr) => {{
        unsafe extern "C" fn handler(
            ctx: *mut raw::RedisModuleCtx,
            argv: *mut *mut raw::RedisModuleString,
            argc: c_int,
        ) -> c_int {
            // SAFETY: these are what the server called the handler with, and `run` returns before it does.
            if let Some(call) = unsafe { Call::new(ctx, argv, argc) } {
                call.answer($run);
            }
            raw::REDISMODULE_OK as c_int
        }
        handler as Handler
    }};
}
use handler;

/// One call of a command.
#[derive(Clone, Copy)]
struct Call<'c> {
    ctx: Context<'c>,
    argv: Argv<'c>,
}

impl<'c> Call<'c> {
    /// # Safety
    /// The arguments are a handler's own, and `'c` does not outlive it.
    unsafe fn new(
        ctx: *mut raw::RedisModuleCtx,
        argv: *mut *mut raw::RedisModuleString,
        argc: c_int,
    ) -> Option<Self> {
        // SAFETY: the caller's word.
        unsafe {
            Some(Self {
                ctx: Context::new(ctx)?,
                argv: Argv::new(argv, argc),
            })
        }
    }

    fn answer(self, run: impl FnOnce(Self) -> Result<(), Error>) {
        if let Err(error) = run(self) {
            self.ctx.reply(Reply::Error(error));
        }
        notify::flush(self.ctx);
    }

    fn args(self) -> Args<impl Iterator<Item = &'c [u8]>> {
        Args::new(self.argv.after_key())
    }

    fn key(self, purpose: Purpose) -> Result<Key<'c>, Error> {
        let name = self.argv.key().ok_or(Error::Arity)?;
        Key::of_command(self.ctx, self.argv, name, purpose).map_err(|WrongType| Error::WrongType)
    }

    /// Opens the key, serves who waits for it, decides, does what was decided, which is the `event`, and serves again.
    fn change<'r>(
        self,
        event: Event,
        decide: impl FnOnce(&Scene<'_, 'c>) -> Decision<'r>,
    ) -> Result<Outcome<'c, 'r>, Error> {
        if callbacks::may_have_moved() {
            self.check_that_it_is_here()?;
        }
        let mut key = self.key(Purpose::Write)?;
        let mut now = clock::of_command();
        let key_ref = waiting::key_ref_of(self.ctx, key.name());
        if let Some(key_ref) = &key_ref {
            now = waiting::serve(&mut key, key_ref, now);
        }
        let scene = Scene {
            key: &key,
            key_ref: key_ref.as_ref(),
            now,
        };
        match decide(&scene) {
            Decision::Change {
                effect,
                reply,
                had_it,
            } => {
                key.commit(&effect, had_it, now);
                key.note(event);
                if let Some(key_ref) = &key_ref {
                    waiting::serve_changed(&mut key, key_ref, now);
                }
                if let Some(fence) = effect.fence() {
                    waiting::acknowledge(self.ctx, key.name(), fence);
                }
                Ok(Outcome::Changed { reply, had_it })
            }
            Decision::Same(reply) => {
                key.repair_ttl(now);
                Ok(Outcome::Same(reply))
            }
            Decision::Wait(refusal) => Ok(Outcome::Refused { key, refusal, now }),
        }
    }

    /// Refuses a key that is absent because it has just gone to another node of the cluster, in the transaction that runs: there it
    /// may be held.
    fn check_that_it_is_here(self) -> Result<(), Error> {
        let name = self.argv.key().ok_or(Error::Arity)?;
        // The key is closed before the server is asked.
        let is_absent = self.key(Purpose::Write)?.lock().is_none();
        if is_absent && !writes::are_served_here(self.ctx, name) {
            return Err(Error::TryAgain);
        }
        Ok(())
    }

    fn reply(self, outcome: Outcome<'_, '_>) {
        match outcome {
            Outcome::Changed { reply, .. } | Outcome::Same(reply) => self.ctx.reply(reply),
            Outcome::Refused { .. } => self.ctx.reply_null(),
        }
    }
}

/// What a decision is made on.
struct Scene<'k, 'c> {
    key: &'k Key<'c>,
    key_ref: Option<&'k KeyRef>,
    now: Now,
}

/// What a decision has come to.
enum Outcome<'c, 'r> {
    Changed {
        reply: Reply<'r>,
        /// Whether the token had its hold before.
        had_it: bool,
    },
    Same(Reply<'r>),
    Refused {
        key: Key<'c>,
        refusal: Refusal,
        now: Now,
    },
}

fn take_hold(call: Call<'_>, mode: Mode) -> Result<(), Error> {
    let acquire = Acquire::parse(mode, call.args())?;
    let outcome = call.change(Event::Acquire, |scene| {
        waiting::while_waiting(scene.key_ref, acquire.ask(), |waiting| {
            fences::with(|fences| acquire.decide(scene.key.lock(), scene.now, waiting, fences))
        })
    })?;
    match &outcome {
        Outcome::Changed { had_it, .. } => stats::acquired(*had_it),
        Outcome::Same(reply) => stats::not_possible(*reply),
        Outcome::Refused { key, refusal, now } => {
            let entered = waiting::enter(call.ctx, key, &acquire, *refusal, *now);
            stats::not_granted(&entered);
            if let Entered::Yes = entered? {
                return Ok(()); // The reply comes when the wait ends.
            }
        }
    }
    call.reply(outcome);
    Ok(())
}

fn release(call: Call<'_>) -> Result<(), Error> {
    let release = Release::parse(call.args())?;
    let mut ended = None;
    let outcome = call.change(Event::Release, |scene| {
        let (decision, hold) = release.decide(scene.key.lock(), scene.now);
        ended = hold.map(|hold| (hold, scene.now));
        decision
    })?;
    match ended {
        Some((hold, now)) => stats::released(&hold, now),
        None => counters::NOT_OWNER.add_one(),
    }
    call.reply(outcome);
    Ok(())
}

fn renew(call: Call<'_>) -> Result<(), Error> {
    let renew = Renew::parse(call.args())?;
    let outcome = call.change(Event::Renew, |scene| {
        renew.decide(scene.key.lock(), scene.now)
    })?;
    match outcome {
        Outcome::Changed { .. } => counters::RENEWED.add_one(),
        _ => counters::LOST_RENEWALS.add_one(),
    }
    call.reply(outcome);
    Ok(())
}

fn info(call: Call<'_>) -> Result<(), Error> {
    info::parse(call.args())?;
    let key = call.key(Purpose::Read)?;
    let now = clock::of_command();
    let waiters = waiting::waiters(call.ctx, key.name(), now);
    match Info::of(key.lock(), key.deadline(now), waiters, now) {
        Some(info) => info_reply::send(call.ctx, &info),
        None => call.ctx.reply_null(),
    }
    Ok(())
}

/// ```text
/// LOCK.RESETSTAT
/// ```
/// Begins the counters and percentiles of `INFO lock` anew; what is held and who waits is no statistic.
fn reset_stat(call: Call<'_>) -> Result<(), Error> {
    if call.argv.len() != 1 {
        return Err(Error::Arity);
    }
    stats::reset();
    call.ctx.reply_ok();
    Ok(())
}

/// ```text
/// LOCK._WRITABLE [key]
/// ```
/// Does nothing, by which the module asks whether a client could write ([`writes`]). Nobody else may call it.
fn writable(call: Call<'_>) -> Result<(), Error> {
    if !writes::is_asking() {
        return Err(Error::ModuleOnly);
    }
    call.ctx.reply_ok();
    Ok(())
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
