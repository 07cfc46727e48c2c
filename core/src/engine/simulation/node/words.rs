//! Commands from their words, as clients send them. The parsers are those of a server.
//!
//! The name of a key is one byte here: a scenario has given a byte to each.

use super::super::{at, channel_of, Client, Limits, Place, EVERY_DB};
use super::log::Said;
use super::memory::Value;
use super::{Node, Task};
use crate::command::acquire::Acquire;
use crate::command::macquire::Macquire;
use crate::command::spec::KeyWords;
use crate::command::{acquire, cancel, check, exec, once, release, renew, rlock, wlock};
use crate::command::{Args, Command, Error};
use crate::engine::{self, command, macquire};

/// The command of ours with this name.
fn command_of(name: &[u8]) -> Option<Command> {
    let mut all = Command::ALL.iter().copied();
    all.find(|command| {
        let spec = command.spec();
        name.eq_ignore_ascii_case(spec.name.to_bytes())
    })
}

/// The words that are keys.
pub(in super::super) fn keys_of(words: &[&[u8]]) -> std::ops::Range<usize> {
    let number = |at: usize| {
        let word = std::str::from_utf8(words.get(at)?).ok()?;
        word.parse::<usize>().ok()
    };
    let Some(name) = words.first() else {
        return 0..0;
    };
    match command_of(name).map(|command| &command.spec().keys) {
        Some(KeyWords::Counted { count_at, .. }) => {
            let first = usize::try_from(*count_at).unwrap() + 1;
            first..(first + number(first - 1).unwrap_or(0)).min(words.len())
        }
        Some(_) => 1..2.min(words.len()),
        None => match &name.to_ascii_uppercase()[..] {
            b"RENAME" | b"DEL" | b"UNLINK" | b"EXISTS" => 1..words.len(),
            b"FLUSHALL" | b"FLUSHDB" | b"SWAPDB" | b"SELECT" | b"PING" => 0..0,
            _ => 1..2.min(words.len()),
        },
    }
}

/// The words that say how a request waits.
pub(super) struct Waits(Vec<Vec<u8>>);

impl Waits {
    pub(super) fn new(token: u8, limits: Limits, keep: u32, linger_ms: Option<u64>) -> Self {
        let mut words: Vec<Vec<u8>> = Vec::new();
        let mut push = |word: &[u8]| words.push(word.to_vec());
        match limits {
            Limits::NoWait => {}
            Limits::Forever | Limits::Until(_) => push(b"BLOCK"),
            Limits::Notify | Limits::NotifyUntil(_) => push(b"NOTIFY"),
        }
        match limits {
            Limits::NoWait => {}
            Limits::Forever | Limits::Notify => push(b"0"),
            Limits::Until(ms) | Limits::NotifyUntil(ms) => push(ms.to_string().as_bytes()),
        }
        if limits.is_channel() {
            push(&channel_of(token));
        }
        if keep > 0 {
            push(b"KEEP");
            push(keep.to_string().as_bytes());
        }
        // So one that listens by a channel can be killed, too.
        if let Some(ms) = linger_ms {
            push(b"LINGER");
            push(ms.to_string().as_bytes());
        }
        Self(words)
    }

    pub(super) fn words(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(Vec::as_slice)
    }
}

impl Node {
    /// Runs a command. Its reply comes to the log, unless the client waits. The error is for the
    /// author of the scenario.
    pub(in super::super) fn say(
        &mut self,
        client: Client,
        db: u8,
        words: &[&[u8]],
    ) -> Result<(), String> {
        let Some((name, rest)) = words.split_first() else {
            return Err("no words".into());
        };
        self.memory.db.set(db.into());
        let is_exec = match command_of(name) {
            Some(Command::Exec) => true,
            Some(command) => {
                return self.ours(client, db, command, words);
            }
            None => false,
        };
        if !is_exec {
            let said = self.keyspace(db, name, rest)?;
            self.memory.say(client, said);
            return Ok(());
        }
        let result = self.run(client, vec![at(db, rest[0][0])], |task| {
            let (token, _) = exec::parse(Args::new(rest.iter().skip(1).copied()))?;
            engine::must_hold(task, token)
        });
        match result {
            Ok(()) => self.say(client, db, &words[exec::COMMAND_AT..]),
            Err(error) => {
                self.memory.say(client, Said::from(error));
                Ok(())
            }
        }
    }

