//! The requests of a journal with their answers, and what the judges of waits and holds need to know
//! of the time around them.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use super::journal::Line;

/// What a judge has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub judge: &'static str,
    pub key: String,
    /// Those whose requests contradict one another.
    pub tokens: Vec<String>,
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
    /// The connection broke, or its client gave it up.
    Lost,
    Error,
    /// The journal ends before.
    Open,
}

#[derive(Clone, Debug)]
pub struct Request<'l> {
    pub to: u16,
    pub command: &'l str,
    pub key: &'l str,
    pub token: &'l str,
    pub ttl_ms: Option<u64>,
    pub block_ms: Option<u64>,
    pub sent_us: u64,
    /// When the answer came, or the journal ended. 0 before.
    pub ended_us: u64,
    pub answer: Answer,
}

/// What the driver, or a watcher, has noted.
const HARMLESS: [&str; 5] = ["round", "knows", "heard", "quiet", "over"];

/// An answer that is quicker shows that the server is not late.
const PROMPT_US: u64 = 50_000;

/// A journal, as these judges read it.
pub struct History<'l> {
    /// In the order of their sending.
    pub requests: Vec<Request<'l>>,
    /// When a token was seen in the queue of a key at a server, ahead of those behind it.
    pub queued: Vec<Queued<'l>>,
    /// When the driver has done something to servers or clocks.
    faults_us: Vec<u64>,
    pub quiet_us: Option<u64>,
    pub end_us: u64,
    /// Whether new grants need a majority.
    pub needs_majority: bool,
    /// Whether somebody takes part whose requests are not in the journal.
    pub has_adapter: bool,
    /// The server that was promoted last, or has started last, and when.
    pub promoted: Option<(u16, u64)>,
}

pub struct Queued<'l> {
    pub at_us: u64,
    pub to: u16,
    pub key: &'l str,
    pub tokens: Vec<&'l str>,
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

    /// The server answers no later than this, where the request waits.
    pub fn blocks_until_us(&self) -> u64 {
        self.sent_us + self.block_ms.unwrap_or(0) * 1_000
    }
}

impl<'l> History<'l> {
    pub fn of(lines: &'l [Line]) -> Self {
        let mut history = Self {
            requests: Vec::new(),
            queued: Vec::new(),
            faults_us: Vec::new(),
            quiet_us: None,
            end_us: lines.last().map_or(0, |line| line.at_us),
            needs_majority: false,
            has_adapter: false,
            promoted: None,
        };
        let mut open: BTreeMap<&str, Request<'l>> = BTreeMap::new();
        for line in lines {
            match &line.what[..] {
                "send" => {
                    if let Some(request) = sent(line) {
                        open.insert(&line.who, request);
                    }
                }
                "reply" => {
                    if let Some(request) = open.remove(&line.who[..]) {
                        history.requests.push(Request {
                            ended_us: line.at_us,
                            answer: answer(&line.text),
                            ..request
                        });
                    }
                }
                "queued" => {
                    let mut words = line.text.split(' ');
                    history.queued.push(Queued {
                        at_us: line.at_us,
                        to: line.to,
                        key: words.next().unwrap_or_default(),
                        tokens: words.collect(),
                    });
                }
                "round" => {
                    let has = |word: &str| line.text.split(' ').any(|one| one == word);
                    history.needs_majority = has("mode=quorum") && has("guarded=true");
                    history.has_adapter = line.text.contains(" adapter=");
                }
                "quiet" => history.quiet_us = Some(line.at_us),
                what => {
                    if what == "promoted" {
                        history.promoted = Some((line.to, line.at_us));
                    }
                    if line.who == "driver" && !HARMLESS.contains(&what) {
                        history.faults_us.push(line.at_us);
                    }
                }
            }
        }
        let end_us = history.end_us;
        let open = open.into_values().map(|request| Request {
            ended_us: end_us,
            ..request
        });
        history.requests.extend(open);
        history.requests.sort_by_key(|request| request.sent_us);
        history
    }

    /// Whether the driver did nothing in that time.
    pub fn is_calm(&self, from_us: u64, until_us: u64) -> bool {
        let during = |at_us: &u64| (from_us..=until_us).contains(at_us);
        !self.faults_us.iter().any(during)
    }

    pub fn first_fault_us(&self) -> u64 {
        self.faults_us.first().copied().unwrap_or(u64::MAX)
    }

    /// Whether a server has answered some requests promptly that were sent in that time.
    pub fn was_prompt(&self, to: u16, from_us: u64, until_us: u64) -> bool {
        let is_prompt = |one: &&Request<'_>| {
            let has_answer = matches!(one.answer, Answer::Number(_) | Answer::Nil);
            one.to == to
                && has_answer
                && one.sent_us >= from_us
                && one.ended_us <= until_us
                && one.ended_us - one.sent_us < PROMPT_US
        };
        self.requests.iter().filter(is_prompt).count() >= 3
    }

    /// The requests of each token, in their order.
    pub fn by_token(&self) -> BTreeMap<&'l str, Vec<&Request<'l>>> {
        let mut found: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for request in &self.requests {
            found.entry(request.token).or_default().push(request);
        }
        found
    }
}

/// A request about a lock.
pub fn sent(line: &Line) -> Option<Request<'_>> {
    let words: Vec<&str> = line.text.split(' ').collect();
    let [command, key, token, ..] = words[..] else {
        return None;
    };
    let number = |at: usize| words.get(at)?.parse().ok();
    let block = words.iter().position(|word| *word == "BLOCK");
    let mut request = Request {
        to: line.to,
        command,
        key,
        token,
        ttl_ms: None,
        block_ms: None,
        sent_us: line.at_us,
        ended_us: 0,
        answer: Answer::Open,
    };
    if request.is_acquire() || command == "LOCK.RENEW" {
        request.ttl_ms = number(3);
        request.block_ms = block.and_then(|at| number(at + 1));
    }
    Some(request)
}

pub fn answer(text: &str) -> Answer {
    match text {
        "nil" => Answer::Nil,
        "lost" => Answer::Lost,
        _ => text.parse().map_or(Answer::Error, Answer::Number),
    }
}
