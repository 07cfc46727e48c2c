//! Connections that block.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use redis::{Client, Cmd, RedisResult, Value};

use super::connect::{CONNECT_TIME, Connect, Connection};
use crate::attempt::{Attempt, Verdict, Wait};
use crate::driver::{Driver, Engine, Peer, locked, rest_for_answer};
use crate::locks::Returns;
use crate::replies::{is_demoted, is_to_leave, is_unanswered};

/// The number of connections that are kept for the next command.
const MAX_IDLE: usize = 64;

/// Marks what blocks, as in [`Guard`](super::Guard).
#[derive(Clone, Copy, Debug)]
pub enum Blocking {}

/// The thread that waits for a future.
struct Waits(Thread);

impl Wake for Waits {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    /// A change of a lease wakes a thread once, however often it has waited for that.
    static WAKER: Waker = Arc::new(Waits(thread::current())).into();
}

/// What a future comes to before `end`.
fn before<T>(end: Instant, mut future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    // A guard may be dropped with its thread.
    let waker = WAKER.try_with(Waker::clone);
    let waker = waker.unwrap_or_else(|_| Waker::noop().clone());
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return Some(done);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        thread::park_timeout(left);
    }
}

/// The result of a future over `Blocking`, which is never pending.
pub(super) fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Some(done) = before(Instant::now(), future.as_mut()) {
            return done;
        }
    }
}

impl Returns for Blocking {
    type Done<'a, T: 'a> = T;
}

impl Driver for Blocking {
    type Connections = Ask;
    type Runtime = ();

    const BLOCKS: bool = true;

    fn done<'a, T: 'a>(work: impl Future<Output = T> + Send + 'a) -> T {
        now(work)
    }

    fn runtime() -> Option<()> {
        Some(())
    }

    async fn send(engine: &Engine<Self>, commands: &[Cmd], time: Duration) -> RedisResult<Value> {
        (engine.connections)(commands, time)
    }

    async fn ask_next(engine: &Engine<Self>, attempt: &mut Attempt<'_>) -> Verdict {
        engine.ask_once(attempt, Wait::Block).await
    }

    async fn within<T: Send>(time: Duration, future: impl Future<Output = T> + Send) -> Option<T> {
        let now = Instant::now();
        before(now.checked_add(time).unwrap_or(now), pin!(future))
    }

    fn tell(call: impl FnOnce() + Send + 'static) {
        call();
    }

    fn keep((): &(), keeper: impl Future<Output = ()> + Send + 'static) {
        let started = thread::Builder::new()
            .name("redis-lock keep-alive".to_owned())
            .spawn(move || now(keeper));
        if let Err(error) = started {
            // The lease ends by itself then, and `is_lost` says so.
            tracing::error!(%error, "nothing renews a lock");
        }
    }

    fn settle(_: Arc<Engine<Self>>, (): &(), work: impl Future<Output = ()> + Send + 'static) {
        now(work);
    }
}

/// Sends commands once, to a server or to the nodes of a cluster. The answer is that of `answered`.
pub(crate) type Ask = Box<dyn Fn(&[Cmd], Duration) -> RedisResult<Value> + Send + Sync>;

/// As many connections as threads use at a time.
pub(crate) struct Pool {
    connect: Box<dyn Connect>,
    idle: Mutex<Vec<Box<dyn Connection>>>,
}

impl Pool {
    pub(super) fn new(connect: impl Connect + 'static) -> Self {
        Self {
            connect: Box::new(connect),
            idle: Mutex::default(),
        }
    }
}

impl Peer for Pool {
    fn of(client: Client) -> Self {
        Self::new(client)
    }

    async fn send(&self, commands: &[Cmd], time: Duration) -> RedisResult<Value> {
        let start = Instant::now();
        let idle = locked(&self.idle).pop();
        // A server that is there accepts at once, however long the command itself may take.
        let connect = || self.connect.connect(time.min(CONNECT_TIME));
        let answer = idle.map_or_else(connect, Ok).and_then(|mut connection| {
            let time = rest_for_answer(start, time);
            let answer = connection.ask(commands, time);
            let answer = answer.and_then(Value::extract_error);
            // A server that is no longer primary is not asked again: a new connection asks who is.
            let mut idle = locked(&self.idle);
            if !answer.as_ref().is_err_and(is_to_leave) && idle.len() < MAX_IDLE {
                idle.push(connection);
            }
            answer
        });
        let has_failed = |error: &_| is_unanswered(error) || is_demoted(error);
        if answer.as_ref().is_err_and(has_failed) {
            // The others are of the same server, and older.
            locked(&self.idle).clear();
        }
        answer
    }
}
