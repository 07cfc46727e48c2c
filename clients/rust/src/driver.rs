//! The only place that knows a library: how commands are sent, and how time passes.
//!
//! All that is above it awaits a `Driver`. That of `sync` blocks where it is polled, so its futures
//! end when they are polled.

use std::fmt;
use std::future::{Future, pending};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::{Client, Cmd, RedisResult, Value};

use crate::attempt::{Attempt, Verdict};
use crate::locks::Returns;
use crate::options::Options;
use crate::support::Support;

/// The connections of a client.
pub(crate) trait Driver:
    Returns + Copy + fmt::Debug + Send + Sync + Sized + 'static
{
    type Connections: Send + Sync;
    /// What work in the background needs, as a call of the client finds it.
    type Runtime: Clone + Send + Sync;

    /// Whether what a drop leaves is done before the drop is over.
    const BLOCKS: bool;

    fn done<'a, T: 'a>(work: impl Future<Output = T> + Send + 'a) -> Self::Done<'a, T>;

    /// `None` where futures cannot be awaited.
    fn runtime() -> Option<Self::Runtime>;

    /// Sends commands of one slot once that are answered at once, in `time` at most. Connecting is part
    /// of that, as far as `rest_for_answer` says. The answer is that of `answered`.
    fn send(
        engine: &Engine<Self>,
        commands: &[Cmd],
        time: Duration,
    ) -> impl Future<Output = RedisResult<Value>> + Send;

    /// Sends what prolongs or ends a hold, by a connection that the program cannot exhaust.
    fn send_of_owner(
        engine: &Engine<Self>,
        commands: &[Cmd],
        time: Duration,
    ) -> impl Future<Output = RedisResult<Value>> + Send {
        Self::send(engine, commands, time)
    }

    /// Makes the next request of an attempt, in the best way to wait that there is.
    fn ask_next(
        engine: &Engine<Self>,
        attempt: &mut Attempt<'_>,
    ) -> impl Future<Output = Verdict> + Send;

    /// What a future comes to, or `None` if it does not come to it in time.
    fn within<T: Send>(
        time: Duration,
        future: impl Future<Output = T> + Send,
    ) -> impl Future<Output = Option<T>> + Send;

    fn pause(time: Duration) -> impl Future<Output = ()> + Send {
        async move {
            Self::within(time, pending::<()>()).await;
        }
    }

    /// Calls back where that delays nothing else.
    fn tell(call: impl FnOnce() + Send + 'static);

    /// Runs a keeper beside the program.
    fn keep(runtime: &Self::Runtime, keeper: impl Future<Output = ()> + Send + 'static);

    /// Does what is left after a drop.
    fn settle(
        engine: Arc<Engine<Self>>,
        runtime: &Self::Runtime,
        work: impl Future<Output = ()> + Send + 'static,
    );
}

/// What all clones of a client share.
pub(crate) struct Engine<D: Driver> {
    pub(crate) connections: D::Connections,
    pub(crate) options: Options,
    pub(crate) support: Support,
}

impl<D: Driver> Engine<D> {
    /// How long holds outlive their connections, if they end with them.
    pub(crate) fn linger(&self) -> Option<Duration> {
        let linger = self.options.linger;
        linger.filter(|_| !self.support.is_fallback())
    }
}

impl<D: Driver> fmt::Debug for Engine<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.options.fmt(f)
    }
}

/// What connects to one server.
pub(crate) trait Peer: Send + Sync {
    fn of(client: Client) -> Self;

    /// Sends commands once, together. The answer is that of `answered`.
    fn send(
        &self,
        commands: &[Cmd],
        time: Duration,
    ) -> impl Future<Output = RedisResult<Value>> + Send;
}

/// What no panic leaves half done.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The answer to one command, an array of the answers to several, or the first error of them.
pub(crate) fn answered(mut answers: Vec<Value>) -> RedisResult<Value> {
    let answer = match answers.len() {
        1 => answers.pop().unwrap_or(Value::Nil),
        _ => Value::Array(answers),
    };
    answer.extract_error()
}

/// The time left for an answer after connecting since `start`: at least half of `time`, or a slow
/// connection would never be of use.
pub(crate) fn rest_for_answer(start: Instant, time: Duration) -> Duration {
    let half = time.checked_div(2).unwrap_or(time);
    time.saturating_sub(start.elapsed()).max(half)
}
