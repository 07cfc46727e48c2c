//! Commands at work: the key is opened and served, the request decided, the decision carried out, the key served again, the
//! reply sent. All of it happens in one step of the server's main thread.

use super::api::{Arg, Context, Purpose};
use super::blocked_client::Registry;
use super::channel;
use super::clock;
use super::command_call::CommandCall;
use super::commit::Cause;
use super::deadlock;
use super::linger;
use super::lock_key::{Key, KeyEnd, Parts, WrongType};
use super::module::Task;
use super::serve::{self, Entered};
use super::several;
use super::stats::counters::{LOST_RENEWALS, NOT_OWNER, QUEUE_FULL, REFUSED, RESUMED, WAITED};
use super::stats::{self, times};
use super::writes;
use crate::command::acquire::{Acquire, Wait, Wanted};
use crate::command::release::Release;
use crate::command::renew::Renew;
use crate::command::{Decision, Error, Reply};
use crate::lock::{Effect, Fence, FenceClock, Lock, Now, Refusal, Token};
use crate::wait::{Ahead, KeyRef, Linger};

/// What a decision is made on.
struct Scene<'s> {
    lock: Option<&'s Lock>,
    now: Now,
    /// Who waits for the key, if anybody does.
    queue: Option<(&'s KeyRef, &'s Registry)>,
    fences: &'s mut FenceClock,
    key_end: KeyEnd<'s>,
}

impl Scene<'_> {
    /// Whether a token has a place for this key together with others.
    fn waits_for_others_too(&self, token: Token<'_>) -> bool {
        self.queue.is_some_and(|(key_ref, registry)| {
            registry.has_several() && registry.waits_for_several(key_ref, token)
        })
    }
}

/// Whoever takes a hold.
#[derive(Clone, Copy)]
struct Taker<'t> {
    token: Token<'t>,
    /// What its hold is bound to.
    linger: Option<Linger>,
}

/// What a command comes to on the lock as it stands.
enum Decided<'r> {
    /// The lock changes.
    Change(Effect<'r>, Cause, Reply<'r>),
    /// Nothing changes.
    Same(Reply<'r>),
    /// The lock does not change. This token holds nothing and gives up its place.
    GiveUp(Token<'r>, Reply<'r>),
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

    /// Opens the key, serves its waiters, decides, does what was decided, and serves again. `taker` takes a hold with it, and then
    /// needs no place any more.
    fn change<'r>(
        &mut self,
        taker: Option<Taker<'_>>,
        decide: impl FnOnce(Scene<'_>) -> Decided<'r>,
    ) -> Result<Outcome<'_, 'c, 'r>, Error> {
        if self.task.module().inbox.has_lock_left() {
            let name = self.key_name()?;
            check_that_it_is_here(&mut self.task, name)?;
        }
        if self.task.state().registry.has_several() {
            self.serve_first()?;
        }
        let mut key = self.key(Purpose::Write)?;
        let mut now = clock::of_command();
        let key_ref = key_ref_of(&mut key);
        let is_lost = key.module().bindings.has_lost();
        let has_changed = is_lost && linger::bring_forward(&mut key, now);
        if let Some(key_ref) = &key_ref {
            now = match has_changed {
                true => serve::serve_changed(&mut key, key_ref, now),
                false => serve::serve(&mut key, key_ref, now),
            };
        }
        match decide_on(&mut key, key_ref.as_ref(), now, decide) {
            Decided::Change(effect, cause, reply) => {
                // Also the owner that ends its hold knows of it.
                let fence = effect.fence().or(match &cause {
                    Cause::Released(hold) => Some(hold.fence),
                    _ => None,
                });
                key.commit(&effect, cause, now);
                if let (Some(taker), Some(fence)) = (&taker, fence) {
                    let linger = taker.linger.into_iter();
                    linger.for_each(|linger| linger::bind(&key, taker.token, fence, linger));
                }
                if let Some(key_ref) = &key_ref {
                    taker
                        .into_iter()
                        .for_each(|taker| resume(&mut key, key_ref, taker.token));
                    serve::serve_changed(&mut key, key_ref, now);
                }
                acknowledge(&mut key, fence);
                Ok(Outcome::Reply(reply))
            }
            Decided::Same(reply) => {
                key.repair_ttl(now);
                // A request that can never be granted takes its token's place along.
                if let (Some(key_ref), Some(taker)) = (&key_ref, taker) {
                    resume(&mut key, key_ref, taker.token);
                    serve::serve_changed(&mut key, key_ref, now);
                }
                Ok(Outcome::Reply(reply))
            }
            Decided::GiveUp(token, reply) => {
                key.repair_ttl(now);
                if let Some(key_ref) = &key_ref {
                    give_up_place(&mut key, key_ref, token, now);
                }
                Ok(Outcome::Reply(reply))
            }
            Decided::Wait(refusal) => Ok(Outcome::Refused(key, key_ref, refusal, now)),
        }
    }

    /// Serves the key, and then grants the places for this key and others whose turn has come.
    #[cold]
    fn serve_first(&mut self) -> Result<(), Error> {
        let mut key = self.key(Purpose::Write)?;
        if let Some(key_ref) = key_ref_of(&mut key) {
            serve::serve(&mut key, &key_ref, clock::of_command());
        }
        drop(key);
        several::finish(&mut self.task, clock::of_command);
        Ok(())
    }
}

