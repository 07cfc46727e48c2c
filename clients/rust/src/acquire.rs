//! The acquire loop: asks until the lock is granted or the patience is over. An [`Attempt`] decides
//! without I/O what to send next, and what an answer means.

use std::slice::from_ref;
use std::time::{Duration, Instant};

use redis::{Cmd, RedisError, RedisResult, Value};

use crate::command::{Claim, Place, millis};
use crate::driver::{Driver, Engine, Support};
use crate::error::{Error, Result};
use crate::hold::Effort;
use crate::lease::{Grant, Lease, until};
use crate::options::{ANSWER_TIME, Options};
use crate::replies::{
    Binding, Class, class, has_code, is_foreign, is_unanswered, is_unknown_command,
};
use crate::server::Batch;

/// The time between two questions that the server cannot make wait.
pub(crate) const PACE: Duration = Duration::from_millis(50);

/// The least time for the last try at a server that has been silent. One that works answers in it.
pub(crate) const LAST_TRY: Duration = Duration::from_millis(500);

/// The longest first slice of a connection that blocks. An idle one may be dead, and only an answer
/// that stays away says so.
const FIRST_SLICE: Duration = Duration::from_secs(1);

/// How long an attempt waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Nor does it wait for a server that cannot answer now.
    Never,
    Until(Instant),
    Forever,
}

impl Patience {
    /// From now on. A time that the clock cannot count is for ever.
    pub(crate) fn of(time: Duration) -> Self {
        Instant::now()
            .checked_add(time)
            .map_or(Self::Forever, Self::Until)
    }

    /// The time that is left then.
    fn left_at(self, then: Instant) -> Duration {
        match self {
            Self::Never => Duration::ZERO,
            Self::Until(end) => end.saturating_duration_since(then),
            Self::Forever => Duration::MAX,
        }
    }

    pub(crate) fn is_over(self) -> bool {
        self.left_at(Instant::now()).is_zero()
    }

    /// The part of a time that is left.
    pub(crate) fn bounded(self, time: Duration) -> Duration {
        self.left_at(Instant::now()).min(time)
    }
}

/// How a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait<'a> {
    /// It does not.
    No,
    /// The connection blocks for a slice.
    Block,
    /// The channel hears of the grant.
    Notify(&'a str),
    /// The place stays, and the client asks again.
    Keep,
}

/// A command, and how long its answer may take.
pub(crate) struct Question {
    pub(crate) command: Cmd,
    pub(crate) time: Duration,
    pub(crate) sent: Instant,
    /// When a server that has nothing to say before answers.
    due: Instant,
}

/// The meaning of an answer.
pub(crate) enum Verdict {
    Granted(Grant),
    /// The place is in the queue. The channel will hear.
    Queued,
    /// The lock was not available in time, or a result takes its place.
    Unavailable,
    /// The same token asks again after the pause.
    AskAgain(Duration),
    /// A grant whose answer was lost has ended in part. What is left of it is to be released first.
    Partial,
    Failed(Error),
}

/// One attempt to get a lock, with one token throughout.
pub(crate) struct Attempt<'a> {
    pub(crate) place: &'a Place,
    pub(crate) claim: &'a Claim,
    pub(crate) ttl: Duration,
    pub(crate) patience: Patience,
    pub(crate) options: &'a Options,
    pub(crate) support: &'a Support,
    /// The lease of the hold that is to be converted. Without it there is nothing to wait for.
    pub(crate) lease: Option<&'a Lease>,
    /// Whether the next request is the first one.
    pub(crate) is_first: bool,
    /// A reply was lost. The server may have granted the lock, or may still let the request wait.
    pub(crate) is_uncertain: bool,
    /// A request asked the server to keep its place.
    pub(crate) has_place: bool,
    /// The result that LOCK.ONCE has answered.
    pub(crate) found: Option<Value>,
    /// Since when answers are due that have not come.
    pub(crate) out_of_reach: Option<Instant>,
    /// Since when the server has answered that it cannot say now.
    pub(crate) put_off: Option<Instant>,
}

impl Question {
    pub(crate) fn batch<'a>(&'a self, place: &'a Place) -> Batch<'a> {
        Batch::of(place.key(), from_ref(&self.command), self.time)
    }
}

