//! Locks of other libraries and native locks on the same key, while clients are replaced one by
//! one: docs/MIGRATING.md.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::harness::{wait_for, Client, Kind, Reply, Server};

mod legacy;

use legacy::{Excluded, Old, ALL, REDISSON, SET_NX};

on_every_server![
    a_legacy_lock_excludes_native_clients,
    a_native_lock_excludes_legacy_clients,
    late_owners_of_legacy_locks_do_not_affect_a_native_lock,
    a_delete_by_a_legacy_client_releases_the_lock,
    a_native_release_sends_no_signal,
    legacy_and_native_clients_take_turns_on_one_key,
    legacy_transitional_and_native_clients_take_turns_on_two_keys,
];

const KEY: &str = "lock:stock";

fn is_wrong_type(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(error) if error.contains("WRONGTYPE"))
}

fn a_legacy_lock_excludes_native_clients(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for old in &ALL {
        assert!(old.takes(&mut c, KEY, "old"), "{}", old.name);
        let before = c.call(&format!("DUMP {KEY}"));
        for line in [
            "LOCK.ACQUIRE KEY new 1000",
            // Not by queueing: the server does not know when such a lock is free.
            "LOCK.ACQUIRE KEY new 1000 BLOCK 0",
            "RWLOCK.RLOCK KEY new 1000 BLOCK 0",
            "LOCK.RENEW KEY new 1000",
            "LOCK.RELEASE KEY old",
            "LOCK.INFO KEY",
        ] {
            let reply = c.call(&line.replace("KEY", KEY));
            assert!(is_wrong_type(&reply), "{}: {line}: {reply:?}", old.name);
        }
        assert_eq!(c.call(&format!("DUMP {KEY}")), before, "{}", old.name);
        assert_eq!(old.extend(&mut c, KEY, "old"), Reply::Int(1));
        assert_eq!(old.release(&mut c, KEY, "old"), Reply::Int(1));
        assert!(c.int(&format!("LOCK.ACQUIRE {KEY} new 1000")) > 0);
        assert_eq!(c.int(&format!("LOCK.RELEASE {KEY} new")), 1);
    }
}

fn a_native_lock_excludes_legacy_clients(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for shared in [false, true] {
        let command = if shared {
            "RWLOCK.RLOCK"
        } else {
            "LOCK.ACQUIRE"
        };
        for old in &ALL {
            let fence = c.int(&format!("{command} {KEY} new 20000"));
            let reply = old.acquire(&mut c, KEY, "old");
            let seen = match is_wrong_type(&reply) {
                true => Excluded::Raises,
                false => Excluded::Refused,
            };
            assert_eq!(seen, old.on_native, "{}: {reply:?}", old.name);
            assert_still_held(&mut c, fence, old);
            assert_eq!(c.int(&format!("LOCK.RELEASE {KEY} new")), 1);
            assert!(old.takes(&mut c, KEY, "old"), "{}", old.name);
            assert_eq!(old.release(&mut c, KEY, "old"), Reply::Int(1));
        }
    }
    // The oldest of all.
    c.int(&format!("LOCK.ACQUIRE {KEY} new 20000"));
    assert_eq!(c.int(&format!("SETNX {KEY} old")), 0);
}

fn late_owners_of_legacy_locks_do_not_affect_a_native_lock(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for old in &ALL {
        // Its own ttl has passed without its knowledge.
        assert!(old.takes(&mut c, KEY, "old"), "{}", old.name);
        c.call(&format!("PEXPIRE {KEY} 1"));
        let fence = wait_for("the old lock to end", || {
            match c.call(&format!("LOCK.ACQUIRE {KEY} new 20000")) {
                Reply::Int(fence) => Some(fence),
                reply => {
                    assert!(is_wrong_type(&reply), "{reply:?}");
                    None
                }
            }
        });
        for reply in [
            old.extend(&mut c, KEY, "old"),
            old.release(&mut c, KEY, "old"),
        ] {
            assert!(is_wrong_type(&reply), "{}: {reply:?}", old.name);
        }
        assert_still_held(&mut c, fence, old);
        assert_eq!(c.int(&format!("LOCK.RELEASE {KEY} new")), 1);
    }
}

#[track_caller]
fn assert_still_held(c: &mut Client, fence: i64, old: &Old) {
    let info = c.call(&format!("LOCK.INFO {KEY}"));
    let holders = info.field("holders");
    let [holder] = holders.items() else {
        panic!("{}: {info:?}", old.name);
    };
    assert_eq!(holder.field("fence"), Reply::Int(fence), "{}", old.name);
    let ttl = holder.field("ttl").as_int();
    assert!((5_000..=20_000).contains(&ttl), "{}: {ttl}", old.name);
}

