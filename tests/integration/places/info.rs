//! LOCK.INFO shows who listens at each place.

use super::fixture::{leaves_place, mode, places, queued, Listener, Place};
use crate::harness::{Client, Kind, Reply, Server};

on_every_server![
    info_shows_who_listens,
    info_shows_binary_channels_and_tokens,
    info_shows_each_request_of_a_place,
    the_mode_is_free_where_nobody_holds,
];

fn info_shows_who_listens(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    leaves_place(&mut c, "RWLOCK.RLOCK k absent 60000 KEEP 60000");
    let blocked = server.blocked("LOCK.ACQUIRE k blocked 60000 BLOCK 0 KEEP 60000");
    queued(&mut c, "LOCK.ACQUIRE k notified 60000 NOTIFY 0 my:channel");
    let list = c.text("CLIENT LIST");
    assert!(
        list.lines()
            .any(|line| line.starts_with(&format!("id={} ", blocked.id))),
        "{list}"
    );
    let check = |c: &mut Client| {
        let shown = places(c, "k");
        let expected = [
            ("absent", "shared", Listener::Nobody),
            ("blocked", "exclusive", Listener::Client(blocked.id)),
            (
                "notified",
                "exclusive",
                Listener::Channel("my:channel".into()),
            ),
        ];
        assert_eq!(shown.len(), expected.len());
        for (place, (token, mode, listener)) in shown.iter().zip(expected) {
            let Place {
                token: shown_token,
                mode: shown_mode,
                waited_ms,
                listener: shown_listener,
            } = place;
            assert_eq!(
                (shown_token.as_str(), shown_mode.as_str(), shown_listener),
                (token, mode, &listener)
            );
            assert!((0..60_000).contains(waited_ms), "{place:?}");
        }
    };
    check(&mut c);
    check(&mut server.client_resp3());
    if kind.is_7_0_or_later() {
        let info = server.client_resp3().call("LOCK.INFO k");
        let waiters = info.field("waiters");
        assert!(waiters.items().iter().all(|w| matches!(w, Reply::Map(_))));
    }
}

fn info_shows_binary_channels_and_tokens(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let (key, token, channel) = (
        &b"a key\0\r\n"[..],
        &b"my \xff token\n"[..],
        &b"\x00 c\r\n"[..],
    );
    c.send(&[b"LOCK.ACQUIRE", key, b"a", b"60000"]);
    let words = [
        b"LOCK.ACQUIRE",
        key,
        token,
        b"60000",
        b"NOTIFY",
        b"0",
        channel,
    ];
    assert_eq!(c.send(&words), Reply::Simple("QUEUED".into()));
    let info = c.send(&[b"LOCK.INFO", key]);
    let waiter = info.field("waiters").items()[0].clone();
    assert_eq!(waiter.field("token").as_bytes(), token);
    assert_eq!(waiter.field("channel").as_bytes(), channel);
}

fn info_shows_each_request_of_a_place(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let one = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let two = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0 KEEP 60000");
    queued(&mut c, "LOCK.ACQUIRE k b 60000 NOTIFY 0 c");
    let listeners: Vec<_> = places(&mut c, "k")
        .into_iter()
        .map(|place| place.listener)
        .collect();
    let channel = Listener::Channel("c".into());
    let [first, second] = [&one, &two].map(|later| Listener::Client(later.id));
    assert_eq!(listeners, [first, second, channel]);
    // They are one place.
    assert_eq!(c.info("lock_waiters"), "1");
    assert!(one.is_pending() && two.is_pending());
    assert_eq!(c.int("LOCK.RELEASE k b"), 0);
    assert_eq!(one.reply(), Reply::Nil);
    assert_eq!(two.reply(), Reply::Nil);
    assert_eq!(places(&mut c, "k"), []);
}

fn the_mode_is_free_where_nobody_holds(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("RWLOCK.RLOCK k a 60000");
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
    assert_eq!(mode(&mut c, "k"), "shared");
    c.int("LOCK.RELEASE k a");
    for c in [&mut c, &mut server.client_resp3()] {
        let info = c.call("LOCK.INFO k");
        assert_eq!(info.field("mode"), "free".into());
        assert_eq!(info.field("holders"), Reply::Array(Vec::new()));
        assert_eq!(info.field("waiters").items().len(), 1);
    }
    // It is no key: nothing of it can be seen elsewhere.
    assert_eq!(c.int("DBSIZE"), 0);
    assert_eq!(c.text("TYPE k"), "none");
    assert_eq!(c.int("PTTL k"), -2);
    c.int("LOCK.RELEASE k b");
    assert_eq!(c.call("LOCK.INFO k"), Reply::Nil);
}
