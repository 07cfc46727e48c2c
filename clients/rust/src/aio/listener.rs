//! The connections that listen, the messages that come by them, and the waiters that hear them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, RedisError, RedisResult, Value};
use tokio::sync::{Mutex as AsyncMutex, OnceCell, mpsc, watch};
use tokio::time::timeout;

use super::link::{Source, within};
use crate::attempt::PACE;
use crate::command::Place;
use crate::driver::locked;
use crate::info::Address;
use crate::replies::is_unanswered;

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

/// Dispatches the messages of the channels of one client, which are its alone.
pub(super) struct Hub {
    /// With `:` and a tag behind it in a cluster.
    channel: String,
    /// More than one at a place only where a token of the caller's own is used twice.
    listeners: Mutex<HashMap<Heard, Vec<mpsc::UnboundedSender<Event>>>>,
    /// Those that may live.
    lines: Mutex<HashMap<Node, Arc<Line>>>,
    /// How many subscriptions have ended. Their waiters ask again.
    ends: watch::Sender<u64>,
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
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            channel: format!("redis-lock:{}", uuid::Uuid::new_v4().simple()),
            listeners: Mutex::default(),
            lines: Mutex::default(),
            ends: watch::Sender::new(0),
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
            let connecting = || self.connect(&node, &line, source);
            let mut connection = line.connection.get_or_try_init(connecting).await?.clone();
            let mut channels = line.channels.lock().await;
            if !channels.contains(&channel) {
                let mut subscribe = redis::cmd(subscribe);
                let answer = subscribe.arg(&channel).exec_async(&mut connection).await;
                if answer.as_ref().is_err_and(RedisError::is_io_error) {
                    self.end(&node, &line);
                }
                answer?;
                channels.insert(channel.clone());
            }
            Ok(())
        };
        within(time, subscribing).await?;
        Ok(Subscribed {
            number,
            channel,
            node,
        })
    }

    async fn connect(
        self: &Arc<Self>,
        node: &Node,
        line: &Arc<Line>,
        source: &Source,
    ) -> RedisResult<MultiplexedConnection> {
        match &*locked(&line.failure) {
            Some((when, error)) if when.elapsed() < PAUSE => return Err(error.clone()),
            _ => {}
        }
        let (sender, pushes) = mpsc::unbounded_channel();
        let connecting = source.connect(Some(sender)).await;
        let connection = connecting.inspect_err(|error| {
            *locked(&line.failure) = Some((Instant::now(), error.clone()));
        })?;
        let hearing = Hearing {
            hub: Arc::downgrade(self),
            node: node.clone(),
            line: Arc::downgrade(line),
        };
        tokio::spawn(hearing.run(pushes));
        Ok(connection)
    }

    /// Returns when a subscription has ended since that number.
    pub(super) async fn ended(&self, number: u64) {
        let mut ends = self.ends.subscribe();
        let _ = ends.wait_for(|now| *now != number).await;
    }

    /// Those that wait subscribe again where their keys are now, and ask again.
    pub(super) fn subscribe_anew(&self) {
        self.ends.send_modify(|ends| *ends = ends.wrapping_add(1));
    }

    /// Gives up a connection that may be dead, or that of a server which is no primary any more.
    pub(super) fn connect_anew(&self, node: &Node) {
        let line = locked(&self.lines).get(node).cloned();
        // One that is being made is new.
        if let Some(line) = line.filter(|line| line.connection.initialized()) {
            self.end(node, &line);
        }
    }

    /// The connection is over. Those that wait by it ask again.
    fn end(&self, node: &Node, line: &Arc<Line>) {
        let mut lines = locked(&self.lines);
        if lines
            .get(node)
            .is_some_and(|other| Arc::ptr_eq(line, other))
        {
            lines.remove(node);
            self.subscribe_anew();
        }
    }

    /// Listens for one place. Messages from before are not heard: the answer to the next request
    /// tells the same.
    pub(super) fn listen(self: &Arc<Self>, place: &Place) -> Listener {
        let place = (place.key().to_vec(), place.token.clone());
        let (sender, events) = mpsc::unbounded_channel();
        let mut listeners = locked(&self.listeners);
        listeners.entry(place.clone()).or_default().push(sender);
        drop(listeners);
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
        for sender in locked(&self.listeners).get(&place).into_iter().flatten() {
            // One that is about to go has no use for it.
            let _ = sender.send(event);
        }
    }

    /// Ends all connections. The next one that waits makes another.
    pub(super) fn close(&self) {
        locked(&self.lines).clear();
        self.subscribe_anew();
    }
}

impl Line {
    /// Whether the server answers, be it that the user has no right to ask so.
    async fn is_alive(&self) -> bool {
        let Some(mut connection) = self.connection.get().cloned() else {
            return true;
        };
        let answer = redis::cmd("PING").exec_async(&mut connection).await;
        !answer.is_err_and(|error| is_unanswered(&error))
    }
}

/// Hears what a server pushes, until its connection, the hub or the runtime is gone.
struct Hearing {
    hub: Weak<Hub>,
    node: Node,
    line: Weak<Line>,
}

impl Drop for Hearing {
    fn drop(&mut self) {
        if let (Some(hub), Some(line)) = (self.hub.upgrade(), self.line.upgrade()) {
            hub.end(&self.node, &line);
        }
    }
}

impl Hearing {
    async fn run(self, mut pushes: mpsc::UnboundedReceiver<PushInfo>) {
        loop {
            let push = timeout(HEARTBEAT, pushes.recv()).await;
            let (Some(hub), Some(line)) = (self.hub.upgrade(), self.line.upgrade()) else {
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
                Err(_) if line.is_alive().await => {}
                Err(_) => return,
            }
        }
    }
}

/// Hears what becomes of one place, until it is dropped.
pub(super) struct Listener {
    hub: Arc<Hub>,
    place: Heard,
    pub(super) events: mpsc::UnboundedReceiver<Event>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.events.close();
        let mut listeners = locked(&self.hub.listeners);
        if let Some(senders) = listeners.get_mut(&self.place) {
            senders.retain(|sender| !sender.is_closed());
            if senders.is_empty() {
                listeners.remove(&self.place);
            }
        }
    }
}

/// The end of a wait, or a reason to ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Granted(u64),
    Deadlock,
    Cancelled,
    /// The answer to the next request, after the pause, tells what it means.
    AskAgain(Duration),
}

/// Reads a message of the module's, and the place that it is about. Keys and tokens are any bytes,
/// spaces and line breaks included.
fn read(message: &[u8]) -> Option<(Heard, Event)> {
    let (event, rest) = word(message)?;
    let (fence, rest) = number(rest)?;
    let (length, rest) = number(rest)?;
    let (key, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    let token = rest.strip_prefix(b" ")?;
    if token.is_empty() {
        return None;
    }
    let event = match event {
        b"granted" if fence > 0 => Event::Granted(fence),
        b"granted" => return None,
        b"deadlock" => Event::Deadlock,
        b"cancelled" => Event::Cancelled,
        // The client's own clock decides whether its time is over.
        b"timeout" | b"result" => Event::AskAgain(Duration::ZERO),
        _ => Event::AskAgain(PACE),
    };
    Some(((key.to_vec(), token.to_vec()), event))
}

/// The bytes up to the next space, and what is behind it.
fn word(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = bytes.iter().position(|&byte| byte == b' ')?;
    let (word, rest) = bytes.split_at_checked(space)?;
    Some((word, rest.get(1..)?))
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (digits, rest) = word(bytes)?;
    // `parse` would take a sign.
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some((std::str::from_utf8(digits).ok()?.parse().ok()?, rest))
}
