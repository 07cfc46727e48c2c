//! What is held.

use std::fmt;
use std::time::{Duration, Instant};

use redis::{Cmd, FromRedisValue};

#[cfg(doc)]
use crate::Error;
use crate::Mode;
use crate::driver::Driver;
use crate::error::Result;
use crate::hold::Hold;
use crate::keeper::KeepAlive;
use crate::lease::State;

/// A hold on a lock. Dropping it releases the lock.
///
/// `unlock` releases it, too, and says whether it was held until then. After an error it can be
/// called again.
#[must_use = "a guard that is dropped at once releases the lock at once"]
pub struct Guard<D: Driver> {
    pub(crate) hold: Hold<D>,
}

impl<D: Driver> Guard<D> {
    /// The key of the lock, the first one of several.
    pub fn key(&self) -> &[u8] {
        self.hold.place.key()
    }

    /// The token by which the server knows the owner.
    pub fn token(&self) -> &[u8] {
        &self.hold.place.token
    }

    /// A number larger than that of every hold before. Send it with every write.
    pub fn fence(&self) -> u64 {
        self.hold.lease.fence
    }

    /// How the lock is held. Of several locks: exclusively, if one of them is.
    pub fn mode(&self) -> Mode {
        self.hold.lease.claim().mode()
    }

    /// Until when the lock is surely held if nothing renews it. With
    /// [`Options::linger`](crate::Options::linger) that is no later than `linger` after its connection
    /// was last known to live. It is too late only on a machine that sleeps: see docs/ADAPTERS.md.
    pub fn valid_until(&self) -> Instant {
        self.hold.lease.until()
    }

    /// Whether the hold is over: a command or the keeper has seen it, or its time has passed.
    pub fn is_lost(&self) -> bool {
        self.hold.lease.is_lost()
    }

    /// Renews beside the program, at a third of the ttl or of `linger`, until the result is dropped
    /// or the hold is over.
    pub fn keep_alive(&self) -> KeepAlive<D> {
        KeepAlive::start(&self.hold)
    }

    /// Sets the deadline to the lock's ttl from now on.
    /// [`Error::NotHeld`] if the hold is over.
    pub fn renew(&self) -> D::Done<'_, Result<()>> {
        self.extend(self.hold.ttl)
    }

    /// Sets the deadline to `ttl` from now on, which may also be earlier.
    /// [`Error::NotHeld`] if the hold is over.
    ///
    /// A server that is away is asked again until the lease ends, and for no longer than
    /// [`Options::reconnect`](crate::Options::reconnect).
    pub fn extend(&self, ttl: Duration) -> D::Done<'_, Result<()>> {
        D::done(self.hold.extend(ttl))
    }

    /// Asks the server whether this is held now, where [`Guard::is_lost`] asks nobody. False without
    /// asking after the end of the ttl.
    pub fn check(&self) -> D::Done<'_, Result<bool>> {
        D::done(self.hold.check())
    }

    /// Has the server run a command only if this is held now, in one step.
    /// [`Error::NotHeld`] if it is not; then nothing was done.
    ///
    /// ```no_run
    /// # #[cfg(feature = "sync")]
    /// # fn example(guard: &redis_lock_client::sync::Guard) -> redis_lock_client::Result<()> {
    /// let _: () = guard.exec(redis::cmd("SET").arg("stock:7").arg(41))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// It is sent once: after an error of the connection the command may have run or not. Of several
    /// locks the first one is looked at.
    pub fn exec<'a, T>(&'a self, command: &'a Cmd) -> D::Done<'a, Result<T>>
    where
        T: FromRedisValue + 'a,
    {
        D::done(self.hold.exec(command))
    }

    /// Makes a writer a reader in one step, with the same fence. Readers that wait at the head enter
    /// at once.
    ///
    /// It counts as a reader as soon as that is sent. After an error the server may have it as a
    /// writer yet: another `downgrade` asks again.
    pub fn downgrade(&mut self) -> D::Done<'_, Result<()>> {
        let conversion = self.hold.convert(Mode::Shared, Duration::ZERO);
        D::done(async { conversion.await.map(drop) })
    }

    /// Makes the only reader the writer. Waits for the other readers, ahead of the queue, and reads
    /// on meanwhile.
    ///
    /// [`Error::Deadlock`] if another reader waits to become the writer: one
    /// of the two must release.
    ///
    /// In `aio` it does not listen for its grant, unlike an acquire. It asks every 50 ms, and the
    /// server keeps its place meanwhile. The reason is that this future may be dropped: then the wait
    /// must end, and the share must stay. The server has no command for that while somebody listens at
    /// the place. Only one reader of a lock can wait so, which is at most 20 commands per second.
    pub fn upgrade(&mut self) -> D::Done<'_, Result<()>> {
        D::done(async {
            let hold = &self.hold;
            while !hold.convert(Mode::Exclusive, Duration::MAX).await? {}
            Ok(())
        })
    }

    /// Makes the only reader the writer. False if there are others; then it is a reader still.
    pub fn try_upgrade(&mut self) -> D::Done<'_, Result<bool>> {
        D::done(self.hold.convert(Mode::Exclusive, Duration::ZERO))
    }

    /// Makes the only reader the writer. False if there are others for all of `timeout`; then it is a
    /// reader still.
    pub fn upgrade_timeout(&mut self, timeout: Duration) -> D::Done<'_, Result<bool>> {
        D::done(self.hold.convert(Mode::Exclusive, timeout))
    }

    /// Releases the lock. [`Error::NotHeld`] if it was lost before.
    ///
    /// After another error it can be called again: the guard keeps its token until the server has
    /// answered.
    pub fn unlock(&self) -> D::Done<'_, Result<()>> {
        D::done(self.hold.unlock())
    }
}

impl<D: Driver> Drop for Guard<D> {
    fn drop(&mut self) {
        if matches!(self.hold.lease.state(), State::Held | State::Ended) {
            // Its keeper ends with it, whatever becomes of the rest.
            self.hold.lease.finish(State::Ended);
            self.hold.settle(self.hold.clone().release_at_last());
        }
    }
}

/// The token is left out.
impl<D: Driver> fmt::Debug for Guard<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("key", &String::from_utf8_lossy(self.key()))
            .field("fence", &self.fence())
            .field("mode", &self.mode())
            .finish_non_exhaustive()
    }
}
