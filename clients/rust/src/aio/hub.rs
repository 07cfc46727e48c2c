//! One subscription, and the waiters that hear by it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures_util::{FutureExt, StreamExt};
use redis::{Client, ProtocolVersion, RedisError, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::link::{CONNECT_TIME, within};
use super::transport::Source;
#[cfg(feature = "cluster-async")]
use crate::address::Address;
use crate::attempt::PACE;
use crate::command::Place;
use crate::error::is_refused;
use crate::message::{Event, Message};

/// The time without a message after which the connection is asked whether it still lives.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(5);

/// The longest time between two tries to subscribe.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A channel that is listened to.
pub(super) struct Subscribed {
    /// The number of the hub's subscription.
    pub(super) number: u64,
    pub(super) channel: String,
    /// The node of a cluster. At any other one this subscription is of no use.
    #[cfg(feature = "cluster-async")]
    pub(super) node: Option<Address>,
}

/// Dispatches the messages of one channel, which is this client's alone.
#[derive(Debug)]
pub(super) struct Hub {
    /// With `:` and a tag behind it in a cluster.
    channel: String,
    listeners: Mutex<Listeners>,
    subscription: watch::Sender<Subscription>,
    task: Mutex<Option<AbortHandle>>,
    /// Another server may be the primary now, and the one that is listened to may be silent.
    pub(super) renewed: Arc<Notify>,
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
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            channel: format!("redis-lock:{}", uuid::Uuid::new_v4().simple()),
            listeners: Mutex::default(),
            subscription: watch::Sender::new(Subscription::Down(None)),
            task: Mutex::default(),
            renewed: Arc::default(),
        })
    }

    pub(super) fn channel(&self) -> &str {
        &self.channel
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(*self.subscription.borrow(), Subscription::Up(_))
    }

    /// Subscribes, unless it is subscribed, and returns the number of the subscription.
    pub(super) async fn ready(
        self: &Arc<Self>,
        source: &Source,
        runtime: &Handle,
        time: Duration,
    ) -> RedisResult<u64> {
        self.start(source, runtime);
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
            Subscription::Up(number) => Ok(number),
            Subscription::Down(Some(error)) => Err(error),
            Subscription::Down(None) => {
                Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into())
            }
        }
    }

    /// Returns when the subscription `number` is no longer the present one.
    pub(super) async fn ended(&self, number: u64) {
        let mut subscription = self.subscription.subscribe();
        let _ = subscription
            .wait_for(|now| !matches!(now, Subscription::Up(present) if *present == number))
            .await;
    }

    /// Begins another subscription by connections that are not the hub's. Those of the one before ask again.
    #[cfg(feature = "cluster-async")]
    pub(super) fn subscribed_anew(&self) {
        self.subscription.send_modify(|now| {
            *now = match now {
                Subscription::Up(number) => Subscription::Up(number.wrapping_add(1)),
                Subscription::Down(_) => Subscription::Up(1),
            }
        });
    }

    /// The number of the present subscription, 0 without one.
    #[cfg(feature = "cluster-async")]
    pub(super) fn number(&self) -> u64 {
        match *self.subscription.borrow() {
            Subscription::Up(number) => number,
            Subscription::Down(_) => 0,
        }
    }

    /// Listens for one place. Messages from before are not heard: the answer to the next request
    /// tells the same.
    pub(super) fn listen(self: &Arc<Self>, place: &Place) -> Listener {
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
    pub(super) fn dispatch(&self, payload: &[u8]) -> bool {
        let Some(message) = Message::parse(payload) else {
            log::warn!("a message on the channel of locks could not be read");
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

    fn start(self: &Arc<Self>, source: &Source, runtime: &Handle) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.is_none() {
            let subscriber = Subscriber {
                hub: Arc::downgrade(self),
                source: source.clone(),
                channel: self.channel.clone(),
                renewed: self.renewed.clone(),
            };
            *task = Some(runtime.spawn(subscriber.run()).abort_handle());
        }
    }

    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task {
            task.abort();
        }
    }
}

/// Hears what becomes of one place, until it is dropped.
#[derive(Debug)]
pub(super) struct Listener {
    hub: Arc<Hub>,
    place: Place,
    number: u64,
    events: mpsc::UnboundedReceiver<Event>,
}

impl Listener {
    pub(super) async fn event(&mut self) -> Event {
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

impl Subscriber {
    async fn run(self) {
        let mut number: u64 = 0;
        let mut pause = PACE;
        loop {
            number = number.wrapping_add(1);
            let start = Instant::now();
            let error = self.subscribe(number).await.err();
            let Some(hub) = self.hub.upgrade() else {
                return;
            };
            if let Some(error) = &error {
                log::debug!("the subscription to grants of locks ended: {error}");
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
    async fn subscribe(&self, number: u64) -> RedisResult<()> {
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
            hub.subscription.send_replace(Subscription::Up(number));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn place(key: &[u8], token: &[u8]) -> Place {
        Place::new(key, token.to_vec())
    }

    #[test]
    fn a_message_reaches_its_place_only() {
        let hub = Hub::new();
        let mut one = hub.listen(&place(b"a key", b"1"));
        let mut other = hub.listen(&place(b"a key", b"2"));
        let mut binary = hub.listen(&place(b"\0 5 \r\n\xff", b" \xfe"));
        assert!(hub.dispatch(b"granted 17 5 a key 2"));
        assert!(hub.dispatch(b"granted 18 7 \0 5 \r\n\xff  \xfe"));
        assert_eq!(other.events.try_recv(), Ok(Event::Granted(17)));
        assert_eq!(binary.events.try_recv(), Ok(Event::Granted(18)));
        assert!(one.events.try_recv().is_err() && other.events.try_recv().is_err());
    }

    #[test]
    fn those_with_one_token_hear_the_same() {
        let hub = Hub::new();
        let mut first = hub.listen(&place(b"k", b"t"));
        let mut second = hub.listen(&place(b"k", b"t"));
        assert!(hub.dispatch(b"timeout 0 1 k t"));
        assert_eq!(first.events.try_recv(), Ok(Event::Timeout));
        assert_eq!(second.events.try_recv(), Ok(Event::Timeout));
        drop(first);
        assert!(hub.dispatch(b"tryagain 0 1 k t"));
        assert_eq!(second.events.try_recv(), Ok(Event::TryAgain));
        drop(second);
        assert!(!hub.dispatch(b"granted 1 1 k t"));
        assert!(hub.listeners().by_place.is_empty());
    }

    #[test]
    fn a_message_that_cannot_be_read_does_no_harm() {
        let hub = Hub::new();
        let mut listener = hub.listen(&place(b"k", b"t"));
        assert!(!hub.dispatch(b"") && !hub.dispatch(b"granted 1 9 k t") && !hub.dispatch(b"\xff"));
        assert!(listener.events.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_new_subscription_ends_the_one_before() {
        let hub = Hub::new();
        assert!(!hub.is_up());
        hub.subscription.send_replace(Subscription::Up(1));
        assert!(hub.is_up());
        let over = timeout(Duration::from_millis(20), hub.ended(1)).await;
        assert!(over.is_err());
        hub.subscription.send_replace(Subscription::Down(None));
        hub.ended(1).await;
        hub.subscription.send_replace(Subscription::Up(2));
        hub.ended(1).await;
    }
}