/// Unconditional deletions end a native lock as they ended a legacy one: `DEL` after SETNX,
/// Redisson's forceUnlock, python-redis-lock's reset and reset_all.
fn a_delete_by_a_legacy_client_releases_the_lock(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let delete = "redis.call('DEL', KEYS[1])";
    let force_unlock =
        format!("if {delete} == 1 then redis.call('PUBLISH', 'c', 0) return 1 end return 0");
    let reset = format!("redis.call('LPUSH', 's', 1) redis.call('PEXPIRE', 's', 1000) {delete}");
    let reset_all =
        "for _, key in pairs(redis.call('KEYS', 'lock:*')) do redis.call('DEL', key) end";
    for script in [delete, &force_unlock, &reset, reset_all] {
        c.int(&format!("LOCK.ACQUIRE {KEY} new 20000"));
        let next = server.blocked(&format!("LOCK.ACQUIRE {KEY} next 20000 BLOCK 0"));
        let reply = c.send(&["EVAL", script, "1", KEY]);
        assert!(!matches!(reply, Reply::Error(_)), "{script}: {reply:?}");
        assert!(next.fence() > 0);
        assert_eq!(c.int(&format!("LOCK.RELEASE {KEY} new")), 0);
        assert_eq!(c.int(&format!("LOCK.RELEASE {KEY} next")), 1);
    }
}

/// A waiter of python-redis-lock sleeps on a list that only its own releases fill.
fn a_native_release_sends_no_signal(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let waiter = server.blocked("BLPOP lock-signal:stock 1");
    c.int(&format!("LOCK.ACQUIRE {KEY} new 20000"));
    assert_eq!(c.int(&format!("LOCK.RELEASE {KEY} new")), 1);
    assert_eq!(waiter.reply(), Reply::Nil);
    // A signal that a new client sends on its behalf wakes it.
    let waiter = server.blocked("BLPOP lock-signal:stock 20");
    c.call("LPUSH lock-signal:stock 1");
    assert!(matches!(waiter.reply(), Reply::Array(_)));
}

/// How one generation of clients locks.
type Generation = fn(&mut Client, &str);

const ROUNDS: usize = 8;

/// Clients of several generations each hold the lock several times, and never two of them at once.
fn take_turns(server: &Server, generations: &[(Generation, Generation)]) {
    let inside = AtomicUsize::new(0);
    thread::scope(|scope| {
        for number in 0..6 {
            let (enter, leave) = generations[number % generations.len()];
            let (inside, mut c) = (&inside, server.client());
            scope.spawn(move || {
                let token = format!("t{number}");
                for _ in 0..ROUNDS {
                    enter(&mut c, &token);
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                    thread::sleep(Duration::from_millis(1));
                    inside.fetch_sub(1, Ordering::SeqCst);
                    leave(&mut c, &token);
                }
            });
        }
    });
    assert_eq!(server.client().int(&format!("EXISTS {KEY}")), 0);
}

fn enter_old(old: &Old, c: &mut Client, token: &str) {
    wait_for("an old lock", || old.takes(c, KEY, token).then_some(()));
}

fn leave_old(old: &Old, c: &mut Client, token: &str) {
    assert_eq!(old.release(c, KEY, token), Reply::Int(1), "{token}");
}

/// Adapters wait this way while there are legacy clients: in the queue, and beside a legacy lock by
/// polling.
fn enter_native(c: &mut Client, key: &str, token: &str) {
    wait_for("a native lock", || {
        match c.call(&format!("LOCK.ACQUIRE {key} {token} 20000 BLOCK 10000")) {
            Reply::Int(_) => Some(()),
            reply => {
                assert!(is_wrong_type(&reply), "{reply:?}");
                None
            }
        }
    });
}

fn leave_native(c: &mut Client, key: &str, token: &str) {
    assert_eq!(c.int(&format!("LOCK.RELEASE {key} {token}")), 1, "{token}");
}

fn legacy_and_native_clients_take_turns_on_one_key(kind: Kind) {
    let server = Server::start(kind);
    take_turns(
        &server,
        &[
            (
                |c, token| enter_old(&SET_NX, c, token),
                |c, token| leave_old(&SET_NX, c, token),
            ),
            (
                |c, token| enter_native(c, KEY, token),
                |c, token| leave_native(c, KEY, token),
            ),
        ],
    );
}

/// A library that raises errors on a native lock needs another key, and a transitional generation
/// that takes both locks: always the legacy one first.
fn legacy_transitional_and_native_clients_take_turns_on_two_keys(kind: Kind) {
    const NATIVE: &str = "native:stock";
    let server = Server::start(kind);
    let old: (Generation, Generation) = (
        |c, token| enter_old(&REDISSON, c, token),
        |c, token| leave_old(&REDISSON, c, token),
    );
    let both: (Generation, Generation) = (
        |c, token| {
            enter_old(&REDISSON, c, token);
            enter_native(c, NATIVE, token);
        },
        |c, token| {
            leave_native(c, NATIVE, token);
            leave_old(&REDISSON, c, token);
        },
    );
    let native: (Generation, Generation) = (
        |c, token| enter_native(c, NATIVE, token),
        |c, token| leave_native(c, NATIVE, token),
    );
    take_turns(&server, &[old, both]);
    take_turns(&server, &[both, native]);
    assert_eq!(server.client().int(&format!("EXISTS {NATIVE}")), 0);
}
