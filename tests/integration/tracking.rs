//! A way to learn of a lock without a LOCK command: CLIENT TRACKING. `replication` tests SLOWLOG and
//! MONITOR.

use std::sync::mpsc::{channel, Receiver};

use redis::{PushInfo, PushKind, Value};

use crate::harness::{wait_for, Client, Kind, Reply, Server};

on_every_server![
    a_tracking_holder_is_notified_of_a_change,
    a_tracking_holder_is_notified_of_a_hand_off,
];

/// A client that holds a lock and receives invalidations, through the interface of the `redis`
/// crate.
struct Holder {
    c: Client,
    /// The pushed messages, which arrive with the replies to other commands.
    pushes: Receiver<PushInfo>,
}

impl Holder {
    fn of(server: &Server, tracking: &str) -> Self {
        let address = format!("redis://127.0.0.1:{}/?protocol=resp3", server.port);
        let client = redis::Client::open(address).unwrap();
        let mut connection = client.get_connection().expect("a connection");
        let (sender, pushes) = channel();
        connection.set_push_sender(sender);
        let mut c = Client::over(connection);
        c.ok(tracking);
        Self { c, pushes }
    }

    /// Makes the server remember that this client has read the lock.
    fn read(&mut self) -> Vec<String> {
        let holders = self.c.holders("k");
        assert_eq!(self.invalidated(), [] as [&str; 0], "by a look");
        holders
    }

    /// The keys that were invalidated since. `*` means all of them. Pushes come before the reply.
    #[track_caller]
    fn invalidated(&mut self) -> Vec<String> {
        assert_eq!(self.c.text("PING"), "PONG");
        let mut keys = Vec::new();
        while let Ok(push) = self.pushes.try_recv() {
            assert_eq!(push.kind, PushKind::Invalidate, "{push:?}");
            for value in push.data {
                match value {
                    Value::Nil => keys.push("*".into()),
                    Value::Array(names) => keys.extend(names.into_iter().map(|name| match name {
                        Value::BulkString(name) => String::from_utf8(name).unwrap(),
                        other => panic!("no key: {other:?}"),
                    })),
                    other => panic!("no keys: {other:?}"),
                }
            }
        }
        keys
    }

    #[track_caller]
    fn wait_until_told(&mut self, by: &str) {
        let pushed_keys = wait_for(&format!("a push by {by}"), || {
            let keys = self.invalidated();
            (!keys.is_empty()).then_some(keys)
        });
        assert_eq!(pushed_keys, ["k"], "{by}");
    }
}

fn a_tracking_holder_is_notified_of_a_change(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut holder = Holder::of(&server, "CLIENT TRACKING ON");
    for (line, key) in [
        ("DEL k", "k"),
        ("UNLINK k", "k"),
        ("SET k x", "k"),
        ("RENAME k other", "k"),
        ("PEXPIRE k 1000000", "k"),
        ("LOCK.RENEW k me 700000", "k"),
        ("LOCK.RELEASE k me", "k"),
        ("RWLOCK.RLOCK k me 600000", "k"),
        ("FLUSHALL", "*"),
    ] {
        c.call("FLUSHALL");
        c.int("LOCK.ACQUIRE k me 600000");
        holder.invalidated();
        assert_eq!(holder.read(), ["me"]);
        // A command that changes nothing sends no invalidation.
        c.call("LOCK.RENEW k you 600000");
        c.call("LOCK.ACQUIRE k you 600000");
        c.call("LOCK.INFO k");
        assert_eq!(holder.invalidated(), [] as [&str; 0]);
        c.call(line);
        assert_eq!(holder.invalidated(), [key], "{line}");
    }
    // Its deadline.
    c.call("FLUSHALL");
    c.int("LOCK.ACQUIRE k me 4000");
    holder.invalidated();
    assert_eq!(holder.read(), ["me"]);
    holder.wait_until_told("the deadline");
    assert!(holder.read().is_empty());
}

fn a_tracking_holder_is_notified_of_a_hand_off(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut holder = Holder::of(&server, "CLIENT TRACKING ON");
    for (line, ttl) in [
        ("LOCK.RELEASE k me", 600_000),
        ("DEL k", 600_000),
        ("LOCK.RENEW k me 100", 600_000),
    ] {
        c.int(&format!("LOCK.ACQUIRE k me {ttl}"));
        let waiter = server.blocked("LOCK.ACQUIRE k you 600000 BLOCK 0");
        assert_eq!(holder.read(), ["me"]);
        c.call(line);
        holder.wait_until_told(line);
        waiter.fence();
        assert_eq!(holder.c.holders("k"), ["you"], "{line}");
        c.call("DEL k");
        holder.wait_until_told("DEL");
    }
    // The grant alone is a change, too: an expired shared hold makes room, and no event of the
    // server touches the key.
    c.int("RWLOCK.RLOCK k a 600000");
    c.int("RWLOCK.RLOCK k b 60000");
    let writer = server.blocked("RWLOCK.WLOCK k a 600000 BLOCK 0");
    assert_eq!(holder.read(), ["a", "b"]);
    c.int("LOCK.RENEW k b 1000");
    holder.wait_until_told("a renewal");
    assert_eq!(holder.read(), ["a", "b"]);
    writer.fence();
    holder.wait_until_told("an upgrade");
    let info = holder.c.call("LOCK.INFO k");
    assert_eq!(info.field("mode"), Reply::from("exclusive"));
}
