//! What becomes of places when something happens to the key, the database or the server.

use super::fixture::{
    figure, find_place, leaves_place, mode, place, places, queued, Listener, Subscriber,
};
use crate::harness::{wait_for, Client, Kind, Reply, Server};

on_every_server![
    places_stay_when_the_lock_is_deleted,
    places_stay_with_their_database_and_name,
    another_type_over_the_key_ends_all_places,
    another_type_over_a_kept_lock_ends_all_places,
    a_restart_ends_all_places,
    a_demotion_ends_all_places,
    a_demotion_for_a_moment_ends_all_places,
    a_replica_sees_nothing_of_places,
    nothing_of_places_is_written_to_files,
];

/// Has `a` hold the lock, and behind it an absent writer, a channel and a client.
#[track_caller]
fn take_places(c: &mut Client) {
    c.int("LOCK.ACQUIRE k a 60000");
    leaves_place(c, "LOCK.ACQUIRE k absent 60000 KEEP 60000");
    queued(c, "LOCK.ACQUIRE k notified 60000 NOTIFY 0 c");
}

/// The turn is that of the absent one, then of the channel.
#[track_caller]
fn the_turns_come(c: &mut Client, sub: &mut Subscriber, what: &str) {
    wait_for(&format!("{what}: the lock to be free"), || {
        (mode(c, "k") == "free").then_some(())
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

fn places_stay_when_the_lock_is_deleted(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    for end in [
        "DEL k",
        "UNLINK k",
        "PEXPIRE k 1",
        "PEXPIREAT k 1",
        "EVAL redis.call('del',KEYS[1]) 1 k",
    ] {
        take_places(&mut c);
        c.call(end);
        the_turns_come(&mut c, &mut sub, end);
    }
    // The same while the lock is kept for the absent one.
    take_places(&mut c);
    c.int("LOCK.RELEASE k a");
    c.call("DEL k");
    the_turns_come(&mut c, &mut sub, "DEL k, kept for the absent one");
}

fn places_stay_with_their_database_and_name(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    for away in ["RENAME k elsewhere", "MOVE k 1", "SWAPDB 0 1"] {
        take_places(&mut c);
        c.call(away);
        the_turns_come(&mut c, &mut sub, away);
        // The lock itself lives on, and nobody waits for it there.
        let (db, key) = match away.starts_with("RENAME") {
            true => (0, "elsewhere"),
            false => (1, "k"),
        };
        c.call(&format!("SELECT {db}"));
        assert_eq!(c.holders(key), ["a"], "{away}");
        assert_eq!(c.waiters(key), [""; 0], "{away}");
        c.int(&format!("DEL {key}"));
        c.call("SELECT 0");
    }
    // A lock that comes to the key is waited for.
    take_places(&mut c);
    c.int("LOCK.RELEASE k a");
    c.call("SELECT 1");
    c.int("LOCK.ACQUIRE k b 60000");
    c.call("SWAPDB 0 1");
    c.call("SELECT 0");
    assert_eq!(c.holders("k"), ["b"]);
    assert_eq!(c.waiters("k"), ["absent", "notified"]);
    assert_eq!(c.call("LOCK.ACQUIRE k absent 60000 KEEP 60000"), Reply::Nil);
    c.int("LOCK.RELEASE k b");
    the_turns_come(&mut c, &mut sub, "SWAPDB to the key");
}

fn another_type_over_the_key_ends_all_places(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    for over in ["SET k x", "RENAME text k"] {
        take_places(&mut c);
        c.call("SET text x");
        let blocked = server.blocked("LOCK.ACQUIRE k blocked 60000 BLOCK 0 KEEP 60000");
        c.call(over);
        assert_eq!(sub.text(), "wrongtype 0 1 k notified");
        match blocked.reply() {
            Reply::Error(error) => assert!(error.starts_with("WRONGTYPE "), "{error}"),
            other => panic!("{other:?}"),
        }
        wait_for("all places to end", || {
            (figure(&mut c, "waiters") == 0).then_some(())
        });
        c.int("DEL k");
        assert_eq!(c.call("LOCK.INFO k"), Reply::Nil);
        assert_eq!(sub.so_far(), [""; 0]);
    }
}

fn another_type_over_a_kept_lock_ends_all_places(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    take_places(&mut c);
    // There is no key now, only the places.
    c.int("LOCK.RELEASE k a");
    c.call("SET k x");
    assert_eq!(sub.text(), "wrongtype 0 1 k notified");
    wait_for("all places to end", || {
        (figure(&mut c, "waiters") == 0).then_some(())
    });
    assert!(c
        .error("LOCK.ACQUIRE k absent 60000 KEEP 60000")
        .starts_with("WRONGTYPE "));
    c.int("DEL k");
    assert_eq!(c.call("LOCK.INFO k"), Reply::Nil);
}

fn a_restart_ends_all_places(kind: Kind) {
    let mut server = Server::start_with(kind, &["--appendonly", "yes", "--appendfsync", "always"]);
    let mut c = server.client();
    take_places(&mut c);
    server.kill();
    server.start_again();
    let mut c = server.client();
    assert_eq!((c.holders("k"), c.waiters("k")), (vec!["a".into()], vec![]));
    assert_eq!(figure(&mut c, "waiters"), 0);
    take_places(&mut c);
    server.shut_down_saving();
    server.start_again();
    let mut c = server.client();
    assert_eq!((c.holders("k"), c.waiters("k")), (vec!["a".into()], vec![]));
    c.int("LOCK.RELEASE k a");
    assert_eq!(c.call("LOCK.INFO k"), Reply::Nil);
}

fn a_demotion_ends_all_places(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    take_places(&mut c);
    queued(&mut c, "LOCK.ACQUIRE k both 60000 NOTIFY 0 c KEEP 60000");
    let blocked = server.blocked("LOCK.ACQUIRE k blocked 60000 BLOCK 0 KEEP 60000");
    // A replica of no server: the data set stays as it is.
    c.text("REPLICAOF 127.0.0.1 1");
    match blocked.reply() {
        Reply::Error(error) => {
            let words = ["TRYAGAIN ", "UNBLOCKED "];
            assert!(words.iter().any(|word| error.starts_with(word)), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(sub.text(), "tryagain 0 1 k notified");
    assert_eq!(sub.text(), "tryagain 0 1 k both");
    wait_for("all places to end", || {
        (figure(&mut c, "waiters") == 0).then_some(())
    });
    let error = c.error("LOCK.ACQUIRE k absent 60000 KEEP 60000");
    assert!(error.starts_with("READONLY "), "{error}");
    // A replica with writes of its own takes nobody, because it could grant nothing later.
    c.call("CONFIG SET replica-read-only no");
    assert_eq!(c.call("LOCK.ACQUIRE k b 60000 KEEP 60000"), Reply::Nil);
    assert_eq!(c.call("LOCK.ACQUIRE k b 60000 NOTIFY 0 c"), Reply::Nil);
    assert_eq!(c.waiters("k"), [""; 0]);
    c.text("REPLICAOF NO ONE");
    assert_eq!((c.holders("k"), c.waiters("k")), (vec!["a".into()], vec![]));
    c.int("LOCK.RELEASE k a");
    assert_eq!(sub.so_far(), [""; 0]);
}

fn a_demotion_for_a_moment_ends_all_places(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    take_places(&mut c);
    let blocked = server.blocked("LOCK.ACQUIRE k blocked 60000 BLOCK 0 KEEP 60000");
    c.multi(&["REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"]);
    assert!(matches!(blocked.reply(), Reply::Error(_)));
    assert_eq!(sub.text(), "tryagain 0 1 k notified");
    wait_for("all places to end", || {
        (figure(&mut c, "waiters") == 0).then_some(())
    });
    assert_eq!((c.holders("k"), c.waiters("k")), (vec!["a".into()], vec![]));
    take_places(&mut c);
    c.int("LOCK.RELEASE k a");
    the_turns_come(&mut c, &mut sub, "after it");
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

fn nothing_of_places_is_written_to_files(kind: Kind) {
    let server = Server::start_with(kind, &["--appendonly", "yes", "--appendfsync", "always"]);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let size = c.info("aof_current_size");
    leaves_place(&mut c, "LOCK.ACQUIRE k absent 60000 KEEP 60000");
    leaves_place(&mut c, "LOCK.ACQUIRE k absent 60000 BLOCK 1 KEEP 60000");
    queued(&mut c, "LOCK.ACQUIRE k notified 60000 NOTIFY 0 c");
    assert_eq!(
        place(&mut c, "k", "notified").listener,
        Listener::Channel("c".into())
    );
    c.int("LOCK.RELEASE k absent");
    c.int("LOCK.RELEASE k notified");
    assert_eq!(places(&mut c, "k"), []);
    assert_eq!(find_place(&mut c, "k", "absent"), None);
    assert_eq!(c.info("aof_current_size"), size);
    // A turn that nobody takes is nothing, too.
    leaves_place(&mut c, "LOCK.ACQUIRE k absent 60000 KEEP 20");
    c.int("LOCK.RELEASE k a");
    let size = c.info("aof_current_size");
    super::fixture::until_gone(&mut c, "k", "absent");
    assert_eq!(c.info("aof_current_size"), size);
}
