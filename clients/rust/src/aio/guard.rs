use super::inner::Tasks;
use super::keep_alive::KeepAlive;
use super::settle::Settle;
use crate::attempt::Patience;
use crate::common::guard;
use crate::error::Result;
use crate::hold::Hold;
use crate::lease::Lease;

/// A hold on a lock. Dropping it releases the lock, in a task of its own.
///
/// [`Guard::unlock`] releases it, too, and says whether it was held until then.
#[must_use = "a guard that is dropped at once releases the lock at once"]
pub struct Guard {
    hold: Hold<Tasks>,
}

macro_rules! done {
    ($future:expr) => {
        $future.await
    };
}

guard!([async], done, "```no_run
# async fn example(guard: &redis_lock_client::aio::Guard) -> redis_lock_client::Result<()> {
let _: () = guard.exec(redis::cmd(\"SET\").arg(\"stock:7\").arg(41)).await?;
# Ok(())
# }
```");

impl Guard {
    pub(super) fn new(hold: Hold<Tasks>) -> Self {
        Self { hold }
    }

    /// Waits until the hold is over. With [`Guard::keep_alive`] that is when it was lost.
    pub async fn lost(&self) {
        self.hold.lease.lost().await;
    }

    /// Renews in a task of its own, at a third of the ttl, until the result is dropped or the hold
    /// is over.
    pub fn keep_alive(&self) -> KeepAlive {
        KeepAlive::start(self.hold.clone())
    }

    /// Makes the only reader the writer. Waits for the other readers, ahead of the queue, and reads
    /// on meanwhile.
    ///
    /// [`Error::Deadlock`](crate::Error::Deadlock) if another reader waits to become the writer:
    /// one of the two must release.
    ///
    /// Unlike an acquire it does not listen for its grant. It asks every 50 ms, and the server
    /// keeps its place meanwhile. The reason is that this future may be dropped: then the wait must
    /// end, and the share must stay. The server has no command for that while somebody listens at
    /// the place. Only one reader of a lock can wait so, which is at most 20 commands per second.
    pub async fn upgrade(&mut self) -> Result<()> {
        while !self.upgrade_with(Patience::Forever).await? {}
        Ok(())
    }

    /// Releases the lock. [`Error::NotHeld`](crate::Error::NotHeld) if it was lost before.
    pub async fn unlock(self) -> Result<()> {
        let mut settle = Settle::release(&self.hold);
        let released = self.hold.release(self.hold.reach_of_release()).await;
        settle.disarm();
        released
    }

    async fn become_reader(&mut self) -> Result<()> {
        if !self.hold.is_to_downgrade()? {
            return self.hold.still_held();
        }
        let asking = self.hold.alone(Lease::asks).await;
        let mut settle = Settle::reader(&self.hold, asking);
        let downgraded = self.hold.become_reader().await;
        settle.disarm();
        downgraded
    }

    async fn upgrade_with(&mut self, patience: Patience) -> Result<bool> {
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

impl Drop for Guard {
    fn drop(&mut self) {
        if self.hold.lease.end() {
            drop(Settle::release(&self.hold));
        }
    }
}
