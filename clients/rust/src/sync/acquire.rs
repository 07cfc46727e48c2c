use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::{RedisError, Value};

use super::inner::Inner;
use crate::attempt::{Attempt, PACE, Patience, Verdict, Wait};
use crate::command::{Claim, Place, new_token};
use crate::error::{Result, is_unknown_command, is_wrong_arity};
use crate::lease::Grant;
use crate::{Error, Mode};

/// How often a server is asked whether it has noticed that a connection was closed.
const ABANDON_TRIES: u32 = 100;

impl Inner {
    /// Asks in slices until the lock is granted or the patience is over. Leaves nothing behind
    /// without a grant.
    pub(super) fn acquire(
        &self,
        place: &Place,
        claim: &Claim,
        ttl: Duration,
        patience: Patience,
    ) -> Result<Option<Grant>> {
        let tools = (&self.options, &self.support);
        let mut attempt = Attempt::new(place, claim, ttl, patience, tools);
        let granted = self.run(&mut attempt);
        let granted = match granted {
            Err(Error::Unsupported(_, error)) if is_unknown_command(&error) => {
                Err(self.explain(place, ttl, error))
            }
            granted => granted,
        };
        if !matches!(granted, Ok(Some(_))) && attempt.leaves_something() {
            self.abandon(&attempt);
        }
        granted
    }

    /// Converts the hold of a token. The caller sees to what is left behind.
    pub(super) fn convert(
        &self,
        place: &Place,
        mode: Mode,
        ttl: Duration,
        patience: Patience,
    ) -> (Result<Option<Grant>>, bool) {
        let tools = (&self.options, &self.support);
        let claim = Claim::RwLock(mode);
        let mut attempt = Attempt::new(place, &claim, ttl, patience, tools);
        let granted = self.run(&mut attempt);
        if attempt.is_uncertain && !matches!(granted, Ok(Some(_))) {
            self.await_departure(place, ttl);
        }
        (granted, attempt.leaves_something())
    }

    fn run(&self, attempt: &mut Attempt<'_>) -> Result<Option<Grant>> {
        let answer_time = self.options.answer_time(attempt.ttl);
        loop {
            if let Some(refusal) = attempt.refused() {
                return Err(refusal);
            }
            let question = attempt.question(Wait::Block);
            let timeout = question.wait.saturating_add(answer_time);
            let answer = self.ask(&question.command, timeout);
            match attempt.verdict(question.sent, answer) {
                Verdict::Granted(grant) if attempt.is_old(grant) => {
                    if let Some(grant) = self.rejuvenate(attempt, grant)? {
                        return Ok(Some(grant));
                    }
                }
                Verdict::Granted(grant) => return Ok(Some(grant)),
                Verdict::AskAgain(pause) => sleep(pause),
                Verdict::Partial => {
                    self.release(attempt.place, attempt.ttl, self.options.reach())?;
                    (attempt.is_uncertain, attempt.has_place) = (false, false);
                }
                Verdict::Unavailable | Verdict::Queued => return Ok(None),
                Verdict::Failed(error) => return Err(error),
            }
        }
    }

    /// Begins the lease of a late grant anew. `None` if it was over before anybody heard of it.
    fn rejuvenate(&self, attempt: &mut Attempt<'_>, grant: Grant) -> Result<Option<Grant>> {
        attempt.is_uncertain = true;
        let sent = Instant::now();
        let renewed = self.renew(attempt.place, attempt.ttl)?;
        if !renewed {
            self.release_rest(attempt.place, attempt.ttl);
        }
        attempt.is_uncertain = false;
        Ok(renewed.then_some(Grant { sent, ..grant }))
    }

    /// Renews. False if nothing is held.
    pub(super) fn renew(&self, place: &Place, ttl: Duration) -> Result<bool> {
        let timeout = self.options.answer_time(ttl);
        let patience = self.options.reach().min(ttl);
        let (renewed, _) = self.insist(
            &place.renew(ttl, self.support.is_fallback()),
            timeout,
            patience,
        )?;
        Ok(renewed)
    }

    /// Releases. Whether all of it was held, and whether an answer was lost before.
    pub(super) fn release(
        &self,
        place: &Place,
        ttl: Duration,
        patience: Duration,
    ) -> Result<(bool, bool)> {
        let release = place.release(self.support.is_fallback());
        self.insist(&release, self.options.answer_time(ttl), patience)
    }