impl Attempt<'_> {
    /// The next command.
    pub(crate) fn question(&mut self, wait: Wait<'_>) -> Question {
        let is_fallback = self.support.is_fallback();
        let mut command = self.place.acquire(self.claim, self.ttl, is_fallback);
        let wait = match is_fallback || self.patience.is_over() {
            true => Wait::No,
            false => wait,
        };
        let (mut blocked, mut answer_time) = (Duration::ZERO, self.options.answer_time(self.ttl));
        match wait {
            Wait::No | Wait::Keep => {}
            Wait::Block => {
                // An answer soon also says that a server which was out of reach is back.
                let slice = match self.has_place && self.out_of_reach.is_none() {
                    true => self.options.slice,
                    false => self.options.slice.min(FIRST_SLICE),
                };
                // Connecting must not take the time of the wait.
                (blocked, answer_time) = (self.patience.bounded(slice), ANSWER_TIME);
                command.arg("BLOCK").arg(millis(blocked));
            }
            Wait::Notify(channel) => {
                // The next question comes within a slice. A place that was left while the server was
                // out of reach ends by itself: its channel is there, and nobody listens for it.
                let time = self.patience.bounded(self.options.slice.saturating_mul(2));
                command.arg("NOTIFY").arg(millis(time)).arg(channel);
            }
        }
        if wait != Wait::No {
            command.arg("KEEP").arg(millis(self.options.grace));
            self.has_place = true;
        }
        let linger = self.options.linger.filter(|_| !is_fallback);
        command.arg(linger.map(|linger| ("LINGER", millis(linger))));
        let sent = Instant::now();
        Question {
            command,
            time: blocked.saturating_add(self.bounded(answer_time)),
            sent,
            due: sent.checked_add(blocked).unwrap_or(sent),
        }
    }

    /// Reads the answer to a question.
    pub(crate) fn verdict(&mut self, question: &Question, answer: RedisResult<Value>) -> Verdict {
        let answer = match answer {
            Err(error) if class(&error) != Class::Final => {
                return self.has_failed(error, question.due);
            }
            answer => answer,
        };
        (self.out_of_reach, self.put_off) = (None, None);
        let is_once = matches!(self.claim, Claim::Once(..));
        let is_unknown = answer.as_ref().is_err_and(is_unknown_command);
        if !is_unknown {
            self.support.has_module();
        }
        match answer {
            Ok(value) => self.read(question.sent, value),
            // A server with the module may be too old for LOCK.ONCE.
            Err(_) if is_unknown && !is_once && self.support.falls_back(self.options) => {
                self.has_place = false;
                Verdict::AskAgain(Duration::ZERO)
            }
            // Nobody uses such a lock without the module.
            Err(error) if is_foreign(&error) && !is_once => self.again_or_unavailable(PACE),
            // Without a lost answer the token's owner holds some of it by another guard.
            Err(error) if has_code(&error, &["PARTIAL"]) && self.is_uncertain => Verdict::Partial,
            Err(error) => Verdict::Failed(error.into()),
        }
    }

    fn read(&mut self, sent: Instant, value: Value) -> Verdict {
        self.found = None;
        let is_once = matches!(self.claim, Claim::Once(..));
        match value {
            result @ Value::BulkString(_) if is_once => {
                // The server has ended the place.
                (self.found, self.has_place) = (Some(result), false);
                Verdict::Unavailable
            }
            Value::Array(mut both) if is_once && both.len() == 2 => {
                let verdict = self.read(sent, both.pop().unwrap_or(Value::Nil));
                self.found = both.pop();
                verdict
            }
            // Those who poll do not stay in step.
            Value::Int(0) if self.support.is_fallback() => {
                self.again_or_unavailable(PACE.mul_f64(0.5 + random()))
            }
            Value::Int(number @ 1..) => {
                let has_fence = !self.support.is_fallback();
                let fence = if has_fence { number.cast_unsigned() } else { 0 };
                Verdict::Granted(Grant { fence, sent })
            }
            // The connection does not wait. Or a guard says so at once to one that waits, if its
            // token holds all by an unseen grant.
            Value::Nil if self.has_place => {
                let soonest = PACE.min(self.options.slice).min(self.options.grace);
                self.again_or_unavailable(soonest.saturating_sub(sent.elapsed()))
            }
            Value::Nil => self.again_or_unavailable(Duration::ZERO),
            Value::SimpleString(status) if status == "QUEUED" => Verdict::Queued,
            _ => {
                let what = "the server's answer is neither a fence nor null";
                let error = RedisError::from((redis::ErrorKind::UnexpectedReturnType, what));
                Verdict::Failed(error.into())
            }
        }
    }

    /// Asks again after an error that may pass, of an answer that was `due`. Any other ends the wait.
    ///
    /// A server that is away is asked again for as long as the options say: longer than the patience,
    /// if need be, because an answer is owed. One that says that it cannot answer now is asked again
    /// until the wait is over.
    pub(crate) fn has_failed(&mut self, error: RedisError, due: Instant) -> Verdict {
        self.is_uncertain |= is_unanswered(&error);
        let now = Instant::now();
        let pause = match (class(&error), self.out_of_reach) {
            // An idle connection may have been dead for long, so the first time needs no pause.
            (Class::Away, None) => {
                self.out_of_reach = Some(due.min(now));
                return Verdict::AskAgain(Duration::ZERO);
            }
            (Class::Away, Some(since)) if since.elapsed() < self.reach(since) => {
                return Verdict::AskAgain(PACE);
            }
            (Class::Away | Class::Final, _) => return Verdict::Failed(error.into()),
            // Another server may be known already.
            (Class::Elsewhere, _) if self.put_off.is_none() => Duration::ZERO,
            (Class::Elsewhere | Class::Temporary, _) => PACE,
        };
        self.out_of_reach = None;
        let since = *self.put_off.get_or_insert(now);
        match self.patience.is_over() && since.elapsed() >= self.reach(since) {
            true => Verdict::Failed(error.into()),
            false => Verdict::AskAgain(pause),
        }
    }

    /// How long it asks again that has asked in vain since then.
    fn reach(&self, since: Instant) -> Duration {
        match self.patience {
            Patience::Never => Duration::ZERO,
            patience => self.options.reach(patience.left_at(since)),
        }
    }

    /// The part of a time that a server still has. One that is out of reach has what is left of it.
    pub(crate) fn bounded(&self, time: Duration) -> Duration {
        let Some(since) = self.out_of_reach else {
            return time;
        };
        let left = self.reach(since).saturating_sub(since.elapsed());
        time.min(left.max(LAST_TRY))
    }

    /// The same token asks again, unless its time is over.
    pub(crate) fn again_or_unavailable(&self, pause: Duration) -> Verdict {
        match self.patience.is_over() {
            true => Verdict::Unavailable,
            false => Verdict::AskAgain(self.patience.bounded(pause)),
        }
    }

    /// Whether a grant came so late that its age must be learned by a renewal.
    ///
    /// The lease began at any time of the wait. After a short one it is counted from before the
    /// sending. With linger, the connection may have ended since.
    pub(crate) fn is_old(&self, grant: Grant, linger: Option<Duration>) -> bool {
        let span = linger.map_or(self.ttl, |linger| linger.min(self.ttl));
        grant.sent.elapsed() > span.div_f64(10.0)
    }

    /// Whether something may be left in the server when the attempt ends without a grant.
    pub(crate) fn leaves_something(&self) -> bool {
        self.is_uncertain || self.has_place
    }
}

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

    /// Gives up what is left behind without a grant. False if the server may not have heard of it.
    pub(crate) async fn clean_up(&self, attempt: &Attempt<'_>) -> bool {
        if !attempt.leaves_something() {
            return true;
        }
        // A server that is out of reach, or that cannot answer, has had its time.
        let tried = attempt.out_of_reach.or(attempt.put_off);
        let since = tried.unwrap_or_else(Instant::now);
        let end = until(since, self.options.reach(Duration::ZERO));
        let effort = self.effort(attempt.ttl, end);
        let time = attempt.bounded(effort.time);
        self.abandon(attempt.place, Effort { time, ..effort }).await
    }

    /// Gives up what an attempt has asked for, and may be about to get.
    pub(crate) async fn abandon(&self, place: &Place, effort: Effort) -> bool {
        let mut place = place.clone();
        // A job that has not begun keeps nothing.
        place.at_least = None;
        self.give_up_with(&place, effort).await
    }

    /// Asks once.
    pub(crate) async fn ask(&self, attempt: &mut Attempt<'_>, wait: Wait<'_>) -> Verdict {
        let question = attempt.question(wait);
        let answer = self.send(question.batch(attempt.place)).await;
        attempt.verdict(&question, answer)
    }

    /// Asks until the lock is granted or the patience is over. Its caller sees to what is left
    /// behind.
    pub(crate) async fn run(&self, attempt: &mut Attempt<'_>) -> Result<Option<Grant>> {
        loop {
            // There may be nothing to convert any more, or the server may never have such a claim.
            attempt.lease.map_or(Ok(()), Lease::still_held)?;
            self.support.refuse(attempt.claim, attempt.place.at_least)?;
            let mut verdict = Box::pin(D::ask_next(self, attempt)).await;
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
                    let end = until(Instant::now(), self.options.reach(Duration::MAX));
                    let effort = self.effort(attempt.ttl, end);
                    self.release(attempt.place, effort).await?;
                    // This attempt has left nothing any more.
                    attempt.is_uncertain = false;
                }
                Verdict::Queued => {}
                Verdict::Unavailable => return Ok(None),
                Verdict::Failed(error) => return Err(error),
            }
        }
    }

    /// Begins the lease of a late grant anew. The same token asks again where it was over before
    /// anybody heard of it, or may be.
    async fn rejuvenate(&self, attempt: &mut Attempt<'_>, grant: Grant) -> Verdict {
        attempt.is_uncertain = true;
        let (place, ttl, sent) = (attempt.place, attempt.ttl, Instant::now());
        let effort = self.effort(ttl, until(sent, self.options.reach(ttl).min(ttl)));
        match self.renew(place, ttl, effort).await {
            Err(Error::Redis(error)) => return attempt.has_failed(error, sent),
            Err(error) => return Verdict::Failed(error),
            // Another may hold it by now, if the lease is over.
            Ok(true) if until(sent, ttl) > Instant::now() => {
                let (claim, time) = (attempt.claim, effort.time);
                let binding = self.rebind(place, claim, grant.fence, ttl, time).await;
                if binding == Binding::Bound {
                    return Verdict::Granted(Grant { sent, ..grant });
                }
            }
            // Where one of several locks is over, the others are of no use.
            Ok(false) if place.keys.len() > 1 => self.give_up(place, ttl).await,
            _ => {}
        }
        attempt.again_or_unavailable(PACE)
    }
}

/// At least 0, and below 1.
pub(crate) fn random() -> f64 {
    let (bits, ..) = uuid::Uuid::new_v4().as_fields();
    f64::from(bits) / (f64::from(u32::MAX) + 1.0)
}
