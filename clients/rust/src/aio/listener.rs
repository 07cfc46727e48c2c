//! The connections that listen, the messages that come by them, and the waiters that hear them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, RedisError, RedisResult, Value};
use tokio::sync::{Mutex as AsyncMutex, OnceCell, Semaphore, broadcast, mpsc, watch};
use tokio::time::timeout;

use super::driver::Tasks;
use super::link::{Own, connect};
use crate::command::Place;
use crate::driver::{Driver, locked};
use crate::replies::is_unanswered;
use crate::server::{Address, CONNECT_TIME, Source};

/// The time without a message after which the connection is asked whether it still lives.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Many clients must not keep a server that comes back from its work.
const PAUSE: Duration = Duration::from_millis(200);

/// A node of a cluster, and `None` for the only server.
pub(super) type Node = Option<Address>;

/// The key and the token of a place, as a message names them.
type Heard = (Vec<u8>, Vec<u8>);

/// A channel that is listened to.
pub(super) struct Subscribed {
    /// The number of ends before it.
    pub(super) number: u64,
    pub(super) channel: String,
    /// At any other one this subscription is of no use.
    pub(super) node: Node,
}

/// Dispatches the messages of the channels of one client, which are its alone. And what else its tasks
/// share.
pub(crate) struct Hub {
    /// With `:` and a tag behind it in a cluster.
    channel: String,
    /// More than one at a place only where a token of the caller's own is used twice.
    listeners: Mutex<HashMap<Heard, broadcast::Sender<Event>>>,
    /// Those that may live.
    lines: Mutex<HashMap<Node, Arc<Line>>>,
    /// How many subscriptions have ended. Their waiters ask again.
    ends: watch::Sender<u64>,
    /// Without NOTIFY as many connections may block at a time, and these may block next.
    pub(super) waiting: Semaphore,
    pub(super) idle: Mutex<Vec<Own>>,
    /// That of the task which asks for a cluster's slots.
    pub(super) turn: AsyncMutex<()>,
    /// Each task that does what a drop has left listens to it.
    pub(super) left: watch::Sender<()>,
}

/// The connection that listens to a node, and what it has subscribed to. One task connects or
/// subscribes, and the others wait for it.
#[derive(Default)]
struct Line {
    connection: OnceCell<MultiplexedConnection>,
    channels: AsyncMutex<HashSet<String>>,
    /// The last one to connect.
    failure: Mutex<Option<(Instant, RedisError)>>,
}

impl Hub {
    pub(super) fn new(waiting: usize) -> Arc<Self> {
        Arc::new(Self {
            channel: format!("redis-lock:{}", uuid::Uuid::new_v4().simple()),
            listeners: Mutex::default(),
            lines: Mutex::default(),
            ends: watch::Sender::new(0),
            waiting: Semaphore::new(waiting.min(Semaphore::MAX_PERMITS)),
            idle: Mutex::default(),
            turn: AsyncMutex::default(),
            left: watch::Sender::new(()),
        })
    }

    /// Whether a connection listens.
    pub(super) fn is_up(&self) -> bool {
        let lines = locked(&self.lines);
        lines.values().any(|line| line.connection.initialized())
    }

    /// Listens at a server, unless it does. In a cluster it is by a channel whose tag leads to the
    /// node.
    pub(super) async fn ready(
        self: &Arc<Self>,
        node: Node,
        tag: Option<String>,
        source: &Source,
        time: Duration,
    ) -> RedisResult<Subscribed> {
        let (channel, subscribe) = match tag {
            Some(tag) => (format!("{}:{{{tag}}}", self.channel), "SSUBSCRIBE"),
            None => (self.channel.clone(), "SUBSCRIBE"),
        };
        // What ends from now on ends this one.
        let number = *self.ends.borrow();
        let line = locked(&self.lines).entry(node.clone()).or_default().clone();
        let subscribing = async {
            let connecting = || self.connect(&line, source);
            let mut connection = line.connection.get_or_try_init(connecting).await?.clone();
            let mut channels = line.channels.lock().await;
            if !channels.contains(&channel) {
                let mut subscribe = redis::cmd(subscribe);
                let answer = subscribe.arg(&channel).exec_async(&mut connection).await;
                if answer.as_ref().is_err_and(RedisError::is_io_error) {
                    self.end(|_, present| Arc::ptr_eq(present, &line));
                }
                answer?;
                channels.insert(channel.clone());
            }
            Ok(Subscribed {
                number,
                channel,
                node,
            })
        };
        Tasks::in_time(time, subscribing).await
    }

    /// Returns when a subscription has ended since that number.
    pub(super) async fn ended(&self, number: u64) {
        let mut ends = self.ends.subscribe();
        let _ = ends.wait_for(|now| *now != number).await;
    }

    /// Those that wait subscribe again where their keys are now, and ask again. A node says so to
    /// those that listen for a slot that leaves it.
    fn subscribe_anew(&self) {
        self.ends.send_modify(|ends| *ends = ends.wrapping_add(1));
    }

    /// Gives up a connection that may be dead, or that of a server which is no primary any more.
    pub(super) fn connect_anew(&self, node: &Node) {
        // One that is being made is new.
        self.end(|at, line| at == node && line.connection.initialized());
    }

    /// These connections are over. Those that wait by them ask again.
    fn end(&self, are_over: impl FnMut(&Node, &mut Arc<Line>) -> bool) {
        if locked(&self.lines).extract_if(are_over).count() > 0 {
            self.subscribe_anew();
        }
    }

