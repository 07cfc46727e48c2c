//! The keyspace events of the module, from the view of a subscriber.

use crate::harness::{wait_for, Kind, Server};
use crate::places::fixture::Subscriber;

on_every_server![
    each_step_has_its_event,
    an_expiry_event_follows_the_servers_own,
    a_handed_over_event_follows_the_event_of_its_cause,
    events_name_their_key_and_database,
    a_flush_has_no_event,
    a_replica_notifies_of_replicated_changes,
];

impl Subscriber {
    /// The names of the events that have come since, in database 0 and of the key `k`.
    #[track_caller]
    fn events(&mut self) -> Vec<String> {
        let messages = self.messages().into_iter();
        let event = |(channel, key): (String, String)| {
            assert_eq!(key, "k", "{channel}");
            let name = channel.strip_prefix("__keyevent@0__:").expect(&channel);
            name.to_string()
        };
        messages.map(event).collect()
    }

    /// Waits until these have come.
    #[track_caller]
    fn wait_for(&mut self, expected: &[&str]) {
        let mut heard = Vec::new();
        wait_for(&format!("{expected:?}"), || {
            heard.extend(self.events());
            (heard.len() >= expected.len()).then_some(())
        });
        assert_eq!(heard, expected);
    }
}

fn listener_of(server: &Server) -> Subscriber {
    Subscriber::new(server, "PSUBSCRIBE __key*__:*")
}

fn announcing(kind: Kind, classes: &str) -> (Server, Subscriber) {
    let server = Server::start_with(kind, &["--notify-keyspace-events", classes]);
    let listener = listener_of(&server);
    (server, listener)
}

fn each_step_has_its_event(kind: Kind) {
    let (server, mut listener) = announcing(kind, "Ed");
    let mut c = server.client();
    for (line, expected) in [
        ("LOCK.ACQUIRE k a 600000", &["lock.acquire"][..]),
        ("LOCK.ACQUIRE k a 600000", &["lock.acquire"]),
        ("LOCK.ACQUIRE k b 600000", &[]),
        ("LOCK.RENEW k a 600000", &["lock.renew"]),
        ("LOCK.RENEW k b 600000", &[]),
        ("LOCK.INFO k", &[]),
        ("RWLOCK.RLOCK k a 600000", &["lock.acquire"]),
        ("RWLOCK.RLOCK k b 600000", &["lock.acquire"]),
        ("LOCK.RELEASE k c", &[]),
        ("LOCK.RELEASE k a", &["lock.release"]),
        ("LOCK.RELEASE k b", &["lock.release"]),
        ("LOCK.RELEASE k b", &[]),
        (
            "EVAL redis.call('LOCK.ACQUIRE',KEYS[1],'a','9000')redis.call('LOCK.RELEASE',KEYS[1],'a') 1 k",
            &["lock.acquire", "lock.release"],
        ),
        ("LOCK.ACQUIRE k a 600000", &["lock.acquire"]),
    ] {
        c.call(line);
        assert_eq!(listener.events(), expected, "{line}");
    }
    c.call("DEL k");
    listener.wait_for(&["lock.forced"]);
    c.multi(&[
        "LOCK.ACQUIRE k a 600000",
        "LOCK.RENEW k a 600000",
        "LOCK.RELEASE k a",
    ]);
    assert_eq!(
        listener.events(),
        ["lock.acquire", "lock.renew", "lock.release"]
    );
}

fn an_expiry_event_follows_the_servers_own(kind: Kind) {
    let (server, mut listener) = announcing(kind, "EA");
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 10");
    listener.wait_for(&["lock.acquire", "expired", "lock.expire"]);
    // Found by who takes it.
    c.call("DEBUG SET-ACTIVE-EXPIRE 0");
    c.int("LOCK.ACQUIRE k a 1");
    let over_us = c.now_us() + 3_000;
    wait_for("it to be over", || (c.now_us() > over_us).then_some(()));
    c.int("LOCK.ACQUIRE k b 600000");
    listener.wait_for(&["lock.acquire", "expired", "lock.expire", "lock.acquire"]);
    c.call("DEL k");
    listener.wait_for(&["del", "lock.forced"]);
    // One share of several goes with the next change.
    c.int("RWLOCK.RLOCK k a 600000");
    c.int("RWLOCK.RLOCK k b 1");
    c.until_holders("k", &["a"]);
    assert_eq!(listener.events(), ["lock.acquire", "lock.acquire"]);
    c.int("LOCK.RENEW k a 600000");
    assert_eq!(listener.events(), ["lock.expire", "lock.renew"]);
}

