//! Connections run out, or one of them is closed by the server for what it does not read.

use std::io::Read;
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use super::super::harness::{wait_for, Client, Kind, Raw, Reply, Server};

on_every_server![
    who_waits_has_a_connection_and_who_leaves_makes_room,
    who_is_closed_for_what_it_does_not_read_leaves_the_queue,
    a_grant_to_one_that_is_closed_in_the_same_moment_is_passed_on,
    a_waiter_that_is_not_closed_reads_all_and_has_the_lock,
];

/// Whether the server has no connection left.
fn is_full(server: &Server) -> bool {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let mut said = [0; 64];
    // One that is let in is told nothing.
    let len = stream.read(&mut said).unwrap_or(0);
    said[..len].starts_with(b"-ERR max number of clients reached")
}

fn who_waits_has_a_connection_and_who_leaves_makes_room(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    let e = server.blocked("LOCK.ACQUIRE k e 60000 BLOCK 0");
    wait_for("the server to be full", || {
        // Those that have asked before may be counted still.
        let clients = c.info("connected_clients");
        c.text(&format!("CONFIG SET maxclients {clients}"));
        is_full(&server).then_some(())
    });
    assert_eq!(c.waiters("k"), ["b", "d", "e"]);
    assert!(b.is_pending() && d.is_pending() && e.is_pending());
    assert_eq!(c.int("LOCK.RELEASE k a"), 1);
    let b_has = b.fence();
    // Its connection is closed with it, as is that of one that is killed: room for two.
    assert_eq!(c.int(&format!("CLIENT KILL ID {}", d.id)), 1);
    d.broken();
    wait_for("room", || (!is_full(&server)).then_some(()));
    let mut newcomer = server.client();
    assert_eq!(newcomer.waiters("k"), ["e"]);
    assert_eq!(newcomer.call("LOCK.ACQUIRE k f 60000"), Reply::Nil);
    assert_eq!(newcomer.int("LOCK.RELEASE k b"), 1);
    assert!(e.fence() > b_has);
}

/// Waits for the lock and subscribes to what it will not read.
fn waiting_subscriber(server: &Server) -> Raw {
    let mut c = server.client();
    let limit = "pubsub 1000000 0 0";
    c.send(&["CONFIG", "SET", "client-output-buffer-limit", limit]);
    // With RESP3 a subscriber may still ask, and is told while it waits.
    server.raw_blocked("HELLO 3\r\nSUBSCRIBE news\r\nLOCK.ACQUIRE k b 60000 BLOCK 0")
}

fn who_is_closed_for_what_it_does_not_read_leaves_the_queue(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let _b = waiting_subscriber(&server);
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    assert_eq!(c.waiters("k"), ["b", "d"]);
    let news = "x".repeat(300_000);
    wait_for("b to be closed", || {
        c.call(&format!("PUBLISH news {news}"));
        (c.waiters("k") == ["d"]).then_some(())
    });
    assert!(d.is_pending());
    assert_eq!(c.int("LOCK.RELEASE k a"), 1);
    d.fence();
    assert_eq!(c.holders("k"), ["d"]);
    assert_eq!(server.blocked_clients(), 0);
}

fn a_grant_to_one_that_is_closed_in_the_same_moment_is_passed_on(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    // More than the network takes in at once.
    let news = format!("PUBLISH news {}", "x".repeat(20_000_000));
    let endings: [&[&str]; 4] = [
        &["LOCK.RELEASE k a", &news],
        &[&news, "LOCK.RELEASE k a"],
        &["DEL k", &news],
        &[&news, "DEL k"],
    ];
    for ending in endings {
        c.int("LOCK.ACQUIRE k a 60000");
        let _b = waiting_subscriber(&server);
        let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
        let told = c.multi(ending);
        assert!(told.iter().all(|told| *told == Reply::Int(1)), "{told:?}");
        d.fence();
        assert_eq!(c.holders("k"), ["d"]);
        assert_eq!(c.int("LOCK.RELEASE k d"), 1);
    }
    assert_eq!(server.blocked_clients(), 0);
}

fn a_waiter_that_is_not_closed_reads_all_and_has_the_lock(kind: Kind) {
    let server = Server::start(kind);
    let mut c: Client = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let mut b = waiting_subscriber(&server);
    let news = "y".repeat(900_000);
    assert_eq!(c.int(&format!("PUBLISH news {news}")), 1);
    assert_eq!(c.int("LOCK.RELEASE k a"), 1);
    let mut lines = std::iter::from_fn(|| b.line());
    assert!(lines.any(|line| line == news));
    let fence = lines.next().expect("the grant, behind the news");
    assert!(fence.starts_with(':'), "{fence}");
    assert_eq!(c.holders("k"), ["b"]);
    b.send("LOCK.RELEASE k b");
    assert_eq!(b.line().unwrap(), ":1");
}
