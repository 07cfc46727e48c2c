//! A key that changes under its waiters without being free in between: RESTORE brings another lock.
//! For SWAPDB, MOVE and RENAME see tests/scenarios/locks_that_change_under_waiters.txt.

use crate::harness::{Kind, Server};

on_every_server![waiters_follow_a_holder_changed_by_restore];

fn waiters_follow_a_holder_changed_by_restore(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    c.int("LOCK.ACQUIRE other z 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let dump = c.call("DUMP other");
    c.restore("k 0 REPLACE", dump.as_bytes()).assert_ok();
    assert_eq!(c.holders("k"), ["z"]);
    assert_eq!(c.waiters("k"), ["b"]);
    assert!(b.is_pending());
    assert_eq!(c.int("LOCK.RELEASE k z"), 1);
    b.fence();
    assert_eq!(c.holders("k"), ["b"]);
}
