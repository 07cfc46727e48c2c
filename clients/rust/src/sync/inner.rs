use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use redis::{Cmd, RedisResult, Value};

use super::connect::{CONNECT_TIME, Connect, Connection};
use crate::attempt::{Attempt, Verdict, Wait};
use crate::engine::{Engine, Turn, Wire, rest_for_answer};
use crate::error::{is_demoted, is_to_leave, is_unanswered};

/// The number of connections that are kept for the next command.
const MAX_IDLE: usize = 64;

/// What all clones of a client share.
pub(super) type Inner = Engine<Blocking>;

/// Connections that block.
pub(crate) struct Blocking {
    connect: Box<dyn Connect>,
    idle: Mutex<Vec<Box<dyn Connection>>>,
}

/// The result of a future over `Blocking`, which is never pending.
pub(super) fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
        std::thread::yield_now();
    }
}

impl Wire for Blocking {
    async fn ask(&self, command: &Cmd, time: Duration) -> RedisResult<Value> {
        let start = Instant::now();
        let answer = self.connection(time).and_then(|mut connection| {
            let time = rest_for_answer(start, time);
            let answer = connection.ask(command, time).and_then(Value::extract_error);
            // A server that is no longer primary is not asked again: a new connection asks who is.
            if answer
                .as_ref()
                .err()
                .is_none_or(|error| !is_to_leave(error))
            {
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

    async fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }

    async fn ask_next(engine: &Inner, attempt: &mut Attempt<'_>, _: Turn) -> Verdict {
        match engine.ask_once(attempt, Wait::Block).await {
            // Nothing listens.
            Verdict::Queued => Verdict::Unavailable,
            verdict => verdict,
        }
    }
}

impl Blocking {
    pub(super) fn new(connect: impl Connect + 'static) -> Self {
        Self {
            connect: Box::new(connect),
            idle: Mutex::default(),
        }
    }

    fn connection(&self, time: Duration) -> RedisResult<Box<dyn Connection>> {
        let idle = self.idle().pop();
        match idle {
            Some(connection) => Ok(connection),
            // A server that is there accepts at once, however long the command itself may take.
            None => self.connect.connect(time.min(CONNECT_TIME)),
        }
    }

    fn put_back(&self, connection: Box<dyn Connection>) {
        let mut idle = self.idle();
        if idle.len() < MAX_IDLE {
            idle.push(connection);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Box<dyn Connection>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
