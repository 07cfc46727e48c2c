//! What both clients do with a hold, written once.

use std::slice::{Chunks, from_ref};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use redis::{Cmd, FromRedisValue};

use crate::acquire::{LAST_TRY, PACE, Patience};
use crate::command::{Claim, Place, SHARE, millis};
use crate::driver::{Driver, Engine, Leftover};
use crate::error::{Result, names};
use crate::lease::{Lease, State, until};
use crate::options::bounded_ttl;
use crate::replies::{Binding, Class, binding, class, is_foreign, is_unanswered, owner_answer};
use crate::server::Batch;
use crate::{Error, Mode};

/// How hard commands are tried.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    /// An answer takes no longer.
    pub(crate) time: Duration,
    /// Until when they are sent again. To a server that is away it may be for a shorter time.
    pub(crate) end: Instant,
}

/// A hold on a lock, as a guard has it and its keeper sees it.
#[derive(Clone)]
pub(crate) struct Hold<D: Driver> {
    pub(crate) engine: Arc<Engine<D>>,
    pub(crate) place: Arc<Place>,
    pub(crate) lease: Arc<Lease>,
    pub(crate) ttl: Duration,
    /// That of its acquire, for a drop where there is none.
    pub(crate) runtime: D::Runtime,
    /// Is closed with the last clone.
    pub(crate) span: tracing::Span,
}

impl<D: Driver> Engine<D> {
    /// The effort for requests about a hold of this ttl, until `end`.
    pub(crate) fn effort(&self, ttl: Duration, end: Instant) -> Effort {
        let time = self.options.answer_time(ttl);
        Effort { time, end }
    }

    /// Sets the deadline. False if nothing is held.
    pub(crate) async fn renew(&self, place: &Place, ttl: Duration, effort: Effort) -> Result<bool> {
        let renew = place.renew(ttl, self.support.is_fallback());
        Ok(self.insist(place, renew.chunks(1), effort).await?.0)
    }

    /// Releases. Whether all of it was held, and whether an answer was lost before.
    pub(crate) async fn release(&self, place: &Place, effort: Effort) -> Result<(bool, bool)> {
        let release = place.release(self.support.is_fallback());
        self.insist(place, release.chunks(1), effort).await
    }

    /// Gives up the place, and what may have been granted unseen. If the server is gone, time does
    /// it.
    pub(crate) async fn give_up(&self, place: &Place, ttl: Duration) {
        let end = until(Instant::now(), self.options.reach(Duration::ZERO));
        self.give_up_with(place, self.effort(ttl, end)).await;
    }

    /// False without an answer.
    pub(crate) async fn give_up_with(&self, place: &Place, effort: Effort) -> bool {
        let released = self.release(place, effort).await;
        if let Err(error) = &released {
            tracing::warn!(%error, "what was asked for could not be given up");
        }
        released.is_ok()
    }

    /// Sends commands of an owner until they are answered, those of a chunk together. A repetition
    /// does no harm.
    ///
    /// Returns whether all did what they say, and whether an answer was lost before.
    async fn insist(
        &self,
        place: &Place,
        commands: Chunks<'_, Cmd>,
        effort: Effort,
    ) -> Result<(bool, bool)> {
        D::runtime()?;
        let (mut done, mut was_lost) = (true, false);
        for commands in commands {
            let (start, mut time) = (Instant::now(), effort.time);
            let whole = effort.end.saturating_duration_since(start);
            let away = self.options.reach(whole).min(whole);
            loop {
                let sending = self.send(Batch::of(place.key(), commands, time));
                let error = match owner_answer(sending.await) {
                    Ok(has_done) => {
                        done &= has_done;
                        break;
                    }
                    Err(error) => error,
                };
                was_lost |= is_unanswered(&error);
                let left = match class(&error) {
                    Class::Final => Duration::ZERO,
                    Class::Away => away.saturating_sub(start.elapsed()),
                    _ => effort.end.saturating_duration_since(Instant::now()),
                };
                if left.is_zero() {
                    return Err(error.into());
                }
                time = time.min(left.max(LAST_TRY));
                D::pause(PACE).await;
            }
        }
        Ok((done, was_lost))
    }

