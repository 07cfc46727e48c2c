//! What is known of a run: what the server wrote into its append-only file, and what each client
//! asked and was answered.
//!
//! The file is the server's own account, in its order: every effect with its instant, every native
//! change of a key. So that what the clients did has a place in that order too, each command is
//! sent together with a `SET` of a **mark**, in one write: the server reads both at once and
//! carries them out without anything in between. A mark in the file is thus the very moment of
//! arrival.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
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
    /// The connection of the operator, whose commands before a strike come in the same write as the
    /// strike.
    pub operator: i64,
    /// How many clients the server had blocked when all had ended.
    pub blocked_at_end: i64,
}

/// One line of the server's account.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    Mark(Mark),
    /// An effect as the server encoded it.
    Effect(String, Vec<u8>),
    /// DEL, UNLINK, or the key has expired.
    Gone(String),
    Renamed(String, String),
    /// The key was given an end, in milliseconds since the epoch, or none.
    Ends(String, Option<u64>),
}

/// A command of a client or of the operator has arrived. What follows up to the next mark was done
/// in the timeline of it, or by the timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A request, by its number.
    Asked(u64),
    /// A look at all keys, by its number.
    Sampled(u64),
    /// CLIENT KILL of a connection.
    Killed(i64),
    /// CLIENT UNBLOCK ERROR of a connection.
    Unblocked(i64),
    /// Anything else of the operator's.
    Operated,
}

#[derive(Clone, Debug)]
pub struct Request {
    pub connection: i64,
    pub what: What,
    pub key: String,
    pub token: String,
    /// Just before it was sent; by the clock of the machine, which is the server's too.
    pub asked_us: u64,
    /// Just after the answer was read, or the socket closed.
    pub ended_us: u64,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// With the timeout of BLOCK, where 0 is for ever.
    Acquire(Mode, Option<u64>),
    Release,
    Renew,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Fence(u64),
    Null,
    Done(bool),
    Error(String),
    /// The client has cut the connection without an answer; when it began to.
    Cut {
        since_us: u64,
    },
    /// The server has closed the connection.
    Closed,
    /// Nothing came, for longer than anything may take.
    Silence,
}

/// A look at all keys at one place of the server's account.
#[derive(Clone, Debug)]
pub struct Sample {
    pub asked_us: u64,
    /// The server's clock before it looked.
    pub server_us: u64,
    pub ended_us: u64,
    pub shown: BTreeMap<String, Shown>,
}

/// What LOCK.INFO shows of a key; nothing at all when it is free.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    pub mode: Option<Mode>,
    pub holders: Vec<Holder>,
    /// In queue order.
    pub waiters: Vec<(String, Mode)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub token: String,
    pub fence: u64,
    pub ttl_ms: u64,
}

/// CLIENT PAUSE: no client writes between these instants at most.
#[derive(Clone, Copy, Debug)]
pub struct Pause {
    pub from_us: u64,
    pub until_us: u64,
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

/// The effect in a line of the account.
pub fn effect(bytes: &[u8]) -> Effect<'_> {
    match decode(bytes) {
        Ok(Record::Effect(effect)) => effect,
        other => panic!("no effect: {other:?}"),
    }
}

/// Reads the append-only file in a server's directory.
pub fn read_log(dir: &Path) -> Vec<Entry> {
    let commands = commands_in_log(dir);
    commands.iter().filter_map(|args| entry(args)).collect()
}

/// The commands of an append-only file, as their arguments.
pub fn commands_in_log(dir: &Path) -> Vec<Vec<Vec<u8>>> {
    let mut commands = Vec::new();
    for part in aof::parts(dir) {
        let bytes = fs::read(part).unwrap();
        let mut end = 0;
        for command in aof::commands(&bytes) {
            commands.push(command.args.iter().map(|arg| arg.to_vec()).collect());
            end = command.end;
        }
        assert_eq!(end, bytes.len(), "the rest is no command");
    }
    commands
}

fn entry(args: &[Vec<u8>]) -> Option<Entry> {
    let text = |n: usize| String::from_utf8_lossy(&args[n]).into_owned();
    if let Some(record) = record_of(args) {
        return Some(Entry::Effect(text(1), record));
    }
    let name = text(0).to_ascii_uppercase();
    Some(match name.as_str() {
        "SELECT" | "MULTI" | "EXEC" => return None,
        "SET" => Entry::Mark(Mark::read(&text(1), &text(2))),
        "DEL" | "UNLINK" if args.len() == 2 => Entry::Gone(text(1)),
        "RENAME" => Entry::Renamed(text(1), text(2)),
        "PEXPIREAT" => Entry::Ends(text(1), Some(text(2).parse().unwrap())),
        "PERSIST" => Entry::Ends(text(1), None),
        _ => panic!("{name} with {} arguments was not expected", args.len()),
    })
}
