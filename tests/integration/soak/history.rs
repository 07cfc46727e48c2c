//! What is known of a run: what the server wrote into its append-only file, and what each client asked and was answered.
//!
//! The file is the server's own account, in its order: every effect with its instant, every native change of a key. So that what the
//! clients did has a place in that order too, each command is sent together with a `SET` of a **mark**, in one write: the server
//! reads both at once and carries them out without anything in between. A mark in the file is thus the very moment of arrival.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use redis_lock::lock::codec::{decode, Record};
use redis_lock::lock::{Effect, Mode};

pub struct History {
    pub log: Vec<Entry>,
    pub requests: BTreeMap<u64, Request>,
    pub samples: BTreeMap<u64, Sample>,
    pub pauses: Vec<Pause>,
    /// The connection of the operator, whose commands before a strike come in the same write as the strike.
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

/// A command of a client or of the operator has arrived. What follows up to the next mark was done in the course of it, or by the timer.
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

pub fn now_us() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since_epoch.as_micros()).unwrap()
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
    let mut files = vec![dir.join("appendonly.aof")];
    if !files[0].exists() {
        // From 7.0 on: a base and what came after it, which sort so.
        let folder = fs::read_dir(dir.join("appendonlydir")).expect("an append-only file");
        files = folder.map(|file| file.unwrap().path()).collect();
        files.retain(|file| file.extension().is_some_and(|end| end == "aof"));
        files.sort();
    }
    let mut commands = Vec::new();
    for file in files {
        let bytes = fs::read(file).unwrap();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            commands.push(take_command(&mut rest));
        }
    }
    commands
}

/// Takes one command, an array of strings, off the front.
fn take_command(rest: &mut &[u8]) -> Vec<Vec<u8>> {
    let count = take_number(rest, b'*');
    let args = (0..count).map(|_| {
        let len = take_number(rest, b'$');
        let (arg, after) = rest.split_at(len);
        *rest = &after[2..];
        arg.to_vec()
    });
    args.collect()
}

fn take_number(rest: &mut &[u8], kind: u8) -> usize {
    assert_eq!(rest[0], kind, "an append-only file of commands");
    let end = rest.iter().position(|byte| *byte == b'\r').unwrap();
    let number = std::str::from_utf8(&rest[1..end]).unwrap().parse().unwrap();
    *rest = &rest[end + 2..];
    number
}

fn entry(args: &[Vec<u8>]) -> Option<Entry> {
    let text = |n: usize| String::from_utf8_lossy(&args[n]).into_owned();
    let name = text(0).to_ascii_uppercase();
    Some(match name.as_str() {
        "SELECT" | "MULTI" | "EXEC" => return None,
        "SET" => Entry::Mark(Mark::read(&text(1), &text(2))),
        "LOCK._APPLY" => Entry::Effect(text(1), args[2].to_vec()),
        "DEL" | "UNLINK" if args.len() == 2 => Entry::Gone(text(1)),
        "RENAME" => Entry::Renamed(text(1), text(2)),
        "PEXPIREAT" => Entry::Ends(text(1), Some(text(2).parse().unwrap())),
        "PERSIST" => Entry::Ends(text(1), None),
        _ => panic!("{name} with {} arguments was not expected", args.len()),
    })
}