    /// Binds a hold that was just renewed to the connection that answers, if it ends with that.
    pub(crate) async fn rebind(
        &self,
        place: &Place,
        claim: &Claim,
        fence: u64,
        ttl: Duration,
        time: Duration,
    ) -> Binding {
        let Some(linger) = self.linger() else {
            return Binding::Bound;
        };
        // LOCK.ONCE would answer a result.
        let claim = match claim {
            Claim::Once(..) => &Claim::Lock,
            claim => claim,
        };
        let mut acquire = place.acquire(claim, ttl, false);
        acquire.arg("LINGER").arg(millis(linger));
        let batch = Batch::of(place.key(), from_ref(&acquire), time);
        let binding = binding(fence, self.send(batch).await);
        if binding == Binding::Over {
            // Nobody knows of the new grant.
            self.give_up(place, ttl).await;
        }
        binding
    }
}

impl<D: Driver> Hold<D> {
    /// Sets the deadline to `ttl` from now on.
    pub(crate) async fn extend(&self, ttl: Duration) -> Result<()> {
        let ttl = bounded_ttl(ttl);
        let _renewing = self.lease.renewal.wait::<D>().await;
        self.lease.still_held()?;
        let sent = self.lease.sends(ttl);
        // Its owner is to hear of its end, however long a server is away.
        let effort = self.engine.effort(ttl, self.lease.end_of_ttl());
        match self.renewed(ttl, effort).await {
            Ok(Binding::Over) => Err(self.not_held().await),
            Ok(_) if self.lease.renewed(sent) => Ok(()),
            Ok(_) => Err(self.is_over().await),
            Err(error) if error.may_pass() && self.lease.left().is_zero() => {
                self.lease.finish(State::Lost);
                Err(Error::NotHeld)
            }
            Err(error) => Err(error),
        }
    }

    /// Renews it, and binds it to the connection that has answered, if it ends with that.
    pub(crate) async fn renewed(&self, ttl: Duration, effort: Effort) -> Result<Binding> {
        let (engine, place, lease) = (&self.engine, &self.place, &self.lease);
        if !engine.renew(place, ttl, effort).await? {
            return Ok(Binding::Over);
        }
        if engine.linger().is_none() || lease.state() != State::Held {
            return Ok(Binding::Bound);
        }
        // A conversion binds it as well.
        let Some(_asking) = lease.conversion.take() else {
            return Ok(Binding::NotBound);
        };
        let (claim, time) = (&lease.claim(), effort.time);
        Ok(engine.rebind(place, claim, lease.fence, ttl, time).await)
    }

    /// Asks the server whether it is held now.
    pub(crate) async fn check(&self) -> Result<bool> {
        // The server may have it for longer than its owner can count on.
        if self.lease.still_held().is_err() {
            return Ok(false);
        }
        let engine = &self.engine;
        let check = self.place.check(engine.support.is_fallback());
        let effort = engine.effort(self.ttl, self.lease.end_of_ttl());
        let checked = engine.insist(&self.place, check.chunks(1), effort);
        let (is_held, _) = checked.await?;
        if !is_held {
            self.not_held().await;
        }
        Ok(is_held && self.lease.still_held().is_ok())
    }

    /// Has the server run a command only if it is held now.
    pub(crate) async fn exec<T: FromRedisValue>(&self, command: &Cmd) -> Result<T> {
        D::runtime()?;
        self.lease.still_held()?;
        let engine = &self.engine;
        if engine.support.is_fallback() {
            return Err(Error::not_in_fallback("a command under the lock"));
        }
        let time = engine.options.answer_time(self.ttl);
        let exec = [self.place.exec(command)];
        let batch = Batch::of(self.place.key(), &exec, time);
        match engine.send(batch).await {
            Ok(value) => T::from_redis_value(value).map_err(|error| Error::Redis(error.into())),
            Err(error) => Err(match Error::from(error) {
                Error::NotHeld => self.not_held().await,
                // The command may meet a wrong type, too.
                Error::Redis(error) if is_foreign(&error) => match self.check().await {
                    Ok(false) => Error::NotHeld,
                    _ => Error::Redis(error),
                },
                // The server knows LOCK.EXEC, and not the command under it.
                Error::ModuleMissing(error) if !names(&error, "lock.exec") => Error::Redis(error),
                error => error,
            }),
        }
    }

