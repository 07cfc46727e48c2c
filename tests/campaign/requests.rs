//! The requests of a journal with their answers, and what a judge has found.

use std::fmt::{self, Display, Formatter};

use super::journal::Line;

/// What a judge has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub judge: &'static str,
    pub from_us: u64,
    pub until_us: u64,
    pub text: String,
}

impl Display for Finding {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let ms = |us: u64| us / 1_000;
        let (from, until) = (ms(self.from_us), ms(self.until_us));
        write!(f, "{}: {} ({from} to {until} ms)", self.judge, self.text)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Number(u64),
    Nil,
    /// An error, or the connection broke.
    Other,
}

#[derive(Clone, Debug)]
pub struct Request<'l> {
    pub command: &'l str,
    pub key: &'l str,
    pub token: &'l str,
    pub ttl_ms: Option<u64>,
    pub sent_us: u64,
}

impl Request<'_> {
    pub fn is_acquire(&self) -> bool {
        matches!(
            self.command,
            "LOCK.ACQUIRE" | "RWLOCK.RLOCK" | "RWLOCK.WLOCK"
        )
    }

    pub fn is_shared(&self) -> bool {
        self.command == "RWLOCK.RLOCK"
    }
}

/// A request about a lock.
pub fn sent(line: &Line) -> Option<Request<'_>> {
    let words: Vec<&str> = line.text.split(' ').collect();
    let [command, key, token, ..] = words[..] else {
        return None;
    };
    let mut request = Request {
        command,
        key,
        token,
        ttl_ms: None,
        sent_us: line.at_us,
    };
    if request.is_acquire() || command == "LOCK.RENEW" {
        request.ttl_ms = words.get(3).and_then(|ttl| ttl.parse().ok());
    }
    Some(request)
}

pub fn answer(text: &str) -> Answer {
    match text {
        "nil" => Answer::Nil,
        _ => text.parse().map_or(Answer::Other, Answer::Number),
    }
}
