//! LINGER and what happens to a whole server: replicas, a change of roles. A pause is in
//! tests/scenarios/pauses.txt.

use super::{bound, holder, kill};
use crate::harness::{wait_for, Kind, Server};

on_every_server![a_replica_follows, a_demoted_server_forgets];

fn a_replica_follows(kind: Kind) {
    let server = Server::start_with(kind, &["--appendonly", "yes"]);
    let replica = Server::start_replica_of(&server, &[]);
    replica.wait_until_it_follows(&server);
    let (mut c, mut r) = (server.client(), replica.client());
    let held = holder(&server, "LOCK.ACQUIRE k me 600000 LINGER 50000");
    let gone = holder(&server, "LOCK.ACQUIRE j me 600000 LINGER 0");
    replica.wait_until_it_follows(&server);
    assert!(r.int("PTTL k") > 500_000);
    assert_eq!(bound(&mut r), 0);
    kill(&mut c, &held);
    kill(&mut c, &gone);
    c.until("EXISTS j", 0);
    wait_for("the new deadline", || {
        (c.int("PTTL k") <= 50_000).then_some(())
    });
    replica.wait_until_it_follows(&server);
    assert!((1..=50_000).contains(&r.int("PTTL k")));
    assert_eq!(r.int("EXISTS j"), 0);
    assert_eq!(r.call("DUMP k"), c.call("DUMP k"));
}

fn a_demoted_server_forgets(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let held = holder(&server, "LOCK.ACQUIRE k me 600000 LINGER 0");
    let lost = holder(&server, "LOCK.ACQUIRE j me 600000 LINGER 0");
    // It is a primary again before any timer runs.
    let kill_lost = format!("CLIENT KILL ID {}", lost.id);
    c.in_one_go(&[&kill_lost, "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"]);
    assert_eq!(bound(&mut c), 0);
    kill(&mut c, &held);
    c.int("LOCK.RENEW k other 1");
    c.int("LOCK.RENEW j other 1");
    assert_eq!(c.holders("k"), ["me"]);
    assert_eq!(c.holders("j"), ["me"], "its new primary would have decided");
    assert!(c.int("PTTL k") > 500_000);
    // It binds again afterwards.
    let held = holder(&server, "LOCK.ACQUIRE k me 600000 LINGER 0");
    kill(&mut c, &held);
    c.until("EXISTS k", 0);
}
