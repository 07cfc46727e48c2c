//! The append-only file, read while the server is down.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use redis_lock::lock::codec::{decode, Record};
use redis_lock::lock::{Effect, Lock};

use super::journal::{Answer, Life, Part, Request, Step, What};
use super::load_clients::{client_of, several_of};
use crate::harness::aof::{self, Command};
use crate::harness::{apply, record_of};

/// The content of the file as the server will load it.
#[derive(Default)]
pub struct Account {
    /// The effects of each client's requests, in the server's order: the key and the record.
    effects: BTreeMap<usize, Vec<(String, Vec<u8>)>>,
    /// The resulting locks.
    pub locks: BTreeMap<String, Lock>,
    /// It has an RDB at its head, which is not read here. `locks` then lacks the locks in it.
    pub begins_with_rdb: bool,
    /// The number of valid bytes in the last part: less than all if its tail is truncated.
    pub whole: usize,
    /// Whether all bytes are valid.
    pub is_whole: bool,
    /// The number of grants of several keys.
    pub several: usize,
    /// Those that have some of their keys in a transaction, and not all.
    pub torn: Vec<String>,
    /// The effects of the transaction that is being read, until it is complete.
    open: Option<Vec<(String, Change)>>,
}

enum Change {
    Record(Vec<u8>),
    Gone,
}

impl Account {
    /// Reads the append-only file in a server's directory.
    #[track_caller]
    pub fn read(dir: &Path) -> Self {
        let parts = aof::parts(dir);
        let bytes: Vec<_> = parts
            .iter()
            .map(|part| fs::read(part).expect("a part that the manifest names"))
            .collect();
        let mut account = Self::of(&bytes);
        // The first RDB of a server contains no locks.
        account.begins_with_rdb &= !parts[0].ends_with("appendonly.aof.1.base.rdb");
        account
    }

    pub fn of(parts: &[Vec<u8>]) -> Self {
        let mut account = Self::default();
        for bytes in parts {
            let start = aof::len_of_preamble(bytes);
            account.begins_with_rdb |= start > 0;
            account.whole = start;
            for command in aof::commands(&bytes[start..]) {
                account.take(&command, start);
            }
            account.is_whole = account.whole == bytes.len();
            account.open = None;
        }
        account
    }

    fn take(&mut self, command: &Command<'_>, start: usize) {
        let text = |n: usize| String::from_utf8_lossy(command.args[n]).into_owned();
        let change = match text(0).to_ascii_uppercase().as_str() {
            "MULTI" => {
                self.open = Some(Vec::new());
                return;
            }
            "EXEC" => {
                let changes = self.open.take().expect("a MULTI before an EXEC");
                self.carry_out_all(changes);
                None
            }
            "LOCK._APPLY" | "LOCK._RELEASE" => {
                let record = record_of(&command.args).expect("a record");
                Some((text(1), Change::Record(record)))
            }
            "DEL" | "UNLINK" => Some((text(1), Change::Gone)),
            // A rewritten file gives each key the expiry of its lock.
            "SELECT" | "RESTORE" | "PEXPIREAT" => None,
            other => panic!("{other} was not expected in the file"),
        };
        match (change, &mut self.open) {
            (Some(change), Some(open)) => open.push(change),
            (Some(change), None) => self.carry_out_all(vec![change]),
            (None, _) => {}
        }
        if self.open.is_none() {
            self.whole = start + command.end;
        }
    }

    fn carry_out_all(&mut self, changes: Vec<(String, Change)>) {
        self.check_several(&changes);
        for (key, change) in changes {
            self.carry_out(key, change);
        }
    }

    /// A step that grants one of several keys grants all of them.
    fn check_several(&mut self, changes: &[(String, Change)]) {
        let mut granted: BTreeMap<(String, u64), BTreeSet<String>> = BTreeMap::new();
        for (key, change) in changes {
            let Change::Record(bytes) = change else {
                continue;
            };
            if let Ok(Record::Effect(Effect::Hold {
                now_ms,
                token,
                hold,
                ..
            })) = decode(bytes)
            {
                let known = self.locks.get(key).and_then(|lock| lock.fence_of(token));
                if hold.since.ms() == now_ms && known != Some(hold.fence) {
                    let token = String::from_utf8_lossy(token.as_bytes()).into_owned();
                    let step = granted.entry((token, hold.fence.get()));
                    step.or_default().insert(key.clone());
                }
            }
        }
        for ((token, fence), keys) in granted {
            let Some(named) = several_of(&token) else {
                continue;
            };
            self.several += 1;
            if keys != named.into_iter().collect() {
                self.torn
                    .push(format!("{token} has {keys:?} under {fence}"));
            }
        }
    }

