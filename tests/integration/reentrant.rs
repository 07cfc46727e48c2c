//! Another module reacts to events of keys by commands, in the middle of a command or of a turn of
//! the timer of this module.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::harness::{built_module, module, wait_for, Client, Kind, Reply, Server, Setup};

on_every_server![
    macquire_takes_nothing_that_was_taken_while_it_looked,
    macquire_gives_back_what_it_has_taken,
    a_waiter_for_two_keys_gets_both_or_none,
];
// Redis 7.0 ends with an assertion where a key is deleted while the server creates it: by SET, too.
on_servers![
    [redis_8_2 Redis8_2, redis_8_6 Redis8_6, valkey_8_0 Valkey8_0, valkey_9 Valkey9]
    a_lock_that_is_deleted_while_it_is_created_is_not_granted,
];

/// A server with the module that reacts, which may have a reaction from the start on.
fn start(kind: Kind, reaction: &str, options: &[&str]) -> Server {
    with_reactor(kind, reaction, options, |setup| {
        Server::start_as(kind, setup)
    })
}

fn with_reactor(
    kind: Kind,
    reaction: &str,
    options: &[&str],
    start: impl FnOnce(Setup) -> Server,
) -> Server {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("reactor-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let library = built_module("tests/integration/reentrant/reactor.c", kind, &name);
    let [first, second] = [&library, &module()].map(|path| path.to_str().unwrap().to_string());
    let mut all = vec!["--loadmodule", &first];
    all.extend(reaction.split_whitespace());
    all.extend(["--loadmodule", &second]);
    all.extend(options);
    let server = start(Setup {
        options: all.into_iter().map(String::from).collect(),
        ..Setup::default()
    });
    std::fs::remove_file(&library).unwrap();
    server
}

/// A lock under this key has expired, and nobody has noticed.
fn expire(c: &mut Client, key: &str) {
    c.ok("DEBUG SET-ACTIVE-EXPIRE 0");
    c.int(&format!("LOCK.ACQUIRE {key} old 1"));
    let begun_us = c.now_us();
    wait_for("the lock to end", || {
        (c.now_us() > begun_us + 3_000).then_some(())
    });
}

fn assert_held_by(c: &mut Client, key: &str, token: &str) {
    assert!(c.int(&format!("LOCK.CHECK {key} {token}")) > 0, "{key}");
}

fn assert_free(c: &mut Client, keys: &[&str]) {
    for key in keys {
        assert_eq!(c.int(&format!("EXISTS {key}")), 0, "{key}");
    }
}

fn macquire_takes_nothing_that_was_taken_while_it_looked(kind: Kind) {
    let server = start(kind, "", &[]);
    let mut c = server.client();
    for keys in ["2 a b", "2 b a"] {
        expire(&mut c, "b");
        c.ok("react expired b LOCK.ACQUIRE a thief 60000");
        let taken = c.call(&format!("LOCK.MACQUIRE {keys} me 60000"));
        assert_eq!(taken, Reply::Nil, "{keys}");
        assert_held_by(&mut c, "a", "thief");
        assert_free(&mut c, &["b"]);
        assert_eq!(c.int("LOCK.RELEASE a thief"), 1);
    }
    // What is free by then is taken.
    c.int("LOCK.ACQUIRE a thief 60000");
    expire(&mut c, "b");
    c.ok("react expired b LOCK.RELEASE a thief");
    let fence = c.int("LOCK.MACQUIRE 2 a b me 60000 BLOCK 1000");
    assert_eq!(c.int("LOCK.CHECK a me"), fence);
    assert_eq!(c.int("LOCK.CHECK b me"), fence);
}

fn macquire_gives_back_what_it_has_taken(kind: Kind) {
    let (primary, replica) = {
        let primary = start(kind, "", &[]);
        let replica = Server::start_replica_of(&primary, &[]);
        (primary, replica)
    };
    let mut c = primary.client();
    c.ok("react new a SET b text");
    c.refused("LOCK.MACQUIRE 3 a b c me 60000", "WRONGTYPE ");
    assert_free(&mut c, &["a", "c"]);
    assert_eq!(c.text("GET b"), "text");
    replica.wait_until_it_follows(&primary);
    replica.assert_same_as(&primary, "after a take that was given back");
    c.call("DEL b");
    // A hold from before stays.
    let fence = c.int("LOCK.MACQUIRE 2 a b me 60000");
    assert_eq!(c.int("LOCK.MACQUIRE 2 a b me 60000"), fence);
}

/// The command that ends the last hold grants a place for two keys, or the timer does.
fn a_waiter_for_two_keys_gets_both_or_none(kind: Kind) {
    let server = start(kind, "", &[]);
    let mut c = server.client();
    for line in ["LOCK.RELEASE b other", "DEL b"] {
        c.int("LOCK.ACQUIRE b other 60000");
        let waiter = server.blocked("LOCK.MACQUIRE 2 a b me 60000 BLOCK 0");
        c.ok("react new a SET b text");
        c.int(line);
        waiter.error("TRYAGAIN ");
        assert_free(&mut c, &["a"]);
        assert_eq!(c.text("GET b"), "text");
        c.call("DEL b");
    }
    assert_eq!(c.info("lock_waiters"), "0");
}

fn a_lock_that_is_deleted_while_it_is_created_is_not_granted(kind: Kind) {
    let server = start(kind, "", &[]);
    let mut c = server.client();
    for line in [
        "LOCK.ACQUIRE a me 60000",
        "RWLOCK.RLOCK a me 60000",
        "LOCK.MACQUIRE 2 x a me 60000",
    ] {
        c.ok("react new a DEL a");
        c.refused(line, "TRYAGAIN ");
        assert_free(&mut c, &["a", "x"]);
        c.int(line);
        c.call("DEL a x");
    }
    // A grant of the timer.
    c.int("LOCK.ACQUIRE a other 60000");
    let waiter = server.blocked("LOCK.ACQUIRE a me 60000 BLOCK 0");
    c.ok("react new a DEL a");
    c.call("DEL a");
    waiter.error("TRYAGAIN ");
    assert_free(&mut c, &["a"]);
    assert_eq!(c.info("lock_held_keys"), "0");
    c.int("LOCK.ACQUIRE a me 60000");
}
