//! The append-only file of a server as lines of the journal.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use redis_lock::lock::codec::{decode, decode_held, Record};
use redis_lock::lock::{Effect, Mode, Token};

use super::journal::Journal;
use crate::harness::aof;

/// The growing parts of the file, which a rewrite deletes one after the other. Links keep them.
pub struct Log {
    kept: PathBuf,
    /// How much of each part is in the journal: all that is whole.
    read: BTreeMap<u64, usize>,
    database: Vec<u8>,
}

/// The guarded writes of each lock are counted in a key of this name, with that of the lock.
pub const GUARDED: &str = "guarded:";

impl Log {
    pub fn of(dir: &Path) -> Self {
        let kept = dir.join("kept");
        fs::create_dir_all(&kept).unwrap();
        let log = Self {
            kept,
            read: BTreeMap::new(),
            database: b"0".to_vec(),
        };
        log.keep_parts(dir);
        log
    }

    /// To be called before and after each beginning of a rewrite.
    pub fn keep_parts(&self, dir: &Path) {
        let parts = fs::read_dir(dir.join("appendonlydir"));
        let parts = parts.into_iter().flatten().flatten();
        for part in parts.filter(|part| number_of(&part.path()).is_some()) {
            // It may be there already, or have gone meanwhile.
            fs::hard_link(part.path(), self.kept.join(part.file_name())).ok();
        }
    }

    /// Writes what is new and whole of a server that has ended. Answers whether all of it is.
    pub fn write(&mut self, dir: &Path, journal: &Journal, port: u16) -> bool {
        self.keep_parts(dir);
        let parts = fs::read_dir(&self.kept).unwrap().flatten();
        let parts = parts.filter_map(|part| Some((number_of(&part.path())?, part.path())));
        let parts: BTreeMap<u64, PathBuf> = parts.collect();
        let at_us = journal.now_us();
        let mut is_whole = true;
        for (number, part) in parts {
            let bytes = fs::read(part).unwrap();
            let from = self.read.entry(number).or_insert(0);
            let mut lines = Vec::new();
            let mut end = *from;
            for command in aof::commands(&bytes[*from..]) {
                let line = line_of(&command.args, &mut self.database);
                let is_open = lines.iter().any(|(what, _)| *what == "begin");
                lines.extend(line);
                // A transaction without its end has no effect.
                let ends = lines.last().is_some_and(|(what, _)| *what == "end");
                if ends || !(is_open || lines.iter().any(|(what, _)| *what == "begin")) {
                    for (what, text) in lines.drain(..) {
                        journal.note_at(at_us, "log", port, what, &text);
                    }
                    end = *from + command.end;
                }
            }
            is_whole &= end == bytes.len();
            *from = end;
        }
        is_whole
    }

    /// The end of what is whole in the last part.
    pub fn end(&self) -> u64 {
        self.read.last_key_value().map_or(0, |(_, end)| *end as u64)
    }

    /// The file begins anew.
    pub fn begin_again(&mut self, dir: &Path) {
        fs::remove_dir_all(&self.kept).unwrap();
        *self = Self::of(dir);
    }
}

/// `appendonly.aof.3.incr.aof`
fn number_of(part: &Path) -> Option<u64> {
    let name = part.file_name()?.to_str()?;
    let number = name
        .strip_prefix("appendonly.aof.")?
        .strip_suffix(".incr.aof")?;
    number.parse().ok()
}

fn line_of(args: &[&[u8]], database: &mut Vec<u8>) -> Option<(&'static str, String)> {
    let text = |n: usize| String::from_utf8_lossy(args[n]).into_owned();
    let name = text(0).to_ascii_uppercase();
    if name == "SELECT" {
        *database = args[1].to_vec();
        return None;
    }
    let line = line_of_one(&name, args)?;
    let is_of_all = matches!(&name[..], "MULTI" | "EXEC" | "FLUSHALL" | "SWAPDB");
    match is_of_all || **database == *b"0" {
        true => Some(line),
        false => Some(("elsewhere", format!("{} {}", line.0, line.1))),
    }
}

fn line_of_one(name: &str, args: &[&[u8]]) -> Option<(&'static str, String)> {
    let text = |n: usize| String::from_utf8_lossy(args[n]).into_owned();
    if let Some(effect) = effect_of(name, args) {
        return Some(line_of_effect(&text(1), effect));
    }
    Some(match name {
        "MULTI" => ("begin", String::new()),
        "EXEC" => ("end", String::new()),
        "SET" if args[1] == b"mark" => ("mark", text(2)),
        "DEL" | "UNLINK" => ("gone", text(1)),
        "FLUSHALL" => ("flushed", "all".into()),
        "FLUSHDB" => ("flushed", String::new()),
        "SWAPDB" => ("swapped", String::new()),
        "RENAME" => ("renamed", format!("{} {}", text(1), text(2))),
        "PEXPIREAT" => ("ends", format!("{} {}", text(1), text(2))),
        "PERSIST" => ("ends", text(1)),
        "INCR" => ("counted", text(1).strip_prefix(GUARDED)?.to_string()),
        // Another way to raise fences.
        "SET" | "RESTORE" => return None,
        _ => panic!("{name} was not expected in the file"),
    })
}

/// A mode as the number of holders that it tolerates.
pub fn mode_word(mode: Mode) -> String {
    match mode {
        Mode::Shared => "shared".into(),
        mode => mode.tolerates().to_string(),
    }
}

/// What a command of the module has done. `None` for the server's own commands, and where no hold
/// changes.
fn effect_of<'a>(name: &str, args: &[&'a [u8]]) -> Option<Effect<'a>> {
    Some(match name {
        "LOCK._APPLY" if args.len() == 3 || args[3].is_empty() => {
            match decode(args[2]).expect("a record") {
                Record::Effect(effect) => effect,
                Record::Fence(_) | Record::Leases(_) => return None,
                Record::State(state) => panic!("a whole lock in the file: {state:?}"),
            }
        }
        "LOCK._APPLY" => decode_held(args[2], args[3]).expect("a hold"),
        "LOCK._RELEASE" => Effect::Release {
            // The only hold has ended, so no other holds can have expired.
            now_ms: 0,
            token: Token::new(args[2]).expect("a token"),
        },
        _ => return None,
    })
}

fn line_of_effect(key: &str, effect: Effect<'_>) -> (&'static str, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match effect {
        Effect::Hold {
            now_ms,
            mode,
            token,
            hold,
        } => {
            let (token, mode) = (text(token.as_bytes()), mode_word(mode));
            let (fence, end_ms) = (hold.fence.get(), hold.deadline.ms());
            let since_ms = hold.since.ms();
            let held = format!("{key} {token} {mode} {fence} {end_ms} {since_ms} {now_ms}");
            ("hold", held)
        }
        Effect::Release { now_ms, token } => {
            let token = text(token.as_bytes());
            ("release", format!("{key} {token} {now_ms}"))
        }
        Effect::Cap { deadline } => ("cap", format!("{key} {}", deadline.ms())),
    }
}
