//! The effects of the server's own commands on a lock.

use crate::harness::{now_ms, Kind, Server};

on_every_server![
    a_key_expires_exactly_with_its_hold,
    an_expired_lock_counts_as_one_expired_key,
];

fn a_key_expires_exactly_with_its_hold(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for ttl in [54_321, 1 << 32, 1 << 48] {
        for command in ["LOCK.ACQUIRE", "RWLOCK.RLOCK"] {
            c.int(&format!("{command} k me {ttl}"));
            let holders = c.call("LOCK.INFO k").field("holders");
            let ends = holders.items()[0].field("since").as_int() + ttl;
            assert_eq!(c.int("PEXPIRETIME k"), ends);
            assert_eq!(c.int("EXPIRETIME k"), (ends + 500) / 1000);
            let before = now_ms();
            let left = c.int("PTTL k");
            assert!((before + left..=now_ms() + left).contains(&ends));
            c.int("LOCK.RELEASE k me");
        }
    }
}

fn an_expired_lock_counts_as_one_expired_key(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    // In one step, so that all are there before the first one ends.
    c.multi(&[
        "LOCK.ACQUIRE alone me 20",
        "RWLOCK.RLOCK shared a 10",
        "RWLOCK.RLOCK shared b 30",
        "RWLOCK.RLOCK shared d 50",
    ]);
    c.until("DBSIZE", 0);
    assert_eq!(c.info("expired_keys"), "2");
}