/// Refuses a key that is absent because it has just gone to another node of the cluster, in the running transaction: it may be
/// held there.
pub(super) fn check_that_it_is_here(task: &mut Task<'_>, name: Arg<'_>) -> Result<(), Error> {
    let key = Key::open(task, name, Purpose::Write).map_err(|WrongType| Error::WrongType)?;
    let is_absent = key.lock().is_none();
    drop(key);
    if is_absent && !writes::are_served_here(task.caller(), name) {
        return Err(Error::TryAgain);
    }
    Ok(())
}

/// The reference to a key that is waited for; `None`, fast, when nobody waits for it.
pub(super) fn key_ref_of(key: &mut Key<'_, '_>) -> Option<KeyRef> {
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
        key_end,
    } = key.parts();
    let queue = key_ref.map(|key_ref| (key_ref, &state.registry));
    module.fences.with(|fences| {
        decide(Scene {
            lock,
            now,
            queue,
            fences,
            key_end,
        })
    })
}

/// Ends the place without a listener of a token that has just been granted its hold, or never can be.
fn resume(key: &mut Key<'_, '_>, key_ref: &KeyRef, token: Token<'_>) {
    if let Some(since_us) = key.parts().state.registry.resume(key_ref, token) {
        note_resumed(since_us);
    }
}

/// Counts a place that its token has taken up again with a grant, and how long it has waited.
pub(super) fn note_resumed(since_us: u64) {
    RESUMED.add_one();
    times::waited(clock::monotonic_us().saturating_sub(since_us));
}

/// Notes that the owner of a hold knows of it.
pub(super) fn acknowledge(key: &mut Key<'_, '_>, fence: Option<Fence>) {
    let (ctx, name) = (key.ctx(), key.name());
    let deliveries = &mut key.parts().state.registry.deliveries;
    if let (Some(fence), true) = (fence, deliveries.is_waiting()) {
        deliveries.acknowledge(ctx.selected_db(), name.bytes(), fence);
    }
}

pub(super) fn take_hold(call: &mut CommandCall<'_>, wanted: Wanted) -> Result<(), Error> {
    let ctx = call.task.ctx();
    let acquire = Acquire::parse(wanted, call.args())?;
    if let Some(Wait::Notify(_, name)) = acquire.wait() {
        channel::check(ctx, call.key_name()?, name)?;
    }
    let linger = linger::of_request(ctx, call.task.module(), &acquire)?;
    let ask = acquire.ask();
    let taker = Taker {
        token: ask.token,
        linger,
    };
    let mut outcome = call.change(Some(taker), |scene| decide_acquire(&acquire, scene))?;
    if let Outcome::Refused(key, _, refusal, now) = &mut outcome {
        if let Some(suspect) = deadlock::suspect(key, &acquire, *refusal, *now) {
            // The search opens other keys, so this one is closed before.
            drop(outcome);
            if let Some(cycle) = deadlock::search(&mut call.task, ask.token, vec![suspect]) {
                deadlock::refuse(&mut call.key(Purpose::Write)?, ask.token, &cycle);
                return Ok(());
            }
            outcome = call.change(Some(taker), |scene| decide_acquire(&acquire, scene))?;
        }
    }
    match outcome {
        Outcome::Reply(reply) => {
            stats::not_possible(reply);
            ctx.reply(reply);
        }
        Outcome::Refused(mut key, key_ref, refusal, now) => {
            let entered = serve::enter(&mut key, key_ref, &acquire, refusal, linger, now);
            answer_not_granted(ctx, entered)?;
        }
    }
    Ok(())
}

