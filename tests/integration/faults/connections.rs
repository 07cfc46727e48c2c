//! Connections run out, or the server closes one because of its output buffer.

use std::io::Read;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::super::harness::{wait_for, Kind, Raw, Reply, Server};

on_every_server![
    waiters_count_against_maxclients_until_they_leave,
    a_subscriber_waits_where_the_server_allows_it,
    a_client_closed_for_its_output_buffer_leaves_the_queue,
    a_grant_to_a_client_closed_at_that_moment_ends_by_linger,
];

/// Whether the server has no connection left.
fn is_full(server: &Server) -> bool {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let mut said = [0; 64];
    // A client that is accepted receives nothing.
    let len = stream.read(&mut said).unwrap_or(0);
    said[..len].starts_with(b"-ERR max number of clients reached")
}

fn waiters_count_against_maxclients_until_they_leave(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    let e = server.blocked("LOCK.ACQUIRE k e 60000 BLOCK 0");
    wait_for("the server to be full", || {
        // Earlier connections may still be counted.
        let clients = c.info("connected_clients");
        c.text(&format!("CONFIG SET maxclients {clients}"));
        is_full(&server).then_some(())
    });
    assert_eq!(c.waiters("k"), ["b", "d", "e"]);
    assert!(b.is_pending() && d.is_pending() && e.is_pending());
    assert_eq!(c.int("LOCK.RELEASE k a"), 1);
    let b_has = b.fence();
    // Its connection is closed with it, like that of a killed client. That makes room for two.
    assert_eq!(c.int(&format!("CLIENT KILL ID {}", d.id)), 1);
    d.broken();
    wait_for("room", || (!is_full(&server)).then_some(()));
    let mut new_client = server.client();
    assert_eq!(new_client.waiters("k"), ["e"]);
    assert_eq!(new_client.call("LOCK.ACQUIRE k f 60000"), Reply::Nil);
    assert_eq!(new_client.int("LOCK.RELEASE k b"), 1);
    assert!(e.fence() > b_has);
}

/// Since Valkey 8.1 a module cannot block a client that has subscriptions.
fn may_wait_and_subscribe(kind: Kind) -> bool {
    !matches!(kind, Kind::Valkey8_1 | Kind::Valkey9)
}

/// Waits for the lock and receives data that it does not read. With RESP3 a waiting client receives
/// published messages and invalidated keys.
fn waiting_listener(server: &Server) -> Raw {
    let mut c = server.client();
    let (class, listen) = match may_wait_and_subscribe(server.kind) {
        true => ("pubsub", "SUBSCRIBE news"),
        false => ("normal", "CLIENT TRACKING ON BCAST PREFIX news"),
    };
    let limit = format!("{class} 1000000 0 0");
    c.send(&["CONFIG", "SET", "client-output-buffer-limit", &limit]);
    server.raw_blocked(&format!(
        "HELLO 3\r\n{listen}\r\nLOCK.ACQUIRE k b 60000 BLOCK 0 LINGER 0"
    ))
}

/// A command that sends it data, different each time. The command returns 1.
fn tell(kind: Kind, news: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    match may_wait_and_subscribe(kind) {
        true => format!("PUBLISH news {news}"),
        false => format!("SADD news{n}{news} member"),
    }
}

fn a_subscriber_waits_where_the_server_allows_it(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let mut b = server.raw();
    b.send("HELLO 3\r\nSUBSCRIBE news\r\nLOCK.ACQUIRE k b 60000 BLOCK 0");
    let mut lines = std::iter::from_fn(|| b.line());
    if may_wait_and_subscribe(kind) {
        c.until_waiters("k", &["b"]);
        assert_eq!(c.int("LOCK.RELEASE k a"), 1);
        assert!(lines.any(|line| line == "news"));
        assert_eq!(lines.next().unwrap(), ":1");
        assert!(lines.next().unwrap().starts_with(':'));
    } else {
        // It is answered as if BLOCK were absent.
        assert!(lines.any(|line| line == "_"));
        assert_eq!(c.holders("k"), ["a"]);
        assert!(c.waiters("k").is_empty());
    }
}

fn a_client_closed_for_its_output_buffer_leaves_the_queue(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let _b = waiting_listener(&server);
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    assert_eq!(c.waiters("k"), ["b", "d"]);
    let news = "x".repeat(300_000);
    wait_for("b to be closed", || {
        c.call(&tell(kind, &news));
        (c.waiters("k") == ["d"]).then_some(())
    });
    assert!(d.is_pending());
    assert_eq!(c.int("LOCK.RELEASE k a"), 1);
    d.fence();
    assert_eq!(c.holders("k"), ["d"]);
    assert_eq!(server.blocked_clients(), 0);
}

/// The server closes such a client only after it has asked for the reply.
fn a_grant_to_a_client_closed_at_that_moment_ends_by_linger(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    // More than the network buffers hold.
    let news = "x".repeat(20_000_000);
    for (end, end_comes_first) in [
        ("LOCK.RELEASE k a", true),
        ("LOCK.RELEASE k a", false),
        ("DEL k", true),
        ("DEL k", false),
    ] {
        let news = tell(kind, &news);
        let ending = match end_comes_first {
            true => [end, &news],
            false => [&news, end],
        };
        c.int("LOCK.ACQUIRE k a 60000");
        let _b = waiting_listener(&server);
        let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
        let replies = c.multi(&ending);
        assert!(
            replies.iter().all(|reply| *reply == Reply::Int(1)),
            "{replies:?}"
        );
        d.fence();
        assert_eq!(c.holders("k"), ["d"]);
        assert_eq!(c.int("LOCK.RELEASE k d"), 1);
    }
    assert_eq!(server.blocked_clients(), 0);
}