    /// The server has said so. Where one of several locks is lost, the others are of no use. Of a single
    /// one nothing is left, and a token of the caller's own may wait for it again.
    async fn not_held(&self) -> Error {
        if self.place.keys.len() > 1 {
            return self.is_over().await;
        }
        self.lease.finish(State::Lost);
        Error::NotHeld
    }

    /// Gives up what the server may have of it yet, for instance what it granted after the end of the
    /// lease. Nobody else would.
    async fn is_over(&self) -> Error {
        self.lease.finish(State::Lost);
        self.engine.give_up(&self.place, self.ttl).await;
        Error::NotHeld
    }

    pub(crate) async fn unlock(&self) -> Result<()> {
        let leftover = Leftover(Some(|| self.settle(self.clone().release_at_last())));
        let released = self.release(self.end_effort()).await;
        leftover.disarm();
        released
    }

    /// Does what a drop leaves.
    pub(crate) fn settle(&self, rest: impl Future<Output = ()> + Send + 'static) {
        D::settle(&self.engine, &self.runtime, Box::pin(rest));
    }

    /// Makes it a reader's, or a writer's. False if that is impossible for a time, which begins when
    /// this is awaited.
    pub(crate) async fn convert(&self, mode: Mode, time: Duration) -> Result<bool> {
        let patience = Patience::of(time);
        let claim = self.lease.claim();
        if !matches!(claim, Claim::Lock | Claim::RwLock(_)) {
            return Err(Error::NoConversion);
        }
        self.engine.support.refuse(&Claim::RwLock(mode), None)?;
        D::runtime()?;
        self.lease.still_held()?;
        if claim.mode() == mode && !self.lease.is_unconfirmed() {
            return Ok(true);
        }
        let asking = self.lease.conversion.wait::<D>().await;
        let leftover = Leftover(Some(|| self.settle(self.clone().read_at_last(asking))));
        let converted = match mode {
            Mode::Shared => self.restore_reader().await.map(|()| true),
            _ => self.become_writer(patience).await,
        };
        leftover.disarm();
        converted
    }

    /// Releases what nobody has any more.
    pub(crate) async fn release_at_last(self) {
        let warn = |error| tracing::warn!(%error, "a dropped guard has released nothing");
        let (effort, runtime) = (self.end_effort(), self.runtime.clone());
        let mut first = effort;
        if D::BLOCKS {
            first.end = until(Instant::now(), first.time);
        }
        let released = self.release(first).await;
        if D::BLOCKS && released.as_ref().is_err_and(Error::may_pass) {
            // No drop waits for a server that may be away, or say so, for long.
            let rest = async move { self.release(effort).await.unwrap_or_else(warn) };
            return D::keep(&runtime, Box::pin(rest));
        }
        released.unwrap_or_else(warn);
    }

    /// Gives up the place of an upgrade. No other conversion begins before that.
    async fn read_at_last(self, _asking: Arc<()>) {
        if let Err(error) = self.restore_reader().await {
            tracing::warn!(%error, "a hold could not become a reader's");
        }
    }

    /// Its caller keeps other requests for a mode off.
    async fn become_writer(&self, patience: Patience) -> Result<bool> {
        // A request for a share that the server reads later would undo this one unseen.
        if self.lease.is_unconfirmed() {
            self.restore_reader().await?;
        }
        let (lease, ttl) = (&*self.lease, self.lease.ttl_to_keep(self.ttl));
        let claim = Claim::RwLock(Mode::Exclusive);
        let mut attempt = self.engine.attempt(&self.place, &claim, ttl, patience);
        attempt.lease = Some(lease);
        let granted = self.engine.run(&mut attempt).await;
        let leaves_something = attempt.leaves_something();
        match granted {
            Ok(Some(grant))
                if grant.fence == lease.fence
                    && lease.converted(Mode::Exclusive, grant.sent, ttl) =>
            {
                Ok(true)
            }
            // The share was over, and this may be a new hold.
            Ok(Some(_)) => Err(self.is_over().await),
            // The share ended while it waited. Where the server still has it, the first release ends
            // that, and the second one the place.
            _ if lease.still_held().is_err() => {
                let error = self.is_over().await;
                self.engine.give_up(&self.place, self.ttl).await;
                Err(error)
            }
            ended => {
                let restored = match leaves_something {
                    true => self.restore_reader().await,
                    false => Ok(()),
                };
                ended.and(restored).map(|()| false)
            }
        }
    }