    fn carry_out(&mut self, key: String, change: Change) {
        let Change::Record(bytes) = change else {
            self.locks.remove(&key);
            return;
        };
        match decode(&bytes).expect("a record") {
            Record::State(lock) => {
                self.locks.insert(key, lock);
            }
            Record::Fence(_) | Record::Leases(_) => {}
            Record::Effect(effect) => {
                let mut lock = self.locks.remove(&key);
                apply(&effect, &mut lock);
                self.locks.extend(lock.map(|lock| (key.clone(), lock)));
                let token = match effect {
                    Effect::Hold { token, .. } | Effect::Release { token, .. } => token,
                    Effect::Cap { .. } => return,
                };
                let token = String::from_utf8_lossy(token.as_bytes()).into_owned();
                if let Some(client) = client_of(&token) {
                    self.effects.entry(client).or_default().push((key, bytes));
                }
            }
        }
    }

    /// Compares the effects in the file with the replies to the clients, starting from the end:
    /// each reply has its effect, in the order of its client, and each effect was requested. It
    /// reaches back to the last rewrite. Returns the number of matched replies.
    ///
    /// # Errors
    ///
    /// A missing effect, or a superfluous one.
    pub fn has_all(&self, lives: &[Life], from_the_beginning: bool) -> Result<usize, String> {
        let clients = lives.first().map_or(0, |life| life.parts.len());
        let mut found = 0;
        for client in 0..clients {
            let effects = self.effects.get(&client).map_or(&[][..], Vec::as_slice);
            let mut effects = effects.iter().rev().peekable();
            let parts = lives.iter().map(|life| &life.parts[client]);
            let steps: Vec<_> = parts.flat_map(steps).collect();
            for (request, step, answer) in steps.iter().rev() {
                let Some((key, bytes)) = effects.peek() else {
                    if answer.is_some() && from_the_beginning {
                        return Err(format!("not in the file: {answer:?} to {step:?}"));
                    }
                    continue;
                };
                let fits = *key == step.key && is_effect_of(request, step, *answer, bytes);
                if fits {
                    effects.next();
                    found += usize::from(answer.is_some());
                } else if answer.is_some() {
                    let effect = decode(bytes);
                    return Err(format!(
                        "{answer:?} to {step:?} is not in the file, but {effect:?}"
                    ));
                }
            }
            if let Some((key, bytes)) = effects.next() {
                let effect = decode(bytes);
                return Err(format!("nobody asked for {effect:?} of {key}"));
            }
        }
        Ok(found)
    }
}

type Asked<'j> = (&'j Request, &'j Step, Option<Answer>);

/// The steps that have an effect, or may have one because there was no reply.
fn steps(part: &Part) -> Vec<Asked<'_>> {
    let mut holds = part.base.clone();
    let mut asked = Vec::new();
    for request in &part.requests {
        // Wrong replies are not reported here.
        request.apply(&mut holds).ok();
        for (n, step) in request.steps.iter().enumerate() {
            let answer = request.answers.as_ref().map(|answers| answers[n]);
            let has_effect = match answer {
                Some(answer) => matches!(answer, Answer::Fence(_) | Answer::Done(true)),
                None => matches!(step.what, What::Acquire(..)) || holds.contains_key(&step.whose()),
            };
            if has_effect {
                asked.push((request, step, answer));
            }
        }
    }
    asked
}

fn is_effect_of(request: &Request, step: &Step, answer: Option<Answer>, bytes: &[u8]) -> bool {
    let Ok(Record::Effect(effect)) = decode(bytes) else {
        return false;
    };
    match (step.what, effect) {
        (
            What::Acquire(..) | What::Renew,
            Effect::Hold {
                now_ms,
                mode,
                token,
                hold,
            },
        ) => {
            let as_asked = match step.what {
                What::Acquire(asked, _) => asked == mode,
                _ => true,
            };
            let as_told = match answer {
                Some(Answer::Fence(fence)) => fence == hold.fence.get(),
                _ => true,
            };
            token.as_bytes() == step.token.as_bytes()
                && hold.deadline.ms() == now_ms + step.ttl_ms
                && request.when_ms().contains(&now_ms)
                && as_asked
                && as_told
        }
        (What::Release, Effect::Release { now_ms, token }) => {
            // The release of the only hold is recorded without its time.
            let in_time = now_ms == 0 || request.when_ms().contains(&now_ms);
            token.as_bytes() == step.token.as_bytes() && in_time
        }
        _ => false,
    }
}
