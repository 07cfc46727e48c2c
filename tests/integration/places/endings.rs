//! What becomes of places when something happens to the key, the database or the server.

use super::fixture::{figure, leaves_place, queued, Subscriber};
use crate::harness::{aof, wait_for, Client, Kind, Reply, Server};

on_every_server![
    a_restart_ends_all_waits_and_places,
    a_demotion_ends_all_waits_and_places,
    a_replica_sees_nothing_of_places,
];

/// Has `a` hold the lock, and behind it an absent writer and a channel. Returns the fence of `a`.
#[track_caller]
fn take_places(c: &mut Client) -> i64 {
    let fence = c.int("LOCK.ACQUIRE k a 60000");
    leaves_place(c, "LOCK.ACQUIRE k absent 60000 KEEP 60000");
    queued(c, "LOCK.ACQUIRE k notified 60000 NOTIFY 0 c");
    fence
}

/// The turn is that of the absent one, then of the channel.
#[track_caller]
fn the_turns_come(c: &mut Client, sub: &mut Subscriber, what: &str) {
    wait_for(&format!("{what}: the lock to be free"), || {
        (c.mode("k") == "free").then_some(())
    });
    assert_eq!(c.waiters("k"), ["absent", "notified"], "{what}");
    assert_eq!(c.call("LOCK.ACQUIRE k other 60000"), Reply::Nil, "{what}");
    assert_eq!(sub.so_far(), [""; 0], "{what}");
    c.int("LOCK.ACQUIRE k absent 60000");
    c.int("LOCK.RELEASE k absent");
    sub.fence("k", "notified");
    c.int("LOCK.RELEASE k notified");
    assert_eq!(c.call("LOCK.INFO k"), Reply::Nil, "{what}");
}

fn a_restart_ends_all_waits_and_places(kind: Kind) {
    type Restart = fn(&mut Server);
    let rewritten: Restart = |server| {
        aof::rewrite(&mut server.client());
        server.kill();
    };
    let saved: Restart = |server| {
        server.client().text("SAVE");
        server.kill();
    };
    for (file, preamble, end) in [
        ("yes", "yes", Server::kill as Restart),
        ("yes", "yes", rewritten),
        ("yes", "no", rewritten),
        ("no", "yes", saved),
        ("no", "yes", Server::shut_down_saving as Restart),
    ] {
        let options = ["--appendonly", file, "--aof-use-rdb-preamble", preamble];
        let mut server = Server::start_with(kind, &options);
        let fence = take_places(&mut server.client());
        let writer = server.blocked("LOCK.ACQUIRE k blocked 60000 BLOCK 0");
        let reader = server.blocked("RWLOCK.RLOCK k reader 60000 BLOCK 60000 KEEP 60000");
        end(&mut server);
        writer.broken();
        reader.broken();
        server.start_again();
        let mut c = server.client();
        assert_eq!((c.holders("k"), c.waiters("k")), (vec!["a".into()], vec![]));
        assert_eq!(c.int("LOCK.CHECK k a"), fence);
        assert_eq!(figure(&mut c, "waiters"), 0);
        assert_eq!(server.blocked_clients(), 0);
        c.int("LOCK.RELEASE k a");
        assert_eq!(c.int("EXISTS k"), 0, "nobody is granted");
        assert_eq!(c.call("LOCK.INFO k"), Reply::Nil);
    }
}

/// Also if the lock ends in the same step, and if the server leads again at once.
fn a_demotion_ends_all_waits_and_places(kind: Kind) {
    // A replica of no server: the data set stays as it is.
    let demote = "REPLICAOF 127.0.0.1 1";
    for lines in [
        &[demote][..],
        &[demote, "REPLICAOF NO ONE"],
        &["DEL k", demote],
        &["PEXPIRE k 1", demote],
        &["FLUSHALL", demote],
    ] {
        let server = Server::start(kind);
        let mut c = server.client();
        let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
        let fence = take_places(&mut c);
        queued(&mut c, "LOCK.ACQUIRE k both 60000 NOTIFY 0 c KEEP 60000");
        let blocked = [
            "LOCK.ACQUIRE k blocked 60000 BLOCK 0",
            "LOCK.ACQUIRE k kept 60000 BLOCK 0 KEEP 60000",
        ];
        let blocked = blocked.map(|line| server.blocked(line));
        c.multi(lines);
        for blocked in blocked {
            let Reply::Error(error) = blocked.reply() else {
                panic!("{lines:?}")
            };
            let words = ["TRYAGAIN ", "UNBLOCKED "];
            assert!(words.iter().any(|word| error.starts_with(word)), "{error}");
        }
        assert_eq!(sub.text(), "tryagain 0 1 k notified", "{lines:?}");
        assert_eq!(sub.text(), "tryagain 0 1 k both", "{lines:?}");
        wait_for("all places to end", || {
            (figure(&mut c, "waiters") == 0).then_some(())
        });
        assert_eq!(server.blocked_clients(), 0);
        assert_eq!(c.waiters("k"), [""; 0]);
        if lines.len() == 1 {
            a_replica_takes_nobody(&mut c);
        }
        let holds_on = lines[0] == demote;
        wait_for("the lock to be as it is", || {
            let expected: &[&str] = if holds_on { &["a"] } else { &[] };
            (c.holders("k") == expected).then_some(())
        });
        c.text("REPLICAOF NO ONE");
        if holds_on {
            assert_eq!(c.int("LOCK.CHECK k a"), fence);
        }
        assert_eq!(sub.so_far(), [""; 0], "{lines:?}");
        take_places(&mut c);
        c.int("LOCK.RELEASE k a");
        the_turns_come(&mut c, &mut sub, "after it");
    }
}

fn a_replica_takes_nobody(c: &mut Client) {
    let ways = ["BLOCK 0", "KEEP 60000", "NOTIFY 0 c"];
    let lines = ways.map(|way| format!("LOCK.ACQUIRE k b 60000 {way}"));
    for line in &lines {
        let error = c.error(line);
        assert!(error.starts_with("READONLY "), "{line}: {error}");
    }
    // Even if it accepts writes of its own, because it could grant nothing later.
    c.call("CONFIG SET replica-read-only no");
    for line in &lines {
        assert_eq!(c.call(line), Reply::Nil, "{line}");
    }
    assert_eq!(c.waiters("k"), [""; 0]);
    assert_eq!(c.info("blocked_clients"), "0");
}

fn a_replica_sees_nothing_of_places(kind: Kind) {
    let primary = Server::start_with(kind, &["--repl-diskless-sync-delay", "0"]);
    let replica = Server::start_replica_of(&primary, &[]);
    let (mut p, mut r) = (primary.client(), replica.client());
    let mut sub = Subscriber::new(&replica, "SUBSCRIBE c");
    let mut here = Subscriber::new(&primary, "SUBSCRIBE c");
    take_places(&mut p);
    replica.wait_until_it_follows(&primary);
    assert_eq!((r.holders("k"), r.waiters("k")), (vec!["a".into()], vec![]));
    p.int("LOCK.RELEASE k a");
    replica.wait_until_it_follows(&primary);
    // Nobody holds it, although the primary keeps it for a place.
    assert_eq!(r.call("LOCK.INFO k"), Reply::Nil);
    p.int("LOCK.ACQUIRE k absent 60000");
    p.int("LOCK.RELEASE k absent");
    here.fence("k", "notified");
    replica.wait_until_it_follows(&primary);
    assert_eq!(r.holders("k"), ["notified"]);
    assert_eq!(figure(&mut r, "waiters"), 0);
    assert_eq!(sub.so_far(), [""; 0], "messages stay on the primary");
}
