//! Connections that tasks share, and the best way to wait that they and the server have.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{RedisError, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::link::Own;
use super::listener::{Event, Hub, Subscribed};
use crate::Error;
use crate::acquire::{Attempt, PACE, Verdict, Wait};
use crate::cluster::{slot_of, tag_of};
use crate::driver::{Driver, Engine, locked};
use crate::error::{Result, names};
use crate::lease::Grant;
use crate::locks::Returns;
use crate::options::Options;
use crate::replies::{has_code, is_refused, is_unknown_command};
use crate::server::{Address, Batch, Boxed, Servers, Source};

/// The time after which a task without a connection that waits asks again.
const POLL: Duration = Duration::from_millis(200);

/// Marks what is awaited, as in [`Guard`](super::Guard).
#[derive(Clone, Copy, Debug)]
pub enum Tasks {}

impl Returns for Tasks {
    type Done<'a, T: 'a> = Boxed<'a, T>;
}

impl Driver for Tasks {
    type Peer = Own;
    type Hub = Arc<Hub>;
    type Runtime = Handle;

    const BLOCKS: bool = false;

    /// Keeps the types of a program's own futures short, too.
    fn done<'a, T: 'a>(work: impl Future<Output = T> + Send + 'a) -> Boxed<'a, T> {
        Box::pin(work)
    }

    fn runtime() -> Result<Handle> {
        Handle::try_current().map_err(|_| Error::NoRuntime)
    }

    fn hub(options: &Options) -> Arc<Hub> {
        Hub::new(options.max_waiting_connections)
    }

    fn peer(source: Source, hub: Option<Arc<Hub>>) -> Own {
        Own::new(source, hub)
    }

    fn send<'a>(own: &'a Own, batch: Batch<'a>) -> Boxed<'a, RedisResult<Value>> {
        Box::pin(own.send(batch))
    }

    fn turn(hub: &Arc<Hub>) -> impl Future<Output: Send> + Send {
        hub.turn.lock()
    }

    fn has_failed(hub: &Arc<Hub>, node: &Address, error: &RedisError) {
        // A node that is silent may still seem to be listened to.
        if error.is_timeout() {
            hub.connect_anew(&Some(node.clone()));
        }
    }

    async fn ask_next(engine: &Engine<Self>, attempt: &mut Attempt<'_>) -> Verdict {
        // The fallback has no other way. A cancelled upgrade gives up its place and keeps its share: a
        // release would end the share, and a request as a reader ends the place only while nobody
        // listens there.
        let polls = engine.support.is_fallback() || attempt.lease.is_some();
        let hears = engine.support.notify();
        match &engine.servers {
            _ if polls || attempt.patience.is_over() => engine.ask(attempt, Wait::Keep).await,
            // A free lock needs neither a subscription nor a connection that blocks.
            _ if attempt.is_first && !(hears && engine.hub.is_up()) => {
                engine.ask(attempt, Wait::No).await
            }
            _ if hears => engine.ask_notified(attempt).await,
            Servers::One(own) => engine.ask_blocking(attempt, &own.source).await,
            Servers::Cluster(_) => engine.ask(attempt, Wait::Keep).await,
        }
    }

    async fn within<T: Send>(time: Duration, future: impl Future<Output = T> + Send) -> Option<T> {
        timeout(time, future).await.ok()
    }

    /// It may block, which must not delay the renewals of other holds.
    fn tell(call: impl FnOnce() + Send + 'static) {
        drop(tokio::task::spawn_blocking(call));
    }

    fn keep(runtime: &Handle, keeper: Boxed<'static, ()>) {
        // The runtime of the acquire may be over, and there may be none here.
        drop(Self::runtime().as_ref().unwrap_or(runtime).spawn(keeper));
    }

    fn settle(engine: &Engine<Self>, runtime: &Handle, work: Boxed<'static, ()>) {
        let left = engine.hub.left.subscribe();
        let work = async move {
            work.await;
            drop(left);
        };
        Self::keep(runtime, Box::pin(work));
    }
}

impl Engine<Tasks> {
    /// Listens for a key at the server that has it, as far as is known, unless it does.
    async fn listen(&self, key: &[u8], time: Duration) -> RedisResult<Subscribed> {
        match &self.servers {
            Servers::One(own) => self.hub.ready(None, None, &own.source, time).await,
            Servers::Cluster(cluster) => {
                let slot = slot_of(key);
                let owner = cluster.owner(slot, time).await?;
                let (source, node) = (cluster.source(&owner)?, Some(owner.clone()));
                let listening = self.hub.ready(node, Some(tag_of(slot)), &source, time);
                listening.await.inspect_err(|error| {
                    cluster.learn_from(&owner, error);
                })
            }
        }
    }

