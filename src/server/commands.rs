//! The commands as the server calls them: bytes in, one decision, one reply out.

mod replay;

use std::ffi::c_int;

use redis_module::raw;

use super::api::{Argv, Context};
use super::clock;
use super::fences;
use super::info_reply;
use super::lock_key::{Key, WrongType};
use super::notify::{self, Event};
use super::open_key::Purpose;
use super::stats::{self, counters};
use super::waiting::{self, callbacks, Entered};
use super::writes;
use crate::command::acquire::Acquire;
use crate::command::info::{self, Info};
use crate::command::release::{self, Release};
use crate::command::renew::{self, Renew};
use crate::command::spec::Spec;
use crate::command::{acquire, apply, apply_release, resetstat, rlock, wlock, writable};
use crate::command::{Args, Decision, Error, Reply};
use crate::lock::{Mode, Now, Refusal};
use crate::wait::KeyRef;

/// A command's handler, as the server calls it.
pub(super) type Handler = unsafe extern "C" fn(
    *mut raw::RedisModuleCtx,
    *mut *mut raw::RedisModuleString,
    c_int,
) -> c_int;

/// Every command, with its handler.
pub(super) const COMMANDS: [(&Spec, Handler); 10] = [
    (
        &acquire::SPEC,
        handler!(|call| take_hold(call, acquire::MODE)),
    ),
    (&wlock::SPEC, handler!(|call| take_hold(call, wlock::MODE))),
    (&rlock::SPEC, handler!(|call| take_hold(call, rlock::MODE))),
    (&release::SPEC, handler!(release)),
    (&renew::SPEC, handler!(renew)),
    (&info::SPEC, handler!(info)),
    (&resetstat::SPEC, handler!(reset_stat)),
    (&apply::SPEC, handler!(replay::apply)),
    (&apply_release::SPEC, handler!(replay::apply_release)),
    (&writable::SPEC, handler!(writable)),
];

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
        waiting::while_waiting(scene.key_ref, |waiting| {
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
