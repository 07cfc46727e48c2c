use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};
use tokio::runtime::Handle;

use super::ear::Ear;
use super::hub::Hub;
use super::transport::{Source, Transport};
use crate::attempt::{Attempt, Verdict};
use crate::engine::{Engine, Turn, Wire};

/// What all clones of a client share.
pub(super) type Inner = Engine<Tasks>;

/// Connections that tasks share.
pub(crate) struct Tasks {
    pub(super) transport: Box<dyn Transport>,
    /// Makes the connections that block. Without it a waiter asks again and again.
    pub(super) source: Option<Source>,
    pub(super) ear: Ear,
    pub(super) hub: Arc<Hub>,
    /// As many connections may block at a time.
    pub(super) waiting: tokio::sync::Semaphore,
    pub(super) idle: Mutex<Vec<MultiplexedConnection>>,
    pub(super) runtime: Handle,
}

impl Wire for Tasks {
    async fn ask(&self, command: &Cmd, time: Duration) -> RedisResult<Value> {
        let answer = self.transport.ask(command, time).await;
        answer.and_then(Value::extract_error)
    }

    async fn pause(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    async fn ask_next(engine: &Inner, attempt: &mut Attempt<'_>, turn: Turn) -> Verdict {
        engine.ask_in_the_best_way(attempt, turn).await
    }
}

impl Tasks {
    pub(super) fn idle(&self) -> MutexGuard<'_, Vec<MultiplexedConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
