//! LOCK.MACQUIRE: all keys are looked at, one after the other, and then all are taken, or none.
//! Nothing is taken that has changed since it was looked at ([`super::look`]).

use std::rc::Rc;

use super::arrive::{self, Stay};
use super::claim::Claim;
use super::command::{check_that_it_is_here, note_resumed, waited_key_ref};
use super::count::Count;
use super::deadlock;
use super::guarding;
use super::host::{Host, Key, Parts, Purpose, Server};
use super::linger;
use super::look::undisturbed;
use super::overdue;
use super::serve;
use super::several;
use super::take::answer_not_granted;
use crate::command::macquire::{AllOrNone, Has, Macquire, COUNT_AT};
use crate::command::Error;
use crate::lock::{Fence, Grant, Lock, Mode, Now, Refusal, Token};
use crate::wait::{KeyRef, Keys, Linger, Several, Wanted};

/// The word that is the first key.
pub const FIRST_KEY: usize = COUNT_AT as usize + 1;

/// A request at its time.
struct Call<'m, 'c> {
    request: &'m Macquire<'c>,
    /// What its holds are bound to.
    linger: Option<Linger>,
    now: Now,
}

/// What a request comes to.
struct Decided {
    /// What its token has of each key.
    has: Vec<Has>,
    /// Its keys, if anybody waits for anything.
    keys: Option<Keys>,
    verdict: AllOrNone,
}

/// Takes all keys of the running command, or none.
///
/// # Errors
/// What the client gets in place of a fence.
pub fn run<H: Host>(host: &mut H, request: &Macquire<'_>) -> Result<(), Error> {
    let server = host.server();
    guarding::look_if_on(server, host.machine(), || server.now());
    overdue::end_first(host);
    let this = Call {
        request,
        linger: linger::of_request(server, request.acquire())?,
        now: server.command_time(),
    };
    let Some(decided) = undisturbed(host, |host| this.decide(host))? else {
        return answer_not_granted(server, Ok(Stay::No));
    };
    let keys = decided.keys;
    let fence = match decided.verdict {
        AllOrNone::Partial => return Err(Error::Partial),
        AllOrNone::Again(fence) => fence,
        AllOrNone::Grant => {
            let fences = &host.shared().fences;
            let fence = fences.with(|fences| fences.next(this.now));
            fence.ok_or(Error::FencesExhausted)?
        }
        AllOrNone::Wait => return this.enter(host, keys),
    };
    this.take(host, &decided.has, fence, keys.as_ref())?;
    server.reply(request.acquire().reply(fence));
    Ok(())
}

/// Whether no new grant may be made. All keys are in one slot.
fn is_guarded<H: Host>(host: &mut H) -> bool {
    if !host.machine().guard.is_on() {
        return false;
    }
    let key = host.open_word(FIRST_KEY, Purpose::Write);
    key.is_ok_and(|mut key| guarding::note_refused(&mut key, true))
}

impl Call<'_, '_> {
    /// Decides on the keys as they are now. `None` is a refusal: a token does not wait for keys
    /// that it holds.
    fn decide<H: Host>(&self, host: &mut H) -> Result<Option<Decided>, Error> {
        self.check_that_they_are_here(host)?;
        self.serve_first(host);
        let has = self.look(host)?;
        let keys = self.keys_if_waited_for(host);
        let verdict = match self.request.decide(has.iter().copied()) {
            AllOrNone::Grant if is_guarded(host) => AllOrNone::Wait,
            AllOrNone::Again(_) if is_guarded(host) => return Ok(None),
            verdict => verdict,
        };
        if matches!(verdict, AllOrNone::Grant | AllOrNone::Wait) {
            let (registry, token) = (&host.machine().registry, self.token());
            let waits_otherwise = |keys| registry.waits_otherwise(keys, token);
            if keys.as_ref().is_some_and(waits_otherwise) {
                return Err(Error::Partial);
            }
        }
        Ok(Some(Decided { has, keys, verdict }))
    }

