//! NOTIFY: the grant of a request, or its end, is published to a channel.

use std::time::Instant;

use super::fixture::{
    leaves_place, place, places, queued, until_gone, within, Listener, Subscriber,
};
use crate::harness::{wait_for, Kind, Reply, Server};

on_every_server![
    a_free_lock_gives_the_fence_at_once,
    a_grant_is_published_once,
    a_message_is_binary_safe,
    a_timeout_is_published,
    a_timeout_with_keep_leaves_the_place,
    a_timeout_of_zero_waits_for_ever,
    a_deadlock_is_published,
    grants_go_on_from_channel_to_channel,
    the_channel_named_last_hears,
    a_client_and_a_channel_at_one_place,
    a_channel_outlives_the_connection_that_named_it,
    a_subscriber_in_resp3_asks_on_its_own_connection,
    pattern_subscribers_count,
    a_deadline_grants_a_channel,
    readers_at_the_head_are_granted_to_channels_together,
    one_channel_hears_for_many,
];

fn a_free_lock_gives_the_fence_at_once(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    let fence = c.int("LOCK.ACQUIRE k b 60000 NOTIFY 0 c");
    assert_eq!(c.int("LOCK.ACQUIRE k b 60000 NOTIFY 5 c"), fence);
    assert_eq!(
        c.int("RWLOCK.RLOCK r b 60000 NOTIFY 0 nobody:hears"),
        c.call("LOCK.INFO r").field("holders").items()[0]
            .field("fence")
            .as_int()
    );
    assert_eq!(sub.so_far(), [""; 0], "the reply has told it");
    assert_eq!(places(&mut c, "k"), []);
}

fn a_grant_is_published_once(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c other");
    for command in ["LOCK.ACQUIRE", "RWLOCK.WLOCK", "RWLOCK.RLOCK"] {
        let before = c.int("LOCK.ACQUIRE k a 60000");
        queued(&mut c, &format!("{command} k b 60000 NOTIFY 60000 c"));
        assert_eq!(sub.so_far(), [""; 0]);
        c.int("LOCK.RELEASE k a");
        let fence = sub.fence("k", "b");
        assert!(fence > before);
        let holder = c.call("LOCK.INFO k").field("holders").items()[0].clone();
        assert_eq!(holder.field("token"), "b".into());
        assert_eq!(holder.field("fence"), Reply::Int(fence));
        assert!(c.int("PTTL k") > 55_000);
        // It asks again with its token, and gets the same fence.
        assert_eq!(c.int(&format!("{command} k b 60000 NOTIFY 0 c")), fence);
        assert_eq!(c.int("LOCK.RELEASE k b"), 1);
        assert_eq!(sub.so_far(), [""; 0]);
        assert_eq!(c.call("LOCK.INFO k"), Reply::Nil);
    }
}

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

fn a_timeout_is_published(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    c.int("LOCK.ACQUIRE k a 60000");
    within("the timeout", [80, 150], || {
        let start = Instant::now();
        queued(&mut c, "LOCK.ACQUIRE k b 60000 NOTIFY 80 c");
        let behind = server.blocked("RWLOCK.RLOCK k r 60000 BLOCK 0");
        assert_eq!(sub.text(), "timeout 0 1 k b");
        let took = start.elapsed();
        assert_eq!(c.waiters("k"), ["r"]);
        c.int("LOCK.RELEASE k r");
        assert_eq!(behind.reply(), Reply::Nil);
        took
    });
    c.int("LOCK.RELEASE k a");
    assert_eq!(sub.so_far(), [""; 0]);
    assert_eq!(c.call("LOCK.INFO k"), Reply::Nil);
}

