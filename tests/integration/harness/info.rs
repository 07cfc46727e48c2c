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
            token: text(&reply.field("token")),
            fence: number("fence"),
            ttl_ms: number("ttl"),
            since_ms: number("since"),
        }
    }
}

impl Place {
    #[track_caller]
    fn of(reply: &Reply) -> Self {
        let mut fields = fields(reply);
        let limit = fields.iter().position(|(name, _)| name == "limit");
        let limit = limit.map(|at| fields.remove(at));
        let names: Vec<_> = fields.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names[..3], ["token", "mode", "waited"]);
        assert_eq!(fields[1].1 == "counted".into(), limit.is_some());
        let listener = match &fields[3..] {
            [] => Listener::Nobody,
            [(name, id)] if name == "client" => Listener::Client(id.as_int()),
            [(name, channel)] if name == "channel" => Listener::Channel(text(channel)),
            other => panic!("a waiter with {other:?}"),
        };
        Self {
            token: text(&fields[0].1),
            mode: mode(reply),
            waited_ms: fields[2].1.as_int(),
            listener,
        }
    }

    pub fn is_absent(&self) -> bool {
        self.listener == Listener::Nobody
    }
}

/// The mode of this name in an [`Info`]; `None` if the lock is free.
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
    let mode = text(&of.field("mode"));
    match &mode[..] {
        "counted" => format!("{mode} {}", of.field("limit").as_int()),
        _ => mode,
    }
}

/// The fields of a map, or of the flat array that RESP2 uses instead.
fn fields(reply: &Reply) -> Vec<(String, Reply)> {
    match reply {
        Reply::Map(pairs) => pairs.iter().map(|(k, v)| (text(k), v.clone())).collect(),
        other => other
            .items()
            .chunks(2)
            .map(|pair| (text(&pair[0]), pair[1].clone()))
            .collect(),
    }
}

#[track_caller]
fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.as_bytes()).into_owned()
}
