use crate::Error;
use crate::attempt::Patience;
use crate::common::guard;
use crate::error::Result;
use crate::hold::Hold;
use crate::lease::Lease;

use super::inner::{Blocking, now};
use super::keep_alive::KeepAlive;

/// A hold on a lock. Dropping it releases the lock.
///
/// [`Guard::unlock`] releases it, too, and says whether it was held until then.
#[must_use = "a guard that is dropped at once releases the lock at once"]
pub struct Guard {
    hold: Hold<Blocking>,
}

macro_rules! done {
    ($future:expr) => {
        now($future)
    };
}

guard!(
    [],
    done,
    "```no_run
# fn example(guard: &redis_lock_client::sync::Guard) -> redis_lock_client::Result<()> {
let _: () = guard.exec(redis::cmd(\"SET\").arg(\"stock:7\").arg(41))?;
# Ok(())
# }
```"
);

impl Guard {
    pub(super) fn new(hold: Hold<Blocking>) -> Self {
        Self { hold }
    }

    /// Renews in a thread of its own, at a third of the ttl, until the result is dropped or the
    /// hold is over.
    pub fn keep_alive(&self) -> KeepAlive {
        KeepAlive::start(self.hold.clone())
    }

    /// Makes the only reader the writer. Waits for the other readers, ahead of the queue, and reads
    /// on meanwhile.
    ///
    /// [`Error::Deadlock`] if another reader waits to become the writer: one of the two must
    /// release.
    pub fn upgrade(&mut self) -> Result<()> {
        while !now(self.upgrade_with(Patience::Forever))? {}
        Ok(())
    }

    /// Releases the lock. [`Error::NotHeld`] if it was lost before.
    pub fn unlock(self) -> Result<()> {
        now(self.hold.release(self.hold.reach_of_release()))
    }

    async fn become_reader(&mut self) -> Result<()> {
        if !self.hold.is_to_downgrade()? {
            return self.hold.still_held();
        }
        let _asking = self.hold.alone(Lease::asks).await;
        self.hold.become_reader().await
    }

    async fn upgrade_with(&mut self, patience: Patience) -> Result<bool> {
        let _asking = self.hold.alone(Lease::asks).await;
        self.hold.upgrade(patience).await
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.hold.lease.is_ended() {
            return;
        }
        let patience = self.hold.engine.options.answer_time(self.hold.ttl);
        match now(self.hold.release(patience)) {
            Ok(()) => {}
            Err(Error::NotHeld) => log::warn!("a lock was lost before its guard was dropped"),
            Err(error) => log::warn!("a lock could not be released: {error}"),
        }
    }
}
