//! What becomes of places when something happens to the key, the database or the server. The end of
//! its rule as a primary: tests/scenarios/demotion_in_a_transaction.txt.

use super::fixture::{figure, leaves_place, queued};
use crate::harness::{aof, Client, Kind, Reply, Server};

on_every_server![a_restart_ends_all_waits_and_places];

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
