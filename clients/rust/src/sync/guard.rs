use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, FromRedisValue};

use super::inner::Inner;
use super::keep_alive::{KeepAlive, Watch};
use crate::attempt::Patience;
use crate::command::{Claim, Place};
use crate::common::{accessors, debug_guard};
use crate::error::Result;
use crate::lease::{Grant, Lease};
use crate::options::bounded_ttl;
use crate::{Error, Mode};

/// A hold on a lock. Dropping it releases the lock.
///
/// [`Guard::unlock`] releases it, too, and says whether it was held until then.
#[must_use = "a guard that is dropped at once releases the lock at once"]
pub struct Guard {
    inner: Arc<Inner>,
    place: Arc<Place>,
    lease: Arc<Lease>,
    ttl: Duration,
    claim: Claim,
}

impl Guard {
    pub(super) fn new(
        inner: &Arc<Inner>,
        place: Place,
        claim: Claim,
        grant: Grant,
        ttl: Duration,
    ) -> Self {
        Self {
            inner: inner.clone(),
            place: Arc::new(place),
            lease: Arc::new(Lease::new(grant, ttl)),
            ttl,
            claim,
        }
    }

    accessors!();

    /// Sets the deadline to the lock's ttl from now on. [`Error::NotHeld`] if the hold is over.
    pub fn renew(&self) -> Result<()> {
        self.extend(self.ttl)
    }

    /// Sets the deadline to `ttl` from now on, which may also be earlier. [`Error::NotHeld`] if the
    /// hold is over.
    pub fn extend(&self, ttl: Duration) -> Result<()> {
        let ttl = bounded_ttl(ttl);
        let inner = &self.inner;
        if !self.lease.is_held() {
            return Err(self.not_held());
        }
        let sent = loop {
            let sent = self.lease.sends(ttl);
            match inner.renew(&self.place, ttl) {
                Ok(true) => break sent,
                Ok(false) => return Err(self.not_held()),
                // It is no loss until the lease is over.
                Err(error) if error.is_try_again() => match self.lease.pause_to_try_again() {
                    Some(pause) => std::thread::sleep(pause),
                    None => return Err(self.not_held()),
                },
                Err(error) => return Err(error),
            }
        };
        let lingers = inner.lingers();
        if lingers && !inner.rebind(&self.place, &self.claim, self.fence(), ttl) {
            return Err(self.not_held());
        }
        if !self.lease.renewed(sent) {
            // Nobody else would release it.
            inner.give_up(&self.place, ttl);
            return Err(self.not_held());
        }
        Ok(())
    }

    /// Asks the server whether this is held now, where [`Guard::is_lost`] asks nobody.
    pub fn check(&self) -> Result<bool> {
        let inner = &self.inner;
        let timeout = inner.options.answer_time(self.ttl);
        let check = self.place.check(inner.support.is_fallback());
        if !self.lease.is_ended() && inner.insist(&check, timeout, inner.options.reach())?.0 {
            return Ok(true);
        }
        self.not_held();
        Ok(false)
    }

    /// Has the server run a command only if this is held now, in one step. [`Error::NotHeld`] if it
    /// is not; then nothing was done.
    ///
    /// ```no_run
    /// # fn example(guard: &redis_lock_client::sync::Guard) -> redis_lock_client::Result<()> {
    /// let _: () = guard.exec(redis::cmd("SET").arg("stock:7").arg(41))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// It is sent once: after an error of the connection the command may have run or not. Of several
    /// locks the first one is looked at. The server must be Redis 7.0 or newer, or Valkey.
    pub fn exec<T: FromRedisValue>(&self, command: &Cmd) -> Result<T> {
        self.still_held()?;
        let inner = &self.inner;
        if inner.support.is_fallback() {
            return Err(Error::not_in_fallback("a command under the lock"));
        }
        let timeout = inner.options.answer_time(self.ttl);
        match inner.ask(&self.place.exec(command), timeout) {
            Ok(value) => T::from_redis_value(value).map_err(|error| Error::Redis(error.into())),
            Err(error) => Err(match Error::from(error) {
                Error::NotHeld => self.not_held(),
                error => error,
            }),
        }
    }

