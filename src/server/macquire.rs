//! LOCK.MACQUIRE: all keys are looked at, one after the other, and then all are taken, or none.

use std::ffi::c_int;
use std::rc::Rc;

use redis_module::raw;

use super::api::{Arg, Argv, Context, Purpose};
use super::blocked_client::BlockedClient;
use super::channel;
use super::clock;
use super::command_call::CommandCall;
use super::commit::Cause;
use super::config::DEADLOCK_DETECTION;
use super::deadlock;
use super::execute::{
    acknowledge, answer_not_granted, check_that_it_is_here, key_ref_of, note_resumed,
};
use super::limits;
use super::linger;
use super::lock_key::{Key, Parts, WrongType};
use super::serve::{self, Entered};
use super::several::{self, serve_all_later};
use super::stats::counters::{MACQUIRED, RESUMED};
use crate::command::acquire::Wait;
use crate::command::macquire::{key_count, Has, Macquire, Verdict, COUNT_AT};
use crate::command::{Args, Error};
use crate::lock::{Deadline, Effect, Hold, Lock, Now, Refusal};
use crate::wait::graph::{Asked, CycleWait};
use crate::wait::{KeyRef, Linger, NewRequest, Several, Standing, Wanted};

/// The word that is the first key.
const FIRST_KEY: usize = COUNT_AT as usize + 1;

/// A request with the words that are its keys.
struct Call<'m, 'c> {
    request: &'m Macquire<'c>,
    names: Vec<Arg<'c>>,
    /// What its holds are bound to.
    linger: Option<Linger>,
    now: Now,
}

pub(super) fn run(call: &mut CommandCall<'_>) -> Result<(), Error> {
    let request = Macquire::parse(Args::new(call.argv.after_name()))?;
    let mut names = call.argv.words_from(FIRST_KEY);
    names.truncate(request.keys().count());
    let ctx = call.task.ctx();
    if let (Some(Wait::Notify(_, channel)), Some(first)) = (request.acquire().wait(), names.first())
    {
        channel::check(ctx, *first, channel)?;
    }
    let linger = linger::of_request(ctx, call.task.module(), request.acquire())?;
    let this = Call {
        request: &request,
        names,
        linger,
        now: clock::of_command(),
    };
    this.check_that_they_are_here(call)?;
    this.serve_first(call);
    let has = this.look(call)?;
    let several = this.several_if_waited_for(call);
    let token = request.acquire().ask().token;
    let verdict = request.decide(has.iter().copied());
    if matches!(verdict, Verdict::Grant | Verdict::Wait) {
        let registry = &call.task.state().registry;
        let standing = |several: &Rc<Several>| registry.standing(several, token);
        if several.as_ref().map(standing) == Some(Standing::Other) {
            return Err(Error::Partial);
        }
    }
    let fence = match verdict {
        Verdict::Partial => return Err(Error::Partial),
        Verdict::Again(fence) => fence,
        Verdict::Grant => {
            let fences = &call.task.module().fences;
            let fence = fences.with(|fences| fences.next(this.now));
            fence.map_err(|_| Error::FencesExhausted)?
        }
        Verdict::Wait => {
            if let Some(cycle) = this.cycle(call, several.as_deref()) {
                return this.refuse_cycle(call, several.as_deref(), &cycle);
            }
            let entered = this.enter(call, several);
            return answer_not_granted(ctx, entered);
        }
    };
    let new = Hold {
        fence,
        deadline: Deadline::after(this.now, request.acquire().ask().ttl),
        since_ms: this.now.ms(),
    };
    this.take(call, &has, new, several.as_deref())?;
    ctx.reply(request.acquire().reply(fence));
    Ok(())
}

