//! What both clients do with a hold, written once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, FromRedisValue};

use crate::answer::{OwnerAnswer, owner_answer};
use crate::attempt::{PACE, Patience};
use crate::command::{Claim, Place};
use crate::engine::{Engine, Wire};
use crate::error::{Result, is_foreign};
use crate::lease::{Asking, Grant, Lease, Sent, pause_before_renewal};
use crate::options::bounded_ttl;
use crate::{Error, Mode};

/// A hold on a lock, as a guard has it and its watchdog sees it.
pub(crate) struct Hold<W> {
    pub(crate) engine: Arc<Engine<W>>,
    pub(crate) place: Arc<Place>,
    pub(crate) lease: Arc<Lease>,
    pub(crate) ttl: Duration,
}

impl<W> Clone for Hold<W> {
    fn clone(&self) -> Self {
        Self {
            engine: self.engine.clone(),
            place: self.place.clone(),
            lease: self.lease.clone(),
            ttl: self.ttl,
        }
    }
}

impl<W: Wire> Hold<W> {
    pub(crate) fn new(
        engine: &Arc<Engine<W>>,
        place: Arc<Place>,
        claim: Claim,
        grant: Grant,
        ttl: Duration,
    ) -> Self {
        Self {
            engine: engine.clone(),
            place,
            lease: Arc::new(Lease::new(grant, ttl, claim)),
            ttl,
        }
    }

    /// Sets the deadline to `ttl` from now on.
    pub(crate) async fn extend(&self, ttl: Duration) -> Result<()> {
        let ttl = bounded_ttl(ttl);
        let engine = &self.engine;
        let _renewing = self.alone(Lease::renews).await;
        if !self.lease.is_held() {
            return Err(self.not_held().await);
        }
        let sent = loop {
            let sent = self.lease.sends(ttl);
            // Its owner is to hear of its end, however long a server is away.
            let left = self.lease.left();
            match engine.renew(&self.place, ttl, left).await {
                Ok(true) => break sent,
                Ok(false) => return Err(self.not_held().await),
                // It is no loss until the lease is over.
                Err(error) if error.is_try_again() => match self.lease.pause_to_try_again() {
                    Some(pause) => engine.wire.pause(pause).await,
                    None => return Err(self.not_held().await),
                },
                Err(error) => return Err(error),
            }
        };
        if !self.rebound(ttl).await {
            return Err(self.not_held().await);
        }
        match self.lease.renewed(sent) {
            true => Ok(()),
            false => Err(self.too_late().await),
        }
    }

    /// Binds it to the connection that has renewed it, if it ends with that. False if it is over.
    async fn rebound(&self, ttl: Duration) -> bool {
        let (engine, lease) = (&self.engine, &self.lease);
        if !engine.lingers() {
            return true;
        }
        // A conversion binds it as well.
        let Some(_asking) = lease.asks() else {
            return true;
        };
        let (claim, fence) = (lease.claim(), lease.fence());
        engine.rebind(&self.place, &claim, fence, ttl).await
    }

    /// Waits until there is no other request of this kind.
    pub(crate) async fn alone(&self, asks: fn(&Arc<Lease>) -> Option<Asking>) -> Asking {
        loop {
            if let Some(asking) = asks(&self.lease) {
                return asking;
            }
            self.engine.wire.pause(PACE).await;
        }
    }

    /// Asks the server whether it is held now.
    pub(crate) async fn check(&self) -> Result<bool> {
        // The server may have it for longer than its owner can count on.
        if !self.lease.is_held() {
            return Ok(false);
        }
        let engine = &self.engine;
        let time = engine.options.answer_time(self.ttl);
        let check = self.place.check(engine.support.is_fallback());
        let (is_held, _) = engine.insist(&check, time, engine.options.reach()).await?;
        if !is_held {
            self.not_held().await;
        }
        Ok(is_held && self.lease.is_held())
    }

    /// Has the server run a command only if it is held now.
    pub(crate) async fn exec<T: FromRedisValue>(&self, command: &Cmd) -> Result<T> {
        self.still_held()?;
        let engine = &self.engine;
        if engine.support.is_fallback() {
            return Err(Error::not_in_fallback("a command under the lock"));
        }
        let time = engine.options.answer_time(self.ttl);
        match engine.wire.ask(&self.place.exec(command), time).await {
            Ok(value) => T::from_redis_value(value).map_err(|error| Error::Redis(error.into())),
            Err(error) => Err(match Error::from(error) {
                Error::NotHeld => self.not_held().await,
                // The command may meet a wrong type, too.
                Error::Redis(error) if is_foreign(&error) => match self.check().await {
                    Ok(false) => Error::NotHeld,
                    _ => Error::Redis(error),
                },
                // The server knows LOCK.EXEC, and not the command under it.
                Error::ModuleMissing(error) => Error::Redis(error),
                error => error,
            }),
        }
    }

