//! The effects of the server's own commands on a lock.

use crate::harness::{now_ms, wait_for, Client, Kind, Server};

on_every_server![
    a_key_expires_exactly_with_its_hold,
    the_memory_of_thousands_of_readers_is_freed,
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

fn the_memory_of_thousands_of_readers_is_freed(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let used = |c: &mut Client| c.info("used_memory").parse::<i64>().unwrap();
    // By a script, because data from a client would stay in its buffers.
    let take = "for n = 1, 5000 do redis.call('RWLOCK.RLOCK', 'k', 'reader ' .. n, 600000) end";
    let take = ["EVAL", take, "0"];
    c.send(&take); // so that only the readers are new the next time
    for delete in [
        "DEL k",
        "UNLINK k",
        "FLUSHDB",
        "FLUSHALL ASYNC",
        "SET k text",
        "PEXPIRE k 1",
    ] {
        c.call("FLUSHALL SYNC");
        let without = used(&mut c);
        c.send(&take);
        let with = used(&mut c);
        let grown = with - without;
        assert!(grown > 5000 * 60, "{with} after {without}");
        c.call(delete);
        wait_for("the memory to be given back", || {
            (used(&mut c) < without + grown / 4).then_some(())
        });
    }
}

fn an_expired_lock_counts_as_one_expired_key(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE alone me 20");
    for (token, ttl) in [("a", 10), ("b", 30), ("d", 50)] {
        c.int(&format!("RWLOCK.RLOCK shared {token} {ttl}"));
    }
    c.until("DBSIZE", 0);
    assert_eq!(c.info("expired_keys"), "2");
}
