//! LOCK.CANCEL ends waits and places, and leaves holds.

use super::fixture::{leaves_place, queued, Subscriber};
use crate::harness::{Client, Kind, Reply, Server};

on_every_server![
    cancel_works_in_transactions_and_scripts,
    cancel_is_a_write_on_its_key,
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

fn cancel_is_a_write_on_its_key(kind: Kind) {
    let server = Server::start_with(kind, &["--repl-ping-replica-period", "3600"]);
    let mut c = server.client();
    c.call("SET text v");
    assert!(c.error("LOCK.CANCEL text").starts_with("WRONGTYPE "));
    assert_eq!(c.int("LOCK.CANCEL nothing"), 0);
    for (line, error) in [
        (
            "LOCK.CANCEL",
            "ERR wrong number of arguments for 'LOCK.CANCEL'",
        ),
        ("LOCK.CANCEL k a", "ERR unknown option, expected TOKEN"),
        (
            "LOCK.CANCEL k TOKEN",
            "ERR wrong number of arguments for 'LOCK.CANCEL'",
        ),
        (
            "LOCK.CANCEL k TOKEN a b",
            "ERR wrong number of arguments for 'LOCK.CANCEL'",
        ),
    ] {
        let found = c.error(line);
        let found = found.replace("'lock.cancel'", "'LOCK.CANCEL'");
        assert!(found.starts_with(error), "{line}: {found}");
    }
    let replica = Server::start_replica_of(&server, &[]);
    assert!(replica
        .client()
        .error("LOCK.CANCEL k")
        .starts_with("READONLY "));
    // Waits are not replicated, so neither is their end.
    c.int("LOCK.ACQUIRE k a 60000");
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
    let offset = c.info("master_repl_offset");
    assert_eq!(c.int("LOCK.CANCEL k"), 1);
    assert_eq!(c.info("master_repl_offset"), offset);
}
