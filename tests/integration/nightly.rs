//! A short look at the servers between those of the suite: that the module loads, its main
//! commands, a wait, a restart and a replica. scripts/check/nightly.sh runs it on those that can be
//! had.

use crate::harness::{wait_for, Kind, Reply, Server};

on_nightly_servers![
    the_main_commands_work,
    a_restart_keeps_holds_and_fences,
    a_replica_has_the_holds_and_grants_larger_fences,
];

fn the_main_commands_work(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let fence = c.int("LOCK.ACQUIRE k a 60000");
    assert_eq!(c.int("LOCK.ACQUIRE k a 60000"), fence);
    assert_eq!(c.call("LOCK.ACQUIRE k b 60000"), Reply::Nil);
    assert_eq!(c.int("LOCK.RENEW k a 60000"), 1);
    assert_eq!(c.int("LOCK.CHECK k a"), fence);
    assert_eq!(c.text("LOCK.EXEC k a SET result 1"), "OK");
    c.refused("LOCK.EXEC k b SET result 2", "NOTHELD ");
    assert_eq!(c.holders("k"), ["a"]);
    assert_eq!(c.int("LOCK.RELEASE k a"), 1);
    for reader in ["a", "b"] {
        assert!(c.int(&format!("RWLOCK.RLOCK shared {reader} 60000")) > fence);
    }
    assert_eq!(c.call("RWLOCK.WLOCK shared c 60000"), Reply::Nil);
    assert!(c.int("LOCK.ACQUIRE permits a 60000 LIMIT 2") > fence);
    assert!(c.int("LOCK.MACQUIRE 2 x y a 60000") > fence);
    assert_eq!(c.int("DEL x"), 1);
    assert_eq!(c.info("lock_forced"), "1");
    assert_eq!(c.call("LOCK.LOG").items().len(), 1);
}

fn a_restart_keeps_holds_and_fences(kind: Kind) {
    for options in [&[][..], &["--appendonly", "yes"]] {
        let mut server = Server::start_with(kind, options);
        let mut c = server.client();
        let fence = c.int("LOCK.ACQUIRE k a 60000");
        match options {
            [] => server.shut_down_saving(),
            _ => server.shut_down(),
        }
        server.start_again();
        let mut c = server.client();
        assert_eq!(c.int("LOCK.CHECK k a"), fence, "{options:?}");
        assert!(c.int("LOCK.ACQUIRE other a 60000") > fence, "{options:?}");
    }
}

fn a_replica_has_the_holds_and_grants_larger_fences(kind: Kind) {
    let (mut primary, replica) = Server::pair(kind, &[]);
    let fence = primary.client().int("LOCK.ACQUIRE k a 60000");
    let mut c = primary.client();
    c.int("LOCK.ACQUIRE handed a 60000");
    let b = primary.blocked("LOCK.ACQUIRE handed b 60000 BLOCK 0");
    assert_eq!(c.int("LOCK.RELEASE handed a"), 1);
    let fence_of_b = b.fence();
    replica.wait_until_it_follows(&primary);
    primary.kill();
    replica.stand_alone();
    let mut c = replica.client();
    wait_for("the promotion", || {
        (c.info("role") == "master").then_some(())
    });
    assert_eq!(c.int("LOCK.CHECK k a"), fence);
    assert_eq!(c.int("LOCK.CHECK handed b"), fence_of_b);
    assert_eq!(c.call("LOCK.ACQUIRE k c 60000"), Reply::Nil);
    assert!(c.int("LOCK.ACQUIRE other a 60000") > fence_of_b);
}
