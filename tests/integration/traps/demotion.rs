//! A primary that becomes a replica unblocks its waiters with an error, and grants none of them in
//! the same step.

use std::time::{Duration, Instant};

use crate::harness::{wait_for, Kind, Reply, Server};
use crate::places::fixture::{queued, Subscriber};

on_every_server![
    a_replica_takes_nothing_back,
    a_replica_grants_nobody_before_its_timer_runs,
    waiters_with_capa_redirect_are_unblocked_at_demotion,
];

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