    fn token(&self) -> Token<'_> {
        self.request.acquire().ask().token
    }

    /// The words that are its keys, with their modes.
    fn keys(&self) -> impl Iterator<Item = (usize, Mode)> + '_ {
        let modes = self.request.keys().map(|(_, mode)| mode);
        (FIRST_KEY..).zip(modes)
    }

    /// Refuses keys that are absent because they have gone to another node of the cluster.
    fn check_that_they_are_here<H: Host>(&self, host: &mut H) -> Result<(), Error> {
        self.keys()
            .try_for_each(|(at, _)| check_that_it_is_here(host, at))
    }

    /// Serves the keys that are waited for.
    fn serve_first<H: Host>(&self, host: &mut H) {
        let is_lost = host.shared().bindings.has_lost();
        if host.machine().registry.is_empty() && !is_lost {
            return; // The usual case.
        }
        for (at, _) in self.keys() {
            if let Ok(mut key) = host.open_word(at, Purpose::Write) {
                if is_lost {
                    linger::bring_forward(&mut key, self.now);
                }
                if let Some(key_ref) = waited_key_ref(&mut key) {
                    serve::serve_changed(&mut key, &key_ref, self.now);
                }
            }
        }
        several::finish(host);
    }

    /// What the token has of each key.
    fn look<H: Host>(&self, host: &mut H) -> Result<Vec<Has>, Error> {
        let (token, now) = (self.request.acquire().ask().token, self.now);
        let look = |(at, mode)| {
            let mut key = host.open_word(at, Purpose::Write)?;
            let own = key.lock().and_then(|lock| lock.hold_of(token, now));
            if let Some((mode, hold)) = own {
                return Ok(Has::Hold(mode, hold));
            }
            let key_ref = waited_key_ref(&mut key);
            let Parts { lock, machine, .. } = key.parts();
            let is_ahead = |key_ref: &KeyRef| {
                let asked = (token, mode);
                machine.registry.ahead_of(key_ref, asked, lock, now).any
            };
            let must_wait = key_ref.as_ref().is_some_and(is_ahead);
            Ok(match Lock::admits(lock, mode, token, now) {
                Ok(_) if !must_wait => Has::NothingFree,
                _ => Has::NothingBusy,
            })
        };
        self.keys().map(look).collect()
    }

    /// Its keys, if anybody waits for anything.
    fn keys_if_waited_for<H: Host>(&self, host: &mut H) -> Option<Keys> {
        let is_empty = host.machine().registry.is_empty();
        (!is_empty).then(|| self.all_keys(host)).flatten()
    }

    fn all_keys<H: Host>(&self, host: &H) -> Option<Keys> {
        let db = host.server().selected_db();
        let wanted = self.request.keys().map(|(name, mode)| Wanted {
            key_ref: KeyRef::new(db, name),
            mode,
        });
        let several = Several::new(wanted)?;
        Some(Keys::Several(Rc::new(several)))
    }

    /// Takes all keys under a new fence, or sets their deadlines anew. Where the server runs
    /// something that changes one of the keys while another is created, those that were taken are
    /// given back.
    fn take<H: Host>(
        &self,
        host: &mut H,
        has: &[Has],
        fence: Fence,
        keys: Option<&Keys>,
    ) -> Result<(), Error> {
        let (server, token) = (host.server(), self.token());
        let resume = |keys| host.machine().registry.resume(keys, token);
        note_resumed(server, keys.and_then(resume));
        let acquire = self.request.acquire();
        let claim = Claim {
            token,
            grant: Grant::new(None, acquire.ask().mode, acquire.ask().ttl, fence, self.now),
            linger: (self.linger, true),
            first_word: Some(FIRST_KEY),
        };
        let own = has.iter().map(|has| match has {
            Has::Hold(_, own) => Some(*own),
            Has::NothingFree | Has::NothingBusy => None,
        });
        let wanted = self.keys().map(|(_, mode)| mode).zip(own);
        let db = server.selected_db();
        let name = |nth| {
            let (name, _) = self.request.keys().nth(nth)?;
            Some(KeyRef::new(db, name))
        };
        claim.take(host, wanted, name)?;
        host.shared().deliveries.hear(fence);
        server.count(Count::Macquired);
        Ok(())
    }

    /// Lets the request wait, or lets its token keep a place, unless its wait closes a cycle.
    fn enter<H: Host>(&self, host: &mut H, keys: Option<Keys>) -> Result<(), Error> {
        let (server, acquire) = (host.server(), self.request.acquire());
        if !acquire.may_stay() && keys.is_none() {
            // The usual case of a request that does not wait.
            return answer_not_granted(server, Ok(Stay::No));
        }
        let Some(keys) = keys.or_else(|| self.all_keys(host)) else {
            return answer_not_granted(server, Ok(Stay::No));
        };
        let (machine, refusal) = (host.machine(), Refusal::Busy);
        let arrival = arrive::take_place(server, machine, keys, acquire, refusal, self.linger);
        let mut arrival = match arrival {
            Ok(arrival) => arrival,
            Err(error) => return answer_not_granted(server, Err(error)),
        };
        let is_suspect = deadlock::is_suspect(server, machine, &arrival);
        if is_suspect && deadlock::refuse(host, self.token(), &mut arrival) {
            return Ok(());
        }
        if arrival.entered.must_serve() {
            let registry = &mut host.machine().registry;
            registry.serve_later(arrival.keys.iter());
        }
        answer_not_granted(server, Ok(arrival.stay))
    }
}
