//! LOCK.INFO, as most tests read it. Those of its form read the reply itself.

use redis_lock::lock::Mode;

use super::client::{Client, Reply};

/// A lock. The default one is free, and nobody waits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Info {
    /// With its limit, where it is counted: `counted 3`.
    pub mode: String,
    /// In the order of their grants.
    pub holders: Vec<Owner>,
    /// In the order of the queue.
    pub waiters: Vec<Place>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Owner {
    pub token: String,
    pub fence: i64,
    pub ttl_ms: i64,
    pub since_ms: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    pub token: String,
    pub mode: String,
    pub waited_ms: i64,
    pub listener: Listener,
}

/// Who listens at a place.
#[derive(Clone, Debug, PartialEq)]
pub enum Listener {
    Client(i64),
    Channel(String),
    Nobody,
}

impl Client {
    /// LOCK.INFO of a key.
    #[track_caller]
    pub fn lock_info(&mut self, key: &str) -> Info {
        Info::of(&self.call(&format!("LOCK.INFO {key}")))
    }
}

impl Info {
    #[track_caller]
    pub fn of(reply: &Reply) -> Self {
        if *reply == Reply::Nil {
            return Self::default();
        }
        let (holders, waiters) = (reply.field("holders"), reply.field("waiters"));
        Self {
            mode: mode(reply),
            holders: holders.items().iter().map(Owner::of).collect(),
            waiters: waiters.items().iter().map(Place::of).collect(),
        }
    }
}

impl Owner {
    #[track_caller]
    fn of(reply: &Reply) -> Self {
        let number = |name| reply.field(name).as_int();
        Self {
            token: reply.field("token").to_text(),
            fence: number("fence"),
            ttl_ms: number("ttl"),
            since_ms: number("since"),
        }
    }
}

impl Place {
    #[track_caller]
    fn of(reply: &Reply) -> Self {
        let listener = match (reply.get("client"), reply.get("channel")) {
            (Some(id), None) => Listener::Client(id.as_int()),
            (None, Some(channel)) => Listener::Channel(channel.to_text()),
            (None, None) => Listener::Nobody,
            both => panic!("a waiter with {both:?}"),
        };
        Self {
            token: reply.field("token").to_text(),
            mode: mode(reply),
            waited_ms: reply.field("waited").as_int(),
            listener,
        }
    }

    pub fn is_absent(&self) -> bool {
        self.listener == Listener::Nobody
    }
}

/// The mode of this name in an [`Info`]; `None` if the lock is free.
#[allow(dead_code)] // Only the campaign uses it.
pub fn mode_named(name: &str) -> Option<Mode> {
    match name.split_once(' ').unwrap_or((name, "")) {
        ("exclusive", _) => Some(Mode::Exclusive),
        ("shared", _) => Some(Mode::Shared),
        ("counted", limit) => Mode::of_limit(limit.parse().unwrap()),
        _ => None,
    }
}

#[track_caller]
fn mode(of: &Reply) -> String {
    let mode = of.field("mode").to_text();
    match of.get("limit") {
        Some(limit) => format!("{mode} {}", limit.as_int()),
        None => mode,
    }
}
