use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::ear::Ear;
use super::hub::Hub;
use super::transport::{Source, Transport};
use crate::Error;
use crate::answer::{OwnerAnswer, owner_answer};
use crate::attempt::PACE;
use crate::error::{Result, is_unanswered};
use crate::options::Options;
use crate::support::Support;

/// What all clones of a client share.
pub(super) struct Inner {
    pub(super) transport: Box<dyn Transport>,
    /// Makes the connections that block. Without it a waiter asks again and again.
    pub(super) source: Option<Source>,
    pub(super) ear: Ear,
    pub(super) options: Options,
    pub(super) support: Support,
    pub(super) hub: Arc<Hub>,
    /// As many connections may block at a time.
    pub(super) waiting: tokio::sync::Semaphore,
    pub(super) idle: Mutex<Vec<MultiplexedConnection>>,
    pub(super) runtime: Handle,
}

impl Inner {
    /// Sends a command that is answered at once.
    pub(super) async fn ask(&self, command: &Cmd, time: Duration) -> RedisResult<Value> {
        self.transport
            .ask(command, time)
            .await
            .and_then(Value::extract_error)
    }

    /// Whether holds end with their connections.
    pub(super) fn lingers(&self) -> bool {
        self.options.linger.is_some() && !self.support.is_fallback()
    }

    /// Sends commands of an owner until they are answered, each for as long as `patience`. A
    /// repetition does no harm.
    ///
    /// Returns whether all did what they say, and whether an answer was lost before.
    pub(super) async fn insist(
        &self,
        commands: &[Cmd],
        time: Duration,
        patience: Duration,
    ) -> Result<(bool, bool)> {
        let (mut done, mut was_lost) = (true, false);
        for command in commands {
            let (is_done, is_lost) = self.insist_on(command, time, patience).await?;
            done &= is_done;
            was_lost |= is_lost;
        }
        Ok((done, was_lost))
    }

    async fn insist_on(
        &self,
        command: &Cmd,
        time: Duration,
        patience: Duration,
    ) -> Result<(bool, bool)> {
        let start = Instant::now();
        let mut was_lost = false;
        loop {
            match owner_answer(self.ask(command, time).await) {
                OwnerAnswer::Done => return Ok((true, was_lost)),
                OwnerAnswer::NotHeld => return Ok((false, was_lost)),
                OwnerAnswer::Failed(error) => return Err(error),
                OwnerAnswer::MayPass(error) => {
                    was_lost |= is_unanswered(&error);
                    if start.elapsed() >= patience {
                        return Err(Error::from(error));
                    }
                }
            }
            sleep(PACE).await;
        }
    }

    pub(super) fn idle(&self) -> MutexGuard<'_, Vec<MultiplexedConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
