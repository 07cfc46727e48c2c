use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, FromRedisValue};
use tokio::sync::Mutex;

use super::acquire::{Leftover, Settle};
use super::inner::Inner;
use super::keep_alive::{KeepAlive, Watch};
use crate::attempt::Patience;
use crate::command::{Claim, Place};
use crate::common::{accessors, debug_guard};
use crate::error::Result;
use crate::lease::{Grant, Lease};
use crate::options::bounded_ttl;
use crate::{Error, Mode};

/// A hold on a lock. Dropping it releases the lock, in a task of its own.
///
/// [`Guard::unlock`] releases it, too, and says whether it was held until then.
#[must_use = "a guard that is dropped at once releases the lock at once"]
pub struct Guard {
    inner: Arc<Inner>,
    place: Arc<Place>,
    lease: Arc<Lease>,
    ttl: Duration,
    claim: Claim,
    /// One conversion at a time, one that was cancelled included.
    converting: Arc<Mutex<()>>,
}

impl Guard {
    pub(super) fn new(
        inner: &Arc<Inner>,
        place: Arc<Place>,
        claim: Claim,
        grant: Grant,
        ttl: Duration,
    ) -> Self {
        Self {
            inner: inner.clone(),
            place,
            lease: Arc::new(Lease::new(grant, ttl)),
            ttl,
            claim,
            converting: Arc::default(),
        }
    }

    accessors!();

    /// Waits until the hold is over. With [`Guard::keep_alive`] that is when it was lost.
    pub async fn lost(&self) {
        self.lease.lost().await;
    }

    /// Sets the deadline to the lock's ttl from now on. [`Error::NotHeld`] if the hold is over.
    pub async fn renew(&self) -> Result<()> {
        self.extend(self.ttl).await
    }

    /// Sets the deadline to `ttl` from now on, which may also be earlier. [`Error::NotHeld`] if the
    /// hold is over.
    pub async fn extend(&self, ttl: Duration) -> Result<()> {
        let ttl = bounded_ttl(ttl);
        let inner = &self.inner;
        if !self.lease.is_held() {
            return Err(self.not_held().await);
        }
        let sent = loop {
            let sent = self.lease.sends(ttl);
            match inner.renew(&self.place, ttl).await {
                Ok(true) => break sent,
                Ok(false) => return Err(self.not_held().await),
                // It is no loss until the lease is over.
                Err(error) if error.is_try_again() => match self.lease.pause_to_try_again() {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => return Err(self.not_held().await),
                },
                Err(error) => return Err(error),
            }
        };
        if inner.lingers() {
            let fence = self.fence();
            if !inner.rebind(&self.place, &self.claim, fence, ttl).await {
                return Err(self.not_held().await);
            }
        }
        if !self.lease.renewed(sent) {
            // Nobody else would release it.
            inner.give_up(&self.place, ttl).await;
            return Err(self.not_held().await);
        }
        Ok(())
    }

    /// Asks the server whether this is held now, where [`Guard::is_lost`] asks nobody.
    pub async fn check(&self) -> Result<bool> {
        if self.lease.is_ended() {
            return Ok(false);
        }
        let inner = &self.inner;
        let time = inner.options.answer_time(self.ttl);
        let check = self.place.check(inner.support.is_fallback());
        let (is_held, _) = inner.insist(&check, time, inner.options.reach()).await?;
        if !is_held {
            self.not_held().await;
        }
        Ok(is_held)
    }

    /// Has the server run a command only if this is held now, in one step. [`Error::NotHeld`] if it
    /// is not; then nothing was done.
    ///
    /// ```no_run
    /// # async fn example(guard: &redis_lock_client::aio::Guard) -> redis_lock_client::Result<()> {
    /// let _: () = guard.exec(redis::cmd("SET").arg("stock:7").arg(41)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// It is sent once: after an error of the connection the command may have run or not. Of several
    /// locks the first one is looked at. The server must be Redis 7.0 or newer, or Valkey.
    pub async fn exec<T: FromRedisValue>(&self, command: &Cmd) -> Result<T> {
        self.still_held()?;
        let inner = &self.inner;
        if inner.support.is_fallback() {
            return Err(Error::not_in_fallback("a command under the lock"));
        }
        let time = inner.options.answer_time(self.ttl);
        match inner.ask(&self.place.exec(command), time).await {
            Ok(value) => T::from_redis_value(value).map_err(|error| Error::Redis(error.into())),
            Err(error) => Err(match Error::from(error) {
                Error::NotHeld => self.not_held().await,
                error => error,
            }),
        }
    }

    async fn not_held(&self) -> Error {
        if self.lease.lose() {
            let inner = &self.inner;
            inner.release_rest(&self.place, self.ttl).await;
        }
        Error::NotHeld
    }

