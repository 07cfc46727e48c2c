//! The files that each released version of the module has written, on each server. Every later
//! build must load them. tests/golden/README.md describes them.

use std::fs;
use std::path::{Path, PathBuf};

use super::holds::{self, Hold};
use crate::harness::{
    copy_files, now_ms, Client, Clock, Kind, Reply, Server, Setup, COMMANDS_ONLY,
};

on_every_server![
    files_of_every_version_load,
    files_of_older_servers_load,
    fences_go_on_from_the_files_and_not_from_the_clock,
    payloads_of_every_version_are_restored,
];

/// A way to persist data: the folder, and the server's options.
const WAYS: [(&str, &[&str]); 3] = [
    ("rdb", &[]),
    ("aof", &["--appendonly", "yes"]),
    ("aof-commands", &COMMANDS_ONLY),
];

/// Holds that outlive this project: a hundred years.
const TTL: &str = "3155760000000";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// The folders with files of this server, one for each version of the module. If a version has
/// none, because the server did not exist yet, those of the server before it are used.
fn written_by(server: &str) -> Vec<PathBuf> {
    let servers: &[&str] = match server {
        "valkey-9" => &[server, "valkey-8.0.1"],
        "redis-8.6" => &[server, "redis-8.2.3"],
        _ => &[server],
    };
    let versions = fs::read_dir(root()).expect("the golden files").flatten();
    let folders = versions.filter_map(|version| {
        let of = |server: &&str| version.path().join(server);
        servers.iter().map(of).find(|folder| folder.exists())
    });
    let mut folders: Vec<_> = folders.collect();
    folders.sort();
    assert!(!folders.is_empty(), "no golden files of {server}");
    folders
}

#[track_caller]
fn expected(folder: &Path) -> Vec<Hold> {
    let text = fs::read_to_string(folder.join("locks.tsv")).expect("a locks.tsv");
    let holds = holds::read(&text);
    assert!(holds.len() >= 12, "{folder:?} has {} holds", holds.len());
    holds
}

/// Fails the test unless the server has the locks of the folder's locks.tsv, and works.
#[track_caller]
fn assert_loaded(c: &mut Client, expected: &[Hold], when: &str) {
    holds::assert_same(&holds::of(c), expected, when);
    assert_eq!(c.text("GET text"), "stays");
    assert_eq!(c.call("LOCK.ACQUIRE renewed you 1000"), Reply::Nil);
    assert_eq!(c.int(&format!("LOCK.RENEW renewed me {TTL}")), 1);
    assert_eq!(c.int("LOCK.RELEASE renewed me"), 1);
    let next = c.int("LOCK.ACQUIRE renewed you 1000");
    assert!(next > holds::largest_fence(expected), "{when}: {next}");
}

#[track_caller]
fn assert_all_ways_load(kind: Kind, wrote: &str) {
    for folder in written_by(wrote) {
        for (way, options) in WAYS {
            let files = folder.join(way);
            let server = Server::start_on(kind, &files, Setup::with_module(options));
            let when = format!("{files:?} on {}", kind.name());
            assert_loaded(&mut server.client(), &expected(&files), &when);
        }
    }
}

fn files_of_every_version_load(kind: Kind) {
    assert_all_ways_load(kind, kind.name());
}

/// An upgrade of the server, or a change from Redis to Valkey, keeps the locks too. The module ran on
/// Redis 6.2 up to 0.3.
fn files_of_older_servers_load(kind: Kind) {
    let older: &[&str] = match kind {
        Kind::Redis7_0 => &["redis-6.2.14"],
        Kind::Valkey8_0 => &["redis-6.2.14", "redis-7.0.15"],
        Kind::Valkey9 | Kind::Redis8_2 => &["redis-6.2.14", "redis-7.0.15", "valkey-8.0.1"],
        Kind::Redis8_6 => &["redis-7.0.15", "redis-8.2.3", "valkey-8.0.1"],
        Kind::Redis7_2 | Kind::Redis7_4 | Kind::Valkey8_1 => {
            unreachable!("none has written files")
        }
    };
    for server in older {
        assert_all_ways_load(kind, server);
    }
}

fn fences_go_on_from_the_files_and_not_from_the_clock(kind: Kind) {
    const HOUR_MS: i64 = 3_600_000;
    for folder in written_by(kind.name()) {
        for (way, options) in WAYS {
            let files = folder.join(way);
            let expected = expected(&files);
            let largest = holds::largest_fence(&expected);
            // The server's clock is an hour before the time at which the files were written.
            let ahead_ms = holds::last_granted_ms(&expected) - HOUR_MS - now_ms();
            let clock = Clock::ahead_by_us(ahead_ms * 1_000);
            let setup = Setup::with_module(options).with_clock(&clock);
            let server = Server::start_on(kind, &files, setup);
            let mut c = server.client();
            let clock_us = i64::try_from(c.now_us()).unwrap();
            assert!(clock_us < largest - HOUR_MS * 1_000 / 2, "{clock_us}");
            let next = c.int("LOCK.ACQUIRE next me 60000");
            assert!(next > largest, "{files:?}: {next} after {largest}");
        }
    }
}

fn payloads_of_every_version_are_restored(kind: Kind) {
    for folder in written_by(kind.name()) {
        let files = folder.join("dump");
        let server = Server::start(kind);
        let mut c = server.client();
        c.call("SET text stays");
        for line in fs::read_to_string(files.join("dumps.tsv")).unwrap().lines() {
            let columns: Vec<_> = line.split('\t').collect();
            let [db, key, payload] = columns[..] else {
                panic!("a bad line: {line}");
            };
            c.call(&format!("SELECT {db}"));
            // The ttl comes from the payload: it is the holds' own.
            let restored = c.send(&[
                b"RESTORE".as_slice(),
                key.as_bytes(),
                b"0",
                &from_hex(payload),
            ]);
            assert_eq!(restored, Reply::Simple("OK".into()), "{line}");
        }
        c.call("SELECT 0");
        assert_loaded(&mut c, &expected(&files), &format!("{files:?}"));
    }
}

