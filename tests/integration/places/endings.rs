//! What becomes of places when something happens to the key, the database or the server.

use super::fixture::{
    figure, find_place, leaves_place, place, places, queued, Listener, Subscriber,
};
use crate::harness::{wait_for, Client, Kind, Reply, Server};

on_every_server![
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
