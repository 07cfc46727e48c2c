//! One subscription, the messages that come by it, and the waiters that hear them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures_util::{FutureExt, StreamExt};
use redis::{Client, ProtocolVersion, RedisError, RedisResult, Value};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::link::{CONNECT_TIME, Source, within};
use crate::attempt::PACE;
#[cfg(feature = "cluster-async")]
use crate::cluster::Address;
use crate::command::Place;
use crate::replies::is_refused;

/// The time without a message after which the connection is asked whether it still lives.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(5);

/// The longest time between two tries to subscribe.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A channel that is listened to.
pub(crate) struct Subscribed {
    /// The number of the hub's subscription.
    pub(crate) number: u64,
    pub(crate) channel: String,
    /// The node of a cluster. At any other one this subscription is of no use.
    #[cfg(feature = "cluster-async")]
    pub(crate) node: Option<Address>,
}

/// Dispatches the messages of one channel, which is this client's alone.
#[derive(Debug)]
pub(crate) struct Hub {
    /// With `:` and a tag behind it in a cluster.
    channel: String,
    listeners: Mutex<Listeners>,
    subscription: watch::Sender<Subscription>,
    last_number: AtomicU64,
    task: Mutex<Option<AbortHandle>>,
    /// Another server may be the primary now, and the one that is listened to may be silent.
    pub(crate) renewed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Listeners {
    /// More than one only where a token of the caller's own is used twice.
    by_place: HashMap<Place, Vec<(u64, mpsc::UnboundedSender<Event>)>>,
    last_number: u64,
}

#[derive(Debug, Clone)]
enum Subscription {
    Down(Option<RedisError>),
    /// With a number that no earlier one had.
    Up(u64),
}

impl Hub {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            channel: format!("redis-lock:{}", uuid::Uuid::new_v4().simple()),
            listeners: Mutex::default(),
            subscription: watch::Sender::new(Subscription::Down(None)),
            last_number: AtomicU64::new(0),
            task: Mutex::default(),
            renewed: Arc::default(),
        })
    }

    #[cfg(feature = "cluster-async")]
    pub(crate) fn channel(&self) -> &str {
        &self.channel
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(*self.subscription.borrow(), Subscription::Up(_))
    }

    /// Subscribes, unless it is subscribed.
    pub(crate) async fn ready(
        self: &Arc<Self>,
        source: &Source,
        time: Duration,
    ) -> RedisResult<Subscribed> {
        self.start(source);
        let mut subscription = self.subscription.subscribe();
        let decided = subscription.wait_for(|now| match now {
            Subscription::Up(_) => true,
            // Rights do not come back by waiting for them.
            Subscription::Down(error) => error.as_ref().is_some_and(is_refused),
        });
        let decided = match timeout(time, decided).await {
            Ok(Ok(now)) => now.clone(),
            _ => self.subscription.borrow().clone(),
        };
        match decided {
            Subscription::Up(number) => Ok(Subscribed {
                number,
                channel: self.channel.clone(),
                #[cfg(feature = "cluster-async")]
                node: None,
            }),
            Subscription::Down(Some(error)) => Err(error),
            Subscription::Down(None) => {
                Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into())
            }
        }
    }

    /// Returns when the subscription `number` is no longer the present one.
    pub(crate) async fn ended(&self, number: u64) {
        let mut subscription = self.subscription.subscribe();
        let _ = subscription
            .wait_for(|now| !matches!(now, Subscription::Up(present) if *present == number))
            .await;
    }

    /// Begins another subscription. Those of the one before ask again.
    pub(crate) fn subscribed_anew(&self) {
        let number = self.last_number.fetch_add(1, Relaxed).wrapping_add(1);
        self.subscription.send_replace(Subscription::Up(number));
    }

    /// The number of the present subscription, 0 without one.
    #[cfg(feature = "cluster-async")]
    pub(crate) fn number(&self) -> u64 {
        match *self.subscription.borrow() {
            Subscription::Up(number) => number,
            Subscription::Down(_) => 0,
        }
    }

    /// Listens for one place. Messages from before are not heard: the answer to the next request
    /// tells the same.
    pub(crate) fn listen(self: &Arc<Self>, place: &Place) -> Listener {
        let place = place.head();
        let (sender, events) = mpsc::unbounded_channel();
        let mut listeners = self.listeners();
        listeners.last_number = listeners.last_number.wrapping_add(1);
        let number = listeners.last_number;
        listeners
            .by_place
            .entry(place.clone())
            .or_default()
            .push((number, sender));
        drop(listeners);
        Listener {
            hub: self.clone(),
            place,
            number,
            events,
        }
    }

    /// Tells a message to those that listen for its place. False if nobody does.
    pub(crate) fn dispatch(&self, payload: &[u8]) -> bool {
        let Some(message) = Message::parse(payload) else {
            tracing::warn!("a message on the channel of locks could not be read");
            return false;
        };
        let place = Place::new(message.key, message.token.to_vec());
        let listeners = self.listeners();
        let Some(senders) = listeners.by_place.get(&place) else {
            return false;
        };
        for (_, sender) in senders {
            // One that is about to go has no use for it.
            let _ = sender.send(message.event);
        }
        true
    }

    /// Begins to listen in the present runtime, also where another one has ended.
    fn start(self: &Arc<Self>, source: &Source) {
        let mut task = self.task();
        if task.as_ref().is_none_or(AbortHandle::is_finished) {
            let subscriber = Subscriber {
                hub: Arc::downgrade(self),
                source: source.clone(),
                channel: self.channel.clone(),
                renewed: self.renewed.clone(),
            };
            *task = Some(tokio::spawn(subscriber.run()).abort_handle());
        }
    }

    /// Ends the subscription. The next one that waits begins it again.
    pub(crate) fn close(&self) {
        if let Some(task) = self.task().take() {
            task.abort();
        }
    }

    fn task(&self) -> MutexGuard<'_, Option<AbortHandle>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.close();
    }
}

