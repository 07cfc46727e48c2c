use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::acquire::{Leftover, Settle};
use super::client::LockClient;
use super::keep_alive::KeepAlive;
use crate::attempt::Patience;
use crate::command::Place;
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
    pub(super) client: LockClient,
    pub(super) place: Arc<Place>,
    pub(super) lease: Arc<Lease>,
    pub(super) ttl: Duration,
    mode: Mode,
    /// One conversion at a time, one that was cancelled included.
    converting: Arc<Mutex<()>>,
}

impl Guard {
    pub(super) fn new(
        client: &LockClient,
        place: Arc<Place>,
        mode: Mode,
        grant: Grant,
        ttl: Duration,
    ) -> Self {
        Self {
            client: client.clone(),
            place,
            lease: Arc::new(Lease::new(grant, ttl)),
            ttl,
            mode,
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
        let sent = Instant::now();
        if self.lease.is_ended() || !self.client.inner.renew(&self.place, ttl).await? {
            self.lease.lose();
            return Err(Error::NotHeld);
        }
        self.lease.renewed(sent, ttl);
        Ok(())
    }

    /// Renews in a task of its own, at a third of the ttl, until the result is dropped or the hold
    /// is over.
    pub fn keep_alive(&self) -> KeepAlive {
        KeepAlive::start(self)
    }

    /// Makes a writer a reader in one step, with the same fence. Readers that wait at the head
    /// enter at once.
    pub async fn downgrade(&mut self) -> Result<()> {
        if self.mode == Mode::Exclusive {
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
        let inner = &self.client.inner;
        let was_held = self.lease.is_held();
        let is_first = self.lease.end();
        let mut settle = Settle::new(inner, &self.place, self.ttl, Leftover::Release);
        let time = inner.options.answer_time(self.ttl);
        let release = self.place.release();
        let answer = inner.insist(&release, time, inner.options.reconnect).await;
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
        if self.mode == Mode::Exclusive {
            return Ok(true);
        }
        self.check()?;
        let inner = self.client.inner.clone();
        let leftover = Leftover::Reader(self.fence(), self.converting.clone().lock_owned().await);
        let mut settle = Settle::new(&inner, &self.place, self.ttl, leftover);
        let (granted, leaves_something) = inner
            .convert(&self.place, Mode::Exclusive, self.ttl, patience)
            .await;
        let upgraded = match granted {
            Ok(Some(grant)) if grant.fence == self.fence() => {
                self.lease.converted(grant, self.ttl);
                self.mode = Mode::Exclusive;
                Ok(true)
            }
            // The share was over, and this is a new hold.
            Ok(Some(_)) => {
                self.lease.lose();
                let time = inner.options.answer_time(self.ttl);
                let release = self.place.release();
                inner
                    .insist(&release, time, inner.options.reconnect)
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
        self.check()?;
        let inner = &self.client.inner;
        match inner
            .restore_reader(&self.place, self.fence(), self.ttl)
            .await
        {
            Ok(grant) => {
                self.lease.converted(grant, self.ttl);
                self.mode = Mode::Shared;
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
                &self.client.inner,
                &self.place,
                self.ttl,
                Leftover::Release,
            ));
        }
    }
}

debug_guard!(Guard);
