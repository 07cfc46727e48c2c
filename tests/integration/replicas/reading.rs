//! A replica's reads of its locks, and the commands that it refuses.

use super::primary;
use crate::harness::commands::writes;
use crate::harness::workload::script;
use crate::harness::{now_ms, wait_for, Client, Kind, Reply, Server};

on_every_server![
    a_replica_answers_as_its_primary,
    an_expired_lock_is_free_on_a_replica_as_any_expired_key_is_gone,
    every_write_on_a_replica_is_refused,
];

fn a_replica_answers_as_its_primary(kind: Kind) {
    let primary = primary(kind);
    let replica = Server::start_replica_of(&primary, &[]);
    let (mut c, mut r) = (primary.client(), replica.client());
    c.int("LOCK.ACQUIRE k a 600000");
    let waiter = primary.blocked("LOCK.ACQUIRE k b 600000 BLOCK 0");
    for line in [
        "PING",
        "LOCK.RENEW k a 700000",
        "LOCK.RELEASE k a",
        "RWLOCK.RLOCK k b 600000",
        "RWLOCK.RLOCK k * 600000",
        "PEXPIRE k 500000",
        "LOCK.RELEASE k b",
    ] {
        c.call(line);
        replica.wait_until_it_follows(&primary);
        assert_eq!(c.steady_info("k"), r.steady_info("k"), "{line}");
        for ask in [
            "TYPE k",
            "EXISTS k",
            "DUMP k",
            "SCAN 0 TYPE redislock",
            "LOCK.CHECK k a",
        ] {
            assert_eq!(c.call(ask), r.call(ask), "{line}: {ask}");
        }
        // Waiters wait on the primary.
        assert_eq!(r.call("LOCK.INFO k").field("waiters").items(), []);
        let left = |c: &mut Client| {
            let holders = c.call("LOCK.INFO k").field("holders");
            let ttls = holders.items().iter().map(|h| h.field("ttl").as_int());
            ttls.collect::<Vec<_>>()
        };
        // The two are read one after the other.
        let (first, there, second) = (left(&mut c), left(&mut r), left(&mut c));
        for n in 0..first.len() {
            let expected = second[n]..=first[n];
            assert!(expected.contains(&there[n]), "{line}");
        }
    }
    waiter.fence();
}

/// A lock beside a string with the same expiry.
fn an_expired_lock_is_free_on_a_replica_as_any_expired_key_is_gone(kind: Kind) {
    let primary = primary(kind);
    let replica = Server::start_replica_of(&primary, &[]);
    let (mut c, mut r) = (primary.client(), replica.client());
    c.call("DEBUG SET-ACTIVE-EXPIRE 0");
    c.int("LOCK.ACQUIRE k a 600000");
    c.text("SET text t");
    // The first of all may take a second to arrive.
    replica.wait_until_it_follows(&primary);
    let end = now_ms() + 1_000;
    c.int(&format!("PEXPIREAT k {end}"));
    c.int(&format!("PEXPIREAT text {end}"));
    replica.wait_until_it_follows(&primary);
    assert_eq!(r.int("EXISTS k text"), 2);
    assert_eq!(r.holders("k"), ["a"]);
    wait_for("the deadline", || (now_ms() > end + 1).then_some(()));
    // The replica knows that both have expired, and keeps both.
    assert_eq!(r.call("LOCK.INFO k"), Reply::Nil);
    assert_eq!(r.call("GET text"), Reply::Nil);
    assert_eq!(r.int("EXISTS k text"), 0);
    assert_eq!((r.int("PTTL k"), r.int("PTTL text")), (-2, -2));
    assert_eq!(r.text("TYPE k"), "none");
    assert_eq!(r.int("DBSIZE"), 2);
    // The primary replicates the deletion.
    c.call("DEBUG SET-ACTIVE-EXPIRE 1");
    r.until("DBSIZE", 0);
    replica.assert_same_as(&primary, "at the end");
}

fn every_write_on_a_replica_is_refused(kind: Kind) {
    let primary = primary(kind);
    let replica = Server::start_replica_of(&primary, &[]);
    let (mut c, mut r) = (primary.client(), replica.client());
    c.int("LOCK.ACQUIRE k a 600000");
    c.int("RWLOCK.RLOCK s a 600000");
    replica.wait_until_it_follows(&primary);
    let others = [
        "LOCK.ACQUIRE free a 600000 BLOCK 0",
        "LOCK.ACQUIRE k b 600000 BLOCK 10",
        "RWLOCK.RLOCK s b 600000 BLOCK 0",
        "LOCK.RELEASE k a",
        "LOCK._APPLY k x",
        "DEL k",
        "PEXPIRE k 1",
    ];
    let of_key = writes().map(|line| line.replace("{}", "k"));
    for line in of_key.chain(others.map(String::from)) {
        let line = line.as_str();
        r.refused(line, "READONLY ");
        // In a script and in a transaction as well. A script cannot call the internal command at
        // all.
        if !line.starts_with("LOCK._APPLY") {
            let reply = r.pipeline(&[script(&[line])]).remove(0);
            let said = format!("{reply:?}");
            assert!(
                said.contains("READONLY") || said.contains("read only"),
                "{line}: {said}"
            );
        }
        r.text("MULTI");
        let error = r.error(line);
        assert!(error.starts_with("READONLY "), "{line}: {error}");
        r.refused("EXEC", "EXECABORT");
    }
    assert_eq!(replica.blocked_clients(), 0);
    replica.assert_same_as(&primary, "after the refusals");
}