    /// Makes a reader of a writer, or of one that gave up becoming it. Its caller keeps other
    /// requests for a mode off. Also after its end, which leaves the place of an upgrade.
    async fn restore_reader(&self) -> Result<()> {
        let (engine, place, lease) = (&self.engine, &self.place, &self.lease);
        lease.becomes_reader();
        let ttl = lease.ttl_to_keep(self.ttl);
        // Without KEEP, so that the place of the writer ends.
        let mut attempt = engine.attempt(place, &SHARE, ttl, Patience::of(Duration::ZERO));
        let (sent, is_held) = match engine.run(&mut attempt).await? {
            // With another fence it is a new hold, which nobody knows of.
            Some(grant) => (grant.sent, grant.fence == lease.fence),
            // While a guard is on, one that has a share already waits for it as others do.
            None => {
                let sent = Instant::now();
                let effort = engine.effort(ttl, until(sent, ttl));
                (sent, engine.renew(place, ttl, effort).await?)
            }
        };
        match is_held && lease.converted(Mode::Shared, sent, ttl) {
            true => Ok(()),
            false => Err(self.is_over().await),
        }
    }

    /// The effort to end it, of which a server that is away hears late.
    fn end_effort(&self) -> Effort {
        let soonest = until(Instant::now(), self.engine.options.reach(Duration::ZERO));
        let end = self.lease.end_of_ttl().max(soonest);
        self.engine.effort(self.ttl, end)
    }

    /// Stores the result of LOCK.ONCE and releases, in one way there and back. One that comes too late
    /// is not stored: another caller may have made it since.
    pub(crate) async fn store(&self, set: &Cmd) -> Result<()> {
        let (engine, lease) = (&self.engine, &self.lease);
        lease.finish(State::Ended);
        let mut commands = vec![self.place.exec(set)];
        commands.extend(self.place.release(false));
        let stored = engine.insist(&self.place, commands.chunks(2), self.end_effort());
        match stored.await {
            answered @ (Ok(_) | Err(Error::NotHeld)) => {
                lease.finish(State::Released);
                if !matches!(answered, Ok((true, _))) {
                    tracing::warn!("a value was not stored, because its lock was lost");
                }
            }
            // It is a value all the same, for the caller that has made it.
            Err(error) if error.may_pass() => tracing::warn!(%error, "a value may not be stored"),
            Err(error) => {
                let _ = self.release(self.end_effort()).await;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Releases it. What failed can be repeated, until the server has answered.
    async fn release(&self, effort: Effort) -> Result<()> {
        let lease = &self.lease;
        lease.finish(State::Ended);
        let state = lease.state();
        if state == State::Released {
            return Err(Error::NotHeld);
        }
        // A renewal that the server gets later would prolong what a job leaves. No other one begins.
        if self.place.at_least.is_some() {
            lease.renewal.wait::<D>().await;
        }
        let was_unheard = lease.is_unheard.swap(true, Relaxed);
        let released = self.engine.release(&self.place, effort).await;
        if matches!(&released, Err(Error::Redis(error)) if !is_unanswered(error)) {
            lease.is_unheard.store(was_unheard, Relaxed);
        }
        let (released, was_lost) = released?;
        lease.finish(State::Released);
        // An earlier one may have got there, and nothing else has ended the lease by then.
        let may_be_released = (was_lost || was_unheard) && !lease.left().is_zero();
        match state == State::Ended && (released || may_be_released) {
            true => Ok(()),
            false => Err(Error::NotHeld),
        }
    }
}
