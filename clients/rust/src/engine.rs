//! What both clients do on the way to a lock and back, written once.
//!
//! It awaits a `Wire`. That of the blocking client is never pending, so a future over it ends when
//! it is polled.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, RedisResult, Value};

use crate::answer::{OwnerAnswer, goes_on, owner_answer};
use crate::attempt::{Attempt, LAST_TRY, PACE, Patience, Verdict, Wait};
use crate::command::{Claim, Place};
use crate::error::{Result, is_unanswered};
use crate::lease::{Grant, Lease, until};
use crate::options::{ANSWER_TIME, Options};
use crate::support::Support;
use crate::{Error, Mode};

/// The time left for an answer after connecting since `start`: at least half of `time`, or a slow
/// connection would never be of use.
pub(crate) fn rest_for_answer(start: Instant, time: Duration) -> Duration {
    let half = time.checked_div(2).unwrap_or(time);
    time.saturating_sub(start.elapsed()).max(half)
}

/// How commands get to the server, and how time passes.
pub(crate) trait Wire: Send + Sync + Sized + 'static {
    /// Sends a command once that is answered at once, in `time` at most. Connecting is part of that,
    /// as far as `rest_for_answer` says.
    fn ask(&self, command: &Cmd, time: Duration)
    -> impl Future<Output = RedisResult<Value>> + Send;

    fn pause(&self, time: Duration) -> impl Future<Output = ()> + Send;

    /// Makes the next request of an attempt, in the best way to wait that there is.
    fn ask_next(
        engine: &Engine<Self>,
        attempt: &mut Attempt<'_>,
        turn: Turn,
    ) -> impl Future<Output = Verdict> + Send;
}

/// Which request of an attempt it is.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    #[cfg_attr(not(feature = "tokio"), allow(dead_code))]
    pub(crate) is_conversion: bool,
    #[cfg_attr(not(feature = "tokio"), allow(dead_code))]
    pub(crate) is_first: bool,
}

/// What all clones of a client share.
pub(crate) struct Engine<W> {
    pub(crate) wire: W,
    pub(crate) options: Options,
    pub(crate) support: Support,
}

impl<W: Wire> Engine<W> {
    pub(crate) fn new(wire: W, options: Options) -> Arc<Self> {
        let support = Support::default();
        Arc::new(Self {
            wire,
            options,
            support,
        })
    }

    /// Asks until the lock is granted or the patience is over. Leaves nothing behind without a
    /// grant.
    pub(crate) async fn acquire(
        &self,
        place: &Place,
        claim: &Claim,
        ttl: Duration,
        patience: Patience,
    ) -> Result<Option<Grant>> {
        let mut attempt = self.attempt(place, claim, ttl, patience);
        let granted = self.run(&mut attempt, false).await;
        if !matches!(granted, Ok(Some(_))) && attempt.leaves_something() {
            // A server that is out of reach has had its time.
            let time = attempt.bounded(self.options.answer_time(ttl));
            let rest = attempt.rest_of_reach();
            self.give_up_within(&place.without_job(), time, rest).await;
        }
        granted
    }

    /// Converts the hold of a token, as long as its lease lasts if that is known. The caller sees to
    /// what is left behind.
    pub(crate) async fn convert(
        &self,
        place: &Place,
        lease: Option<&Lease>,
        mode: Mode,
        ttl: Duration,
        patience: Patience,
    ) -> (Result<Option<Grant>>, bool) {
        let claim = Claim::RwLock(mode);
        let mut attempt = self.attempt(place, &claim, ttl, patience);
        attempt.lease = lease;
        let granted = self.run(&mut attempt, true).await;
        (granted, attempt.leaves_something())
    }

