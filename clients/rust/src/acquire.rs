//! The acquire loop: asks until the lock is granted or the patience is over.

use std::slice::from_ref;
use std::time::{Duration, Instant};

use crate::attempt::{Attempt, PACE, Patience, Verdict, Wait};
use crate::command::{Claim, Place};
use crate::driver::{Driver, Engine};
use crate::error::Result;
use crate::lease::{Grant, until};
use crate::replies::Binding;

impl<D: Driver> Engine<D> {
    pub(crate) fn attempt<'a>(
        &'a self,
        place: &'a Place,
        claim: &'a Claim,
        ttl: Duration,
        patience: Patience,
    ) -> Attempt<'a> {
        Attempt {
            place,
            claim,
            ttl,
            patience,
            options: &self.options,
            support: &self.support,
            lease: None,
            is_first: true,
            is_uncertain: false,
            has_place: false,
            found: None,
            out_of_reach: None,
            put_off: None,
        }
    }

    /// Gives up what is left behind without a grant.
    pub(crate) async fn clean_up(&self, attempt: &Attempt<'_>) {
        if attempt.leaves_something() {
            // A server that is out of reach has had its time.
            let time = attempt.bounded(self.options.answer_time(attempt.ttl));
            let tried = attempt.out_of_reach.map(|since| since.elapsed());
            let rest = self.options.short_reach();
            let rest = rest.saturating_sub(tried.unwrap_or_default());
            let place = attempt.place.without_job();
            self.give_up_within(&place, time, rest).await;
        }
    }

    /// Asks until the lock is granted or the patience is over. Its caller sees to what is left
    /// behind.
    pub(crate) async fn run(&self, attempt: &mut Attempt<'_>) -> Result<Option<Grant>> {
        loop {
            attempt.refused()?;
            let mut verdict = D::ask_next(self, attempt).await;
            attempt.is_first = false;
            if let Verdict::Granted(grant) = verdict
                && attempt.is_old(grant, self.linger())
            {
                verdict = self.rejuvenate(attempt, grant).await;
            }
            match verdict {
                Verdict::Granted(grant) => return Ok(Some(grant)),
                Verdict::AskAgain(pause) => D::pause(pause).await,
                Verdict::Partial => {
                    let reach = self.options.reach();
                    let persistence = (reach, until(Instant::now(), reach));
                    let time = self.options.answer_time(attempt.ttl);
                    self.release(attempt.place, time, persistence).await?;
                    (attempt.is_uncertain, attempt.has_place) = (false, false);
                }
                Verdict::Queued => {}
                Verdict::Unavailable => return Ok(None),
                Verdict::Failed(error) => return Err(error),
            }
        }
    }

    /// Asks once, without waiting for longer than an answer takes.
    pub(crate) async fn ask_once(&self, attempt: &mut Attempt<'_>, wait: Wait<'_>) -> Verdict {
        let question = attempt.question(wait);
        let answer = D::send(self, from_ref(&question.command), question.time).await;
        attempt.verdict(&question, answer)
    }

    /// Begins the lease of a late grant anew. The same token asks again where it was over before
    /// anybody heard of it, or may be.
    async fn rejuvenate(&self, attempt: &mut Attempt<'_>, grant: Grant) -> Verdict {
        attempt.is_uncertain = true;
        let sent = Instant::now();
        let (place, ttl) = (attempt.place, attempt.ttl);
        let end = until(sent, self.options.reach().min(ttl));
        let times = (ttl, self.options.answer_time(ttl));
        match self.renew(place, times, (ttl, end)).await {
            // The server may say so for long.
            Err(error) if error.is_temporary() => return Verdict::AskAgain(Duration::ZERO),
            Err(error) => return Verdict::Failed(error),
            Ok(false) => {
                self.release_rest(place, ttl).await;
                attempt.is_uncertain = false;
                return Verdict::AskAgain(Duration::ZERO);
            }
            // Another may hold it by now.
            Ok(true) if until(sent, ttl) <= Instant::now() => {
                return attempt.again_or_unavailable(Duration::ZERO);
            }
            Ok(true) => {}
        }
        match self.rebind(place, attempt.claim, grant.fence, times).await {
            Binding::Bound => {
                attempt.is_uncertain = false;
                Verdict::Granted(Grant { sent, ..grant })
            }
            Binding::NotBound => Verdict::AskAgain(PACE),
            Binding::Over => Verdict::AskAgain(Duration::ZERO),
        }
    }

    /// Binds a hold that was just renewed to the connection that answers, if it ends with that.
    pub(crate) async fn rebind(
        &self,
        place: &Place,
        claim: &Claim,
        fence: u64,
        (ttl, time): (Duration, Duration),
    ) -> Binding {
        if self.linger().is_none() {
            return Binding::Bound;
        }
        // LOCK.ONCE would answer a result.
        let claim = match claim {
            Claim::Once(..) => &Claim::Lock,
            claim => claim,
        };
        let mut attempt = self.attempt(place, claim, ttl, Patience::None);
        let question = attempt.question(Wait::No);
        let answer = D::send_of_owner(self, from_ref(&question.command), time).await;
        let binding = crate::replies::binding(fence, answer);
        if binding == Binding::Over {
            // What was granted anew nobody knows of.
            self.give_up(place, ttl).await;
        }
        binding
    }
}
