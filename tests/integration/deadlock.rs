//! A wait that would close a cycle of waits is refused at once, and nothing else is.

mod telling;

use crate::harness::{wait_for, Client, Kind, Reply, Server};

on_every_server![
    cycles_over_several_keys_are_refused,
    requests_of_a_channel_are_refused,
    a_cycle_may_go_over_databases,
    where_nobody_may_wait_nobody_is_refused,
    the_setting_turns_it_off,
    waits_without_a_cycle_are_not_refused,
    a_hold_that_is_over_closes_no_cycle,
    the_refused_request_leaves_no_place,
    the_whole_cycle_is_logged,
    a_search_is_bounded,
];

#[track_caller]
fn hold(c: &mut Client, key: &str, token: &str) {
    c.int(&format!("LOCK.ACQUIRE {key} {token} 600000"));
}

#[track_caller]
fn share(c: &mut Client, key: &str, token: &str) {
    c.int(&format!("RWLOCK.RLOCK {key} {token} 600000"));
}

/// The error of a user who may read all keys. Redis 6.2 cannot be asked who may.
fn cycle_of(kind: Kind, waits: usize, asked: &str, held: &str) -> String {
    let held = match kind.is_7_0_or_later() {
        true => held,
        false => "another key",
    };
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

fn cycles_over_several_keys_are_refused(kind: Kind) {
    for len in [2, 3, 10] {
        let server = Server::start(kind);
        let mut c = server.client();
        let waiters = ring(&server, len);
        let last = len - 1;
        for words in ["BLOCK 0", "BLOCK 60000", "KEEP 1000", "BLOCK 1 KEEP 1000"] {
            let error = c.error(&format!("LOCK.ACQUIRE k0 t{last} 600000 {words}"));
            assert_eq!(
                error,
                cycle_of(kind, len, "k0", &format!("k{last}")),
                "{words}"
            );
        }
        // A request that does not wait is told null, and nothing was changed.
        let ask = format!("LOCK.ACQUIRE k0 t{last} 600000");
        assert_eq!(c.call(&ask), Reply::Nil);
        assert!(waiters.iter().all(|waiter| waiter.is_pending()));
        assert_eq!(c.waiters("k0"), [""; 0]);
        assert_eq!(c.info("lock_deadlock_cycles"), "4");
        assert_eq!(c.info("lock_deadlocks"), "4");
        // The refused one lets go, and all get what they wait for.
        assert_eq!(c.int(&format!("LOCK.RELEASE k{last} t{last}")), 1);
        for (n, waiter) in waiters.into_iter().enumerate().rev() {
            waiter.fence();
            c.int(&format!("LOCK.RELEASE k{} t{n}", n + 1));
            c.int(&format!("LOCK.RELEASE k{n} t{n}"));
        }
        assert!(c.int(&ask) > 0);
        assert_eq!(c.info("lock_deadlock_over_budget"), "0");
    }
}

fn requests_of_a_channel_are_refused(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    hold(&mut c, "k", "a");
    hold(&mut c, "x", "b");
    let ask =
        |c: &mut Client, words: &str| c.call(&format!("LOCK.ACQUIRE {words} 600000 NOTIFY 0 c"));
    assert_eq!(ask(&mut c, "k b"), Reply::Simple("QUEUED".into()));
    let refused = Reply::Error(cycle_of(kind, 2, "x", "k"));
    assert_eq!(ask(&mut c, "x a"), refused);
    // A transaction may leave places, and is told of the cycle, too.
    let mut raw = server.raw();
    for line in ["MULTI", "LOCK.ACQUIRE x a 600000 NOTIFY 0 c", "EXEC"] {
        raw.send(line);
    }
    let refused = format!("-{}", cycle_of(kind, 2, "x", "k"));
    for line in ["+OK", "+QUEUED", "*1", &refused] {
        assert_eq!(raw.line().as_deref(), Some(line));
    }
    assert_eq!(c.waiters("x"), [""; 0]);
}

fn a_cycle_may_go_over_databases(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    hold(&mut c, "k", "a");
    c.call("SELECT 3");
    hold(&mut c, "k", "b");
    c.call("SELECT 0");
    assert_eq!(c.call("LOCK.ACQUIRE k b 600000 KEEP 60000"), Reply::Nil);
    c.call("SELECT 3");
    let error = c.error("LOCK.ACQUIRE k a 600000 KEEP 60000");
    assert_eq!(error, cycle_of(kind, 2, "k", "k"));
    // The connection is still in its database.
    assert_eq!(c.holders("k"), ["b"]);
    assert_eq!(c.waiters("k"), [""; 0]);
}

fn where_nobody_may_wait_nobody_is_refused(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let waiters = ring(&server, 2);
    let ask = "LOCK.ACQUIRE k0 t1 600000 BLOCK 0";
    assert_eq!(c.multi(&[ask])[0], Reply::Nil);
    let script = "return redis.call('LOCK.ACQUIRE', KEYS[1], 't1', '600000', 'BLOCK', '0')";
    assert_eq!(c.send(&["EVAL", script, "1", "k0"]), Reply::Nil);
    assert_eq!(c.info("lock_deadlock_cycles"), "0");
    assert_eq!(c.error(ask), cycle_of(kind, 2, "k0", "k1"));
    assert!(waiters[0].is_pending());
}

fn the_setting_turns_it_off(kind: Kind) {
    let server = Server::start_with(kind, &["deadlock-detection", "no"]);
    let mut c = server.client();
    let waiters = ring(&server, 2);
    assert_eq!(c.call("LOCK.ACQUIRE k0 t1 600000 BLOCK 1"), Reply::Nil);
    assert_eq!(c.info("lock_deadlock_cycles"), "0");
    // Conversions keep their rule.
    share(&mut c, "s", "a");
    share(&mut c, "s", "b");
    assert_eq!(c.call("RWLOCK.WLOCK s a 600000 KEEP 60000"), Reply::Nil);
    let error = c.error("RWLOCK.WLOCK s b 600000 BLOCK 0");
    assert!(error.starts_with("DEADLOCK another holder"), "{error}");
    if kind.is_7_0_or_later() {
        c.text("CONFIG SET lock.deadlock-detection yes");
        let error = c.error("LOCK.ACQUIRE k0 t1 600000 BLOCK 1");
        assert_eq!(error, cycle_of(kind, 2, "k0", "k1"));
        c.text("CONFIG SET lock.deadlock-detection no");
        assert_eq!(c.call("LOCK.ACQUIRE k0 t1 600000 BLOCK 1"), Reply::Nil);
    }
    assert!(waiters[0].is_pending());
}

fn waits_without_a_cycle_are_not_refused(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    // Chains that meet, and none of which comes back. Keys are taken in one order.
    const CHAINS: usize = 20;
    const LEN: usize = 12;
    for chain in 0..CHAINS {
        for n in 0..LEN {
            hold(&mut c, &format!("k{chain}:{n}"), &format!("t{chain}:{n}"));
        }
    }
    for chain in 0..CHAINS {
        for n in 0..LEN - 1 {
            let next = [(chain, n + 1), ((chain + 1) % CHAINS, n + 1)];
            for (to, at) in next {
                let line = format!("LOCK.ACQUIRE k{to}:{at} t{chain}:{n} 600000 KEEP 600000");
                assert_eq!(c.call(&line), Reply::Nil);
            }
        }
    }
    assert_eq!(c.info("lock_deadlock_cycles"), "0");
    assert_eq!(c.info("lock_deadlock_over_budget"), "0");
    // The end of any chain may not wait for a beginning.
    let (last, end) = (LEN - 1, CHAINS / 2);
    let error = c.error(&format!(
        "LOCK.ACQUIRE k0:0 t{end}:{last} 600000 KEEP 600000"
    ));
    assert_eq!(
        error,
        cycle_of(kind, LEN, "k0:0", &format!("k{end}:{last}"))
    );
}

fn a_hold_that_is_over_closes_no_cycle(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    hold(&mut c, "k0", "t0");
    hold(&mut c, "k1", "t1");
    let waiting = server.blocked("LOCK.ACQUIRE k1 t0 600000 BLOCK 0");
    assert_eq!(c.int("PEXPIRE k1 50"), 1);
    waiting.fence();
    // Its owner does not know yet that it is over.
    let late = server.blocked("LOCK.ACQUIRE k0 t1 600000 BLOCK 0");
    c.int("LOCK.RELEASE k0 t0");
    late.fence();
    // A key that has gone in another way.
    hold(&mut c, "k2", "t2");
    let waiting = server.blocked("LOCK.ACQUIRE k0 t2 600000 BLOCK 0");
    c.call("DEL k2");
    hold(&mut c, "k2", "other");
    let late = server.blocked("LOCK.ACQUIRE k2 t1 600000 BLOCK 0");
    assert!(waiting.is_pending() && late.is_pending());
    assert_eq!(c.info("lock_deadlocks"), "0");
}

fn the_refused_request_leaves_no_place(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    hold(&mut c, "k", "a");
    // A place from before the cycle was there.
    assert_eq!(c.call("LOCK.ACQUIRE k b 600000 KEEP 600000"), Reply::Nil);
    let behind = server.blocked("LOCK.ACQUIRE k other 600000 BLOCK 0");
    // It takes a hold at once, which closes a cycle that no wait has closed.
    share(&mut c, "x", "b");
    assert_eq!(c.waiters("k"), ["b", "other"]);
    let error = c.error("RWLOCK.WLOCK x a 600000 KEEP 600000");
    assert_eq!(error, cycle_of(kind, 2, "x", "k"));
    assert_eq!(c.waiters("x"), [""; 0]);
    assert_eq!(c.waiters("k"), ["b", "other"]);
    // A client whose own place is part of a cycle by now gives it up with the refusal.
    hold(&mut c, "y", "c");
    assert_eq!(c.call("LOCK.ACQUIRE y a 600000 KEEP 600000"), Reply::Nil);
    assert_eq!(c.call("RWLOCK.RLOCK k c 600000"), Reply::Nil);
    let error = c.error("RWLOCK.RLOCK k c 600000 BLOCK 0");
    assert_eq!(error, cycle_of(kind, 2, "k", "y"));
    assert_eq!(c.waiters("k"), ["b", "other"]);
    c.int("LOCK.RELEASE k b");
    c.int("LOCK.RELEASE k a");
    behind.fence();
}

fn the_whole_cycle_is_logged(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let _waiters = ring(&server, 3);
    let error = c.error("LOCK.ACQUIRE k0 t2 600000 BLOCK 0");
    assert_eq!(error, cycle_of(kind, 3, "k0", "k2"));
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