    async fn not_held(&self) -> Error {
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

    pub(crate) fn still_held(&self) -> Result<()> {
        match self.lease.is_held() {
            true => Ok(()),
            false => Err(Error::NotHeld),
        }
    }

    /// Whether it is a share that may become exclusive, and not exclusive already.
    pub(crate) fn is_to_upgrade(&self) -> Result<bool> {
        let claim = self.lease.claim();
        if !claim.converts() {
            return Err(Error::NoConversion);
        }
        self.still_held()?;
        Ok(claim.mode() != Mode::Exclusive)
    }

    /// Whether it is exclusive, or may be yet.
    pub(crate) fn is_to_downgrade(&self) -> Result<bool> {
        let claim = self.lease.claim();
        if !claim.converts() {
            return Err(Error::NoConversion);
        }
        let share = Claim::RwLock(Mode::Shared);
        if let Some(refusal) = self.engine.support.refuse(&share, None) {
            return Err(refusal);
        }
        Ok(claim.mode() == Mode::Exclusive || self.lease.is_unconfirmed())
    }

    /// Its caller keeps other requests for a mode off.
    pub(crate) async fn upgrade(&self, patience: Patience) -> Result<bool> {
        if !self.is_to_upgrade()? {
            return Ok(true);
        }
        // A request for a share that the server reads later would undo this one unseen.
        if self.lease.is_unconfirmed() {
            self.become_reader().await?;
        }
        let engine = self.engine.clone();
        let ttl = self.lease.ttl_to_keep(self.ttl);
        let (granted, leaves_something) = engine
            .convert(
                &self.place,
                Some(&self.lease),
                Mode::Exclusive,
                ttl,
                patience,
            )
            .await;
        match granted {
            Ok(Some(grant))
                if grant.fence == self.lease.fence()
                    && self.lease.converted(grant, ttl, Mode::Exclusive) =>
            {
                Ok(true)
            }
            // The share was over, and this may be a new hold.
            Ok(Some(_)) => Err(self.too_late().await),
            // The share ended while it waited.
            _ if !self.lease.is_held() => Err(self.too_late().await),
            Ok(None) if leaves_something => self.become_reader().await.map(|()| false),
            Ok(None) => Ok(false),
            Err(error) => {
                if leaves_something {
                    let _ = self.become_reader().await;
                }
                Err(error)
            }
        }
    }

    /// Its caller keeps other requests for a mode off.
    pub(crate) async fn become_reader(&self) -> Result<()> {
        self.still_held()?;
        self.restore_reader().await
    }

    /// Also after its end, which leaves the place of an upgrade.
    pub(crate) async fn restore_reader(&self) -> Result<()> {
        self.lease.becomes_reader();
        let (ttl, fence) = (self.lease.ttl_to_keep(self.ttl), self.lease.fence());
        let restored = self.engine.restore_reader(&self.place, fence, ttl);
        match restored.await? {
            Some(grant) if self.lease.converted(grant, ttl, Mode::Shared) => Ok(()),
            _ => Err(self.too_late().await),
        }
    }

    /// How long a release by hand is sent again.
    pub(crate) fn reach_of_release(&self) -> Duration {
        let left = self.lease.left();
        self.engine.options.reach_of_release(left)
    }

    pub(crate) async fn release(&self, patience: Duration) -> Result<()> {
        let was_held = self.lease.is_held();
        let is_first = self.lease.end();
        // A renewal that the server gets later would prolong what a job leaves.
        let _renewing = match self.place.at_least {
            Some(_) => Some(self.alone(Lease::renews).await),
            None => None,
        };
        let released = self.engine.release(&self.place, self.ttl, patience).await;
        let (released, was_lost) = released?;
        // The reply to the first was lost, and nothing else has ended the lease by then.
        let was_released = was_lost && was_held && Instant::now() < self.lease.until();
        match is_first && (released || was_released) {
            true => Ok(()),
            false => Err(Error::NotHeld),
        }
    }

    /// The time within which a watchdog is to renew it.
    pub(crate) fn renewal_span(&self) -> Duration {
        let engine = &self.engine;
        engine
            .options
            .renewal_span(self.ttl, engine.support.is_fallback())
    }

    pub(crate) fn first_pause(&self) -> Duration {
        pause_before_renewal(self.renewal_span(), false)
    }

    /// The part of a pause that what is left of the lease allows. `None` if nothing is left.
    pub(crate) fn pause_until(&self, until: Instant, pause: Duration) -> Option<Duration> {
        let left = until.saturating_duration_since(Instant::now());
        let third = pause_before_renewal(left, false).max(Duration::from_millis(1));
        (!left.is_zero()).then(|| pause.min(third))
    }

    /// Renews each key once, as a watchdog does. After the end of the lease that is of no use.
    pub(crate) async fn renew_once(&self) -> OwnerAnswer {
        let engine = &self.engine;
        for command in self.place.renew(self.ttl, engine.support.is_fallback()) {
            // A timeout of 0 would be an error.
            let left = self.lease.left().max(Duration::from_millis(1));
            let time = engine.options.answer_time(self.ttl).min(left);
            let answer = owner_answer(engine.wire.ask(&command, time).await);
            if !matches!(answer, OwnerAnswer::Done) {
                return answer;
            }
        }
        match self.lease.is_ended() || self.rebound(self.ttl).await {
            true => OwnerAnswer::Done,
            false => OwnerAnswer::NotHeld,
        }
    }

    /// The pause before the next renewal of a watchdog. `None` if there is none, because it is
    /// lost.
    pub(crate) fn after_renewal(&self, answer: OwnerAnswer, sent: Sent) -> Option<Duration> {
        self.lease.after_renewal(answer, sent, self.renewal_span())
    }

    /// Ends it against the will of its owner, and tells that. False if it was over before.
    ///
    /// Otherwise it is to be released: a renewal without an answer may reach the server yet.
    pub(crate) fn tell_lost(&self) -> bool {
        self.lease.lose_and_tell(&self.place, &self.engine.options)
    }
}