fn a_timeout_with_keep_leaves_the_place(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    c.int("LOCK.ACQUIRE k a 60000");
    queued(&mut c, "LOCK.ACQUIRE k b 60000 NOTIFY 30 c KEEP 60000");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    assert_eq!(sub.text(), "timeout 0 1 k b");
    assert!(place(&mut c, "k", "b").is_absent());
    c.int("LOCK.RELEASE k a");
    assert!(d.is_pending());
    c.int("LOCK.ACQUIRE k b 60000 NOTIFY 0 c");
    assert_eq!(sub.so_far(), [""; 0], "the reply has told it");
    c.int("LOCK.RELEASE k b");
    d.fence();
    // When the grace is over nothing is published.
    queued(&mut c, "LOCK.ACQUIRE k b 60000 NOTIFY 20 c KEEP 20");
    assert_eq!(sub.text(), "timeout 0 1 k b");
    until_gone(&mut c, "k", "b");
    assert_eq!(sub.so_far(), [""; 0]);
}

fn a_timeout_of_zero_waits_for_ever(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    c.int("LOCK.ACQUIRE k a 60000");
    queued(&mut c, "LOCK.ACQUIRE k b 60000 NOTIFY 0 c");
    queued(&mut c, "LOCK.ACQUIRE k d 60000 NOTIFY 281474976710656 c");
    wait_for("it to wait for a while", || {
        (place(&mut c, "k", "b").waited_ms > 150).then_some(())
    });
    assert_eq!(c.waiters("k"), ["b", "d"]);
    c.int("LOCK.RELEASE k a");
    sub.fence("k", "b");
}

fn a_deadlock_is_published(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    c.int("LOCK.ACQUIRE k a 60000");
    queued(&mut c, "RWLOCK.WLOCK k b 60000 NOTIFY 0 c");
    queued(&mut c, "RWLOCK.WLOCK k d 60000 NOTIFY 0 c KEEP 60000");
    // A lock comes to the key that both of them share: one converts, and the other never could.
    c.int("RWLOCK.RLOCK shares b 60000");
    c.int("RWLOCK.RLOCK shares d 60000");
    c.text("RENAME shares k");
    assert_eq!(sub.text(), "deadlock 0 1 k d");
    assert_eq!(c.waiters("k"), ["b"]);
    c.int("LOCK.RELEASE k d");
    sub.fence("k", "b");
    assert_eq!(sub.so_far(), [""; 0]);
}

fn grants_go_on_from_channel_to_channel(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    c.int("LOCK.ACQUIRE k t0 60000");
    for n in 1..6 {
        queued(&mut c, &format!("LOCK.ACQUIRE k t{n} 60000 NOTIFY 0 c"));
    }
    let mut last = 0;
    for n in 1..6 {
        c.int(&format!("LOCK.RELEASE k t{}", n - 1));
        let fence = sub.fence("k", &format!("t{n}"));
        assert!(fence > last);
        last = fence;
        assert_eq!(sub.so_far(), [""; 0]);
    }
}

fn the_channel_named_last_hears(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE one two");
    c.int("LOCK.ACQUIRE k a 60000");
    queued(&mut c, "LOCK.ACQUIRE k b 60000 NOTIFY 0 one");
    queued(&mut c, "LOCK.ACQUIRE k d 60000 NOTIFY 0 one");
    queued(&mut c, "LOCK.ACQUIRE k b 60000 NOTIFY 0 two");
    assert_eq!(c.waiters("k"), ["b", "d"], "at its place");
    assert_eq!(
        place(&mut c, "k", "b").listener,
        Listener::Channel("two".into())
    );
    c.int("LOCK.RELEASE k a");
    let (channel, _) = sub.message();
    assert_eq!(channel, b"two");
    assert_eq!(sub.so_far(), [""; 0]);
    // The words of the later request count: its timeout, too.
    queued(&mut c, "LOCK.ACQUIRE k d 60000 NOTIFY 20 two");
    assert_eq!(sub.text(), "timeout 0 1 k d");
    assert_eq!(places(&mut c, "k"), []);
}

