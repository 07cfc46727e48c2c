//! Commands at work: the key is opened and served, the request decided, the decision carried out, the key served again, the
//! reply sent. All of it happens in one step of the server's main thread.

use super::api::{Arg, Purpose};
use super::clock;
use super::command_call::CommandCall;
use super::commit::Cause;
use super::info_reply;
use super::lock_key::{Key, Parts, WrongType};
use super::serve::{self, Entered};
use super::stats;
use super::stats::counters::{LOST_RENEWALS, NOT_OWNER, QUEUE_FULL, REFUSED, WAITED};
use super::writes;
use crate::command::acquire::Acquire;
use crate::command::info::{self, Info, Waiter};
use crate::command::release::Release;
use crate::command::renew::Renew;
use crate::command::{Decision, Error, Reply};
use crate::lock::{Effect, FenceClock, Lock, Mode, Now, Refusal, Waiting};
use crate::wait::KeyRef;

/// What a decision is made on.
struct Scene<'s> {
    lock: Option<&'s Lock>,
    now: Now,
    waiting: Waiting<'s>,
    fences: &'s mut FenceClock,
}

/// What a command comes to on the lock as it stands.
enum Decided<'r> {
    /// The lock changes.
    Change(Effect<'r>, Cause, Reply<'r>),
    /// Nothing changes.
    Same(Reply<'r>),
    /// Nothing changes now: the client may wait, if it said so.
    Wait(Refusal),
}

/// What is left to do after a decision.
enum Outcome<'k, 'c, 'r> {
    /// The reply is to be sent.
    Reply(Reply<'r>),
    /// The request was refused. `KeyRef` is there when others wait for the key.
    Refused(Key<'k, 'c>, Option<KeyRef>, Refusal, Now),
}

impl<'r> Decided<'r> {
    fn new(decision: Decision<'r>, cause: impl FnOnce(bool) -> Cause) -> Self {
        match decision {
            Decision::Change {
                effect,
                reply,
                had_it,
            } => Self::Change(effect, cause(had_it), reply),
            Decision::Same(reply) => Self::Same(reply),
            Decision::Wait(refusal) => Self::Wait(refusal),
        }
    }
}

impl<'c> CommandCall<'c> {
    fn key_name(&self) -> Result<Arg<'c>, Error> {
        self.argv.key().ok_or(Error::Arity)
    }

    /// Opens the key of the command.
    pub(super) fn key(&mut self, purpose: Purpose) -> Result<Key<'_, 'c>, Error> {
        let name = self.key_name()?;
        Key::of_command(&mut self.task, self.argv, name, purpose)
            .map_err(|WrongType| Error::WrongType)
    }

    /// Opens the key, serves its waiters, decides, does what was decided, and serves again.
    fn change<'r>(
        &mut self,
        decide: impl FnOnce(Scene<'_>) -> Decided<'r>,
    ) -> Result<Outcome<'_, 'c, 'r>, Error> {
        if self.task.module().inbox.has_lock_left() {
            self.check_that_it_is_here()?;
        }
        let mut key = self.key(Purpose::Write)?;
        let mut now = clock::of_command();
        let key_ref = key_ref_of(&mut key);
        if let Some(key_ref) = &key_ref {
            now = serve::serve(&mut key, key_ref, now);
        }
        match decide_on(&mut key, key_ref.as_ref(), now, decide) {
            Decided::Change(effect, cause, reply) => {
                key.commit(&effect, cause, now);
                if let Some(key_ref) = &key_ref {
                    serve::serve_changed(&mut key, key_ref, now);
                }
                acknowledge(&mut key, &effect);
                Ok(Outcome::Reply(reply))
            }
            Decided::Same(reply) => {
                key.repair_ttl(now);
                Ok(Outcome::Reply(reply))
            }
            Decided::Wait(refusal) => Ok(Outcome::Refused(key, key_ref, refusal, now)),
        }
    }

    /// Refuses a key that is absent because it has just gone to another node of the cluster, in the running transaction: it may be
    /// held there.
    fn check_that_it_is_here(&mut self) -> Result<(), Error> {
        let name = self.key_name()?;
        if !self.task.ctx().is_cluster() {
            return Ok(());
        }
        let is_absent = self.key(Purpose::Write)?.lock().is_none();
        if is_absent && !writes::are_served_here(self.task.caller(), name) {
            return Err(Error::TryAgain);
        }
        Ok(())
    }
}

/// The reference to a key that is waited for; `None`, fast, when nobody waits for it.
fn key_ref_of(key: &mut Key<'_, '_>) -> Option<KeyRef> {
    let (ctx, name) = (key.ctx(), key.name());
    let registry = &key.parts().state.registry;
    if registry.is_empty() {
        return None;
    }
    registry.key_ref(ctx.selected_db(), name.bytes())
}

