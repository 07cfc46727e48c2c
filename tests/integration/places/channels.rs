//! NOTIFY: the grant of a request, or its end, is published to a channel.

use super::fixture::{queued, Subscriber};
use crate::harness::{Kind, Reply, Server};

on_every_server![
    a_message_is_binary_safe,
    a_subscriber_in_resp3_asks_on_its_own_connection,
    pattern_subscribers_count,
];

fn a_message_is_binary_safe(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::connect(&server);
    sub.subscribe("SUBSCRIBE c");
    let names: [(&[u8], &[u8]); 4] = [
        (b"a key with spaces", b"a token with spaces"),
        (b"\x00\xff\r\n", b"\x00\xfe \r\n"),
        (b"", b" "),
        (b" 7 granted ", b"granted 1 1 k b"),
    ];
    for (key, token) in names {
        c.send(&[b"LOCK.ACQUIRE".as_slice(), key, b"a", b"60000"]);
        let ask = [b"LOCK.ACQUIRE", key, token, b"60000", b"NOTIFY", b"0", b"c"];
        assert_eq!(c.send(&ask), Reply::Simple("QUEUED".into()));
        c.send(&[b"LOCK.RELEASE".as_slice(), key, b"a"]);
        let (channel, message) = sub.message();
        assert_eq!(channel, b"c");
        let fence = c
            .send(&[b"LOCK.ACQUIRE".as_slice(), key, token, b"60000"])
            .as_int();
        let head = format!("granted {fence} {} ", key.len());
        assert_eq!(message, [head.as_bytes(), key, b" ", token].concat());
    }
}

fn a_subscriber_in_resp3_asks_on_its_own_connection(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::connect(&server);
    sub.call("HELLO 3");
    sub.subscribe("SUBSCRIBE c");
    c.int("LOCK.ACQUIRE k a 60000");
    let queued = sub.call("LOCK.ACQUIRE k b 60000 NOTIFY 0 c");
    assert_eq!(Reply::from(queued), Reply::Simple("QUEUED".into()));
    c.int("LOCK.RELEASE k a");
    sub.fence("k", "b");
    // It passes the lock on to itself.
    let queued = sub.call("LOCK.ACQUIRE k d 60000 NOTIFY 0 c");
    assert_eq!(Reply::from(queued), Reply::Simple("QUEUED".into()));
    assert_eq!(Reply::from(sub.call("LOCK.RELEASE k b")), Reply::Int(1));
    sub.fence("k", "d");
    assert_eq!(sub.so_far(), [""; 0]);
}

fn pattern_subscribers_count(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "PSUBSCRIBE lock:*");
    c.int("LOCK.ACQUIRE k a 60000");
    queued(&mut c, "LOCK.ACQUIRE k b 60000 NOTIFY 0 lock:me");
    c.int("LOCK.RELEASE k a");
    sub.fence("k", "b");
    assert_eq!(c.holders("k"), ["b"]);
}