fn a_handed_over_event_follows_the_event_of_its_cause(kind: Kind) {
    let (server, mut listener) = announcing(kind, "EA");
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 600000");
    let b = server.blocked("LOCK.ACQUIRE k b 600000 BLOCK 0");
    c.int("LOCK.RELEASE k a");
    b.fence();
    assert_eq!(
        listener.events(),
        ["lock.acquire", "lock.release", "lock.handover"]
    );
    // A writer that lets readers in.
    let readers =
        ["r1", "r2"].map(|r| server.blocked(&format!("RWLOCK.RLOCK k {r} 600000 BLOCK 0")));
    c.int("RWLOCK.RLOCK k b 600000");
    for reader in readers {
        reader.fence();
    }
    assert_eq!(
        listener.events(),
        ["lock.acquire", "lock.handover", "lock.handover"]
    );
    // By force.
    let d = server.blocked("LOCK.ACQUIRE k d 600000 BLOCK 0");
    c.call("DEL k");
    d.fence();
    listener.wait_for(&["del", "lock.forced", "lock.handover"]);
    // By time.
    let e = server.blocked("LOCK.ACQUIRE k e 600000 BLOCK 0");
    c.int("LOCK.RENEW k d 20");
    e.fence();
    listener.wait_for(&["lock.renew", "expired", "lock.expire", "lock.handover"]);
    // To a client that is gone.
    let gone = server.blocked("LOCK.ACQUIRE k gone 600000 BLOCK 0");
    c.multi(&["LOCK.RELEASE k e", &format!("CLIENT KILL ID {}", gone.id)]);
    gone.broken();
    listener.wait_for(&["lock.release", "lock.handover", "lock.release"]);
}

fn events_name_their_key_and_database(kind: Kind) {
    let (server, mut listener) = announcing(kind, "KEd");
    let mut c = server.client();
    let key = "a \u{e9}\0key";
    let words = |name: &str| [name, key, "me", "600000"].map(String::from);
    c.call("SELECT 2");
    c.send(&words("LOCK.ACQUIRE"));
    let expected = [
        (format!("__keyspace@2__:{key}"), "lock.acquire".to_string()),
        ("__keyevent@2__:lock.acquire".to_string(), key.to_string()),
    ];
    assert_eq!(listener.messages(), expected);
    // An expiry in another database is announced with the next command, and leaves the client where
    // it is.
    c.call("DEBUG SET-ACTIVE-EXPIRE 0");
    c.call("SELECT 1");
    c.int("LOCK.ACQUIRE k me 1");
    let over_us = c.now_us() + 3_000;
    wait_for("it to be over", || (c.now_us() > over_us).then_some(()));
    listener.messages();
    c.multi(&[
        "EXISTS k",
        "SELECT 2",
        "LOCK.INFO other",
        "SET here x",
        "LOCK.ACQUIRE other me 600000",
    ]);
    let channels: Vec<_> = listener
        .messages()
        .into_iter()
        .map(|(channel, _)| channel)
        .collect();
    let acquired = ["__keyspace@2__:other", "__keyevent@2__:lock.acquire"];
    let expired = ["__keyspace@1__:k", "__keyevent@1__:lock.expire"];
    let expected = [&expired[..], &acquired].concat();
    assert_eq!(channels, expected);
    assert_eq!(c.text("GET here"), "x");
    c.call("SELECT 2");
    assert_eq!(c.int("EXISTS here"), 1);
}

fn a_flush_has_no_event(kind: Kind) {
    let (server, mut listener) = announcing(kind, "Ed");
    let mut c = server.client();
    for flush in ["FLUSHALL", "FLUSHDB", "FLUSHALL ASYNC"] {
        c.int("LOCK.ACQUIRE k a 600000");
        c.call(flush);
        // Events of an end are sent in the order of the ends, a little later.
        c.int("LOCK.ACQUIRE last a 600000");
        c.call("DEL last");
        let mut heard = Vec::new();
        let (_, key) = wait_for("the event of the last lock", || {
            heard.extend(listener.messages());
            let forced = heard
                .iter()
                .find(|(event, _)| event.ends_with(":lock.forced"));
            forced.cloned()
        });
        assert_eq!(key, "last", "{flush}: {heard:?}");
    }
}

fn a_replica_notifies_of_replicated_changes(kind: Kind) {
    let primary = Server::start(kind);
    let replica = Server::start_replica_of(&primary, &["--notify-keyspace-events", "EA"]);
    let mut listener = listener_of(&replica);
    let mut p = primary.client();
    for (line, expected) in [
        ("LOCK.ACQUIRE k a 600000", &["lock.acquire"][..]),
        ("LOCK.RENEW k a 600000", &["lock.renew"]),
        ("RWLOCK.RLOCK k a 600000", &["lock.renew"]),
        ("RWLOCK.RLOCK k b 600000", &["lock.acquire"]),
        ("LOCK.RELEASE k b", &["lock.release"]),
        ("LOCK.RELEASE k a", &["lock.release"]),
        ("LOCK.ACQUIRE k a 600000", &["lock.acquire"]),
        ("DEL k", &["del"]),
    ] {
        p.int(line);
        listener.wait_for(expected);
    }
    p.int("LOCK.ACQUIRE k a 600000");
    let waiter = primary.blocked("LOCK.ACQUIRE k b 10 BLOCK 0");
    p.int("LOCK.RELEASE k a");
    waiter.fence();
    listener.wait_for(&["lock.acquire", "lock.release", "lock.acquire", "del"]);
}
