use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{RedisError, RedisResult, Value};
use tokio::sync::{OwnedMutexGuard, SemaphorePermit};
use tokio::time::sleep;

use super::ear::Ear;
use super::inner::Inner;
use super::link::within;
use super::transport::{Source, connect};
use crate::attempt::{Attempt, PACE, Patience, Verdict, Wait};
use crate::command::{Claim, Place, new_token};
use crate::error::{Result, is_refused, is_unanswered, is_unknown_command, is_wrong_arity};
use crate::lease::Grant;
use crate::message::Event;
use crate::{Error, Mode};

/// How often a server is asked whether it has noticed that a connection was closed.
const ABANDON_TRIES: u64 = 100;

/// The time after which a task without a connection that waits asks again.
const POLL: Duration = Duration::from_millis(200);

/// The work that is left if a future is dropped before its end.
pub(super) enum Leftover {
    /// The place is given up, and a hold released.
    Release,
    /// The place of an upgrade is given up. The share with this fence stays.
    ///
    /// No other conversion of the hold begins before that: a late downgrade would undo it unseen.
    Reader(u64, OwnedMutexGuard<()>),
    Nothing,
}

/// Does in a task what a future that was dropped has left to do.
pub(super) struct Settle {
    inner: Arc<Inner>,
    place: Arc<Place>,
    ttl: Duration,
    leftover: Leftover,
}

impl Settle {
    pub(super) fn new(
        inner: &Arc<Inner>,
        place: &Arc<Place>,
        ttl: Duration,
        leftover: Leftover,
    ) -> Self {
        Self {
            inner: inner.clone(),
            place: place.clone(),
            ttl,
            leftover,
        }
    }

    pub(super) fn disarm(&mut self) {
        self.leftover = Leftover::Nothing;
    }
}

impl Drop for Settle {
    fn drop(&mut self) {
        let leftover = std::mem::replace(&mut self.leftover, Leftover::Nothing);
        if matches!(leftover, Leftover::Nothing) {
            return;
        }
        let (inner, place, ttl) = (self.inner.clone(), self.place.clone(), self.ttl);
        self.inner.runtime.spawn(async move {
            match leftover {
                Leftover::Release => inner.abandon(&place, ttl, true).await,
                Leftover::Reader(fence, _converting) => {
                    inner.await_departure(&place, ttl).await;
                    if let Err(error) = inner.restore_reader(&place, fence, ttl).await {
                        log::warn!("an upgrade could not be given up: {error}");
                    }
                }
                Leftover::Nothing => {}
            }
        });
    }
}

