//! What the clients of one server share, and how a request is sent behind a look and its mark.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use super::journal::Journal;
use super::log::mode_word;
use crate::harness::{mode_named, Info, Listener, Raw, Reply};

/// The longest time that anything may take.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// For how long after its timeout a client listens to a channel.
pub const SILENCE: Duration = Duration::from_secs(5);

/// The numbers of connections begin again with each life of the server.
pub const LIFE: i64 = 1_000_000;

pub struct Field<'j> {
    pub journal: &'j Journal,
    pub seed: u64,
    pub keys: Vec<String>,
    pub port: AtomicU16,
    pub lives: AtomicI64,
    over: AtomicBool,
    /// Where each client listens, for whoever strikes at it.
    pub connections: Vec<AtomicI64>,
    marks: AtomicU64,
}

/// What a client was told in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Number,
    Nil,
    Other,
    /// The connection is lost.
    Gone,
}

pub struct Wire {
    pub raw: Raw,
    /// Its number over all lives.
    pub connection: i64,
}

impl<'j> Field<'j> {
    pub fn new(journal: &'j Journal, seed: u64, port: u16, keys: usize, clients: usize) -> Self {
        Self {
            journal,
            seed,
            keys: (0..keys).map(|n| format!("lock:{n}")).collect(),
            port: AtomicU16::new(port),
            lives: AtomicI64::new(0),
            over: AtomicBool::new(false),
            connections: (0..clients).map(|_| AtomicI64::new(0)).collect(),
            marks: AtomicU64::new(0),
        }
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub fn over(&self) -> &AtomicBool {
        &self.over
    }

    pub fn note(&self, who: &str, what: &str, text: &str) {
        let port = self.port.load(Ordering::Relaxed);
        self.journal.note(who, port, what, text);
    }

    pub fn open(&self) -> Option<Wire> {
        let life = self.lives.load(Ordering::SeqCst);
        let port = self.port.load(Ordering::SeqCst);
        // Another server may take the port of one that is down.
        let raw = Raw::open(Some(port).filter(|port| *port > 0)?).ok()?;
        let connection = life * LIFE + raw.id;
        Some(Wire { raw, connection })
    }

    /// Whether the server has not started anew since a connection was made.
    pub fn is_open(&self, wire: &Wire) -> bool {
        wire.connection / LIFE == self.lives.load(Ordering::SeqCst)
    }

    /// A connection that is subscribed to a channel of its own.
    pub fn listen(&self) -> Option<Wire> {
        let mut wire = self.open()?;
        let channel = format!("ear:{}", wire.connection);
        wire.raw.send_together(&[&["SUBSCRIBE", &channel]]).ok()?;
        wire.raw.reply(PATIENCE).ok()?;
        Some(wire)
    }

    /// Closes a connection that waits for nothing.
    pub fn close(&self, wire: Wire) {
        self.note("", "leaves", &wire.connection.to_string());
        wire.raw.cut();
    }

    /// The client of a request closes its connection.
    pub fn vanish(&self, who: &str, wire: Wire) {
        self.close(wire);
        self.note(who, "left", "");
    }

    /// Sends a request in one write behind a transaction with its mark and a look. Answers its mark.
    /// If the connection has broken, the reply will show it.
    pub fn send(
        &self,
        wire: &mut Wire,
        who: &str,
        line: &str,
        listens: i64,
        keys: &[&str],
    ) -> String {
        self.send_all(wire, &[(who, line)], listens, keys).remove(0)
    }

    /// Sends several requests in one write. Only the first one looks.
    pub fn send_all(
        &self,
        wire: &mut Wire,
        requests: &[(&str, &str)],
        listens: i64,
        keys: &[&str],
    ) -> Vec<String> {
        let mut ids = Vec::new();
        let mut words: Vec<Vec<String>> = Vec::new();
        let owned = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        for (n, (who, line)) in requests.iter().enumerate() {
            let id = format!("{who}.{}", self.marks.fetch_add(1, Ordering::Relaxed));
            self.note(who, "send", &format!("{line} #{id}@{listens}"));
            words.extend([
                owned(&["MULTI"]),
                owned(&["SET", "mark", &id]),
                owned(&["TIME"]),
            ]);
            let keys = keys.iter().filter(|_| n == 0);
            words.extend(keys.map(|key| owned(&["LOCK.INFO", key])));
            words.push(owned(&["EXEC"]));
            if *line != "LOOK" {
                words.push(line.split(' ').map(real_number).collect());
            }
            ids.push(id);
        }
        let words: Vec<Vec<&str>> = words
            .iter()
            .map(|words| words.iter().map(String::as_str).collect())
            .collect();
        let words: Vec<&[&str]> = words.iter().map(Vec::as_slice).collect();
        wire.raw.send_together(&words).ok();
        ids
    }

    /// Notes what the transaction before a request has shown. Answers whether all keys were free.
    pub fn read_look(
        &self,
        wire: &mut Wire,
        who: &str,
        id: &str,
        keys: &[&str],
    ) -> io::Result<bool> {
        for _ in 0..3 + keys.len() {
            wire.raw.reply(PATIENCE)?; // OK, QUEUED …
        }
        let replies = wire.raw.reply(PATIENCE)?;
        let Reply::Array(replies) = replies else {
            return Ok(false);
        };
        let part = |n: usize| replies[1].items()[n].to_text().parse::<u64>().unwrap();
        let mut text = format!("#{id} {}", part(0) * 1_000_000 + part(1));
        for (key, info) in keys.iter().zip(&replies[2..]) {
            text += &format!(" {key}={}", shown(info));
        }
        self.note(who, "look", &text);
        Ok(replies[2..].iter().all(|info| *info == Reply::Nil))
    }

    /// Notes an answer.
    pub fn told(&self, who: &str, reply: &Reply) -> Told {
        let (text, told) = match reply {
            Reply::Int(number) => (number.to_string(), Told::Number),
            Reply::Nil => ("nil".into(), Told::Nil),
            Reply::Error(error) => (error.clone(), Told::Other),
            other => (format!("{other:?}"), Told::Other),
        };
        self.note(who, "reply", &text);
        told
    }

    /// Looks at all keys. Answers the mark, and whether all are free.
    pub fn look(&self, wire: &mut Wire, who: &str) -> io::Result<(String, bool)> {
        let keys: Vec<&str> = self.keys.iter().map(String::as_str).collect();
        let id = self.send(wire, who, "LOOK", 0, &keys);
        let is_free = self.read_look(wire, who, &id, &keys)?;
        self.note(who, "reply", "1");
        Ok((id, is_free))
    }
}

/// The number of a connection in its life.
fn real_number(word: &str) -> String {
    match word.parse::<i64>() {
        Ok(number) if (LIFE..1_000 * LIFE).contains(&number) => (number % LIFE).to_string(),
        _ => word.to_string(),
    }
}

/// LOCK.INFO in the words of a look.
fn shown(info: &Reply) -> String {
    let Info {
        mode,
        holders,
        waiters,
    } = Info::of(info);
    let word = |name: &str| mode_named(name).map_or("-".into(), mode_word);
    let holders = holders.into_iter();
    let holders = holders.map(|one| format!("{}:{}:{}", one.token, one.fence, one.ttl_ms));
    let places = waiters.into_iter().map(|one| {
        let by = match one.listener {
            Listener::Client(_) => 'c',
            Listener::Channel(_) => 'n',
            Listener::Nobody => '-',
        };
        format!("{}:{}:{by}", one.token, word(&one.mode))
    });
    let (holders, places): (Vec<_>, Vec<_>) = (holders.collect(), places.collect());
    format!(
        "{}[{}]{{{}}}",
        word(&mode),
        holders.join(","),
        places.join(",")
    )
}

/// Whether a reply is just not there yet.
pub fn is_impatience(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut
}
