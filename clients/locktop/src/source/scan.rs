//! The locks of a server that has no LOCK.TOP, or does not let this user call it: found by SCAN and
//! looked at by LOCK.INFO, so much at each look and no more.

use std::collections::{BTreeMap, VecDeque};

use redis::{cmd, Cmd, Value};

use super::connection::{Line, Refusal};
use super::{reply, Wishes};
use crate::model::lock::{Lock, Place};

/// For each look at one database.
const SCANS: usize = 10;
/// Keys that one SCAN visits, locks or not.
const KEYS_OF_A_SCAN: usize = 500;
/// Locks that are asked about.
const QUESTIONS: usize = 100;
/// Locks that wait to be asked about.
const FOUND: usize = 10_000;

#[derive(Default)]
pub(super) struct Scan {
    databases: BTreeMap<u32, Progress>,
}

#[derive(Default)]
struct Progress {
    cursor: u64,
    /// Found by SCAN and not asked about yet.
    found: VecDeque<Vec<u8>>,
    /// Were shown at the last look.
    shown: Vec<Vec<u8>>,
}

impl Scan {
    /// The locks among those that this look could ask about, those with waiters unless all are wished
    /// for. The database is selected.
    pub(super) fn look(
        &mut self,
        line: &mut Line,
        db: u32,
        wishes: &Wishes,
        now_ms: u64,
    ) -> Result<Result<Vec<Lock>, Refusal>, String> {
        let progress = self.databases.entry(db).or_default();
        if let Err(refusal) = progress.scan(line)? {
            return Ok(Err(refusal));
        }
        let keys = progress.next_keys();
        let asked: Vec<Cmd> = keys
            .iter()
            .map(|key| cmd("LOCK.INFO").arg(key).take())
            .collect();
        let mut locks = Vec::new();
        let answers = if asked.is_empty() {
            Vec::new()
        } else {
            line.ask(&asked)?
        };
        for (key, answer) in keys.into_iter().zip(answers) {
            match answer {
                Ok(value) => {
                    let detail = reply::detail(&value, now_ms);
                    let place = Place { db, key };
                    locks.extend(detail.map(|detail| detail.into_lock(place)));
                }
                Err(refusal) if refusal.is_denied() => return Ok(Err(refusal)),
                // Another value has this name by now.
                Err(_) => {}
            }
        }
        locks.retain(|lock| wishes.all || lock.waiters > 0);
        locks.sort_by_key(|lock| std::cmp::Reverse(lock.waited_ms));
        locks.truncate(usize::try_from(wishes.top).unwrap_or(usize::MAX));
        progress.shown = locks.iter().map(|lock| lock.place.key.clone()).collect();
        Ok(Ok(locks))
    }
}

impl Progress {
    /// A part of the keyspace; the next look goes on from there.
    fn scan(&mut self, line: &mut Line) -> Result<Result<(), Refusal>, String> {
        for _ in 0..SCANS {
            if self.found.len() >= QUESTIONS {
                break;
            }
            let mut question = cmd("SCAN");
            question.arg(self.cursor).arg("COUNT").arg(KEYS_OF_A_SCAN);
            question.arg("TYPE").arg("redislock");
            match line.ask_one(question)? {
                Ok(value) => self.add(&value),
                Err(refusal) => return Ok(Err(refusal)),
            }
            if self.cursor == 0 {
                break;
            }
        }
        Ok(Ok(()))
    }

    fn add(&mut self, reply: &Value) {
        let parts = reply.as_sequence().unwrap_or_default();
        self.cursor = parts.first().and_then(reply::number).unwrap_or_default();
        let keys = parts
            .get(1)
            .and_then(Value::as_sequence)
            .unwrap_or_default();
        self.found
            .extend(keys.iter().filter_map(reply::bytes).map(Vec::from));
        self.found.truncate(FOUND);
    }

    /// Those that were shown come first, so that they do not leave the screen while the rest of the
    /// keyspace is gone through. Half of the questions is for the new ones.
    fn next_keys(&mut self) -> Vec<Vec<u8>> {
        let mut keys = std::mem::take(&mut self.shown);
        keys.truncate(QUESTIONS.saturating_sub(self.found.len().min(QUESTIONS / 2)));
        while keys.len() < QUESTIONS {
            match self.found.pop_front() {
                Some(key) if keys.contains(&key) => {}
                Some(key) => keys.push(key),
                None => break,
            }
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(numbers: std::ops::Range<usize>) -> Vec<Vec<u8>> {
        numbers.map(|n| n.to_string().into_bytes()).collect()
    }

    #[test]
    fn a_look_asks_about_so_many_locks_and_no_more() {
        let mut progress = Progress {
            shown: keys(0..300),
            found: keys(300..1_000).into(),
            ..Progress::default()
        };
        let asked = progress.next_keys();
        assert_eq!(asked.len(), QUESTIONS);
        assert_eq!(asked[..50], keys(0..50), "those that were shown come first");
        assert_eq!(asked[50..], keys(300..350));
        assert_eq!(progress.found.len(), 650);
    }

    #[test]
    fn no_lock_is_asked_about_twice() {
        let mut progress = Progress {
            shown: keys(0..3),
            found: keys(1..5).into(),
            ..Progress::default()
        };
        assert_eq!(progress.next_keys(), keys(0..5));
        assert!(progress.next_keys().is_empty());
    }
}