/// Locks in all shapes, created by the commands and in every other way.
fn live(c: &mut Client) {
    let longest = [b'x'; 512];
    let ttl = TTL.as_bytes();
    c.call("SET text stays");
    for db in [0, 3] {
        c.call(&format!("SELECT {db}"));
        c.int(&format!("LOCK.ACQUIRE renewed me {TTL}"));
        c.call(&format!("LOCK.ACQUIRE made-token * {TTL}"));
        for token in [&b"\0"[..], b"\r\n*1\r\n", b"\xff\xfe", &longest] {
            c.send(&[&b"RWLOCK.RLOCK"[..], b"shared", token, ttl]);
        }
        c.int(&format!("RWLOCK.RLOCK alone me {TTL}"));
        c.int(&format!("LOCK.ACQUIRE permit me {TTL} LIMIT 7"));
        for (token, limit) in [("a", 3), ("b", 2_147_483_647), ("c", 4)] {
            c.int(&format!("LOCK.ACQUIRE permits {token} {TTL} LIMIT {limit}"));
        }
        c.int(&format!("RWLOCK.RLOCK mixed a {TTL}"));
        c.int(&format!("LOCK.ACQUIRE mixed b {TTL} LIMIT 2"));
        c.int(&format!("LOCK.ACQUIRE released me {TTL}"));
    }
    c.call("SELECT 0");
    c.int(&format!("RWLOCK.RLOCK shortened a {TTL}"));
    c.int(&format!("RWLOCK.RLOCK shortened b {TTL}"));
    c.int("PEXPIRE shortened 3000000000000");
    c.int(&format!("LOCK.ACQUIRE handed-over me {TTL}"));
}

/// The same for an append-only file: the effects after a rewrite.
fn live_on(server: &Server, c: &mut Client) {
    c.int(&format!("LOCK.RENEW renewed me {TTL}"));
    c.int(&format!("RWLOCK.WLOCK alone me {TTL}"));
    c.int("LOCK.RELEASE released me");
    c.int("LOCK.RELEASE permits a");
    c.int(&format!("LOCK.ACQUIRE permits a {TTL} LIMIT 5"));
    c.int("LOCK.RELEASE mixed b"); // Its record is in the first version again.
    c.int("RWLOCK.RLOCK shortened c 2000000000000"); // Writes the deadline of PEXPIRE into the holds.
    c.int("LOCK.RELEASE shortened b");
    let waiter = server.blocked(&format!("LOCK.ACQUIRE handed-over you {TTL} BLOCK 0"));
    c.int("LOCK.RELEASE handed-over me");
    waiter.reply().as_int();
    c.multi(&[
        &format!("LOCK.ACQUIRE in-multi me {TTL}"),
        &format!("RWLOCK.RLOCK in-multi me {TTL}"),
    ]);
    let script = "return redis.call('LOCK.ACQUIRE', KEYS[1], 'me', ARGV[1])";
    let in_script = ["EVAL", script, "1", "in-script", TTL];
    assert!(c.send(&in_script).as_int() > 0);
}

/// Writes the files of this version, on every server. They are written once, when the version is
/// released, and never again.
#[test]
#[ignore = "run by hand for a release: cargo test --test integration -- --ignored write_golden_files"]
fn write_golden_files() {
    let version = root().join(env!("CARGO_PKG_VERSION"));
    assert!(!version.exists(), "{version:?} is there: it stays as it is");
    for kind in Kind::EVERY {
        for (way, options) in WAYS {
            write_files(kind, &version.join(kind.name()).join(way), options);
        }
        write_dumps(kind, &version.join(kind.name()).join("dump"));
    }
}

fn write_files(kind: Kind, into: &Path, options: &[&str]) {
    let mut server = Server::start_with(kind, options);
    let mut c = server.client();
    live(&mut c);
    let has_aof = !options.is_empty();
    if has_aof {
        crate::harness::aof::rewrite(&mut c);
    }
    live_on(&server, &mut c);
    let holds = holds::of(&mut c);
    match has_aof {
        true => server.shut_down(),
        false => server.shut_down_saving(),
    }
    fs::create_dir_all(into).unwrap();
    copy_files(server.dir(), into);
    fs::remove_file(into.join("log")).unwrap();
    fs::write(into.join("locks.tsv"), holds::write(&holds)).unwrap();
}

fn write_dumps(kind: Kind, into: &Path) {
    let server = Server::start(kind);
    let mut c = server.client();
    live(&mut c);
    live_on(&server, &mut c);
    let mut dumps = String::new();
    for db in [0, 3] {
        c.call(&format!("SELECT {db}"));
        for key in c.call("KEYS *").items() {
            let key = std::str::from_utf8(key.as_bytes()).unwrap();
            if c.text(&format!("TYPE {key}")) == "redislock" {
                let payload = c.call(&format!("DUMP {key}"));
                let hex = to_hex(payload.as_bytes());
                dumps.push_str(&format!("{db}\t{key}\t{hex}\n"));
            }
        }
    }
    fs::create_dir_all(into).unwrap();
    fs::write(into.join("dumps.tsv"), dumps).unwrap();
    fs::write(into.join("locks.tsv"), holds::write(&holds::of(&mut c))).unwrap();
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}