    fn not_held(&self) -> Error {
        if self.lease.lose() {
            self.inner.release_rest(&self.place, self.ttl);
        }
        Error::NotHeld
    }

    /// Renews in a thread of its own, at a third of the ttl, until the result is dropped or the
    /// hold is over.
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
    pub fn downgrade(&mut self) -> Result<()> {
        self.convertible()?;
        if self.mode() == Mode::Exclusive {
            self.become_reader()?;
        }
        Ok(())
    }

    /// Makes the only reader the writer. Waits for the other readers, ahead of the queue, and reads
    /// on meanwhile.
    ///
    /// [`Error::Deadlock`] if another reader waits to become the writer: one of the two must
    /// release.
    pub fn upgrade(&mut self) -> Result<()> {
        while !self.upgrade_with(Patience::Forever)? {}
        Ok(())
    }

    /// Makes the only reader the writer. False if there are others; then it is a reader still.
    pub fn try_upgrade(&mut self) -> Result<bool> {
        self.upgrade_with(Patience::None)
    }

    /// Makes the only reader the writer. False if there are others for all of `timeout`; then it is
    /// a reader still.
    pub fn upgrade_timeout(&mut self, timeout: Duration) -> Result<bool> {
        self.upgrade_with(Patience::of(timeout))
    }

    /// Releases the lock. [`Error::NotHeld`] if it was lost before.
    pub fn unlock(self) -> Result<()> {
        let left = self.lease.until().saturating_duration_since(Instant::now());
        let reach = self.inner.options.reach_of_release(left);
        self.release(reach)
    }

    fn upgrade_with(&mut self, patience: Patience) -> Result<bool> {
        self.convertible()?;
        if self.mode() == Mode::Exclusive {
            return Ok(true);
        }
        self.still_held()?;
        let inner = self.inner.clone();
        let ttl = self.lease.ttl_to_keep(self.ttl);
        let (granted, leaves_something) =
            inner.convert(&self.place, Mode::Exclusive, ttl, patience);
        match granted {
            Ok(Some(grant)) if grant.fence == self.fence() => {
                self.lease.converted(grant, ttl);
                self.claim = Claim::RwLock(Mode::Exclusive);
                Ok(true)
            }
            // The share was over, and this is a new hold.
            Ok(Some(_)) => {
                self.lease.lose();
                inner.release(&self.place, self.ttl, inner.options.reach())?;
                Err(Error::NotHeld)
            }
            Ok(None) => {
                if leaves_something {
                    self.become_reader()?;
                }
                Ok(false)
            }
            Err(error) => {
                if leaves_something {
                    let _ = self.become_reader();
                }
                Err(error)
            }
        }
    }

    fn become_reader(&mut self) -> Result<()> {
        self.still_held()?;
        let ttl = self.lease.ttl_to_keep(self.ttl);
        let restored = self.inner.restore_reader(&self.place, self.fence(), ttl);
        match restored {
            Ok(Some(grant)) => {
                self.lease.converted(grant, ttl);
                self.claim = Claim::RwLock(Mode::Shared);
                Ok(())
            }
            Ok(None) | Err(Error::NotHeld) => {
                self.lease.lose();
                Err(Error::NotHeld)
            }
            Err(error) => Err(error),
        }
    }

    fn release(&self, patience: Duration) -> Result<()> {
        let was_held = self.lease.is_held();
        let is_first = self.lease.end();
        let inner = &self.inner;
        let (released, was_lost) = inner.release(&self.place, self.ttl, patience)?;
        // The reply to the first was lost, and nothing else has ended the lease by then.
        let was_released = was_lost && was_held && Instant::now() < self.lease.until();
        match is_first && (released || was_released) {
            true => Ok(()),
            false => Err(Error::NotHeld),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.lease.is_ended() {
            return;
        }
        let patience = self.inner.options.answer_time(self.ttl);
        match self.release(patience) {
            Ok(()) => {}
            Err(Error::NotHeld) => log::warn!("a lock was lost before its guard was dropped"),
            Err(error) => log::warn!("a lock could not be released: {error}"),
        }
    }
}

debug_guard!(Guard);