impl Inner {
    /// Asks until the lock is granted or the patience is over. Leaves nothing behind without a
    /// grant.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        place: &Arc<Place>,
        claim: &Claim,
        ttl: Duration,
        patience: Patience,
    ) -> Result<Option<Grant>> {
        let mut settle = Settle::new(self, place, ttl, Leftover::Release);
        let tools = (&self.options, &self.support);
        let mut attempt = Attempt::new(place, claim, ttl, patience, tools);
        let granted = self.run(&mut attempt, false).await;
        let granted = match granted {
            Err(Error::Unsupported(_, error)) if is_unknown_command(&error) => {
                Err(self.explain(place, ttl, error).await)
            }
            granted => granted,
        };
        if !matches!(granted, Ok(Some(_))) && attempt.leaves_something() {
            self.abandon(place, ttl, attempt.is_uncertain).await;
        }
        settle.disarm();
        granted
    }

    /// Converts the hold of a token. The caller sees to what is left behind.
    pub(super) async fn convert(
        &self,
        place: &Place,
        mode: Mode,
        ttl: Duration,
        patience: Patience,
    ) -> (Result<Option<Grant>>, bool) {
        let tools = (&self.options, &self.support);
        let claim = Claim::RwLock(mode);
        let mut attempt = Attempt::new(place, &claim, ttl, patience, tools);
        let granted = self.run(&mut attempt, true).await;
        if attempt.is_uncertain && !matches!(granted, Ok(Some(_))) {
            self.await_departure(place, ttl).await;
        }
        (granted, attempt.leaves_something())
    }

    async fn run(&self, attempt: &mut Attempt<'_>, is_conversion: bool) -> Result<Option<Grant>> {
        let mut is_first = true;
        loop {
            if let Some(refusal) = attempt.refused() {
                return Err(refusal);
            }
            let verdict = self.ask_next(attempt, is_conversion, is_first).await;
            is_first = false;
            match verdict {
                Verdict::Granted(grant) if attempt.is_old(grant) => {
                    if let Some(grant) = self.rejuvenate(attempt, grant).await? {
                        return Ok(Some(grant));
                    }
                }
                Verdict::Granted(grant) => return Ok(Some(grant)),
                Verdict::AskAgain(pause) => sleep(pause).await,
                Verdict::Partial => {
                    self.release(attempt.place, attempt.ttl, self.options.reach())
                        .await?;
                    (attempt.is_uncertain, attempt.has_place) = (false, false);
                }
                Verdict::Queued => {}
                Verdict::Unavailable => return Ok(None),
                Verdict::Failed(error) => return Err(error),
            }
        }
    }

    /// Asks in the best way that the server and the connections have.
    async fn ask_next(
        &self,
        attempt: &mut Attempt<'_>,
        is_conversion: bool,
        is_first: bool,
    ) -> Verdict {
        if self.support.is_fallback() {
            return self.ask_once(attempt, Wait::No).await;
        }
        let hears = self.support.notify() && !matches!(self.ear, Ear::Deaf);
        if attempt.patience.is_over() {
            return self.ask_once(attempt, Wait::No).await;
        }
        // A cancelled upgrade gives up its place and keeps its share. A release would end the share,
        // and a request as a reader ends the place only while nobody listens there.
        if is_conversion && self.support.keep() {
            return self.poll(attempt).await;
        }
        // A free lock needs neither a subscription nor a connection that blocks.
        if is_first && !(hears && self.hub.is_up()) {
            return self.ask_once(attempt, Wait::No).await;
        }
        match &self.source {
            _ if hears && !is_conversion => self.ask_notified(attempt).await,
            Some(source) => self.ask_blocking(attempt, source).await,
            None => self.poll(attempt).await,
        }
    }

    async fn ask_once(&self, attempt: &mut Attempt<'_>, wait: Wait<'_>) -> Verdict {
        let question = attempt.question(wait);
        let time = self.options.answer_time(attempt.ttl);
        let answer = self.ask(&question.command, time).await;
        attempt.verdict(question.sent, answer)
    }

    /// Asks at intervals. The server keeps the place meanwhile, if it can.
    async fn poll(&self, attempt: &mut Attempt<'_>) -> Verdict {
        match self.ask_once(attempt, Wait::Keep).await {
            Verdict::AskAgain(pause) => {
                let pace = PACE.min(self.options.grace);
                let left = attempt.patience.left().unwrap_or(pace);
                Verdict::AskAgain(pause.max(pace.min(left)))
            }
            verdict => verdict,
        }
    }

    /// Asks with NOTIFY, and listens until something is heard, the subscription is lost or a slice
    /// is over.
    async fn ask_notified(&self, attempt: &mut Attempt<'_>) -> Verdict {
        let slice = |attempt: &Attempt<'_>| {
            let left = attempt.patience.left();
            left.map_or(self.options.slice, |left| left.min(self.options.slice))
        };
        let time = self.options.short_reach().max(PACE).min(slice(attempt));
        let key = &attempt.place.key;
        let subscribed = self.ear.ready(&self.hub, &self.runtime, key, time).await;
        let subscribed = match subscribed {
            Ok(subscribed) => subscribed,
            Err(error) if is_refused(&error) || is_unknown_command(&error) => {
                return self.without_notify(&error);
            }
            Err(error) => return attempt.out_of_reach(error),
        };
        // It listens before it asks.
        let mut listener = self.hub.listen(attempt.place);
        let question = attempt.question(Wait::Notify(&subscribed.channel));
        let answer_time = self.options.answer_time(attempt.ttl);
        let (command, transport) = (&question.command, &*self.transport);
        let asking = self.ear.ask(transport, &subscribed, command, answer_time);
        let (answer, is_heard) = asking.await;
        let answer = answer.and_then(Value::extract_error);
        if let Err(error) = &answer
            && is_notify_refused(error)
        {
            return self.without_notify(error);
        }
        match attempt.verdict(question.sent, answer) {
            Verdict::Queued if is_heard => {}
            // Another node has the slot by now, or another one answers while the slot moves.
            Verdict::Queued => return Verdict::AskAgain(PACE),
            verdict => return verdict,
        }
        tokio::select! {
            event = listener.event() => match event {
                Event::Granted(_) if self.ear.hears_hints() => Verdict::AskAgain(Duration::ZERO),
                event => heard(event, question.sent),
            },
            () = self.hub.ended(subscribed.number) => Verdict::AskAgain(Duration::ZERO),
            // The answer to the next request tells what was missed.
            () = sleep(slice(attempt)) => Verdict::AskAgain(Duration::ZERO),
        }
    }

    fn without_notify(&self, error: &RedisError) -> Verdict {
        self.support
            .is_without_notify(&self.options, &error.to_string());
        Verdict::AskAgain(Duration::ZERO)
    }

    /// Waits for a slice on a connection that blocks. Asks at intervals while there are too many of
    /// them.
    async fn ask_blocking(&self, attempt: &mut Attempt<'_>, source: &Source) -> Verdict {
        let left = attempt.patience.left().unwrap_or(POLL);
        let permit = tokio::select! {
            biased;
            permit = self.waiting.acquire() => permit.ok(),
            () = sleep(POLL.min(left)) => None,
        };
        match permit {
            Some(permit) => self.block(attempt, source, permit).await,
            None => self.ask_once(attempt, Wait::Keep).await,
        }
    }

    async fn block(
        &self,
        attempt: &mut Attempt<'_>,
        source: &Source,
        _permit: SemaphorePermit<'_>,
    ) -> Verdict {
        let idle = self.idle().pop();
        let connection = match idle {
            Some(connection) => Ok(connection),
            None => connect(source).await,
        };
        let mut connection = match connection {
            Ok(connection) => connection,
            Err(error) => return attempt.out_of_reach(error),
        };
        let question = attempt.question(Wait::Block);
        let answer_time = self.options.answer_time(attempt.ttl);
        let time = question.wait.saturating_add(answer_time);
        // If this future is dropped here, the connection is closed, and the server ends the wait.
        let answer: RedisResult<Value> =
            within(time, question.command.query_async(&mut connection)).await;
        match &answer {
            Err(error) if is_unanswered(error) => self.idle().clear(),
            _ => self.idle().push(connection),
        }
        attempt.verdict(question.sent, answer)
    }

    /// Begins the lease of a late grant anew. `None` if it was over before anybody heard of it.
    async fn rejuvenate(&self, attempt: &mut Attempt<'_>, grant: Grant) -> Result<Option<Grant>> {
        attempt.is_uncertain = true;
        let sent = Instant::now();
        let renewed = self.renew(attempt.place, attempt.ttl).await?;
        if !renewed {
            self.release_rest(attempt.place, attempt.ttl).await;
        }
        attempt.is_uncertain = false;
        Ok(renewed.then_some(Grant { sent, ..grant }))
    }

    /// Renews. False if nothing is held.
    pub(super) async fn renew(&self, place: &Place, ttl: Duration) -> Result<bool> {
        let time = self.options.answer_time(ttl);
        let patience = self.options.reach().min(ttl);
        let (renewed, _) = self
            .insist(
                &place.renew(ttl, self.support.is_fallback()),
                time,
                patience,
            )
            .await?;
        Ok(renewed)
    }

    /// Releases. Whether all of it was held, and whether an answer was lost before.
    pub(super) async fn release(
        &self,
        place: &Place,
        ttl: Duration,
        patience: Duration,
    ) -> Result<(bool, bool)> {
        let time = self.options.answer_time(ttl);
        let release = place.release(self.support.is_fallback());
        self.insist(&release, time, patience).await
    }

    /// Where one of several locks is lost, the others are of no use.
    pub(super) async fn release_rest(&self, place: &Place, ttl: Duration) {
        if !place.more.is_empty() {
            self.give_up(place, ttl).await;
        }
    }

    /// Binds a hold that was just renewed to the connection that answers. False if it is over.
    pub(super) async fn rebind(
        &self,
        place: &Place,
        claim: &Claim,
        fence: u64,
        ttl: Duration,
    ) -> bool {
        let tools = (&self.options, &self.support);
        let mut attempt = Attempt::new(place, claim, ttl, Patience::None, tools);
        let question = attempt.question(Wait::No);
        let time = self.options.answer_time(ttl);
        let answer = self.ask(&question.command, time).await;
        let goes_on = attempt.goes_on(fence, question.sent, answer);
        if !goes_on {
            // What was granted anew nobody knows of.
            self.give_up(place, ttl).await;
        }
        goes_on
    }

    /// Whether the server that does not know a command is too old, or has no module.
    async fn explain(&self, place: &Place, ttl: Duration, error: RedisError) -> Error {
        // A token that nobody has: nothing is released.
        let probe = Place::new(&place.key, new_token());
        match self.release(&probe, ttl, self.options.short_reach()).await {
            Err(Error::ModuleMissing(_)) if self.support.falls_back(&self.options) => {
                Error::not_in_fallback("a lock of several keys")
            }
            Err(Error::ModuleMissing(missing)) => Error::ModuleMissing(missing),
            _ => Error::Unsupported("LOCK.MACQUIRE", error),
        }
    }

    /// An error, before anything is held, if the server has no release that waits for a time.
    pub(super) async fn need_at_least(&self, place: &Place, ttl: Duration) -> Result<()> {
        const WHAT: &str = "a least time";
        if place.at_least.is_none() || self.support.at_least() {
            return Ok(());
        }
        if self.support.is_fallback() {
            return Err(Error::not_in_fallback(WHAT));
        }
        // The token holds nothing yet.
        match self.release(place, ttl, self.options.reach()).await {
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
    async fn abandon(&self, place: &Place, ttl: Duration, is_uncertain: bool) {
        if is_uncertain {
            self.await_departure(place, ttl).await;
        }
        self.give_up(place, ttl).await;
    }

    pub(super) async fn give_up(&self, place: &Place, ttl: Duration) {
        if let Err(error) = self.release(place, ttl, self.options.short_reach()).await {
            log::warn!("what was asked for could not be given up: {error}");
        }
    }

    /// Waits until the server has noticed that a connection that waited was closed.
    ///
    /// A release before that would find nothing, and the grant would come after it. A server that
    /// keeps places gives up the place with the release, so there is nothing to wait for.
    async fn await_departure(&self, place: &Place, ttl: Duration) {
        if self.support.keep() {
            return;
        }
        let time = self.options.answer_time(ttl);
        for tries in 1..=ABANDON_TRIES {
            match self.ask(&place.info(), time).await {
                Ok(info) if place.is_waiting(&info) => {}
                _ => return,
            }
            sleep(PACE.min(Duration::from_millis(tries))).await;
        }
    }

    /// Makes a reader of one that gave up becoming the writer. An error if its share is over.
    pub(super) async fn restore_reader(
        &self,
        place: &Place,
        fence: u64,
        ttl: Duration,
    ) -> Result<Grant> {
        // Without KEEP, so that the place of the writer ends.
        let (granted, _) = self.convert(place, Mode::Shared, ttl, Patience::None).await;
        match granted? {
            Some(grant) if grant.fence == fence => Ok(grant),
            Some(_) => {
                // A new hold, which nobody knows of.
                self.release(place, ttl, self.options.reach()).await?;
                Err(Error::NotHeld)
            }
            None => Err(Error::NotHeld),
        }
    }
}

/// Whether the server or the user's rights have something against NOTIFY, which blocking does not
/// need.
fn is_notify_refused(error: &RedisError) -> bool {
    let is_of_notify = error
        .detail()
        .is_some_and(|detail| detail.to_ascii_uppercase().contains("NOTIFY"));
    is_refused(error) || error.code() == Some("CROSSSLOT") || is_of_notify
}

fn heard(event: Event, sent: Instant) -> Verdict {
    match event {
        Event::Granted(fence) => Verdict::Granted(Grant { fence, sent }),
        // The client's own clock decides whether its time is over.
        Event::Timeout => Verdict::AskAgain(Duration::ZERO),
        Event::TryAgain | Event::WrongType | Event::Other => Verdict::AskAgain(PACE),
        Event::Cancelled => Verdict::Failed(Error::Cancelled),
        Event::Deadlock => Verdict::Failed(Error::Deadlock(
            "the server refused the wait while it was going on".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_heard_grants_ends_or_has_it_ask_again() {
        let sent = Instant::now();
        let granted = heard(Event::Granted(7), sent);
        assert!(matches!(granted, Verdict::Granted(grant) if grant.fence == 7));
        for event in [
            Event::Timeout,
            Event::TryAgain,
            Event::WrongType,
            Event::Other,
        ] {
            assert!(matches!(heard(event, sent), Verdict::AskAgain(_)));
        }
        let ended = heard(Event::Deadlock, sent);
        assert!(matches!(ended, Verdict::Failed(Error::Deadlock(_))));
        let ended = heard(Event::Cancelled, sent);
        assert!(matches!(ended, Verdict::Failed(Error::Cancelled)));
    }
}
