//! What the tests of places have in common: questions about places, and subscribers.

use std::collections::VecDeque;

use redis::Value;

use crate::harness::{wait_for, Client, Place, Raw, Reply, Server, PATIENCE};

/// All places for a key, in the order of the queue.
#[track_caller]
pub fn places(c: &mut Client, key: &str) -> Vec<Place> {
    c.lock_info(key).waiters
}

/// The place of a token, if it has one.
#[track_caller]
pub fn find_place(c: &mut Client, key: &str, token: &str) -> Option<Place> {
    let mut places = places(c, key).into_iter();
    places.find(|place| place.token == token)
}

/// The place of a token, which must have one.
#[track_caller]
pub fn place(c: &mut Client, key: &str, token: &str) -> Place {
    let found = find_place(c, key, token);
    found.unwrap_or_else(|| panic!("{token} has no place for {key}"))
}

/// Waits until nobody listens at the place of a token, which stays.
#[track_caller]
pub fn until_absent(c: &mut Client, key: &str, token: &str) {
    wait_for(&format!("{token} to be absent"), || {
        place(c, key, token).is_absent().then_some(())
    });
}

/// Sends a request that must leave a place and be answered null.
#[track_caller]
pub fn leaves_place(c: &mut Client, line: &str) {
    assert_eq!(c.call(line), Reply::Nil, "{line}");
    let words: Vec<_> = line.split(' ').collect();
    assert!(place(c, words[1], words[2]).is_absent(), "{line}");
}

/// Sends a request that must be queued for a channel.
#[track_caller]
pub fn queued(c: &mut Client, line: &str) {
    assert_eq!(c.call(line), Reply::Simple("QUEUED".into()), "{line}");
}

/// A field of INFO that is a number.
#[track_caller]
pub fn figure(c: &mut Client, field: &str) -> i64 {
    c.info(&format!("lock_{field}")).parse().unwrap()
}

/// A connection that has subscribed to channels.
pub struct Subscriber {
    /// The connection's number, for CLIENT KILL.
    pub id: i64,
    raw: Raw,
    /// Messages that came before a reply.
    heard: VecDeque<Message>,
}

/// A message, as bytes.
pub type Message = (Vec<u8>, Vec<u8>);

impl Subscriber {
    /// Subscribes with this line: `SUBSCRIBE c d`.
    #[track_caller]
    pub fn new(server: &Server, line: &str) -> Self {
        let mut subscriber = Self::connect(server);
        subscriber.subscribe(line);
        subscriber
    }

    /// A connection that has not subscribed yet.
    #[track_caller]
    pub fn connect(server: &Server) -> Self {
        let raw = server.raw();
        Self {
            id: raw.id,
            raw,
            heard: VecDeque::new(),
        }
    }

    /// Subscribes to one or more channels.
    #[track_caller]
    pub fn subscribe(&mut self, line: &str) {
        self.send(line);
        for _ in line.split(' ').skip(1) {
            match self.read().expect("a confirmation") {
                Value::Array(_) | Value::Push { .. } => {}
                other => panic!("{line}: {other:?}"),
            }
        }
    }

    pub fn send(&mut self, line: &str) {
        self.raw.send(line);
    }

    /// Sends a command, and returns its reply. Messages before it are kept.
    #[track_caller]
    pub fn call(&mut self, line: &str) -> Value {
        self.send(line);
        loop {
            let value = self.read().expect("a reply");
            match message_of(&value) {
                Some(message) => self.heard.push_back(message),
                None => return value,
            }
        }
    }

    fn read(&mut self) -> Option<Value> {
        self.raw.value(PATIENCE).ok()
    }

    /// The next message, which must come: its channel and its text.
    #[track_caller]
    pub fn message(&mut self) -> Message {
        if let Some(message) = self.heard.pop_front() {
            return message;
        }
        let value = self.read().expect("a message");
        message_of(&value).unwrap_or_else(|| panic!("no message: {value:?}"))
    }

    /// The text of the next message, which must come.
    #[track_caller]
    pub fn text(&mut self) -> String {
        String::from_utf8(self.message().1).expect("text")
    }

    /// The fence of the next message, which must come and grant this key to this token.
    #[track_caller]
    pub fn fence(&mut self, key: &str, token: &str) -> i64 {
        let text = self.text();
        let rest = text
            .strip_prefix("granted ")
            .unwrap_or_else(|| panic!("{text}"));
        let (fence, rest) = rest.split_once(' ').unwrap();
        assert_eq!(rest, format!("{} {key} {token}", key.len()));
        let fence = fence.parse().unwrap();
        assert!(fence > 0, "{text}");
        fence
    }

    /// The messages that were published before this call and are not read yet, with their channels.
    #[track_caller]
    pub fn messages(&mut self) -> Vec<(String, String)> {
        self.call("PING");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let heard = self.heard.drain(..);
        heard.map(|(from, said)| (text(from), text(said))).collect()
    }

    /// The same without the channels.
    #[track_caller]
    pub fn so_far(&mut self) -> Vec<String> {
        self.messages().into_iter().map(|(_, text)| text).collect()
    }
}

/// The message in what a subscriber receives.
fn message_of(value: &Value) -> Option<Message> {
    let (kind, data) = match value {
        Value::Push { kind, data } => (kind.to_string().into_bytes(), &data[..]),
        Value::Array(items) => match &items[..] {
            [Value::BulkString(kind), data @ ..] => (kind.clone(), data),
            _ => return None,
        },
        _ => return None,
    };
    let is_message = [&b"message"[..], b"smessage", b"pmessage"].contains(&&kind[..]);
    match data {
        [.., Value::BulkString(channel), Value::BulkString(text)] if is_message => {
            Some((channel.clone(), text.clone()))
        }
        _ => None,
    }
}
