//! The record of one server, as the model reads it: requests and answers of its clients, what
//! LOCK.INFO showed just before each of them, and the server's append-only file.
//!
//! The file has every effect with the server's own time, in the server's order. Each request is sent
//! in one write behind a transaction that sets a **mark** and looks at the keys of the request:
//!
//! ```text
//! c3  send  LOCK.ACQUIRE k c3-7 90 BLOCK 40 #c3.7@55    the request, its mark and connection
//! c3  look  #c3.7 1763916000000001 k=1[c2-1:17:90]{c4-2:shared:c}
//! c3  reply 1763916000000001
//! log mark  c3.7
//! log hold  k c3-7 1 1763916000000001 1763916000090 1763916000000 1763916000000
//! ```
//!
//! A look has the server's time in microseconds, and for each key the mode, the holders with fence and
//! ttl, and the queue. A mode is the number of holders that it tolerates, or `shared`. Somebody
//! listens at a place by a client (`c`) or a channel (`n`), or nobody does (`-`).

use std::collections::{BTreeMap, HashMap};

use super::journal::Line;

/// The number of holders that a hold tolerates.
pub type Mode = usize;

pub const SHARED: Mode = usize::MAX;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry<'l> {
    Mark(&'l str),
    Begin,
    End,
    Hold(&'l str, Held<'l>, u64),
    /// Key, token and time. 0: the file does not say when.
    Release(&'l str, &'l str, u64),
    Cap(&'l str, u64),
    Gone(&'l str),
    /// The database, or all.
    Flushed(bool),
    Swapped,
    Renamed(&'l str, &'l str),
    /// The key got an expiry, or lost it.
    Ends(&'l str, Option<u64>),
    /// The write that LOCK.EXEC guards by the lock on this key.
    Counted(&'l str),
    /// In the other database.
    Elsewhere(Box<Entry<'l>>),
    /// The server starts again.
    Starts(Start<'l>),
}

/// Times are those of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start<'l> {
    pub at_us: u64,
    pub kept: Kept<'l>,
    /// When the server was ended.
    pub struck_us: u64,
}

/// What a start keeps, by the server's settings and the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept<'l> {
    /// Everything that is in the file, and what was answered before this instant is in it.
    Answered(u64),
    /// The state of one position of the file, at this mark or later.
    Since(&'l str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held<'l> {
    pub token: &'l str,
    pub mode: Mode,
    pub fence: u64,
    pub deadline_ms: u64,
    pub since_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Acquire,
    Release,
    Renew,
    Check,
    Exec,
    Cancel,
    /// CLIENT KILL or CLIENT UNBLOCK of a connection.
    Strike(i64),
    /// CLIENT PAUSE, for so many milliseconds.
    Pause(u64),
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'l> {
    Number(u64),
    Nil,
    Error(&'l str),
    /// The server has closed the connection.
    Lost,
    /// The client has.
    Left,
    Open,
}

#[derive(Clone, Debug)]
pub struct Request<'l> {
    pub id: &'l str,
    pub who: &'l str,
    /// Where the client listens.
    pub connection: i64,
    pub text: &'l str,
    pub what: What,
    /// The keys, with the modes that are asked for.
    pub keys: Vec<(&'l str, Mode)>,
    pub token: &'l str,
    pub ttl_ms: Option<u64>,
    pub wait_ms: Option<u64>,
    pub by_channel: bool,
    pub keep_ms: Option<u64>,
    pub linger_ms: Option<u64>,
    pub at_least_ms: Option<u64>,
    pub sent_us: u64,
    pub ended_us: u64,
    pub answer: Answer<'l>,
    /// The position of its mark.
    pub arrived: Option<usize>,
    /// From this position on it has certainly ended.
    pub ended_at: usize,
}

/// What LOCK.INFO shows of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown<'l> {
    pub mode: Option<Mode>,
    /// Token, fence and ttl in milliseconds.
    pub holders: Vec<(&'l str, u64, u64)>,
    pub places: Vec<Place<'l>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'l> {
    pub token: &'l str,
    pub mode: Mode,
    pub by: Listener,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    Client,
    Channel,
    Nobody,
}

#[derive(Clone, Debug)]
pub struct Look<'l> {
    /// When it was read, by the clock of the journal.
    pub at_us: u64,
    pub server_us: u64,
    pub keys: BTreeMap<&'l str, Shown<'l>>,
}

#[derive(Default)]
pub struct Record<'l> {
    pub requests: Vec<Request<'l>>,
    pub by_id: HashMap<&'l str, usize>,
    /// The requests for holds, by key and token.
    pub acquires: HashMap<(&'l str, &'l str), Vec<usize>>,
    pub looks: HashMap<&'l str, Look<'l>>,
    pub log: Vec<Entry<'l>>,
    /// When the client began to close a connection, or somebody killed it.
    pub lost_us: HashMap<i64, u64>,
    /// How much the server's clock may go back.
    pub lead_ms: u64,
    /// How many clients were blocked when everything had ended.
    pub blocked: u64,
}

impl Place<'_> {
    pub fn is_absent(&self) -> bool {
        self.by == Listener::Nobody
    }
}

impl Start<'_> {
    /// What was answered before is in the file.
    pub fn promised_us(&self) -> u64 {
        match self.kept {
            Kept::Answered(us) => us,
            Kept::Since(_) => self.at_us,
        }
    }
}

impl<'l> Request<'l> {
    fn sent(line: &'l Line) -> Option<Self> {
        let (text, id) = line.text.rsplit_once(" #")?;
        let (id, connection) = id.split_once('@')?;
        let words: Vec<&str> = text.split(' ').collect();
        let option = |name: &str| {
            let at = words.iter().position(|word| *word == name)?;
            words.get(at + 1)?.parse().ok()
        };
        let of_one = |mode| words.get(1).map(|key| (*key, mode)).into_iter().collect();
        let count = option("LOCK.MACQUIRE").unwrap_or(1) as usize;
        let (what, keys, token) = match words[0] {
            "RWLOCK.RLOCK" => (What::Acquire, of_one(SHARED), 2),
            "LOCK.ACQUIRE" | "RWLOCK.WLOCK" => {
                let limit = option("LIMIT").unwrap_or(1) as Mode;
                (What::Acquire, of_one(limit), 2)
            }
            "LOCK.MACQUIRE" => {
                let modes = words.iter().skip_while(|word| **word != "MODES").skip(1);
                let modes = modes.map(|word| if *word == "SHARED" { SHARED } else { 1 });
                let keys = words[2..2 + count].iter().copied().zip(modes);
                (What::Acquire, keys.collect(), 2 + count)
            }
            "LOCK.RELEASE" => (What::Release, of_one(0), 2),
            "LOCK.RENEW" => (What::Renew, of_one(0), 2),
            "LOCK.CHECK" => (What::Check, of_one(0), 2),
            "LOCK.EXEC" => (What::Exec, of_one(0), 2),
            "LOCK.CANCEL" => (What::Cancel, of_one(0), 3),
            "CLIENT" => match words[1] {
                "KILL" => (What::Strike(words[3].parse().ok()?), Vec::new(), 9),
                "UNBLOCK" => (What::Strike(words[2].parse().ok()?), Vec::new(), 9),
                _ => (What::Pause(words[2].parse().ok()?), Vec::new(), 9),
            },
            _ => (What::Other, Vec::new(), 9),
        };
        let (block, notify) = (option("BLOCK"), option("NOTIFY"));
        Some(Self {
            id,
            who: &line.who,
            connection: connection.parse().ok()?,
            text,
            what,
            keys,
            token: words.get(token).copied().unwrap_or_default(),
            ttl_ms: words.get(token + 1).and_then(|word| word.parse().ok()),
            wait_ms: block.or(notify),
            by_channel: notify.is_some(),
            keep_ms: option("KEEP"),
            linger_ms: option("LINGER"),
            at_least_ms: option("ATLEAST"),
            sent_us: line.at_us,
            ended_us: u64::MAX,
            answer: Answer::Open,
            arrived: None,
            ended_at: usize::MAX,
        })
    }

    pub fn is_for_several(&self) -> bool {
        self.keys.len() > 1
    }

    pub fn mode_of(&self, key: &str) -> Option<Mode> {
        let mut all = self.keys.iter();
        all.find(|(one, _)| *one == key).map(|(_, mode)| *mode)
    }

    /// Whether the server may still have it at a position. It notices late that a client has gone.
    pub fn may_stand_at(&self, at: usize) -> bool {
        let has_gone = matches!(self.answer, Answer::Left | Answer::Lost);
        self.arrived.is_some_and(|arrived| arrived < at) && (has_gone || at <= self.ended_at)
    }

    pub fn is_error(&self, word: &str) -> bool {
        matches!(self.answer, Answer::Error(error) if error.starts_with(word))
    }
}

impl<'l> Record<'l> {
    pub fn of(lines: &'l [Line]) -> Self {
        let mut record = Self::default();
        let mut open: HashMap<&str, usize> = HashMap::new();
        for line in lines {
            let text = &line.text[..];
            match &line.what[..] {
                "send" => {
                    if let Some(request) = Request::sent(line) {
                        open.insert(request.who, record.requests.len());
                        record.by_id.insert(request.id, record.requests.len());
                        if let What::Strike(connection) = request.what {
                            record.lost_us.entry(connection).or_insert(line.at_us);
                        }
                        record.requests.push(request);
                    }
                }
                "look" => {
                    let look = look(line).unwrap_or_else(|| panic!("no look: {line:?}"));
                    record.looks.insert(look.0, look.1);
                }
                "reply" | "left" => {
                    if let Some(at) = open.remove(&line.who[..]) {
                        let request = &mut record.requests[at];
                        request.ended_us = line.at_us;
                        request.answer = match text {
                            _ if line.what == "left" => Answer::Left,
                            "nil" => Answer::Nil,
                            "lost" => Answer::Lost,
                            _ => text.parse().map_or(Answer::Error(text), Answer::Number),
                        };
                    }
                }
                // A client begins to close its connection.
                "leaves" => {
                    let connection = text.parse().expect("a connection");
                    record.lost_us.entry(connection).or_insert(line.at_us);
                }
                "lead" => record.lead_ms = text.parse().expect("a number"),
                "blocked" => record.blocked = text.parse().expect("a number"),
                what if line.who == "log" => {
                    let entry = entry(what, text, line.at_us);
                    record
                        .log
                        .push(entry.unwrap_or_else(|| panic!("no entry: {line:?}")));
                }
                _ => {}
            }
        }
        record.find_positions();
        record
    }

    /// Where each request arrives, and from where on it has certainly ended: at the next one of its
    /// client, or at one that was sent after its answer.
    fn find_positions(&mut self) {
        let mut sent: Vec<(u64, usize)> = Vec::new();
        let mut last: HashMap<&str, usize> = HashMap::new();
        for (at, entry) in self.log.iter().enumerate() {
            let Entry::Mark(id) = entry else {
                continue;
            };
            let Some(number) = self.by_id.get(id).copied() else {
                continue;
            };
            let request = &mut self.requests[number];
            request.arrived = Some(at);
            sent.push((request.sent_us, at));
            let who = request.who;
            if request.what == What::Acquire {
                for (key, _) in request.keys.clone() {
                    let token = self.requests[number].token;
                    self.acquires.entry((key, token)).or_default().push(number);
                }
            }
            if let Some(before) = last.insert(who, number) {
                self.requests[before].ended_at = at;
            }
        }
        sent.sort_unstable();
        // The first position of those that were sent at some instant or later.
        let mut first = usize::MAX;
        for (_, at) in sent.iter_mut().rev() {
            first = first.min(*at);
            *at = first;
        }
        for request in &mut self.requests {
            let later = sent.partition_point(|(us, _)| *us <= request.ended_us);
            let at = sent.get(later).map_or(usize::MAX, |(_, at)| *at);
            request.ended_at = request.ended_at.min(at);
        }
    }

    /// The requests of a token for holds of a key, in the order of their arrival.
    pub fn acquires_of(&self, key: &str, token: &str) -> impl Iterator<Item = &Request<'l>> {
        let numbers = self.acquires.get(&(key, token)).cloned();
        let numbers = numbers.unwrap_or_default().into_iter();
        numbers.map(|number| &self.requests[number])
    }
}

fn mode(word: &str) -> Option<Mode> {
    match word {
        "shared" => Some(SHARED),
        _ => word.parse().ok(),
    }
}

/// The mark of a look, and the look.
fn look(line: &Line) -> Option<(&str, Look<'_>)> {
    let mut words = line.text.split(' ');
    let id = words.next()?.strip_prefix('#')?;
    let server_us = words.next()?.parse().ok()?;
    let mut keys = BTreeMap::new();
    for word in words.filter(|word| !word.is_empty()) {
        let (key, rest) = word.split_once('=')?;
        let (mode_word, rest) = rest.split_once('[')?;
        let (holders, rest) = rest.split_once("]{")?;
        let places = rest.strip_suffix('}')?;
        let holders = holders.split(',').filter(|part| !part.is_empty());
        let holders = holders.map(|holder| {
            let mut words = holder.split(':');
            let token = words.next()?;
            Some((
                token,
                words.next()?.parse().ok()?,
                words.next()?.parse().ok()?,
            ))
        });
        let places = places.split(',').filter(|part| !part.is_empty());
        let places = places.map(|place| {
            let mut words = place.split(':');
            Some(Place {
                token: words.next()?,
                mode: mode(words.next()?)?,
                by: match words.next()? {
                    "c" => Listener::Client,
                    "n" => Listener::Channel,
                    _ => Listener::Nobody,
                },
            })
        });
        let shown = Shown {
            mode: mode(mode_word),
            holders: holders.collect::<Option<_>>()?,
            places: places.collect::<Option<_>>()?,
        };
        keys.insert(key, shown);
    }
    let look = Look {
        at_us: line.at_us,
        server_us,
        keys,
    };
    Some((id, look))
}

fn entry<'l>(what: &str, text: &'l str, at_us: u64) -> Option<Entry<'l>> {
    let mut words = text.split(' ');
    let mut word = || words.next();
    let number = |word: Option<&str>| word?.parse().ok();
    Some(match what {
        "mark" => Entry::Mark(text),
        "begin" => Entry::Begin,
        "end" => Entry::End,
        "hold" => {
            let key = word()?;
            let held = Held {
                token: word()?,
                mode: mode(word()?)?,
                fence: number(word())?,
                deadline_ms: number(word())?,
                since_ms: number(word())?,
            };
            Entry::Hold(key, held, number(word())?)
        }
        "release" => Entry::Release(word()?, word()?, number(word())?),
        "cap" => Entry::Cap(word()?, number(word())?),
        "gone" => Entry::Gone(text),
        "flushed" => Entry::Flushed(text == "all"),
        "swapped" => Entry::Swapped,
        "renamed" => Entry::Renamed(word()?, word()?),
        "ends" => Entry::Ends(word()?, number(word())),
        "counted" => Entry::Counted(text),
        "elsewhere" => {
            let (what, text) = text.split_once(' ')?;
            Entry::Elsewhere(Box::new(entry(what, text, at_us)?))
        }
        "starts" => {
            let kept = match word()? {
                "answered" => Kept::Answered(number(word())?),
                _ => Kept::Since(word()?),
            };
            Entry::Starts(Start {
                at_us,
                kept,
                struck_us: number(word())?,
            })
        }
        _ => return None,
    })
}
