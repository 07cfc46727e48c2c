//! The append-only file, read while the server is down.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use redis_lock::lock::codec::{decode, Record};
use redis_lock::lock::{Effect, Lock};

use super::load_clients::several_of;
use crate::harness::aof::{self, Command};
use crate::harness::{apply, record_of};

/// The content of the file as the server will load it.
#[derive(Default)]
pub struct Account {
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
                self.locks.extend(lock.map(|lock| (key, lock)));
            }
        }
    }
}
