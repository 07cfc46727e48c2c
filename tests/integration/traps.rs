//! Pitfalls of the module API for waiters. Each one has been seen on a real server.

use std::time::{Duration, Instant};

use crate::harness::{packed, wait_for, Kind, Reply, Server};

mod cluster;
mod databases;
mod demotion;

on_every_server![
    timeouts_and_a_deadline_in_one_millisecond_are_all_served,
    a_waiter_that_leaves_during_a_busy_script_is_not_granted,
    saving_with_waiters_changes_nothing,
    a_waiter_is_granted_while_the_server_forks,
];

/// Each waiter gets one reply: a hold that it has, or null and no hold.
fn timeouts_and_a_deadline_in_one_millisecond_are_all_served(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for round in 0..8 {
        c.int("LOCK.ACQUIRE k dead 250");
        let end = Instant::now() + Duration::from_millis(250);
        let waiters: Vec<_> = (0..24)
            .map(|n: i32| {
                let rest = end.saturating_duration_since(Instant::now()).as_millis();
                // All around the deadline, most of them exactly at it.
                let timeout = i64::try_from(rest).unwrap() + i64::from(n % 4) - 1;
                let token = format!("w{round}-{n}");
                let line = format!("LOCK.ACQUIRE k {token} 60000 BLOCK {}", timeout.max(1));
                (token, server.later(&line))
            })
            .collect();
        let mut granted = 0;
        let mut last = 0;
        for (token, waiter) in waiters {
            let (reply, mut client) = waiter.reply_and_client();
            let released = client.int(&format!("LOCK.RELEASE k {token}"));
            match reply {
                Reply::Int(fence) => {
                    assert_eq!(released, 1, "{token} was told of {fence}");
                    assert!(fence > last, "in the order of the queue");
                    (granted, last) = (granted + 1, fence);
                }
                Reply::Nil => assert_eq!(released, 0, "{token} was told of no hold"),
                other => panic!("{token}: {other:?}"),
            }
            assert_eq!(client.text("ECHO next"), "next", "one reply, no more");
        }
        assert_eq!(c.call("LOCK.INFO k"), Reply::Nil, "{granted} granted");
    }
    assert_eq!(server.blocked_clients(), 0);
}

fn a_waiter_that_leaves_during_a_busy_script_is_not_granted(kind: Kind) {
    let server = Server::start_with(kind, &["--lua-time-limit", "5"]);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.raw_blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    let mut script = server.busy_with(&packed(&["EVAL", "while true do end", "0"]));
    drop(b);
    // The server notices it while the script runs.
    let mut turns = 0;
    wait_for("some turns of the server's loop", || {
        turns += i32::from(c.error("PING").starts_with("BUSY"));
        (turns > 5).then_some(())
    });
    assert_eq!(c.text("SCRIPT KILL"), "OK");
    assert!(script.line().unwrap().starts_with("-ERR"));
    c.int("LOCK.RELEASE k a");
    d.fence();
    assert_eq!(c.holders("k"), ["d"]);
}

fn saving_with_waiters_changes_nothing(kind: Kind) {
    let server = Server::start_with(kind, &["--appendonly", "yes"]);
    let mut c = server.client();
    c.int("RWLOCK.RLOCK k a 60000");
    let b = server.blocked("RWLOCK.WLOCK k b 60000 BLOCK 0");
    let d = server.blocked("RWLOCK.RLOCK k d 60000 BLOCK 0");
    for (save, field) in [
        ("BGSAVE", "rdb_bgsave_in_progress"),
        ("BGREWRITEAOF", "aof_rewrite_in_progress"),
        ("SAVE", "rdb_bgsave_in_progress"),
    ] {
        let digest = c.text("DEBUG DIGEST");
        c.text(save);
        c.until_info(field, "0");
        assert_eq!(c.text("DEBUG DIGEST"), digest, "{save}");
        assert_eq!(c.holders("k"), ["a"], "{save}");
        assert_eq!(c.waiters("k"), ["b", "d"], "{save}");
    }
    assert_eq!(c.info("rdb_last_bgsave_status"), "ok");
    assert_eq!(c.info("aof_last_bgrewrite_status"), "ok");
    c.int("LOCK.RELEASE k a");
    b.fence();
    assert!(d.is_pending());
    c.int("LOCK.RELEASE k b");
    d.fence();
}

fn a_waiter_is_granted_while_the_server_forks(kind: Kind) {
    let server = Server::start_with(kind, &["--rdb-key-save-delay", "1000"]);
    let mut c = server.client();
    for n in 0..2_000 {
        c.int(&format!("LOCK.ACQUIRE filler{n} t 600000"));
    }
    c.int("LOCK.ACQUIRE k a 60000");
    c.int("LOCK.ACQUIRE short a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let d = server.blocked("LOCK.ACQUIRE short d 60000 BLOCK 0");
    c.in_one_go(&["LOCK.RENEW short a 300", "BGSAVE"]);
    c.int("LOCK.RELEASE k a");
    b.fence();
    d.fence();
    assert_eq!(
        c.info("rdb_bgsave_in_progress"),
        "1",
        "or this has tested nothing"
    );
    c.call("CONFIG SET rdb-key-save-delay 0");
    assert_eq!(
        (c.holders("k"), c.holders("short")),
        (vec!["b".into()], vec!["d".into()])
    );
}
