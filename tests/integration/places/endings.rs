//! What becomes of places when something happens to the key, the database or the server. The end of
//! its rule as a primary: tests/scenarios/demotion_in_a_transaction.txt.

use super::fixture::{figure, leaves_place, queued, Subscriber};
use crate::harness::{aof, Client, Kind, Reply, Server};

on_every_server![
    a_restart_ends_all_waits_and_places,
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
