use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::{Cmd, RedisResult, Value};

use super::connect::{CONNECT_TIME, Connect, Connection};
use crate::Error;
use crate::answer::{OwnerAnswer, owner_answer};
use crate::attempt::PACE;
use crate::error::{Result, is_demoted, is_unanswered, may_pass};
use crate::options::Options;
use crate::support::Support;

/// The number of connections that are kept for the next command.
const MAX_IDLE: usize = 64;

/// What all clones of a client share.
pub(super) struct Inner {
    pub(super) connect: Box<dyn Connect>,
    pub(super) options: Options,
    pub(super) support: Support,
    pub(super) idle: Mutex<Vec<Box<dyn Connection>>>,
}

impl Inner {
    /// Sends a command once, on an idle connection or a new one.
    pub(super) fn ask(&self, command: &Cmd, timeout: Duration) -> RedisResult<Value> {
        let answer = self.connection(timeout).and_then(|mut connection| {
            let answer = connection
                .ask(command, timeout)
                .and_then(Value::extract_error);
            // A server that is no longer primary is not asked again: a new connection asks who is.
            if answer.as_ref().err().is_none_or(|error| !may_pass(error)) {
                self.put_back(connection);
            }
            answer
        });
        let has_failed = |error| is_unanswered(error) || is_demoted(error);
        if answer.as_ref().err().is_some_and(has_failed) {
            // The others are of the same server, and older.
            self.idle().clear();
        }
        answer
    }

    /// Whether holds end with their connections.
    pub(super) fn lingers(&self) -> bool {
        self.options.linger.is_some() && !self.support.is_fallback()
    }

    /// Sends commands of an owner until they are answered, each for as long as `patience`. A
    /// repetition does no harm.
    ///
    /// Returns whether all did what they say, and whether an answer was lost before.
    pub(super) fn insist(
        &self,
        commands: &[Cmd],
        timeout: Duration,
        patience: Duration,
    ) -> Result<(bool, bool)> {
        let (mut done, mut was_lost) = (true, false);
        for command in commands {
            let (is_done, is_lost) = self.insist_on(command, timeout, patience)?;
            done &= is_done;
            was_lost |= is_lost;
        }
        Ok((done, was_lost))
    }

    fn insist_on(
        &self,
        command: &Cmd,
        timeout: Duration,
        patience: Duration,
    ) -> Result<(bool, bool)> {
        let start = Instant::now();
        let mut was_lost = false;
        loop {
            match owner_answer(self.ask(command, timeout)) {
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
            std::thread::sleep(PACE);
        }
    }

    fn connection(&self, timeout: Duration) -> RedisResult<Box<dyn Connection>> {
        let idle = self.idle().pop();
        match idle {
            Some(connection) => Ok(connection),
            // A server that is there accepts at once, however long the command itself may take.
            None => self.connect.connect(timeout.min(CONNECT_TIME)),
        }
    }

    fn put_back(&self, connection: Box<dyn Connection>) {
        let mut idle = self.idle();
        if idle.len() < MAX_IDLE {
            idle.push(connection);
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Box<dyn Connection>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
