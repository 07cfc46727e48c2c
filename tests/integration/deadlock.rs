//! A wait that would close a cycle of waits is refused at once: what it is told, and how long that
//! takes. tests/scenarios/cycles.txt has which ones are.

mod telling;

use crate::harness::{wait_for, Client, Kind, Reply, Server};

on_every_server![
    the_whole_cycle_is_logged,
    a_search_is_bounded,
    the_setting_can_be_switched,
];

#[track_caller]
fn hold(c: &mut Client, key: &str, token: &str) {
    c.int(&format!("LOCK.ACQUIRE {key} {token} 600000"));
}

/// The error of a user who may read all keys.
fn cycle_of(waits: usize, asked: &str, held: &str) -> String {
    let waiting = format!("{asked} waits for a token that waits for {held}");
    format!("DEADLOCK a cycle of {waits} waits: {waiting}")
}

/// A ring: each token holds its key and waits for the next one, but for the last token.
fn ring(server: &Server, len: usize) -> Vec<crate::harness::Later> {
    let mut c = server.client();
    (0..len).for_each(|n| hold(&mut c, &format!("k{n}"), &format!("t{n}")));
    let wait = |n| {
        let line = format!("LOCK.ACQUIRE k{} t{n} 600000 BLOCK 0", n + 1);
        server.blocked(&line)
    };
    (0..len - 1).map(wait).collect()
}

/// What the setting means is in tests/scenarios.
fn the_setting_can_be_switched(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let _waiter = ring(&server, 2);
    for _ in 0..2 {
        let error = c.error("LOCK.ACQUIRE k0 t1 600000 BLOCK 1");
        assert_eq!(error, cycle_of(2, "k0", "k1"));
        c.text("CONFIG SET lock.deadlock-detection no");
        assert_eq!(c.call("LOCK.ACQUIRE k0 t1 600000 BLOCK 1"), Reply::Nil);
        c.text("CONFIG SET lock.deadlock-detection yes");
    }
}

fn the_whole_cycle_is_logged(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let _waiters = ring(&server, 3);
    let error = c.error("LOCK.ACQUIRE k0 t2 600000 BLOCK 0");
    assert_eq!(error, cycle_of(3, "k0", "k2"));
    for (n, wait) in ["t2 waits for k0", "t0 waits for k1", "t1 waits for k2"]
        .iter()
        .enumerate()
    {
        let line = format!(
            "deadlock refused, wait {} of 3: token {wait} in database 0",
            n + 1
        );
        wait_for(&line, || server.log().contains(&line).then_some(()));
    }
    // One that asks again and again does not fill the disk.
    for _ in 0..1_000 {
        c.error("LOCK.ACQUIRE k0 t2 600000 BLOCK 0");
    }
    let log = server.log();
    let logged = log.lines().filter(|line| line.contains("wait 1 of 3"));
    assert!(logged.count() < 500);
    assert_eq!(c.info("lock_deadlock_cycles"), "1001");
}

fn a_search_is_bounded(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    const LEN: usize = 1_000;
    for n in 0..LEN {
        hold(&mut c, &format!("k{n}"), &format!("t{n}"));
        if n > 0 {
            let line = format!("LOCK.ACQUIRE k{n} t{} 600000 KEEP 600000", n - 1);
            assert_eq!(c.call(&line), Reply::Nil);
        }
    }
    assert_eq!(c.info("lock_deadlock_over_budget"), "0");
    let last = LEN - 1;
    let line = format!("LOCK.ACQUIRE k0 t{last} 600000 KEEP 600000");
    assert_eq!(c.call(&line), Reply::Nil, "it waits in a cycle");
    assert_eq!(c.info("lock_deadlock_over_budget"), "1");
    assert_eq!(c.info("lock_deadlock_cycles"), "0");
    assert_eq!(c.waiters("k0"), [format!("t{last}")]);
}
