//! What both clients do with a hold, written once.

use std::slice::{Chunks, from_ref};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, FromRedisValue};

use crate::attempt::{LAST_TRY, PACE, Patience};
use crate::command::{Claim, Place, SHARE};
use crate::driver::{Driver, Engine};
use crate::error::{Result, names};
use crate::lease::{Asking, Grant, Kind, Lease, until};
use crate::options::bounded_ttl;
use crate::replies::{Binding, Class, class, is_foreign, is_unanswered, owner_answer};
use crate::settle::Settle;
use crate::{Error, Mode};

/// For how long commands are sent again to a server that is away, and until when to one that says
/// that it cannot answer now.
pub(crate) type Persistence = (Duration, Instant);

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
    /// Renews, and an answer takes `time` at most. False if nothing is held.
    pub(crate) async fn renew(
        &self,
        place: &Place,
        (ttl, time): (Duration, Duration),
        (away, end): Persistence,
    ) -> Result<bool> {
        let renew = place.renew(ttl, self.support.is_fallback());
        let away = self.options.reach().min(away);
        let (renewed, _) = self.insist(renew.chunks(1), time, (away, end)).await?;
        Ok(renewed)
    }

    /// Releases. Whether all of it was held, and whether an answer was lost before.
    pub(crate) async fn release(
        &self,
        place: &Place,
        time: Duration,
        persistence: Persistence,
    ) -> Result<(bool, bool)> {
        let release = place.release(self.support.is_fallback());
        self.insist(release.chunks(1), time, persistence).await
    }

    /// Where one of several locks is lost, the others are of no use.
    pub(crate) async fn release_rest(&self, place: &Place, ttl: Duration) {
        if place.keys.len() > 1 {
            self.give_up(place, ttl).await;
        }
    }

    /// Gives up the place, and what may have been granted unseen. If the server is gone, time does
    /// it.
    pub(crate) async fn give_up(&self, place: &Place, ttl: Duration) {
        let time = self.options.answer_time(ttl);
        self.give_up_within(place, time, self.options.short_reach())
            .await;
    }

    pub(crate) async fn give_up_within(&self, place: &Place, time: Duration, patience: Duration) {
        let persistence = (patience, until(Instant::now(), patience));
        if let Err(error) = self.release(place, time, persistence).await {
            tracing::warn!(%error, "what was asked for could not be given up");
        }
    }

    /// Sends commands of an owner until they are answered, those of a chunk together, and an answer
    /// takes `time` at most. A repetition does no harm.
    ///
    /// Returns whether all did what they say, and whether an answer was lost before.
    pub(crate) async fn insist(
        &self,
        commands: Chunks<'_, Cmd>,
        time: Duration,
        (away, end): Persistence,
    ) -> Result<(bool, bool)> {
        let (mut done, mut was_lost) = (true, false);
        for commands in commands {
            let start = Instant::now();
            let mut time = time;
            loop {
                let error = match owner_answer(D::send_of_owner(self, commands, time).await) {
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
                    _ => end.saturating_duration_since(Instant::now()),
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
}

impl<D: Driver> Hold<D> {
    /// Sets the deadline to `ttl` from now on.
    pub(crate) async fn extend(&self, ttl: Duration) -> Result<()> {
        let ttl = bounded_ttl(ttl);
        let _renewing = self.alone(Kind::Renewal).await;
        if !self.lease.may_be_held() {
            return Err(self.not_held().await);
        }
        let sent = self.lease.sends(ttl);
        // Its owner is to hear of its end, however long a server is away.
        let persistence = (self.lease.left(), self.lease.end_of_ttl());
        let times = (ttl, self.engine.options.answer_time(ttl));
        match self.renewed(times, persistence).await {
            Ok(Binding::Over) => Err(self.not_held().await),
            // The lease is over by now.
            Err(error) if error.is_temporary() => Err(self.not_held().await),
            Err(error) => Err(error),
            Ok(binding) if self.lease.renewed(sent, binding == Binding::Bound) => Ok(()),
            Ok(_) => Err(self.too_late().await),
        }
    }

    /// Renews it, and binds it to the connection that has answered, if it ends with that.
    pub(crate) async fn renewed(
        &self,
        times: (Duration, Duration),
        persistence: Persistence,
    ) -> Result<Binding> {
        let (engine, place, lease) = (&self.engine, &self.place, &self.lease);
        if !engine.renew(place, times, persistence).await? {
            return Ok(Binding::Over);
        }
        if engine.linger().is_none() || lease.is_ended() {
            return Ok(Binding::Bound);
        }
        // A conversion binds it as well.
        let Some(_asking) = lease.alone(Kind::Conversion) else {
            return Ok(Binding::NotBound);
        };
        let (claim, fence) = (lease.claim(), lease.fence());
        Ok(engine.rebind(place, &claim, fence, times).await)
    }

    /// Waits until there is no other request of this kind.
    pub(crate) async fn alone(&self, kind: Kind) -> Asking {
        loop {
            if let Some(asking) = self.lease.alone(kind) {
                return asking;
            }
            D::pause(PACE).await;
        }
    }

    /// Asks the server whether it is held now.
    pub(crate) async fn check(&self) -> Result<bool> {
        // The server may have it for longer than its owner can count on.
        if !self.lease.may_be_held() {
            return Ok(false);
        }
        let engine = &self.engine;
        let time = engine.options.answer_time(self.ttl);
        let check = self.place.check(engine.support.is_fallback());
        let persistence = (engine.options.reach(), self.lease.end_of_ttl());
        let (is_held, _) = engine.insist(check.chunks(1), time, persistence).await?;
        if !is_held {
            self.not_held().await;
        }
        Ok(is_held && self.lease.may_be_held())
    }

    /// Has the server run a command only if it is held now.
    pub(crate) async fn exec<T: FromRedisValue>(&self, command: &Cmd) -> Result<T> {
        self.still_held()?;
        let engine = &self.engine;
        if engine.support.is_fallback() {
            return Err(Error::not_in_fallback("a command under the lock"));
        }
        let time = engine.options.answer_time(self.ttl);
        match D::send_of_owner(engine, from_ref(&self.place.exec(command)), time).await {
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

    pub(crate) async fn not_held(&self) -> Error {
        if self.lease.lose() {
            self.engine.release_rest(&self.place, self.ttl).await;
        }
        Error::NotHeld
    }

    /// Releases what the server holds after the end of the lease. Nobody else would.
    async fn too_late(&self) -> Error {
        self.lease.lose();
        self.engine.give_up(&self.place, self.ttl).await;
        Error::NotHeld
    }

    fn still_held(&self) -> Result<()> {
        let is_held = self.lease.may_be_held();
        is_held.then_some(()).ok_or(Error::NotHeld)
    }

    pub(crate) async fn unlock(&self) -> Result<()> {
        let settle = Settle::new(&self.engine, &self.runtime, self.clone().release_at_last());
        let released = self.release(self.persistence()).await;
        settle.disarm();
        released
    }

    /// Makes it a reader's, or a writer's. False if that is impossible for all of the patience.
    pub(crate) async fn convert(&self, mode: Mode, patience: Patience) -> Result<bool> {
        let claim = self.lease.claim();
        if !matches!(claim, Claim::Lock | Claim::RwLock(_)) {
            return Err(Error::NoConversion);
        }
        let support = &self.engine.support;
        support.refuse(&Claim::RwLock(mode), None)?;
        self.still_held()?;
        if claim.mode() == mode && !self.lease.is_unconfirmed() {
            return Ok(true);
        }
        let asking = self.alone(Kind::Conversion).await;
        let rest = self.clone().read_at_last(asking);
        let settle = Settle::new(&self.engine, &self.runtime, rest);
        let converted = match mode {
            Mode::Shared => self.restore_reader().await.map(|()| true),
            _ => self.become_writer(patience).await,
        };
        settle.disarm();
        converted
    }

    /// Releases what nobody has any more.
    pub(crate) async fn release_at_last(self) {
        let time = self.engine.options.answer_time(self.ttl);
        let persistence = match D::BLOCKS {
            true => (time, until(Instant::now(), time)),
            false => self.persistence(),
        };
        match self.release(persistence).await {
            Ok(()) => {}
            Err(Error::NotHeld) => tracing::warn!("a lock was lost before its guard was dropped"),
            Err(error) => tracing::warn!(%error, "a lock could not be released"),
        }
    }

    /// Gives up the place of an upgrade. No other conversion begins before that.
    async fn read_at_last(self, _asking: Asking) {
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
                if grant.fence == lease.fence() && lease.converted(grant, ttl, Mode::Exclusive) =>
            {
                Ok(true)
            }
            // The share was over, and this may be a new hold.
            Ok(Some(_)) => Err(self.too_late().await),
            // The share ended while it waited. Where the server still has it, the first release ends
            // that, and the second one the place.
            _ if !lease.may_be_held() => {
                let error = self.too_late().await;
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
        let (ttl, fence) = (lease.ttl_to_keep(self.ttl), lease.fence());
        // Without KEEP, so that the place of the writer ends.
        let mut attempt = engine.attempt(place, &SHARE, ttl, Patience::None);
        let grant = match engine.run(&mut attempt).await? {
            // With another fence it is a new hold, which nobody knows of.
            Some(grant) => (grant.fence == fence).then_some(grant),
            // While a guard is on, one that has a share already waits for it as others do.
            None => {
                let sent = Instant::now();
                let times = (ttl, engine.options.answer_time(ttl));
                let is_held = engine.renew(place, times, (ttl, until(sent, ttl))).await?;
                is_held.then_some(Grant {
                    fence,
                    sent,
                    is_bound: false,
                })
            }
        };
        match grant {
            Some(grant) if lease.converted(grant, ttl, Mode::Shared) => Ok(()),
            _ => Err(self.too_late().await),
        }
    }

    /// How long its end is asked for.
    fn persistence(&self) -> Persistence {
        let away = self.engine.options.reach_within(Some(self.lease.left()));
        (away, self.lease.end_of_ttl())
    }

    /// Stores the result of LOCK.ONCE and releases, in one way there and back. One that comes too late
    /// is not stored: another caller may have made it since.
    pub(crate) async fn store(&self, set: &Cmd) -> Result<()> {
        let (engine, lease) = (&self.engine, &self.lease);
        lease.end();
        let mut commands = vec![self.place.exec(set)];
        commands.extend(self.place.release(false));
        let time = engine.options.answer_time(self.ttl);
        let stored = engine.insist(commands.chunks(2), time, self.persistence());
        match stored.await {
            Ok((true, _)) => lease.is_released_now(),
            Ok((false, _)) | Err(Error::NotHeld) => {
                lease.is_released_now();
                tracing::warn!("a value was not stored, because its lock was lost");
            }
            // It is a value all the same, for the caller that has made it.
            Err(Error::Redis(error)) if class(&error) != Class::Final => {
                tracing::warn!(%error, "a value may not be stored");
            }
            Err(error) => {
                let _ = self.release(self.persistence()).await;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Releases it. What failed can be repeated, until the server has answered.
    async fn release(&self, persistence: Persistence) -> Result<()> {
        let lease = &self.lease;
        if lease.is_released() {
            return Err(Error::NotHeld);
        }
        let was_held = lease.end();
        // A renewal that the server gets later would prolong what a job leaves.
        let _renewing = match self.place.at_least {
            Some(_) => Some(self.alone(Kind::Renewal).await),
            None => None,
        };
        let engine = &self.engine;
        let time = engine.options.answer_time(self.ttl);
        let released = engine.release(&self.place, time, persistence).await;
        let (released, was_lost) = match released {
            Ok(answered) => answered,
            Err(error) => {
                let is_lost = matches!(&error, Error::Redis(error) if is_unanswered(error));
                lease.is_release_uncertain(is_lost);
                return Err(error);
            }
        };
        lease.is_released_now();
        // The reply to an earlier one was lost, and nothing else has ended the lease by then.
        let was_released =
            lease.is_release_uncertain(was_lost) && Instant::now() < lease.end_of_ttl();
        match was_held && (released || was_released) {
            true => Ok(()),
            false => Err(Error::NotHeld),
        }
    }
}