    /// Listens for one place. Messages from before are not heard: the answer to the next request
    /// tells the same.
    pub(super) fn listen(self: &Arc<Self>, place: &Place) -> Listener {
        let place = (place.key().to_vec(), place.token.clone());
        let events = locked(&self.listeners)
            .entry(place.clone())
            .or_insert_with(|| broadcast::Sender::new(8))
            .subscribe();
        Listener {
            hub: self.clone(),
            place,
            events,
        }
    }

    /// Tells a message to those that listen for its place.
    fn dispatch(&self, payload: &[u8]) {
        let Some((place, event)) = read(payload) else {
            return tracing::warn!("a message on the channel of locks could not be read");
        };
        if let Some(sender) = locked(&self.listeners).get(&place) {
            // One that is about to go has no use for it.
            let _ = sender.send(event);
        }
    }

    /// Ends all connections. The next one that waits makes another.
    pub(super) fn close(&self) {
        self.end(|_, _| true);
        locked(&self.idle).clear();
    }

    async fn connect(
        self: &Arc<Self>,
        line: &Arc<Line>,
        source: &Source,
    ) -> RedisResult<MultiplexedConnection> {
        match &*locked(&line.failure) {
            Some((when, error)) if when.elapsed() < PAUSE => return Err(error.clone()),
            _ => {}
        }
        let (sender, pushes) = mpsc::unbounded_channel();
        let connecting = async {
            let client = source.client::<Tasks>(CONNECT_TIME).await?;
            connect(client, Some(sender)).await
        };
        let connection = connecting.await.inspect_err(|error| {
            *locked(&line.failure) = Some((Instant::now(), error.clone()));
        })?;
        tokio::spawn(Hearing(Arc::downgrade(self), Arc::downgrade(line)).run(pushes));
        Ok(connection)
    }
}

/// Hears what a server pushes, until its connection, the hub or the runtime is gone.
struct Hearing(Weak<Hub>, Weak<Line>);

impl Drop for Hearing {
    fn drop(&mut self) {
        if let Some((hub, line)) = self.ends() {
            hub.end(|_, present| Arc::ptr_eq(present, &line));
        }
    }
}

impl Hearing {
    fn ends(&self) -> Option<(Arc<Hub>, Arc<Line>)> {
        Some((self.0.upgrade()?, self.1.upgrade()?))
    }

    async fn run(self, mut pushes: mpsc::UnboundedReceiver<PushInfo>) {
        loop {
            let push = timeout(HEARTBEAT, pushes.recv()).await;
            let Some((hub, line)) = self.ends() else {
                return;
            };
            match push {
                Ok(Some(push)) => match push.kind {
                    PushKind::Message | PushKind::SMessage => {
                        if let Some(Value::BulkString(payload)) = push.data.last() {
                            hub.dispatch(payload);
                        }
                    }
                    // A slot leaves the node, which ends the subscriptions to its channels there.
                    PushKind::SUnsubscribe => {
                        line.channels.lock().await.clear();
                        hub.subscribe_anew();
                    }
                    PushKind::Disconnection => return,
                    _ => {}
                },
                Ok(None) => return,
                // A connection that a firewall has forgotten ends without a word.
                Err(_) => {
                    let Some(mut connection) = line.connection.get().cloned() else {
                        continue;
                    };
                    // The user may have no right to ask so.
                    let answer = redis::cmd("PING").exec_async(&mut connection).await;
                    if answer.is_err_and(|error| is_unanswered(&error)) {
                        return;
                    }
                }
            }
        }
    }
}

/// Hears what becomes of one place, until it is dropped.
pub(super) struct Listener {
    hub: Arc<Hub>,
    place: Heard,
    pub(super) events: broadcast::Receiver<Event>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut listeners = locked(&self.hub.listeners);
        let sender = listeners.get(&self.place);
        // This one is the last.
        if sender.is_some_and(|sender| sender.receiver_count() == 1) {
            listeners.remove(&self.place);
        }
    }
}

/// The end of a wait, or a reason to ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Granted(u64),
    Deadlock,
    Cancelled,
    /// The answer to the next request tells what it means.
    AskAgain,
}

/// Reads a message of the module's, and the place that it is about. Keys and tokens are any bytes,
/// spaces and line breaks included.
fn read(message: &[u8]) -> Option<(Heard, Event)> {
    let mut words = message.splitn(4, |&byte| byte == b' ');
    let (event, fence) = (words.next()?, number(words.next()?)?);
    let length = usize::try_from(number(words.next()?)?).ok()?;
    let (key, rest) = words.next()?.split_at_checked(length)?;
    let token = rest.strip_prefix(b" ").filter(|token| !token.is_empty())?;
    let event = match event {
        b"granted" if fence > 0 => Event::Granted(fence),
        b"granted" => return None,
        b"deadlock" => Event::Deadlock,
        b"cancelled" => Event::Cancelled,
        // As with "timeout": the client's own clock decides whether its time is over.
        _ => Event::AskAgain,
    };
    Some(((key.to_vec(), token.to_vec()), event))
}

fn number(digits: &[u8]) -> Option<u64> {
    // `parse` would take a sign.
    let are_digits = digits.iter().all(u8::is_ascii_digit);
    let digits = are_digits.then(|| std::str::from_utf8(digits));
    digits?.ok()?.parse().ok()
}