impl<'c> Call<'_, 'c> {
    /// Refuses keys that are absent because they have just gone to another node of the cluster, in the running transaction.
    fn check_that_they_are_here(&self, call: &mut CommandCall<'c>) -> Result<(), Error> {
        let has_lock_left = call.task.module().inbox.has_lock_left();
        let mut names = self.names.iter().filter(|_| has_lock_left);
        names.try_for_each(|name| check_that_it_is_here(&mut call.task, *name))
    }

    /// Serves the keys that are waited for.
    fn serve_first(&self, call: &mut CommandCall<'c>) {
        let is_lost = call.task.module().bindings.has_lost();
        if call.task.state().registry.is_empty() && !is_lost {
            return; // The usual case.
        }
        for name in &self.names {
            if let Ok(mut key) = open(call, *name) {
                if is_lost {
                    linger::bring_forward(&mut key, self.now);
                }
                if let Some(key_ref) = key_ref_of(&mut key) {
                    serve::serve_changed(&mut key, &key_ref, self.now);
                }
            }
        }
        several::finish(&mut call.task, || self.now);
    }

    /// What the token has of each key.
    fn look(&self, call: &mut CommandCall<'c>) -> Result<Vec<Has>, Error> {
        let (token, now) = (self.request.acquire().ask().token, self.now);
        let keys = self.names.iter().zip(self.request.keys());
        let look = |(name, (_, mode)): (&Arg<'c>, _)| {
            let mut key = open(call, *name)?;
            let own = key.lock().and_then(|lock| lock.hold_of(token, now));
            if let Some((mode, hold)) = own {
                return Ok(Has::Hold(mode, hold));
            }
            let key_ref = key_ref_of(&mut key);
            let Parts { lock, state, .. } = key.parts();
            let is_ahead = |key_ref: &KeyRef| {
                let ahead = state.registry.ahead_of(key_ref, (token, mode), lock, now);
                ahead.as_waiting().any
            };
            let must_wait = key_ref.as_ref().is_some_and(is_ahead);
            Ok(match Lock::admits(lock, mode, token, now) {
                Ok(_) if !must_wait => Has::NothingFree,
                _ => Has::NothingBusy,
            })
        };
        keys.map(look).collect()
    }

    /// The keys as the registry knows them, if anybody waits for anything.
    fn several_if_waited_for(&self, call: &mut CommandCall<'c>) -> Option<Rc<Several>> {
        let is_empty = call.task.state().registry.is_empty();
        (!is_empty).then(|| self.several(call)).flatten()
    }

    fn several(&self, call: &CommandCall<'c>) -> Option<Rc<Several>> {
        let db = call.task.ctx().selected_db();
        let wanted = self.request.keys().map(|(name, mode)| Wanted {
            key_ref: KeyRef::new(db, name),
            mode,
        });
        Several::new(wanted.collect()).map(Rc::new)
    }

    /// Takes all keys, or sets their deadlines anew.
    fn take(
        &self,
        call: &mut CommandCall<'c>,
        has: &[Has],
        new: Hold,
        several: Option<&Several>,
    ) -> Result<(), Error> {
        let (token, now) = (self.request.acquire().ask().token, self.now);
        let resume = |several| call.task.state().registry.resume_several(several, token);
        if let Some(since_us) = several.and_then(resume) {
            note_resumed(since_us);
        }
        MACQUIRED.add_one();
        let keys = self.names.iter().zip(self.request.keys()).zip(has);
        for ((name, (_, mode)), has) in keys {
            let (hold, had_it) = match has {
                Has::Hold(_, own) => (
                    Hold {
                        deadline: new.deadline,
                        ..*own
                    },
                    true,
                ),
                Has::NothingFree | Has::NothingBusy => (new, false),
            };
            let effect = Effect::Hold {
                now_ms: now.ms(),
                mode,
                token,
                hold,
            };
            let mut key = open(call, *name)?;
            key.commit(&effect, Cause::Acquired { had_it }, now);
            if let Some(linger) = self.linger {
                linger::bind(&key, token, hold.fence, linger);
            }
            if let Some(key_ref) = key_ref_of(&mut key) {
                serve::serve_changed(&mut key, &key_ref, now);
            }
            acknowledge(&mut key, Some(hold.fence));
        }
        Ok(())
    }

    /// The cycle that its wait would close, if it will wait.
    fn cycle(
        &self,
        call: &mut CommandCall<'c>,
        several: Option<&Several>,
    ) -> Option<Vec<CycleWait>> {
        let acquire = self.request.acquire();
        let may_wait = acquire.wait().is_some() || acquire.keep_ms().is_some();
        // Where nobody waits for anything, there is no cycle.
        let several = several.filter(|_| may_wait && DEADLOCK_DETECTION.is_on())?;
        if !deadlock::will_wait(call.task.ctx(), acquire) {
            return None;
        }
        let asked = several.iter().map(|one| Asked {
            key_ref: one.key_ref.clone(),
            mode: one.mode,
            upgrades: false,
        });
        deadlock::search(&mut call.task, acquire.ask().token, asked.collect())
    }

    /// Tells of a cycle. A place without a listener that the token has ends, as with every refusal for good.
    fn refuse_cycle(
        &self,
        call: &mut CommandCall<'c>,
        several: Option<&Several>,
        cycle: &[CycleWait],
    ) -> Result<(), Error> {
        let token = self.request.acquire().ask().token;
        if let Some(several) = several {
            let registry = &mut call.task.state().registry;
            if registry.resume_several(several, token).is_some() {
                serve_all_later(&mut call.task, several);
            }
        }
        deadlock::tell(call.task.ctx(), call.task.state(), cycle);
        Ok(())
    }

    /// Lets the request wait, or lets its token keep a place.
    fn enter(
        &self,
        call: &mut CommandCall<'c>,
        several: Option<Rc<Several>>,
    ) -> Result<Entered, Error> {
        let acquire = self.request.acquire();
        if acquire.wait().is_none() && acquire.keep_ms().is_none() && several.is_none() {
            return Ok(Entered::No); // The usual case of a request that does not wait.
        }
        let ctx = call.task.ctx();
        let several = several.or_else(|| self.several(call));
        let Some(several) = several.filter(|_| ctx.is_primary()) else {
            return Ok(Entered::No);
        };
        let wait = serve::wait_of(ctx, acquire);
        if wait.is_some() || acquire.keep_ms().is_some() {
            let registry = &call.task.state().registry;
            if registry.standing(&several, acquire.ask().token) == Standing::None {
                for one in several.iter() {
                    let here = registry.len_of(one.key_ref.db, &one.key_ref.name);
                    limits::admit((here, registry.len()))?;
                }
            }
        }
        let (listener, entered) = serve::listen(ctx, call.task.module(), wait);
        let request = NewRequest {
            mode: several.first().mode,
            ..serve::request_of(acquire, listener, Refusal::Busy, self.linger, self.now)
        };
        self.take_place(call, &several, request);
        Ok(entered)
    }

    fn take_place(
        &self,
        call: &mut CommandCall<'c>,
        several: &Rc<Several>,
        request: NewRequest<'_, BlockedClient>,
    ) {
        let state = call.task.state();
        let entered = state.registry.enter_several(several, request);
        state.is_due_changed = true;
        if entered.is_resumed() {
            RESUMED.add_one();
        }
        if entered.must_serve() {
            serve_all_later(&mut call.task, several);
        }
    }
}

fn open<'k, 'c>(call: &'k mut CommandCall<'c>, name: Arg<'k>) -> Result<Key<'k, 'c>, Error> {
    let key = Key::open(&mut call.task, name, Purpose::Write);
    key.map_err(|WrongType| Error::WrongType)
}

/// Names the keys to the server, when it asks for them. False when it does not ask.
pub(super) fn name_keys(ctx: Context<'_>, argv: Argv<'_>) -> bool {
    // SAFETY: the static is not written after the load.
    let key_at = unsafe { raw::RedisModule_KeyAtPos };
    let Some(key_at) = key_at.filter(|_| ctx.is_asked_for_keys()) else {
        return false;
    };
    let count = argv.after_name().next().and_then(key_count);
    let last = count.map_or(0, |count| count.saturating_add(FIRST_KEY));
    // A request with fewer words is malformed.
    for at in FIRST_KEY..last.min(argv.len()) {
        let at = c_int::try_from(at).unwrap_or_default();
        // SAFETY: the server asks for the keys.
        unsafe { key_at(ctx.as_ptr(), at) };
    }
    true
}
