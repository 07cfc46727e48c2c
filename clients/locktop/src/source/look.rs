//! One look at one server: INFO, the most waited-for locks, and perhaps one lock in full.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::{cmd, Cmd, ConnectionInfo, Value};

use super::connection::{Answer, Line};
use super::reply;
use super::scan::Scan;
use super::{Databases, Wishes};
use crate::model::info::Info;
use crate::model::lock::{Detail, Lock, Place};
use crate::model::Snapshot;

/// A server, and what was learnt of it.
pub(super) struct Looker {
    pub(super) line: Line,
    /// Why LOCK.TOP is of no use on this connection.
    without_top: Option<Without>,
    scan: Scan,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Without {
    /// The module is of 0.1.
    Command,
    Right,
}

/// Why LOCK.TOP is not enough.
const ALL: &str = "LOCK.TOP has no locks without waiters";

impl Without {
    fn sentence(self) -> &'static str {
        match self {
            Self::Command => "LOCK.TOP is missing (module 0.1)",
            Self::Right => "the user may not call LOCK.TOP",
        }
    }
}

impl Looker {
    pub(super) fn new(info: ConnectionInfo) -> Self {
        Self {
            line: Line::new(info),
            without_top: None,
            scan: Scan::default(),
        }
    }

    /// The error says why the server counts as down.
    pub(super) fn look(
        &mut self,
        wishes: &Wishes,
        detail: Option<&Place>,
        at: Duration,
    ) -> Result<Snapshot, String> {
        if self.line.is_new() {
            // Perhaps it is another version by now.
            self.without_top = None;
        }
        let mut notes = Vec::new();
        let info = self.info(&mut notes)?;
        let mut snapshot = Snapshot {
            at,
            info,
            ..Snapshot::default()
        };
        let is_replica = snapshot.info.role == "replica";
        if is_replica {
            notes.push("a replica: only its primary knows the waiters".to_owned());
        }
        if snapshot.info.module.is_none() && !snapshot.info.role.is_empty() {
            let why = "the module lock is not loaded here".to_owned();
            let past = wishes.past;
            snapshot.contended = past.contended.then(|| Err(why.clone()));
            snapshot.log = past.log.then(|| Err(why.clone()));
            notes.push(why);
        } else {
            if !is_replica {
                snapshot.locks = self.locks(wishes, &snapshot.info, &mut notes)?;
            }
            if wishes.past.contended {
                let databases = databases(wishes, &snapshot.info);
                snapshot.contended = Some(self.contended(wishes, &databases)?);
            }
            if wishes.past.log {
                snapshot.log = Some(self.log()?);
            }
            if let Some(place) = detail {
                snapshot.detail = Some((place.clone(), self.detail(place)?));
            }
        }
        snapshot.notes = notes;
        Ok(snapshot)
    }

    fn info(&mut self, notes: &mut Vec<String>) -> Result<Info, String> {
        // Before 7.0 several sections at once are not understood. The section of modules has their
        // names and versions, and all that they tell themselves.
        let sections = ["server", "replication", "keyspace", "modules"];
        let asked = sections.map(|section| cmd("INFO").arg(section).take());
        let mut text = String::new();
        for answer in self.line.ask(&asked)? {
            match answer {
                Ok(value) => {
                    let bytes = reply::bytes(&value).unwrap_or_default();
                    text.push_str(&String::from_utf8_lossy(bytes));
                    text.push('\n');
                }
                // It answers, but it must not be asked.
                Err(refusal) if refusal.is_denied() => {
                    notes.push("the user may not call INFO: no numbers".to_owned());
                    break;
                }
                Err(refusal) => return Err(refusal.text),
            }
        }
        Ok(Info::parse(&text))
    }

    fn locks(
        &mut self,
        wishes: &Wishes,
        info: &Info,
        notes: &mut Vec<String>,
    ) -> Result<Vec<Lock>, String> {
        let mut locks = Vec::new();
        for db in databases(wishes, info) {
            if let Err(refusal) = self.line.select(db)? {
                notes.push(format!("database {db}: {}", refusal.text));
                continue;
            }
            locks.extend(self.locks_of(db, wishes, notes)?);
        }
        notes.dedup();
        Ok(locks)
    }