fn a_client_and_a_channel_at_one_place(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    for is_channel_first in [false, true] {
        c.int("LOCK.ACQUIRE k a 60000");
        let ask = "LOCK.ACQUIRE k b 60000 NOTIFY 0 c";
        if is_channel_first {
            queued(&mut c, ask);
        }
        let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
        if !is_channel_first {
            queued(&mut c, ask);
        }
        assert_eq!(c.waiters("k"), ["b", "b"]);
        assert_eq!(c.info("lock_waiters"), "1");
        c.int("LOCK.RELEASE k a");
        let fence = b.fence();
        assert_eq!(sub.fence("k", "b"), fence);
        assert_eq!(sub.so_far(), [""; 0]);
        assert_eq!(c.int("LOCK.RELEASE k b"), 1);
        // One of them ends, and the other one still listens.
        c.int("LOCK.ACQUIRE k a 60000");
        queued(&mut c, ask);
        let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
        c.int(&format!("CLIENT KILL ID {}", b.id));
        wait_for("the channel alone", || {
            let channel = Listener::Channel("c".into());
            (place(&mut c, "k", "b").listener == channel).then_some(())
        });
        c.int("LOCK.RELEASE k a");
        sub.fence("k", "b");
        c.int("LOCK.RELEASE k b");
    }
}

fn a_channel_outlives_the_connection_that_named_it(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    c.int("LOCK.ACQUIRE k a 60000");
    let mut asker = server.client();
    let id = asker.int("CLIENT ID");
    queued(&mut asker, "LOCK.ACQUIRE k b 60000 NOTIFY 0 c");
    c.int(&format!("CLIENT KILL ID {id}"));
    assert_eq!(c.waiters("k"), ["b"]);
    c.int("LOCK.RELEASE k a");
    sub.fence("k", "b");
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

fn a_deadline_grants_a_channel(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    within("the deadline", [100, 180], || {
        c.int("LOCK.ACQUIRE k a 100");
        let start = Instant::now();
        queued(&mut c, "LOCK.ACQUIRE k b 60000 NOTIFY 0 c");
        sub.fence("k", "b");
        // The hold began a little before.
        let took = start.elapsed() + std::time::Duration::from_millis(5);
        c.int("LOCK.RELEASE k b");
        took
    });
}

fn readers_at_the_head_are_granted_to_channels_together(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    c.int("LOCK.ACQUIRE k a 60000");
    queued(&mut c, "RWLOCK.RLOCK k r1 60000 NOTIFY 0 c");
    leaves_place(&mut c, "RWLOCK.RLOCK k r2 60000 KEEP 60000");
    queued(&mut c, "RWLOCK.RLOCK k r3 60000 NOTIFY 0 c");
    queued(&mut c, "RWLOCK.WLOCK k w 60000 NOTIFY 0 c");
    queued(&mut c, "RWLOCK.RLOCK k r4 60000 NOTIFY 0 c");
    c.int("LOCK.RELEASE k a");
    let one = sub.fence("k", "r1");
    assert!(sub.fence("k", "r3") > one);
    assert_eq!(sub.so_far(), [""; 0]);
    assert_eq!(c.waiters("k"), ["r2", "w", "r4"]);
    c.int("LOCK.RELEASE k r1");
    c.int("LOCK.RELEASE k r3");
    assert_eq!(c.int("LOCK.RELEASE k r2"), 0);
    sub.fence("k", "w");
    c.int("LOCK.RELEASE k w");
    sub.fence("k", "r4");
}

fn one_channel_hears_for_many(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    let keys = ["k1", "k2", "k3"];
    for key in keys {
        c.int(&format!("LOCK.ACQUIRE {key} a 60000"));
        queued(&mut c, &format!("LOCK.ACQUIRE {key} b 60000 NOTIFY 0 c"));
    }
    for key in keys {
        c.int(&format!("LOCK.RELEASE {key} a"));
        sub.fence(key, "b");
    }
    assert_eq!(sub.so_far(), [""; 0]);
}
