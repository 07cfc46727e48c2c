//! A client is granted and disconnected before delivery, while the lock moves to another key in the
//! same step. The grant is taken back wherever the lock is then. No hold here lasts less than ten
//! minutes, so none ends by its deadline.

use super::undelivered::{kill, let_the_timer_run};
use crate::harness::{wait_for, Client, Kind, Reply, Server};

on_every_server![
    an_undelivered_hold_is_taken_back_wherever_its_key_moved,
    an_undelivered_conversion_is_undone_at_a_copy_with_the_same_fence,
];

/// Many other keys exist besides it. tests/scenarios/grant_lost_while_the_lock_moves.txt has the
/// other ways to go.
fn an_undelivered_hold_is_taken_back_wherever_its_key_moved(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.call("SELECT 2");
    c.call("DEBUG POPULATE 50000 other");
    for in_transaction in [true, false] {
        c.call("SELECT 0");
        c.int("LOCK.ACQUIRE k a 600000");
        let b = server.blocked("LOCK.ACQUIRE k b 600000 BLOCK 0");
        let kill = kill(&b);
        let lines = ["LOCK.RELEASE k a", &kill, "RENAME k there", "MOVE there 3"];
        match in_transaction {
            true => c.multi(&lines),
            false => c.in_one_go(&lines),
        };
        b.broken();
        c.call("SELECT 3");
        // It would last ten minutes.
        wait_for("it to go", || (c.int("EXISTS there") == 0).then_some(()));
    }
}

/// A copy by DUMP and RESTORE has the fences of its original, and a conversion keeps them.
fn an_undelivered_conversion_is_undone_at_a_copy_with_the_same_fence(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for dead in ["k", "copy"] {
        c.int("RWLOCK.RLOCK k up 600000");
        c.int("RWLOCK.RLOCK k other 600000");
        let dump = c.call("DUMP k");
        let restore: [&[u8]; 4] = [b"RESTORE", b"copy", b"600000", dump.as_bytes()];
        assert_eq!(c.send(&restore), Reply::Simple("OK".into()));
        let ups = ["k", "copy"].map(|key| {
            let line = format!("RWLOCK.WLOCK {key} up 600000 BLOCK 0");
            (key, server.blocked(&line))
        });
        let (_, killed) = ups.iter().find(|(key, _)| *key == dead).unwrap();
        let kill = kill(killed);
        c.multi(&["LOCK.RELEASE k other", "LOCK.RELEASE copy other", &kill]);
        for (key, up) in ups {
            if key == dead {
                up.broken();
            } else {
                up.fence();
            }
        }
        let mode = |c: &mut Client, key| c.call(&format!("LOCK.INFO {key}")).field("mode");
        wait_for("the conversion to be undone", || {
            (mode(&mut c, dead) == "shared".into()).then_some(())
        });
        let_the_timer_run(&server);
        let alive = if dead == "k" { "copy" } else { "k" };
        assert_eq!(mode(&mut c, alive), "exclusive".into());
        for key in ["k", "copy"] {
            assert_eq!(c.holders(key), ["up"]);
            c.int(&format!("LOCK.RELEASE {key} up"));
        }
    }
}