    /// Renews in a task of its own, at a third of the ttl, until the result is dropped or the hold
    /// is over.
    pub fn keep_alive(&self) -> KeepAlive {
        KeepAlive::start(Watch {
            inner: self.inner.clone(),
            place: self.place.clone(),
            lease: self.lease.clone(),
            claim: self.claim.clone(),
            ttl: self.ttl,
        })
    }

    /// Makes a writer a reader in one step, with the same fence. Readers that wait at the head
    /// enter at once.
    pub async fn downgrade(&mut self) -> Result<()> {
        self.convertible()?;
        if self.mode() == Mode::Exclusive {
            let _converting = self.converting.clone().lock_owned().await;
            self.become_reader().await?;
        }
        Ok(())
    }

    /// Makes the only reader the writer. Waits for the other readers, ahead of the queue, and reads
    /// on meanwhile.
    ///
    /// [`Error::Deadlock`] if another reader waits to become the writer: one of the two must
    /// release.
    ///
    /// Unlike an acquire it does not listen for its grant. It asks every 50 ms, and the server keeps
    /// its place meanwhile. The reason is that this future may be dropped: then the wait must end,
    /// and the share must stay. The server has no command for that while somebody listens at the
    /// place. Only one reader of a lock can wait so, which is at most 20 commands per second.
    pub async fn upgrade(&mut self) -> Result<()> {
        while !self.upgrade_with(Patience::Forever).await? {}
        Ok(())
    }

    /// Makes the only reader the writer. False if there are others; then it is a reader still.
    pub async fn try_upgrade(&mut self) -> Result<bool> {
        self.upgrade_with(Patience::None).await
    }

    /// Makes the only reader the writer. False if there are others for all of `timeout`; then it is
    /// a reader still.
    pub async fn upgrade_timeout(&mut self, timeout: Duration) -> Result<bool> {
        self.upgrade_with(Patience::of(timeout)).await
    }

    /// Releases the lock. [`Error::NotHeld`] if it was lost before.
    pub async fn unlock(self) -> Result<()> {
        let inner = &self.inner;
        let was_held = self.lease.is_held();
        let is_first = self.lease.end();
        let mut settle = Settle::new(inner, &self.place, self.ttl, Leftover::Release);
        let left = self.lease.until().saturating_duration_since(Instant::now());
        let reach = inner.options.reach_of_release(left);
        let answer = inner.release(&self.place, self.ttl, reach).await;
        settle.disarm();
        let (released, was_lost) = answer?;
        // The reply to the first was lost, and nothing else has ended the lease by then.
        let was_released = was_lost && was_held && Instant::now() < self.lease.until();
        match is_first && (released || was_released) {
            true => Ok(()),
            false => Err(Error::NotHeld),
        }
    }

    async fn upgrade_with(&mut self, patience: Patience) -> Result<bool> {
        self.convertible()?;
        if self.mode() == Mode::Exclusive {
            return Ok(true);
        }
        self.still_held()?;
        let inner = self.inner.clone();
        let ttl = self.lease.ttl_to_keep(self.ttl);
        let leftover = Leftover::Reader(self.fence(), self.converting.clone().lock_owned().await);
        let mut settle = Settle::new(&inner, &self.place, ttl, leftover);
        let (granted, leaves_something) = inner
            .convert(&self.place, Mode::Exclusive, ttl, patience)
            .await;
        let upgraded = match granted {
            Ok(Some(grant)) if grant.fence == self.fence() => {
                self.lease.converted(grant, ttl);
                self.claim = Claim::RwLock(Mode::Exclusive);
                Ok(true)
            }
            // The share was over, and this is a new hold.
            Ok(Some(_)) => {
                self.lease.lose();
                inner
                    .release(&self.place, self.ttl, inner.options.reach())
                    .await?;
                Err(Error::NotHeld)
            }
            Ok(None) if leaves_something => self.become_reader().await.map(|()| false),
            Ok(None) => Ok(false),
            Err(error) => {
                if leaves_something {
                    let _ = self.become_reader().await;
                }
                Err(error)
            }
        };
        settle.disarm();
        upgraded
    }

    async fn become_reader(&mut self) -> Result<()> {
        self.still_held()?;
        let ttl = self.lease.ttl_to_keep(self.ttl);
        let inner = &self.inner;
        match inner.restore_reader(&self.place, self.fence(), ttl).await {
            Ok(grant) => {
                self.lease.converted(grant, ttl);
                self.claim = Claim::RwLock(Mode::Shared);
                Ok(())
            }
            Err(error) => {
                if matches!(error, Error::NotHeld) {
                    self.lease.lose();
                }
                Err(error)
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.lease.end() {
            drop(Settle::new(
                &self.inner,
                &self.place,
                self.ttl,
                Leftover::Release,
            ));
        }
    }
}

debug_guard!(Guard);
