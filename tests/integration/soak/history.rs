//! The record of a run: the append-only file of the server, and the requests and replies of each
//! client.
//!
//! The file contains every effect with its instant and every native change of a key, in the
//! server's order. To place the requests in that order, each command is sent together with a `SET`
//! of a **mark** in one write. The server reads both at once and executes them with nothing in
//! between. A mark in the file is thus the exact moment of arrival.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;

use redis_lock::lock::codec::{decode, Record};
use redis_lock::lock::{Effect, Mode};

pub use crate::harness::now_us;
use crate::harness::{aof, record_of};

pub struct History {
    pub log: Vec<Entry>,
    pub requests: BTreeMap<u64, Request>,
    pub samples: BTreeMap<u64, Sample>,
    pub pauses: Vec<Pause>,
    /// The connection of the operator. Its commands before a kill are in the same write as the
    /// kill.
    pub operator: i64,
    /// By so much the server's clock may be ahead for a moment, and go back.
    pub clock_lead_ms: u64,
    /// The number of blocked clients after everything had ended.
    pub blocked_at_end: i64,
}

/// One entry of the append-only file.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    Mark(Mark),
    /// MULTI and EXEC around what happened in one step.
    Begin,
    End,
    /// An effect as the server encoded it.
    Effect(String, Vec<u8>),
    /// DEL, UNLINK, or an expiry.
    Gone(String),
    Renamed(String, String),
    /// The key got an expiry, in milliseconds since the epoch, or lost it.
    Ends(String, Option<u64>),
    /// The write that LOCK.EXEC guards by the lock on this key.
    Guarded(String),
}

/// A command of a client or of the operator has arrived. Entries up to the next mark were caused by
/// it, or by the timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A request, by its number.
    Asked(u64),
    /// A sample of all keys, by its number.
    Sampled(u64),
    /// CLIENT KILL of a connection.
    Killed(i64),
    /// CLIENT UNBLOCK ERROR of a connection.
    Unblocked(i64),
    /// Another command of the operator.
    Operated,
}

#[derive(Clone, Debug)]
pub struct Request {
    /// The connection at which the client listens.
    pub connection: i64,
    /// With NOTIFY. The connection is then that of the subscription.
    pub by_channel: bool,
    pub what: What,
    /// The numbers under which it is recorded: one for each of its keys.
    pub parts: Parts,
    pub key: String,
    pub token: String,
    /// With LINGER.
    pub linger_ms: Option<u64>,
    /// With KEEP.
    pub keep_ms: Option<u64>,
    /// With ATLEAST.
    pub at_least_ms: Option<u64>,
    /// Just before it was sent, by the clock of the machine, which is the server's too.
    pub asked_us: u64,
    /// Just after the reply was read, or the socket closed.
    pub ended_us: u64,
    pub outcome: Outcome,
}

/// Numbers that follow one another. The mark has the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    pub first: u64,
    pub count: u64,
}

impl Parts {
    pub fn one(number: u64) -> Self {
        Self {
            first: number,
            count: 1,
        }
    }

    pub fn are_several(self) -> bool {
        self.count > 1
    }

    pub fn numbers(self) -> Range<u64> {
        self.first..self.first + self.count
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// With the timeout of BLOCK or NOTIFY. 0 means forever.
    Acquire(Mode, Option<u64>),
    Release,
    Renew,
    /// LOCK.CHECK.
    Check,
    /// LOCK.EXEC of a write that is counted.
    Exec,
    /// No command: the client closes its connection.
    Leave,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Fence(u64),
    Null,
    Done(bool),
    Error(String),
    /// The client disconnected without a reply, beginning at this time.
    Cut {
        since_us: u64,
    },
    /// The server closed the connection.
    Closed,
    /// No reply within the longest possible time.
    Silence,
}

/// A sample of all keys at one position of the append-only file.
#[derive(Clone, Debug)]
pub struct Sample {
    pub asked_us: u64,
    /// The server's clock before the sample.
    pub server_us: u64,
    pub ended_us: u64,
    pub shown: BTreeMap<String, Shown>,
}

/// LOCK.INFO of a key. Empty if it is free.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    pub mode: Option<Mode>,
    pub holders: Vec<Holder>,
    /// In queue order.
    pub waiters: Vec<(String, Mode)>,
    /// The tokens of those of them for which nobody listens.
    pub absent: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub token: String,
    pub fence: u64,
    pub ttl_ms: u64,
}

