//! LOCK.CANCEL ends waits and places, and leaves holds.

use super::fixture::{leaves_place, queued, Subscriber};
use crate::harness::{Client, Kind, Reply, Server};

on_every_server![
    cancel_works_in_transactions_and_scripts,
    cancel_replicates_nothing,
];

fn nobody_waits(c: &mut Client) {
    assert_eq!(c.info("lock_waiters"), "0");
    assert_eq!(c.info("lock_waited_keys"), "0");
}

fn cancel_works_in_transactions_and_scripts(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    c.int("LOCK.ACQUIRE k a 60000");
    let waits = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    queued(&mut c, "LOCK.ACQUIRE k d 60000 NOTIFY 0 c");
    let replies = c.multi(&[
        "LOCK.CANCEL k",
        "LOCK.ACQUIRE k e 60000 KEEP 60000",
        "LOCK.CANCEL k",
    ]);
    assert_eq!(replies, [Reply::Int(2), Reply::Nil, Reply::Int(1)]);
    waits.error("CANCELLED the wait was ended by LOCK.CANCEL");
    assert_eq!(sub.text(), "cancelled 0 1 k d");
    let waits = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    queued(&mut c, "LOCK.ACQUIRE k d 60000 NOTIFY 0 c");
    let script = "EVAL return(redis.call('LOCK.CANCEL',KEYS[1],'TOKEN',ARGV[1])) 1 k";
    assert_eq!(c.int(&format!("{script} b")), 1);
    waits.error("CANCELLED the wait was ended by LOCK.CANCEL");
    assert_eq!(c.int(&format!("{script} d")), 1);
    assert_eq!(sub.text(), "cancelled 0 1 k d");
    nobody_waits(&mut c);
}

fn cancel_replicates_nothing(kind: Kind) {
    let server = Server::start_with(kind, &["--repl-ping-replica-period", "3600"]);
    let mut c = server.client();
    let replica = Server::start_replica_of(&server, &[]);
    c.int("LOCK.ACQUIRE k a 60000");
    replica.wait_until_it_follows(&server);
    // Waits are not replicated, so neither is their end.
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
    let offset = c.info("master_repl_offset");
    assert_eq!(c.int("LOCK.CANCEL k"), 1);
    assert_eq!(c.info("master_repl_offset"), offset);
}
