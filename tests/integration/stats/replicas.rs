//! Effects that no client caused on this server are not counted: those from a primary, and those
//! from a file.

use super::{assert_held, counted, held, of, stats};
use crate::harness::{Client, Kind, Server};

on_every_server![
    a_replica_counts_only_its_holds,
    loading_a_file_counts_nothing,
];

/// One of each operation. Leaves two locks with three holds.
fn live(server: &Server, c: &mut Client) {
    c.int("LOCK.ACQUIRE k a 600000");
    c.int("LOCK.ACQUIRE k a 600000");
    c.int("LOCK.RENEW k a 600000");
    let waiter = server.blocked("LOCK.ACQUIRE k b 600000 BLOCK 0");
    c.int("LOCK.RELEASE k a");
    waiter.fence();
    c.int("LOCK.RELEASE k b");
    for (line, ends) in [
        ("LOCK.ACQUIRE short a 20", "PING"),
        ("RWLOCK.RLOCK k a 600000", "DEL k"),
        ("RWLOCK.RLOCK k a 600000", "SET k x"),
    ] {
        c.int(line);
        c.call(ends);
    }
    c.until("EXISTS short", 0);
    c.call("DEL k");
    c.int("RWLOCK.RLOCK readers short 1");
    c.int("RWLOCK.RLOCK readers a 600000");
    c.until_holders("readers", &["a"]);
    c.int("RWLOCK.RLOCK readers b 600000");
    c.int("LOCK.ACQUIRE moved a 600000");
    c.call("MOVE moved 1");
    assert_eq!(assert_held(c, "a life"), [1, 2, 2, 0]);
}

fn a_replica_counts_only_its_holds(kind: Kind) {
    let primary = Server::start_with(kind, &["--repl-diskless-sync-delay", "0"]);
    let replica = Server::start_replica_of(&primary, &["--appendonly", "yes"]);
    let (mut p, mut r) = (primary.client(), replica.client());
    live(&primary, &mut p);
    assert!(stats(&mut p)["expired"] >= 2, "{:?}", counted(&mut p));
    replica.wait_until_it_follows(&primary);
    assert_eq!(held(&mut r), [1, 2, 2, 0]);
    // Refused before it reaches the module.
    r.error("LOCK.RELEASE k a");
    p.call("FLUSHALL");
    replica.wait_until_it_follows(&primary);
    assert_eq!(assert_held(&mut r, "FLUSHALL"), [0, 0, 0, 0]);
    assert_eq!(counted(&mut r), of(&[]));
    assert_eq!(stats(&mut r)["hold_count"], 0);
    // A new primary counts from then on, including the holds that it has from before.
    p.int("LOCK.ACQUIRE k a 600000");
    p.int("LOCK.ACQUIRE other a 600000");
    replica.wait_until_it_follows(&primary);
    r.text("REPLICAOF NO ONE");
    r.int("LOCK.RELEASE k a");
    r.call("DEL other");
    assert_eq!(counted(&mut r), of(&[("forced", 1), ("released", 1)]));
    assert_eq!(stats(&mut r)["hold_count"], 1);
}

fn loading_a_file_counts_nothing(kind: Kind) {
    for preamble in ["yes", "no"] {
        let options = ["--appendonly", "yes", "--aof-use-rdb-preamble", preamble];
        let mut server = Server::start_with(kind, &options);
        let mut c = server.client();
        live(&server, &mut c);
        c.call("DEL text");
        c.call("DEBUG LOADAOF");
        let before = counted(&mut c);
        c.call("DEBUG RELOAD");
        assert_eq!(counted(&mut c), before);
        server.kill();
        server.start_again();
        let mut c = server.client();
        assert_eq!(held(&mut c), [1, 2, 2, 0], "{preamble}");
        assert_eq!(counted(&mut c), of(&[]), "{preamble}");
        // The start of a hold from an earlier life is known to the microsecond.
        c.call("SELECT 1");
        c.int("LOCK.RELEASE moved a");
        let stats = stats(&mut c);
        assert_eq!(stats["hold_count"], 1);
        assert!(stats["hold_usec_max"] > 1_000, "{stats:?}");
    }
}
