//! Requests that do not fit the grammar change nothing, whether the lock is held or free.

use super::fixture::leaves_place;
use crate::harness::{Kind, Reply, Server};

on_every_server![
    options_that_do_not_fit_are_errors,
    options_may_stand_in_any_order,
];

const WRONG: [&str; 34] = [
    "KEEP",
    "KEEP 0",
    "KEEP -1",
    "KEEP 3600001",
    "KEEP 99999999999999999999",
    "KEEP 1.5",
    "KEEP x",
    "KEEP 1000 KEEP 1000",
    "KEEP 1000 2000",
    "BLOCK 0 KEEP",
    "BLOCK KEEP 1000",
    "BLOCK 1 BLOCK 1",
    "BLOCK -1 KEEP 1000",
    "BLOCK 1 NOTIFY 1 c",
    "NOTIFY 1 c BLOCK 1",
    "NOTIFY 1 c KEEP 1000 BLOCK 1",
    "NOTIFY",
    "NOTIFY 1",
    "NOTIFY c",
    "NOTIFY c 1",
    "NOTIFY -1 c",
    "NOTIFY 1.5 c",
    "NOTIFY 281474976710657 c",
    "NOTIFY 1 c NOTIFY 1 c",
    "NOTIFY 1 c d",
    "NOTIFY 1 c KEEP 0",
    "KEEP 1000 NOTIFY 1",
    "KEEP 1000 NX",
    "KEPT 1000",
    "GRACE 1000",
    "NOTIFY 1 c KEEP 3600001",
    "KEEP 0x10",
    "KEEP +5",
    "KEEP 1000 BLOCK",
];

fn options_that_do_not_fit_are_errors(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for is_held in [false, true] {
        if is_held {
            c.int("LOCK.ACQUIRE k a 60000");
        }
        for command in ["LOCK.ACQUIRE", "RWLOCK.WLOCK", "RWLOCK.RLOCK"] {
            let wrong = WRONG.map(|options| format!("{command} k b 60000 {options}"));
            // The server generates a token, so nobody could ask again.
            let star = [
                "KEEP 1000",
                "NOTIFY 1 c",
                "BLOCK 5 KEEP 1000",
                "NOTIFY 1 c KEEP 1",
            ]
            .map(|options| format!("{command} k * 60000 {options}"));
            for line in wrong.iter().chain(&star) {
                let error = c.error(line);
                assert!(error.starts_with("ERR "), "{line}: {error}");
            }
        }
        for line in [
            "LOCK.RELEASE k b KEEP 1000",
            "LOCK.RENEW k b 1000 KEEP 1000",
            "LOCK.INFO k KEEP 1000",
        ] {
            let error = c.error(line);
            assert!(error.starts_with("ERR "), "{line}: {error}");
        }
        assert_eq!(c.waiters("k"), [""; 0]);
        assert_eq!(c.int("EXISTS k"), i64::from(is_held));
    }
    // A place is as it was.
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
    for options in WRONG {
        c.error(&format!("LOCK.ACQUIRE k b 60000 {options}"));
    }
    c.error("LOCK.ACQUIRE k b 0");
    assert_eq!(c.waiters("k"), ["b"]);
    c.call("SET text x");
    for how in ["KEEP 1000", "NOTIFY 0 c", "BLOCK 0 KEEP 1000"] {
        let error = c.error(&format!("LOCK.ACQUIRE text b 60000 {how}"));
        assert!(error.starts_with("WRONGTYPE "), "{error}");
    }
    assert_eq!(c.info("lock_waiters"), "1");
}

fn options_may_stand_in_any_order(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let queued = Reply::Simple("QUEUED".into());
    for (number, (options, reply)) in [
        ("KEEP 60000 BLOCK 1", &Reply::Nil),
        ("BLOCK 1 KEEP 60000", &Reply::Nil),
        ("keep 60000 block 1", &Reply::Nil),
        ("KEEP 60000 NOTIFY 0 c", &queued),
        ("Notify 0 c Keep 60000", &queued),
        ("NOTIFY 281474976710656 KEEP", &queued),
    ]
    .into_iter()
    .enumerate()
    {
        let line = format!("LOCK.ACQUIRE k t{number} 60000 {options}");
        assert_eq!(c.call(&line), *reply, "{line}");
    }
    assert_eq!(c.waiters("k"), ["t0", "t1", "t2", "t3", "t4", "t5"]);
}
