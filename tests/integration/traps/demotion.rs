//! A primary that becomes a replica unblocks its waiters with an error, and grants none of them in
//! the same step.

use std::time::{Duration, Instant};

use crate::harness::{wait_for, Client, Kind, Reply, Server};
use crate::places::fixture::{queued, Subscriber};

on_every_server![
    waiters_are_unblocked_with_an_error_at_demotion,
    a_replica_takes_nothing_back,
    a_replica_grants_nobody_before_its_timer_runs,
    a_failover_unblocks_the_waiters,
    waiters_with_capa_redirect_are_unblocked_at_demotion,
];

/// A primary sends its data set to a replica without waiting for others.
const AT_ONCE: [&str; 2] = ["--repl-diskless-sync-delay", "0"];

fn is_replica(c: &mut Client) -> bool {
    c.info("role") == "slave"
}

fn waiters_are_unblocked_with_an_error_at_demotion(kind: Kind) {
    let (other, server) = (Server::start_with(kind, &AT_ONCE), Server::start(kind));
    let mut c = server.client();
    other.client().int("LOCK.ACQUIRE theirs t 60000");
    c.int("LOCK.ACQUIRE k a 60000");
    c.int("LOCK.ACQUIRE short a 60000");
    let waiters = ["k", "k", "short"]
        .map(|key| server.blocked(&format!("LOCK.ACQUIRE {key} * 60000 BLOCK 0")));
    let follow = format!("REPLICAOF 127.0.0.1 {}", other.port);
    c.in_one_go(&["LOCK.RENEW short a 400", &follow]);
    waiters
        .into_iter()
        .for_each(|waiter| waiter.error("UNBLOCKED "));
    assert_eq!(server.blocked_clients(), 0);
    // The data set of the other server replaces this one's, which empties the waited keys.
    server.wait_until_it_follows(&other);
    assert_eq!(c.holders("theirs"), ["t"]);
    assert_eq!(c.int("EXISTS k short"), 0);
    c.text("REPLICAOF NO ONE");
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    c.int("LOCK.RELEASE k a");
    b.fence();
}

fn a_replica_takes_nothing_back(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    // Granted but not delivered. The new primary decides about this hold, because it may have it
    // already.
    c.multi(&["LOCK.RELEASE k a", "REPLICAOF 127.0.0.1 1"]);
    b.error("UNBLOCKED ");
    let start = Instant::now();
    wait_for("some turns of the server's loop", || {
        assert_eq!(c.holders("k"), ["b"]);
        (start.elapsed() > Duration::from_millis(50)).then_some(())
    });
}

fn a_replica_grants_nobody_before_its_timer_runs(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut subscriber = Subscriber::new(&server, "SUBSCRIBE c");
    c.int("LOCK.ACQUIRE k a 60000");
    c.int("LOCK.ACQUIRE l a 60000");
    queued(&mut c, "LOCK.ACQUIRE k b 60000 NOTIFY 0 c");
    queued(&mut c, "LOCK.MACQUIRE 2 l m b 60000 NOTIFY 0 c");
    c.multi(&[
        "REPLICAOF 127.0.0.1 1",
        "LOCK.RELEASE k a",
        "LOCK.RELEASE l a",
    ]);
    let mut heard = [subscriber.text(), subscriber.text()];
    heard.sort();
    assert_eq!(heard, ["tryagain 0 1 k b", "tryagain 0 1 l b"]);
    assert!(c.holders("k").is_empty() && c.holders("l").is_empty());
}

fn a_failover_unblocks_the_waiters(kind: Kind) {
    let primary = Server::start_with(kind, &AT_ONCE);
    let replica = Server::start_replica_of(&primary, &AT_ONCE);
    let (mut p, mut r) = (primary.client(), replica.client());
    wait_for("the link", || {
        let online = p.info("connected_slaves") == "1" && p.info("slave0").contains("state=online");
        online.then_some(())
    });
    let fence = p.int("LOCK.ACQUIRE k a 60000");
    let b = primary.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    p.text(&format!(
        "FAILOVER TO 127.0.0.1 {} TIMEOUT 15000",
        replica.port
    ));
    wait_for("the replica to lead", || {
        (r.info("role") == "master").then_some(())
    });
    b.sent_away();
    assert_eq!(r.int("LOCK.RENEW k a 60000"), 1);
    assert_eq!(r.int("LOCK.ACQUIRE k a 60000"), fence);
    let b = replica.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    assert_eq!(r.int("LOCK.RELEASE k a"), 1);
    assert!(b.fence() > fence);
    wait_for("the old primary to follow", || {
        (is_replica(&mut p) && p.holders("k") == ["b"]).then_some(())
    });
}

/// Valkey 9.1 leaves a module's blocked client blocked if it declared this capability.
fn waiters_with_capa_redirect_are_unblocked_at_demotion(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    if c.call("CLIENT CAPA REDIRECT") != Reply::Simple("OK".into()) {
        println!("{kind:?} redirects nobody");
        return;
    }
    c.int("LOCK.ACQUIRE k a 600000");
    for timeout in [0, 600_000] {
        let mut b = server.raw();
        b.send("CLIENT CAPA REDIRECT");
        assert_eq!(b.line().unwrap(), "+OK");
        b.send(&format!("LOCK.ACQUIRE k b 600000 BLOCK {timeout}"));
        wait_for("b to wait", || (c.waiters("k") == ["b"]).then_some(()));
        c.text("REPLICAOF 127.0.0.1 1");
        let error = b.line().unwrap();
        let words = ["-TRYAGAIN ", "-UNBLOCKED ", "-REDIRECT "];
        assert!(words.iter().any(|word| error.starts_with(word)), "{error}");
        c.text("REPLICAOF NO ONE");
        assert_eq!(c.holders("k"), ["a"]);
        assert!(c.waiters("k").is_empty());
    }
}
