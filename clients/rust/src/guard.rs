//! What is held.

use std::fmt;
use std::time::Instant;

use crate::Mode;
use crate::attempt::Patience;
use crate::driver::Driver;
use crate::error::Result;
use crate::hold::Hold;
use crate::keeper::KeepAlive;
use crate::lease::Lease;
use crate::settle::Settle;

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
        &self.hold.place.key
    }

    /// The token by which the server knows the owner.
    pub fn token(&self) -> &[u8] {
        &self.hold.place.token
    }

    /// A number larger than that of every hold before. Send it with every write.
    pub fn fence(&self) -> u64 {
        self.hold.lease.fence()
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
        KeepAlive::start(self.hold.clone())
    }

    pub(crate) async fn release(&self) -> Result<()> {
        let mut settle = Settle::release(&self.hold);
        let released = self.hold.release().await;
        settle.disarm();
        released
    }

    pub(crate) async fn become_reader(&mut self) -> Result<()> {
        if !self.hold.is_to_downgrade()? {
            return self.hold.still_held();
        }
        let asking = self.hold.alone(Lease::asks).await;
        let mut settle = Settle::reader(&self.hold, asking);
        let downgraded = self.hold.become_reader().await;
        settle.disarm();
        downgraded
    }

    pub(crate) async fn upgrade_with(&mut self, patience: Patience) -> Result<bool> {
        if !self.hold.is_to_upgrade()? {
            return Ok(true);
        }
        let asking = self.hold.alone(Lease::asks).await;
        let mut settle = Settle::reader(&self.hold, asking);
        let upgraded = self.hold.upgrade(patience).await;
        settle.disarm();
        upgraded
    }
}

impl<D: Driver> Drop for Guard<D> {
    fn drop(&mut self) {
        if self.hold.lease.is_to_release() {
            self.hold.lease.end();
            drop(Settle::release(&self.hold));
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