    /// Of the selected database.
    fn locks_of(
        &mut self,
        db: u32,
        wishes: &Wishes,
        notes: &mut Vec<String>,
    ) -> Result<Vec<Lock>, String> {
        let mut locks = Vec::new();
        if self.without_top.is_none() {
            match self.line.ask_one(cmd("LOCK.TOP").arg(wishes.top).take())? {
                Ok(value) => {
                    locks = reply::top(&value, db);
                    self.add_ttls(&mut locks)?;
                    if !wishes.all {
                        return Ok(locks);
                    }
                }
                Err(refusal) if refusal.is_unknown_command() => {
                    self.without_top = Some(Without::Command);
                }
                Err(refusal) if refusal.is_denied() => {
                    self.without_top = Some(Without::Right);
                }
                Err(refusal) => {
                    notes.push(format!("LOCK.TOP: {}", refusal.text));
                    return Ok(Vec::new());
                }
            }
        }
        let reason = self.without_top.map_or(ALL, Without::sentence);
        let now_ms = self.now_ms()?;
        match self.scan.look(&mut self.line, db, wishes, now_ms)? {
            Ok(found) => {
                notes.push(format!(
                    "{reason}: locks are looked for by SCAN, a part at each look"
                ));
                let known = |lock: &Lock| locks.iter().any(|other| other.place == lock.place);
                let new: Vec<_> = found.into_iter().filter(|lock| !known(lock)).collect();
                locks.extend(new);
            }
            Err(refusal) => notes.push(format!(
                "{reason}, and not SCAN or LOCK.INFO instead: {}",
                refusal.text
            )),
        }
        Ok(locks)
    }

    fn add_ttls(&mut self, locks: &mut [Lock]) -> Result<(), String> {
        let held: Vec<_> = locks
            .iter_mut()
            .filter(|lock| lock.oldest.is_some())
            .collect();
        let asked: Vec<Cmd> = held
            .iter()
            .map(|lock| cmd("PTTL").arg(&lock.place.key).take())
            .collect();
        if asked.is_empty() {
            return Ok(());
        }
        for (lock, answer) in held.into_iter().zip(self.line.ask(&asked)?) {
            // A negative number says that the lock has gone meanwhile.
            let ttl_ms = answer.ok().as_ref().and_then(reply::number);
            if let Some(oldest) = &mut lock.oldest {
                oldest.ttl_ms = ttl_ms;
            }
        }
        Ok(())
    }

    pub(super) fn detail(
        &mut self,
        place: &Place,
    ) -> Result<Result<Option<Detail>, String>, String> {
        if let Err(refusal) = self.line.select(place.db)? {
            return Ok(Err(refusal.text));
        }
        let now_ms = self.now_ms()?;
        let answer = self.line.ask_one(cmd("LOCK.INFO").arg(&place.key).take())?;
        let mut detail = match answer {
            Ok(value) => reply::detail(&value, now_ms),
            Err(refusal) => return Ok(Err(refusal.text)),
        };
        if self.without_top == Some(Without::Command) {
            for waiter in detail.iter_mut().flat_map(|detail| &mut detail.waiters) {
                waiter.listener = waiter.listener.clone().of_old_module();
            }
        }
        Ok(Ok(detail))
    }

    /// The server's clock, by which it says since when a lock is held; else ours.
    pub(super) fn now_ms(&mut self) -> Result<u64, String> {
        let answer = self.line.ask_one(cmd("TIME"))?;
        Ok(time_of(&answer).unwrap_or_else(|| {
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
        }))
    }
}

fn databases(wishes: &Wishes, info: &Info) -> Vec<u32> {
    match wishes.databases {
        Databases::One(db) => vec![db],
        Databases::All if info.databases.is_empty() => vec![0],
        Databases::All => info.databases.clone(),
    }
}

fn time_of(answer: &Answer) -> Option<u64> {
    let Ok(Value::Array(words)) = answer else {
        return None;
    };
    let [seconds, microseconds] = words.as_slice() else {
        return None;
    };
    let seconds = reply::number(seconds)?.checked_mul(1_000)?;
    seconds.checked_add(reply::number(microseconds)? / 1_000)
}
