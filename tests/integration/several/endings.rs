//! A request for several keys that ends without a grant, its place that is kept, and a grant that is lost.

use crate::harness::{wait_for, Client, Kind, Later, Reply, Server};

on_every_server![client_unblock_leaves_all_queues, a_demotion_ends_the_wait,];

fn contended(server: &Server, c: &mut Client, options: &str) -> Later {
    c.int("LOCK.ACQUIRE b x 60000");
    server.blocked(&format!("LOCK.MACQUIRE 3 a b c me 60000 {options}"))
}

#[track_caller]
fn nobody_waits(c: &mut Client) {
    for key in ["a", "b", "c"] {
        assert_eq!(c.waiters(key), [""; 0], "{key}");
    }
    assert_eq!(c.info("lock_waiters"), "0");
}

fn client_unblock_leaves_all_queues(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for (how, answer) in [
        ("TIMEOUT", Reply::Nil),
        (
            "ERROR",
            Reply::Error("UNBLOCKED client unblocked via CLIENT UNBLOCK".into()),
        ),
    ] {
        let waits = contended(&server, &mut c, "BLOCK 0");
        let unblocked = c.int(&format!("CLIENT UNBLOCK {} {how}", waits.id));
        if unblocked == 1 {
            assert_eq!(waits.reply(), answer);
            wait_for("it to leave", || c.waiters("c").is_empty().then_some(()));
            nobody_waits(&mut c);
            c.int("LOCK.RELEASE b x");
        } else {
            assert!(!kind.is_7_2_or_later());
            c.int("LOCK.RELEASE b x");
            waits.fence();
            c.call("FLUSHALL");
        }
    }
}

fn a_demotion_ends_the_wait(kind: Kind) {
    let server = Server::start(kind);
    let primary = Server::start(kind);
    let mut c = server.client();
    let waits = contended(&server, &mut c, "BLOCK 0 KEEP 60000");
    assert_eq!(
        c.call("LOCK.MACQUIRE 2 b c you 60000 KEEP 60000"),
        Reply::Nil
    );
    c.call(&format!("REPLICAOF 127.0.0.1 {}", primary.port));
    match waits.reply() {
        Reply::Error(error) => assert!(
            error.starts_with("UNBLOCKED") || error.starts_with("TRYAGAIN"),
            "{error}"
        ),
        other => panic!("{other:?}"),
    }
    wait_for("all places to end", || {
        (c.info("lock_waiters") == "0").then_some(())
    });
    c.call("REPLICAOF NO ONE");
    assert!(c.int("LOCK.MACQUIRE 2 a c you 60000") > 0);
}