/// CLIENT PAUSE: no client writes between these instants at most. Or the server stood still.
#[derive(Clone, Copy, Debug)]
pub struct Pause {
    pub from_us: u64,
    pub until_us: u64,
}

/// The time between two looks from which on the server may have stood still. After that it listens
/// for a moment before it hands anything on.
const STALL_US: u64 = 50_000;

impl History {
    /// Notes when the machine had no time for the server, or for the observer.
    pub fn note_stalls(&mut self) -> usize {
        let looks = self.samples.values().zip(self.samples.values().skip(1));
        let gaps = looks.filter(|(one, next)| next.server_us > one.server_us + STALL_US);
        let stalls = gaps.map(|(one, next)| Pause {
            from_us: one.server_us,
            until_us: next.ended_us,
        });
        let stalls: Vec<_> = stalls.collect();
        self.pauses.extend(&stalls);
        stalls.len()
    }
}

impl Mark {
    /// The command that leaves it in the file.
    pub fn command(self) -> [String; 3] {
        let (key, value) = match self {
            Mark::Asked(n) => ("asked", n.to_string()),
            Mark::Sampled(n) => ("sampled", n.to_string()),
            Mark::Killed(id) => ("killed", id.to_string()),
            Mark::Unblocked(id) => ("unblocked", id.to_string()),
            Mark::Operated => ("operated", String::new()),
        };
        ["SET".into(), format!("mark:{key}"), value]
    }

    fn read(key: &str, value: &str) -> Self {
        match key {
            "mark:asked" => Mark::Asked(value.parse().unwrap()),
            "mark:sampled" => Mark::Sampled(value.parse().unwrap()),
            "mark:killed" => Mark::Killed(value.parse().unwrap()),
            "mark:unblocked" => Mark::Unblocked(value.parse().unwrap()),
            "mark:operated" => Mark::Operated,
            other => panic!("no mark: {other}"),
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Effect(key, bytes) => write!(f, "{key} {:?}", effect(bytes)),
            other => write!(f, "{other:?}"),
        }
    }
}

/// The guarded writes of each lock are counted in a key of this name, with that of the lock.
pub const GUARDED: &str = "guarded:";

/// The effect in an entry of the file.
pub fn effect(bytes: &[u8]) -> Effect<'_> {
    match decode(bytes) {
        Ok(Record::Effect(effect)) => effect,
        other => panic!("no effect: {other:?}"),
    }
}

/// Reads the append-only file in a server's directory.
pub fn read_log(dir: &Path) -> Vec<Entry> {
    let (commands, is_whole) = aof::read(dir);
    assert!(is_whole, "a part is no command");
    commands.iter().filter_map(|args| entry(args)).collect()
}

fn entry(args: &[Vec<u8>]) -> Option<Entry> {
    let text = |n: usize| String::from_utf8_lossy(&args[n]).into_owned();
    if let Some(record) = record_of(args) {
        return Some(Entry::Effect(text(1), record));
    }
    let name = text(0).to_ascii_uppercase();
    Some(match name.as_str() {
        "SELECT" => return None,
        "MULTI" => Entry::Begin,
        "EXEC" => Entry::End,
        "SET" => Entry::Mark(Mark::read(&text(1), &text(2))),
        "DEL" | "UNLINK" if args.len() == 2 => Entry::Gone(text(1)),
        "RENAME" => Entry::Renamed(text(1), text(2)),
        "PEXPIREAT" => Entry::Ends(text(1), Some(text(2).parse().unwrap())),
        "PERSIST" => Entry::Ends(text(1), None),
        "INCR" => {
            let counter = text(1);
            let key = counter.strip_prefix(GUARDED);
            Entry::Guarded(key.expect("the counter of a lock").into())
        }
        _ => panic!("{name} with {} arguments was not expected", args.len()),
    })
}