/// Hears what becomes of one place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    hub: Arc<Hub>,
    place: Place,
    number: u64,
    events: mpsc::UnboundedReceiver<Event>,
}

impl Listener {
    pub(crate) async fn event(&mut self) -> Event {
        match self.events.recv().await {
            Some(event) => event,
            // The sender is in the hub until this is dropped.
            None => std::future::pending().await,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut listeners = self.hub.listeners();
        if let Some(senders) = listeners.by_place.get_mut(&self.place) {
            senders.retain(|(number, _)| *number != self.number);
            if senders.is_empty() {
                listeners.by_place.remove(&self.place);
            }
        }
    }
}

/// Keeps the hub subscribed. It ends with the hub.
struct Subscriber {
    hub: Weak<Hub>,
    source: Source,
    channel: String,
    renewed: Arc<Notify>,
}

/// Its runtime may end before the hub.
impl Drop for Subscriber {
    fn drop(&mut self) {
        if let Some(hub) = self.hub.upgrade() {
            hub.subscription.send_replace(Subscription::Down(None));
        }
    }
}

impl Subscriber {
    async fn run(self) {
        let mut pause = PACE;
        loop {
            let start = Instant::now();
            let error = self.subscribe().await.err();
            let Some(hub) = self.hub.upgrade() else {
                return;
            };
            if let Some(error) = &error {
                tracing::debug!(%error, "the subscription to grants of locks ended");
            }
            hub.subscription.send_replace(Subscription::Down(error));
            drop(hub);
            // Many clients must not keep a server that comes back from its work.
            let has_lasted = start.elapsed() > HEARTBEAT;
            pause = if has_lasted {
                PACE
            } else {
                LONGEST_PAUSE.min(pause.saturating_mul(2))
            };
            sleep(pause).await;
        }
    }

    /// Listens until the connection fails, or another server may be the primary.
    async fn subscribe(&self) -> RedisResult<()> {
        // What was told before is of no matter to a new connection.
        let _ = self.renewed.notified().now_or_never();
        let client = self.source.client().await?;
        let pubsub = within(CONNECT_TIME, client.get_async_pubsub()).await?;
        let (mut sink, mut stream) = pubsub.split();
        within(CONNECT_TIME, sink.subscribe(&self.channel)).await?;
        // Before 1.8 redis-rs takes a refusal for a success. In RESP2 a connection that is subscribed
        // answers otherwise to PING.
        if !protocol(&client).supports_resp3()
            && within(CONNECT_TIME, sink.ping::<Value>()).await? == pong()
        {
            return Err(refusal());
        }
        if let Some(hub) = self.hub.upgrade() {
            hub.subscribed_anew();
        }
        loop {
            let next = tokio::select! {
                next = timeout(HEARTBEAT, stream.next()) => next,
                () = self.renewed.notified() => return Ok(()),
            };
            match next {
                Ok(Some(message)) => {
                    if let Some(hub) = self.hub.upgrade() {
                        hub.dispatch(message.get_payload_bytes());
                    }
                }
                Ok(None) => return Ok(()),
                Err(_) => {
                    let _: Value = within(CONNECT_TIME, sink.ping()).await?;
                }
            }
        }
    }
}

fn protocol(client: &Client) -> ProtocolVersion {
    client.get_connection_info().redis_settings().protocol()
}

fn pong() -> Value {
    Value::SimpleString("PONG".to_owned())
}

/// What the server said, as far as that is still known.
fn refusal() -> RedisError {
    let answer = redis::parse_redis_value(b"-NOPERM no permissions to access the channel\r\n");
    let unread = || (redis::ErrorKind::Client, "the channel was refused").into();
    answer
        .and_then(Value::extract_error)
        .err()
        .unwrap_or_else(unread)
}

/// The end of a wait, or a reason to ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Granted(u64),
    Timeout,
    TryAgain,
    WrongType,
    Deadlock,
    Cancelled,
    /// There is a result to be had.
    Result,
    /// A word of a later version. Asking again tells what it means.
    Other,
}

/// A message, with the place that it is about. Keys and tokens are any bytes, spaces and line
/// breaks included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) event: Event,
    pub(crate) key: &'a [u8],
    pub(crate) token: &'a [u8],
}

impl<'a> Message<'a> {
    /// Reads a message. `None` if it is none of the module's.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (event, rest) = word(bytes)?;
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
            b"timeout" => Event::Timeout,
            b"tryagain" => Event::TryAgain,
            b"wrongtype" => Event::WrongType,
            b"deadlock" => Event::Deadlock,
            b"result" => Event::Result,
            b"cancelled" => Event::Cancelled,
            _ => Event::Other,
        };
        Some(Self { event, key, token })
    }
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

#[cfg(test)]
mod tests;