    /// Where one of several locks is lost, the others are of no use.
    pub(super) fn release_rest(&self, place: &Place, ttl: Duration) {
        if !place.more.is_empty() {
            self.give_up(place, ttl);
        }
    }

    /// Binds a hold that was just renewed to the connection that answers. False if it is over.
    pub(super) fn rebind(&self, place: &Place, claim: &Claim, fence: u64, ttl: Duration) -> bool {
        let tools = (&self.options, &self.support);
        let mut attempt = Attempt::new(place, claim, ttl, Patience::None, tools);
        let question = attempt.question(Wait::No);
        let answer = self.ask(&question.command, self.options.answer_time(ttl));
        let goes_on = attempt.goes_on(fence, question.sent, answer);
        if !goes_on {
            // What was granted anew nobody knows of.
            self.give_up(place, ttl);
        }
        goes_on
    }

    /// Whether the server that does not know a command is too old, or has no module.
    fn explain(&self, place: &Place, ttl: Duration, error: RedisError) -> Error {
        // A token that nobody has: nothing is released.
        let probe = Place::new(&place.key, new_token());
        match self.release(&probe, ttl, self.options.short_reach()) {
            Err(Error::ModuleMissing(_)) if self.support.falls_back(&self.options) => {
                Error::not_in_fallback("a lock of several keys")
            }
            Err(Error::ModuleMissing(missing)) => Error::ModuleMissing(missing),
            _ => Error::Unsupported("LOCK.MACQUIRE", error),
        }
    }

    /// An error, before anything is held, if the server has no release that waits for a time.
    pub(super) fn need_at_least(&self, place: &Place, ttl: Duration) -> Result<()> {
        const WHAT: &str = "a least time";
        if place.at_least.is_none() || self.support.at_least() {
            return Ok(());
        }
        if self.support.is_fallback() {
            return Err(Error::not_in_fallback(WHAT));
        }
        // The token holds nothing yet.
        match self.release(place, ttl, self.options.reach()) {
            Err(Error::Redis(error)) if is_wrong_arity(&error) => {
                Err(Error::Unsupported("LOCK.RELEASE … ATLEAST", error))
            }
            Err(Error::ModuleMissing(_)) if self.support.falls_back(&self.options) => {
                Err(Error::not_in_fallback(WHAT))
            }
            Err(error) => Err(error),
            Ok(_) => {
                self.support.has_module();
                self.support.has_at_least();
                Ok(())
            }
        }
    }

    /// Gives up the place, and what may have been granted unseen. If the server is gone, time does
    /// it.
    fn abandon(&self, attempt: &Attempt<'_>) {
        if attempt.is_uncertain {
            self.await_departure(attempt.place, attempt.ttl);
        }
        self.give_up(attempt.place, attempt.ttl);
    }

    pub(super) fn give_up(&self, place: &Place, ttl: Duration) {
        if let Err(error) = self.release(place, ttl, self.options.short_reach()) {
            log::warn!("what was asked for could not be given up: {error}");
        }
    }

    /// Waits until the server has noticed that a connection that waited was closed.
    ///
    /// A release before that would find nothing, and the grant would come after it. A server that
    /// keeps places gives up the place with the release, so there is nothing to wait for.
    fn await_departure(&self, place: &Place, ttl: Duration) {
        if self.support.keep() {
            return;
        }
        let timeout = self.options.answer_time(ttl);
        for tries in 0..ABANDON_TRIES {
            let info: Value = match self.ask(&place.info(), timeout) {
                Ok(info) => info,
                Err(_) => return,
            };
            if !place.is_waiting(&info) {
                return;
            }
            sleep(PACE.min(Duration::from_millis(u64::from(tries).saturating_add(1))));
        }
    }

    /// Makes a reader of one that gave up becoming the writer. False if its share is over.
    pub(super) fn restore_reader(
        &self,
        place: &Place,
        fence: u64,
        ttl: Duration,
    ) -> Result<Option<Grant>> {
        // Without KEEP, so that the place of the writer ends.
        let (granted, _) = self.convert(place, Mode::Shared, ttl, Patience::None);
        match granted? {
            Some(grant) if grant.fence == fence => Ok(Some(grant)),
            Some(_) => {
                // A new hold, which nobody knows of.
                self.release(place, ttl, self.options.reach())?;
                Err(Error::NotHeld)
            }
            None => Err(Error::NotHeld),
        }
    }
}