fn decide_on<'r>(
    key: &mut Key<'_, '_>,
    key_ref: Option<&KeyRef>,
    now: Now,
    decide: impl FnOnce(Scene<'_>) -> Decided<'r>,
) -> Decided<'r> {
    let Parts {
        lock,
        state,
        module,
    } = key.parts();
    let waiting = key_ref.map_or_else(Waiting::default, |key_ref| state.registry.waiting(key_ref));
    module.fences.with(|fences| {
        decide(Scene {
            lock,
            now,
            waiting,
            fences,
        })
    })
}

/// Notes that the owner of a hold knows of it.
fn acknowledge(key: &mut Key<'_, '_>, effect: &Effect<'_>) {
    let (ctx, name) = (key.ctx(), key.name());
    let deliveries = &mut key.parts().state.registry.deliveries;
    if let (Some(fence), true) = (effect.fence(), deliveries.is_waiting()) {
        deliveries.acknowledge(ctx.selected_db(), name.bytes(), fence);
    }
}

pub(super) fn take_hold(call: &mut CommandCall<'_>, mode: Mode) -> Result<(), Error> {
    let ctx = call.task.ctx();
    let acquire = Acquire::parse(mode, call.args())?;
    let outcome = call.change(|scene| {
        let decision = acquire.decide(scene.lock, scene.now, scene.waiting, scene.fences);
        Decided::new(decision, |had_it| Cause::Acquired { had_it })
    })?;
    match outcome {
        Outcome::Reply(reply) => {
            stats::not_possible(reply);
            ctx.reply(reply);
        }
        Outcome::Refused(mut key, key_ref, refusal, now) => {
            let entered = serve::enter(&mut key, key_ref, &acquire, refusal, now);
            count_not_granted(&entered);
            if let Entered::No = entered? {
                ctx.reply_null();
            } // Otherwise the reply comes when the wait ends.
        }
    }
    Ok(())
}

/// Counts an acquire that was not granted at once: its client waits, or gets null or an error.
fn count_not_granted(entered: &Result<Entered, Error>) {
    match entered {
        Ok(Entered::Yes) => WAITED.add_one(),
        Ok(Entered::No) => REFUSED.add_one(),
        Err(Error::KeyQueueFull | Error::ServerQueueFull) => QUEUE_FULL.add_one(),
        Err(_) => {}
    }
}

pub(super) fn release(call: &mut CommandCall<'_>) -> Result<(), Error> {
    let ctx = call.task.ctx();
    let release = Release::parse(call.args())?;
    let outcome = call.change(|scene| match release.decide(scene.lock, scene.now) {
        (decision, Some(hold)) => Decided::new(decision, |_| Cause::Released(hold)),
        (decision, None) => {
            NOT_OWNER.add_one();
            Decided::new(decision, |had_it| Cause::Acquired { had_it })
        }
    })?;
    if let Outcome::Reply(reply) = outcome {
        ctx.reply(reply);
    }
    Ok(())
}

pub(super) fn renew(call: &mut CommandCall<'_>) -> Result<(), Error> {
    let ctx = call.task.ctx();
    let renew = Renew::parse(call.args())?;
    let outcome =
        call.change(|scene| Decided::new(renew.decide(scene.lock, scene.now), |_| Cause::Renewed))?;
    if let Outcome::Reply(reply) = outcome {
        if reply == Reply::Done(false) {
            LOST_RENEWALS.add_one();
        }
        ctx.reply(reply);
    }
    Ok(())
}

pub(super) fn info(call: &mut CommandCall<'_>) -> Result<(), Error> {
    info::parse(call.args())?;
    let ctx = call.task.ctx();
    let mut key = call.key(Purpose::Read)?;
    let now = clock::of_command();
    let waiters = waiters_of(&mut key, now);
    match Info::of(key.lock(), key.deadline(now), waiters, now) {
        Some(info) => info_reply::send(ctx, &info),
        None => ctx.reply_null(),
    }
    Ok(())
}

/// The waiters of a key, in the order of its queue.
fn waiters_of(key: &mut Key<'_, '_>, now: Now) -> Vec<Waiter> {
    let (db, name) = (key.ctx().selected_db(), key.name());
    let queue = key.parts().state.registry.queue(db, name.bytes());
    let waiters = queue.into_iter().flat_map(|queue| queue.iter());
    waiters
        .map(|(_, waiter)| Waiter {
            token: waiter.token.clone(),
            mode: waiter.mode,
            waited_ms: now.ms().saturating_sub(waiter.since_ms),
        })
        .collect()
}

pub(super) fn reset_stat(call: &mut CommandCall<'_>) -> Result<(), Error> {
    if call.argv.len() != 1 {
        return Err(Error::Arity);
    }
    stats::reset();
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