    fn run(
        &mut self,
        client: Client,
        keys: Vec<Place>,
        run: impl FnOnce(&mut Task<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut task = self.task(client, keys);
        let result = run(&mut task);
        task.end(Ok(()));
        result
    }

    fn ours(
        &mut self,
        client: Client,
        db: u8,
        command: Command,
        words: &[&[u8]],
    ) -> Result<(), String> {
        let keys = keys_of(words).map(|word| at(db, words[word][0])).collect();
        let is_one = !matches!(command.spec().keys, KeyWords::Counted { .. });
        let skipped = if is_one { 2 } else { 1 };
        let args = || Args::new(words.iter().skip(skipped).copied());
        let mut task = self.task(client, keys);
        let mut take = |wanted| {
            let acquire = Acquire::parse(wanted, args())?;
            engine::take_hold(&mut task, &acquire)
        };
        let result = match command {
            Command::Acquire => take(acquire::WANTED),
            Command::Once => once::parse(args()).and_then(|it| engine::take_hold(&mut task, &it)),
            Command::Wlock => take(wlock::WANTED),
            Command::Rlock => take(rlock::WANTED),
            Command::Macquire => {
                Macquire::parse(args()).and_then(|request| macquire::run(&mut task, &request))
            }
            Command::Release => release::parse(args())
                .and_then(|(token, ms)| command::release(&mut task, token, ms)),
            Command::Renew => {
                renew::parse(args()).and_then(|(token, ttl)| command::renew(&mut task, token, ttl))
            }
            Command::Cancel => {
                cancel::parse(args()).and_then(|token| engine::cancel::run(&mut task, token))
            }
            Command::Check => {
                check::parse(args()).and_then(|token| engine::check(&mut task, token))
            }
            _ => return Err(format!("the server in memory has no {command:?}")),
        };
        task.end(result);
        Ok(())
    }

    /// A command of the server's own. The patrol is not told of it: it goes when its time comes.
    fn keyspace(&mut self, db: u8, name: &[u8], words: &[&[u8]]) -> Result<Said, String> {
        let looked_us = self.machine.looked_us;
        let said = self.change(db, name, words);
        self.machine.looked_us = looked_us;
        said.ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            format!(
                "the server in memory cannot do this: {name} with {} words",
                words.len()
            )
        })
    }

    fn change(&mut self, db: u8, name: &[u8], words: &[&[u8]]) -> Option<Said> {
        let key = |n: usize| Some(at(db, *words.get(n)?.first()?));
        let number = |n: usize| {
            let word = std::str::from_utf8(words.get(n)?).ok()?;
            word.parse::<u64>().ok()
        };
        let other_db = |n: usize| number(n).map(|db| u8::try_from(db).unwrap());
        let count = |is: bool| Some(Said::Number(is.into()));
        let now_ms = self.memory.scene.get().now_ms;
        match (&name.to_ascii_uppercase()[..], words.len()) {
            (b"PING", 0) => Some(Said::Status("PONG")),
            (b"DEL" | b"UNLINK", 1) => {
                let is_there = self.look_up(key(0)?);
                self.delete(key(0)?);
                count(is_there)
            }
            (b"EXISTS", 1) => count(self.look_up(key(0)?)),
            (b"PTTL", 1) => match self.values().get(&key(0)?) {
                Some(Value::Lock(_, Some(end))) => Some(Said::Number(end.ms() - now_ms)),
                _ => None,
            },
            (b"SET", 2) => {
                self.look_up(key(0)?);
                self.overwrite(key(0)?);
                Some(Said::Status("OK"))
            }
            (b"RENAME", 2) => {
                self.look_up(key(1)?);
                self.look_up(key(0)?)
                    .then(|| self.rename(at(db, words[0][0]), at(db, words[1][0])))?;
                Some(Said::Status("OK"))
            }
            (b"MOVE", 2) => {
                let to = at(other_db(1)?, words[0][0]);
                let is_free = self.look_up(key(0)?) && !self.look_up(to);
                is_free.then(|| self.rename(at(db, words[0][0]), to));
                count(is_free)
            }
            (b"PEXPIRE", 2) => count(self.set_end(key(0)?, Some(now_ms + number(1)?))),
            (b"PERSIST", 1) => count(self.set_end(key(0)?, None)),
            (b"FLUSHALL", 0) => {
                self.flush(EVERY_DB);
                Some(Said::Status("OK"))
            }
            (b"FLUSHDB", 0) => {
                self.flush(db);
                Some(Said::Status("OK"))
            }
            (b"SWAPDB", 2) => {
                self.swap_dbs(other_db(0)?, other_db(1)?);
                Some(Said::Status("OK"))
            }
            _ => None,
        }
    }
}
