//! A user limited to some keys, and all the ways to the others.

use super::{in_scripts, load_function};
use crate::harness::commands::{reads, writes};
use crate::harness::{figure, Client, Kind, Reply, Server};

on_every_server![
    a_user_limited_to_some_keys_reaches_no_others_in_any_context,
    a_permission_error_reveals_nothing_about_the_key,
    a_waiter_of_a_deleted_user_is_ended,
    read_only_and_write_only_users_stay_so,
];

/// The writes among the lines of [`lines`], which are all of one key.
fn write_lines() -> impl Iterator<Item = String> {
    let more = [
        "LOCK.ACQUIRE {} * 1000000",
        "LOCK.ACQUIRE {} me 1000000 BLOCK 0",
        "RWLOCK.WLOCK {} me 1000000 BLOCK 0",
        "LOCK.RELEASE {} holder",
        "LOCK.CANCEL {} TOKEN waiter",
    ];
    writes().chain(more.map(String::from))
}

fn lines() -> impl Iterator<Item = String> {
    write_lines().chain(reads())
}

/// A server with a lock that is held and waited for, and users of other keys.
fn fixture(kind: Kind) -> (Server, Client) {
    let server = Server::start(kind);
    let mut c = server.client();
    load_function(&mut c);
    c.int("LOCK.ACQUIRE other:held holder 1000000");
    c.call("SET other:text v");
    (server, c)
}

#[track_caller]
fn assert_no_permission(reply: &Reply, what: &str) {
    let Reply::Error(error) = reply else {
        panic!("{what}: {reply:?}")
    };
    // In a script the server adds its own text around the error.
    let words = ["NOPERM", "permission", "can't access", "cannot access"];
    assert!(
        words.iter().any(|word| error.contains(word)),
        "{what}: {error}"
    );
}

fn a_user_limited_to_some_keys_reaches_no_others_in_any_context(kind: Kind) {
    let (server, mut c) = fixture(kind);
    let waiter = server.blocked("LOCK.ACQUIRE other:held waiter 1000000 BLOCK 0");
    let before = c.call("DUMP other:held");
    let mut rules = vec!["~app:* +@all"];
    rules.extend(["%R~app:* %W~app:* +@all", "+@all ~none (~app:* +@all)"]);
    let mut refused = 0;
    for (n, rules) in rules.iter().enumerate() {
        let mut some = server.user(&format!("some-{n}"), rules);
        for key in ["other:held", "other:free", "other:text", "app", "APP:k"] {
            for line in lines().map(|line| line.replace("{}", key)) {
                assert_no_permission(&some.call(&line), &line);
                // A refused command fails the whole transaction.
                some.call("MULTI");
                some.call("LOCK.INFO app:k");
                assert_no_permission(&some.call(&line), &line);
                some.refused("EXEC", "EXECABORT");
                for script in in_scripts(&line) {
                    let what = script[..2].concat().escape_ascii().to_string() + &line;
                    assert_no_permission(&some.send(&script), &what);
                    refused += 1;
                }
                refused += 2;
            }
        }
        // The user's own keys work in all of these.
        let line = "LOCK.ACQUIRE app:k me 1000000";
        assert!(some.int(line) > 0);
        for script in in_scripts(line) {
            let reply = some.send(&script);
            assert!(matches!(reply, Reply::Int(fence) if fence > 0), "{reply:?}");
        }
    }
    assert_eq!(c.call("DUMP other:held"), before);
    assert_eq!(c.waiters("other:held"), ["waiter"]);
    assert_eq!(c.int("EXISTS other:free app APP:k"), 0);
    assert_eq!(server.blocked_clients(), 1);
    assert!(waiter.is_pending());
    figure(
        kind,
        &format!("{refused} requests, alone, in transactions, scripts and functions: all refused"),
    );
}

fn a_permission_error_reveals_nothing_about_the_key(kind: Kind) {
    let (server, mut c) = fixture(kind);
    let mut some = server.user("some", "~app:* +@all");
    let keyspace = |c: &mut Client| (c.info("keyspace_hits"), c.info("keyspace_misses"));
    let before = keyspace(&mut c);
    for line in lines() {
        let mut tell = |key: &str| some.error(&line.replace("{}", key)).replace(key, "KEY");
        let free = tell("other:free");
        assert_eq!(tell("other:held"), free, "{line}");
        assert_eq!(tell("other:text"), free, "{line}");
    }
    // The time does not reveal it either: the key was not read.
    assert_eq!(keyspace(&mut c), before);
    let mut may = server.user("may", "~* +@all");
    may.call("LOCK.INFO other:held");
    assert_ne!(keyspace(&mut c), before, "a look is counted");
}

fn read_only_and_write_only_users_stay_so(kind: Kind) {
    let (server, mut c) = fixture(kind);
    let mut reader = server.user("reader", "%R~other:* +@all");
    let mut writer = server.user("writer", "%W~other:* +@all");
    let before = c.call("DUMP other:held");
    let check = |refused: &mut Client, line: &str| {
        let line = line.replace("{}", "other:held");
        refused.refused(&line, "NOPERM ");
        for script in in_scripts(&line) {
            assert_no_permission(&refused.send(&script), &line);
        }
    };
    write_lines().for_each(|line| check(&mut reader, &line));
    reads().for_each(|line| check(&mut writer, &line));
    assert_eq!(c.call("DUMP other:held"), before);
    let may = |c: &mut Client, line: &str| {
        let reply = c.call(&line.replace("{}", "other:free"));
        assert!(!matches!(reply, Reply::Error(_)), "{line}: {reply:?}");
    };
    writes().for_each(|line| may(&mut writer, &line));
    reads().for_each(|line| may(&mut reader, &line));
    // A script that declares its keys needs both permissions itself.
    let script = &in_scripts("LOCK.INFO other:held")[1];
    assert!(matches!(reader.send(script), Reply::Array(_)));
    let script = &in_scripts("LOCK.RELEASE other:held holder")[1];
    assert_eq!(writer.send(script), Reply::Int(1));
}

fn a_waiter_of_a_deleted_user_is_ended(kind: Kind) {
    let (server, mut c) = fixture(kind);
    server.user("some", "~other:* +@all");
    let mut waiter = server.raw();
    waiter.send("AUTH some any");
    assert_eq!(waiter.line().unwrap(), "+OK");
    waiter.send("LOCK.ACQUIRE other:held some 1000000 BLOCK 0");
    c.until_waiters("other:held", &["some"]);
    assert_eq!(c.int("ACL DELUSER some"), 1);
    assert_eq!(waiter.line(), None);
    c.until_waiters("other:held", &[]);
    assert_eq!(c.int("LOCK.RELEASE other:held holder"), 1);
    assert_eq!(c.call("LOCK.INFO other:held"), Reply::Nil);
}