fn decide_acquire<'r>(acquire: &'r Acquire<'r>, scene: Scene<'_>) -> Decided<'r> {
    let ask = acquire.ask();
    if scene.waits_for_others_too(ask.token) {
        return Decided::Same(Reply::Error(Error::Partial));
    }
    let ahead = scene
        .queue
        .map_or_else(Ahead::default, |(key_ref, registry)| {
            registry.ahead_of(key_ref, (ask.token, ask.mode), scene.lock, scene.now)
        });
    let decision = acquire.decide(scene.lock, scene.now, ahead.as_waiting(), scene.fences);
    Decided::new(decision, |had_it| Cause::Acquired { had_it })
}

/// Answers an acquire that was not granted at once, and counts it: its client waits, or gets null or an error.
pub(super) fn answer_not_granted(
    ctx: Context<'_>,
    entered: Result<Entered, Error>,
) -> Result<(), Error> {
    match &entered {
        Ok(Entered::Blocked | Entered::Queued) => WAITED.add_one(),
        Ok(Entered::No) => REFUSED.add_one(),
        Err(Error::KeyQueueFull | Error::ServerQueueFull) => QUEUE_FULL.add_one(),
        Err(_) => {}
    }
    match entered? {
        Entered::Blocked => {} // The reply comes when the wait ends.
        Entered::Queued => ctx.reply_status(c"QUEUED"),
        Entered::No => ctx.reply_null(),
    }
    Ok(())
}

pub(super) fn release(call: &mut CommandCall<'_>) -> Result<(), Error> {
    let ctx = call.task.ctx();
    let release = Release::parse(call.args())?;
    let outcome = call.change(None, |scene| {
        let key_deadline = || scene.key_end.deadline(scene.now);
        match release.decide(scene.lock, key_deadline, scene.now) {
            (Decision::Same(reply), _) => Decided::GiveUp(release.token(), reply),
            (decision, Some(hold)) => Decided::new(decision, |_| Cause::Released(hold)),
            (decision, None) => Decided::new(decision, |_| Cause::ReleasedLater),
        }
    })?;
    if let Outcome::Reply(reply) = outcome {
        if reply == Reply::Done(false) {
            NOT_OWNER.add_one();
        }
        ctx.reply(reply);
    }
    Ok(())
}

/// Ends the place of a token that holds nothing, if it has one.
fn give_up_place(key: &mut Key<'_, '_>, key_ref: &KeyRef, token: Token<'_>, now: Now) {
    let registry = &mut key.parts().state.registry;
    // A place for several keys ends as a whole.
    let several = registry.keys_of_place(key_ref, token);
    for one in several.iter().flat_map(|several| several.iter()) {
        registry.serve_later(one.key_ref.clone());
    }
    let removed = registry.give_up(key_ref, token);
    if !removed.is_empty() {
        removed.into_iter().for_each(serve::give_up);
        serve::serve_changed(key, key_ref, now);
    }
}

pub(super) fn renew(call: &mut CommandCall<'_>) -> Result<(), Error> {
    let ctx = call.task.ctx();
    let renew = Renew::parse(call.args())?;
    let outcome = call.change(None, |scene| {
        Decided::new(renew.decide(scene.lock, scene.now), |_| Cause::Renewed)
    })?;
    if let Outcome::Reply(reply) = outcome {
        if reply == Reply::Done(false) {
            LOST_RENEWALS.add_one();
        }
        ctx.reply(reply);
    }
    Ok(())
}