    pub(super) async fn shutdown(&self) {
        self.hub.left.closed().await;
        self.hub.close();
        match &self.servers {
            Servers::One(own) => own.close().await,
            Servers::Cluster(cluster) => cluster.close(),
        }
    }

    /// Asks with NOTIFY, and listens until something is heard, the subscription is lost or a slice
    /// is over.
    async fn ask_notified(&self, attempt: &mut Attempt<'_>) -> Verdict {
        let slice = attempt.patience.bounded(self.options.slice);
        let time = self.options.reach(Duration::ZERO).max(PACE).min(slice);
        let (start, time) = (Instant::now(), attempt.bounded(time));
        let subscribed = match self.listen(attempt.place.key(), time).await {
            Ok(subscribed) => subscribed,
            Err(error) if cannot_listen(&error) => return self.without_notify(&error),
            Err(error) => return attempt.has_failed(error, start),
        };
        // It listens before it asks.
        let mut listener = self.hub.listen(attempt.place);
        let question = attempt.question(Wait::Notify(&subscribed.channel));
        let asking = self.servers.send(question.batch(attempt.place));
        let (answer, node) = asking.await;
        let verdict = match answer {
            Err(error) if is_notify_refused(&error) => self.without_notify(&error),
            answer => attempt.verdict(&question, answer),
        };
        match verdict {
            Verdict::Queued if node == subscribed.node => {}
            // Another node has the slot by now, or another one answers while the slot moves.
            Verdict::Queued => return Verdict::AskAgain(PACE),
            verdict => return verdict,
        }
        let sent = question.sent;
        // A node that was the primary hears what the primary publishes, and a message for a token of
        // the caller's own may be that of an earlier hold.
        let is_hint = node.is_some() || attempt.place.is_callers;
        let mut slice = attempt.patience.bounded(self.options.slice);
        // With LINGER the wait ends with the connection that asked, and no message says so.
        if self.options.linger.is_some() {
            slice = slice.min(PACE.max(self.options.grace.div_f64(2.0)));
        }
        tokio::select! {
            Ok(event) = listener.events.recv() => match event {
                Event::Granted(fence) if !is_hint => Verdict::Granted(Grant { fence, sent }),
                Event::Granted(_) | Event::AskAgain => Verdict::AskAgain(Duration::ZERO),
                Event::Cancelled => Verdict::Failed(Error::Cancelled),
                Event::Deadlock => Verdict::Failed(Error::Deadlock(
                    "the server refused the wait while it was going on".to_owned(),
                )),
            },
            // The answer to the next request tells what was missed.
            _ = timeout(slice, self.hub.ended(subscribed.number)) => {
                Verdict::AskAgain(Duration::ZERO)
            }
        }
    }

    fn without_notify(&self, error: &RedisError) -> Verdict {
        self.support.is_without_notify(&self.options, error);
        Verdict::AskAgain(Duration::ZERO)
    }

    /// Waits for a slice on a connection that blocks. Asks at intervals while there are too many of
    /// them.
    async fn ask_blocking(&self, attempt: &mut Attempt<'_>, source: &Source) -> Verdict {
        let time = attempt.patience.bounded(POLL);
        let Ok(Ok(_permit)) = timeout(time, self.hub.waiting.acquire()).await else {
            return self.ask(attempt, Wait::Keep).await;
        };
        let idle = locked(&self.hub.idle).pop();
        let own = idle.unwrap_or_else(|| Own::new(source.clone(), None));
        let question = attempt.question(Wait::Block);
        // If this future is dropped here, the connection is closed, and the server ends the wait.
        let answer = own.send(question.batch(attempt.place)).await;
        locked(&self.hub.idle).push(own);
        attempt.verdict(&question, answer)
    }
}

/// Whether the user has no right to listen, or what is between has no such connections.
fn cannot_listen(error: &RedisError) -> bool {
    let is_old = error.kind() == redis::ErrorKind::RESP3NotSupported;
    is_old || is_refused(error) || is_unknown_command(error)
}

/// Whether the server or the user's rights have something against NOTIFY, which blocking does not
/// need.
fn is_notify_refused(error: &RedisError) -> bool {
    is_refused(error) || has_code(error, &["CROSSSLOT"]) || names(error, "notify")
}