    fn attempt<'a>(
        &'a self,
        place: &'a Place,
        claim: &'a Claim,
        ttl: Duration,
        patience: Patience,
    ) -> Attempt<'a> {
        Attempt::new(place, claim, ttl, patience, (&self.options, &self.support))
    }

    async fn run(&self, attempt: &mut Attempt<'_>, is_conversion: bool) -> Result<Option<Grant>> {
        let mut is_first = true;
        loop {
            if let Some(refusal) = attempt.refused() {
                return Err(refusal);
            }
            let turn = Turn {
                is_conversion,
                is_first,
            };
            let mut verdict = W::ask_next(self, attempt, turn).await;
            is_first = false;
            if let Verdict::Granted(grant) = verdict
                && attempt.is_old(grant)
            {
                verdict = self.rejuvenate(attempt, grant).await;
            }
            match verdict {
                Verdict::Granted(grant) => return Ok(Some(grant)),
                Verdict::AskAgain(pause) => self.wire.pause(pause).await,
                Verdict::Partial => {
                    let reach = self.options.reach();
                    self.release(attempt.place, attempt.ttl, reach).await?;
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
        let time = match question.wait.is_zero() {
            true => self.options.answer_time(attempt.ttl),
            // Connecting must not take the time of the wait.
            false => ANSWER_TIME,
        };
        let time = question.wait.saturating_add(attempt.bounded(time));
        let answer = self.wire.ask(&question.command, time).await;
        attempt.verdict(&question, answer)
    }

    /// Begins the lease of a late grant anew. The same token asks again where it was over before
    /// anybody heard of it, or may be.
    async fn rejuvenate(&self, attempt: &mut Attempt<'_>, grant: Grant) -> Verdict {
        attempt.is_uncertain = true;
        let sent = Instant::now();
        let renewed = match self.renew(attempt.place, attempt.ttl, attempt.ttl).await {
            // The server may say so for long.
            Err(error) if error.is_try_again() => return Verdict::AskAgain(Duration::ZERO),
            Err(error) => return Verdict::Failed(error),
            Ok(renewed) => renewed,
        };
        // Another may hold it by now.
        if renewed && until(sent, attempt.ttl) <= Instant::now() {
            return attempt.again_or_unavailable(Duration::ZERO);
        }
        if !renewed {
            self.release_rest(attempt.place, attempt.ttl).await;
        }
        attempt.is_uncertain = false;
        match renewed {
            true => Verdict::Granted(Grant { sent, ..grant }),
            false => Verdict::AskAgain(Duration::ZERO),
        }
    }

    /// Renews, and asks again for `most` at most. False if nothing is held.
    pub(crate) async fn renew(&self, place: &Place, ttl: Duration, most: Duration) -> Result<bool> {
        let time = self.options.answer_time(ttl);
        let patience = self.options.reach().min(most);
        let renew = place.renew(ttl, self.support.is_fallback());
        let (renewed, _) = self.insist(&renew, time, patience).await?;
        Ok(renewed)
    }

    /// Releases. Whether all of it was held, and whether an answer was lost before.
    pub(crate) async fn release(
        &self,
        place: &Place,
        ttl: Duration,
        patience: Duration,
    ) -> Result<(bool, bool)> {
        let release = place.release(self.support.is_fallback());
        let time = self.options.answer_time(ttl);
        self.insist(&release, time, patience).await
    }

    /// Where one of several locks is lost, the others are of no use.
    pub(crate) async fn release_rest(&self, place: &Place, ttl: Duration) {
        if !place.more.is_empty() {
            self.give_up(place, ttl).await;
        }
    }

    /// Whether holds end with their connections.
    pub(crate) fn lingers(&self) -> bool {
        self.options.linger.is_some() && !self.support.is_fallback()
    }

    /// Binds a hold that was just renewed to the connection that answers. False if it is over.
    pub(crate) async fn rebind(
        &self,
        place: &Place,
        claim: &Claim,
        fence: u64,
        ttl: Duration,
    ) -> bool {
        let mut attempt = self.attempt(place, claim, ttl, Patience::None);
        let question = attempt.question(Wait::No);
        let time = self.options.answer_time(ttl);
        let answer = self.wire.ask(&question.command, time).await;
        let goes_on = goes_on(fence, answer);
        if !goes_on {
            // What was granted anew nobody knows of.
            self.give_up(place, ttl).await;
        }
        goes_on
    }

    /// Gives up the place, and what may have been granted unseen. If the server is gone, time does
    /// it.
    pub(crate) async fn give_up(&self, place: &Place, ttl: Duration) {
        let time = self.options.answer_time(ttl);
        self.give_up_within(place, time, self.options.short_reach())
            .await;
    }

    async fn give_up_within(&self, place: &Place, time: Duration, patience: Duration) {
        let release = place.release(self.support.is_fallback());
        if let Err(error) = self.insist(&release, time, patience).await {
            log::warn!("what was asked for could not be given up: {error}");
        }
    }

    /// Makes a reader of a writer, or of one that gave up becoming it. `None` if its hold is over:
    /// what the server has is a new one, which nobody knows of.
    pub(crate) async fn restore_reader(
        &self,
        place: &Place,
        fence: u64,
        ttl: Duration,
    ) -> Result<Option<Grant>> {
        // Without KEEP, so that the place of the writer ends.
        let (granted, _) = self
            .convert(place, None, Mode::Shared, ttl, Patience::None)
            .await;
        match granted? {
            Some(grant) => Ok((grant.fence == fence).then_some(grant)),
            // While a guard is on, one that has a share already waits for it as others do.
            None => {
                let sent = Instant::now();
                let is_held = self.renew(place, ttl, ttl).await?;
                Ok(is_held.then_some(Grant { fence, sent }))
            }
        }
    }

    /// Sends commands of an owner until they are answered, each for as long as `patience`, and an
    /// answer takes `time` at most. A repetition does no harm.
    ///
    /// Returns whether all did what they say, and whether an answer was lost before.
    pub(crate) async fn insist(
        &self,
        commands: &[Cmd],
        time: Duration,
        patience: Duration,
    ) -> Result<(bool, bool)> {
        let (mut done, mut was_lost) = (true, false);
        for command in commands {
            let start = Instant::now();
            let mut time = time;
            loop {
                match owner_answer(self.wire.ask(command, time).await) {
                    OwnerAnswer::Done => break,
                    OwnerAnswer::NotHeld => {
                        done = false;
                        break;
                    }
                    OwnerAnswer::Failed(error) => return Err(error),
                    OwnerAnswer::MayPass(error) => {
                        was_lost |= is_unanswered(&error);
                        let left = patience.saturating_sub(start.elapsed());
                        if left.is_zero() {
                            return Err(Error::from(error));
                        }
                        time = time.min(left.max(LAST_TRY));
                    }
                }
                self.wire.pause(PACE).await;
            }
        }
        Ok((done, was_lost))
    }
}
