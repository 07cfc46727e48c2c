//! The append-only file in a server's directory: its parts in the order of loading, and their
//! commands.

use std::fs;
use std::path::{Path, PathBuf};

use super::client::{Client, Reply};
use super::server::wait_for;
use super::workload::Command as Words;

/// Has the server rewrite its file, and waits for the end.
#[track_caller]
pub fn rewrite(c: &mut Client) {
    // A save that the server started itself may be in progress.
    wait_for("the rewrite to begin", || {
        (!matches!(c.call("BGREWRITEAOF"), Reply::Error(_))).then_some(())
    });
    until_rewritten(c);
    assert_eq!(c.info("aof_last_bgrewrite_status"), "ok");
}

/// Waits until no rewrite is going on or about to begin.
#[track_caller]
pub fn until_rewritten(c: &mut Client) {
    wait_for("the rewrite to end", || {
        let is_idle = c.info("aof_rewrite_in_progress") == "0";
        (is_idle && c.info("aof_rewrite_scheduled") == "0").then_some(())
    });
}

/// A command of the file, and where it ends.
pub struct Command<'b> {
    pub args: Vec<&'b [u8]>,
    pub end: usize,
}

/// The complete commands at the start of some bytes. Stops at a truncated one.
pub struct Commands<'b> {
    bytes: &'b [u8],
    at: usize,
}

/// The parts of the file in the order in which the server loads them. Files that the manifest does
/// not name are ignored: a rewrite may have been interrupted.
pub fn parts(dir: &Path) -> Vec<PathBuf> {
    let whole = dir.join("appendonly.aof");
    if whole.exists() {
        return vec![whole]; // Before 7.0.
    }
    let folder = dir.join("appendonlydir");
    let manifest = fs::read_to_string(folder.join("appendonly.aof.manifest")).expect("a manifest");
    let lines = manifest.lines().map(|line| {
        let words: Vec<_> = line.split(' ').collect();
        let [_, name, _, _, _, kind, ..] = words[..] else {
            panic!("a line of a manifest: {line}");
        };
        (name, kind)
    });
    // A history file is about to be deleted.
    let loaded = lines.filter(|(_, kind)| *kind != "h");
    loaded.map(|(name, _)| folder.join(name)).collect()
}

/// The commands of all parts, without an RDB at their head, and whether the file has nothing but
/// whole commands.
pub fn read(dir: &Path) -> (Vec<Words>, bool) {
    let (mut all, mut is_whole) = (Vec::new(), true);
    for part in parts(dir) {
        let bytes = fs::read(part).expect("a part that the manifest names");
        let start = len_of_preamble(&bytes);
        let mut end = 0;
        for command in commands(&bytes[start..]) {
            all.push(command.args.iter().map(|arg| arg.to_vec()).collect());
            end = command.end;
        }
        is_whole &= end == bytes.len();
    }
    (all, is_whole)
}

/// The file to pass to the servers' checker: the manifest if there is one.
#[allow(dead_code)] // Only the campaign uses it.
pub fn entrance(dir: &Path) -> PathBuf {
    let whole = dir.join("appendonly.aof");
    match whole.exists() {
        true => whole,
        false => dir.join("appendonlydir/appendonly.aof.manifest"),
    }
}

/// Whether a part is an RDB or begins with one. Valkey 9 uses another magic string.
pub fn is_rdb(bytes: &[u8]) -> bool {
    bytes.starts_with(b"REDIS") || bytes.starts_with(b"VALKEY")
}

/// The length of the RDB at the head, if there is one. The first command after it selects a
/// database.
pub fn len_of_preamble(bytes: &[u8]) -> usize {
    const SELECT: &[u8] = b"*2\r\n$6\r\nSELECT\r\n";
    if !is_rdb(bytes) {
        return 0;
    }
    let first = bytes.windows(SELECT.len()).position(|at| at == SELECT);
    first.unwrap_or(bytes.len())
}

pub fn commands(bytes: &[u8]) -> Commands<'_> {
    Commands { bytes, at: 0 }
}

impl<'b> Iterator for Commands<'b> {
    type Item = Command<'b>;

    fn next(&mut self) -> Option<Command<'b>> {
        let mut at = self.at;
        let count = self.take_number(&mut at, b'*')?;
        let mut args = Vec::with_capacity(count);
        for _ in 0..count {
            let len = self.take_number(&mut at, b'$')?;
            args.push(self.bytes.get(at..at + len)?);
            at += len + 2;
        }
        if at > self.bytes.len() {
            return None;
        }
        self.at = at;
        Some(Command { args, end: at })
    }
}

impl Commands<'_> {
    /// `None` if the bytes end before the number does.
    fn take_number(&self, at: &mut usize, kind: u8) -> Option<usize> {
        let rest = self.bytes.get(*at..)?;
        let first = rest.first()?;
        assert_eq!(*first, kind, "an append-only file of commands, at {at}");
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        *at += end + 2;
        let digits = std::str::from_utf8(&rest[1..end]).unwrap();
        Some(digits.parse().unwrap())
    }
}

#[test]
fn a_truncated_command_is_left_out() {
    let bytes = b"*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nDEL\r\n$3\r\na\r\n\r\n";
    let whole: Vec<_> = commands(bytes).map(|command| command.end).collect();
    assert_eq!(whole, [14, bytes.len()]);
    for end in 14..bytes.len() {
        let commands: Vec<_> = commands(&bytes[..end]).collect();
        assert_eq!(commands.len(), 1);
        assert_eq!(commands[0].args, [b"PING"]);
    }
}
