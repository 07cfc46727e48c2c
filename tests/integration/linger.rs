//! LINGER: a hold ends soon after the connection that acquired it is lost.

use crate::harness::{wait_for, Client, Kind, Raw, Reply, Server};

mod endings;
mod places;
mod servers;
mod storm;

on_every_server![
    every_way_to_lose_a_connection_ends_the_hold,
    the_next_command_sees_it_already,
    the_deadline_comes_forward,
    the_deadline_never_moves_back,
    a_renewal_from_another_connection_keeps_the_binding,
    a_reset_connection_keeps_its_holds,
    all_holds_of_a_connection_end,
    readers_end_one_by_one,
    permits_end_one_by_one,
    scripts_and_calls_are_refused,
    a_transaction_may_linger,
];

/// A connection that acquires a lock, as `line` says.
#[track_caller]
pub(crate) fn holder(server: &Server, line: &str) -> Raw {
    let mut holder = server.raw();
    holder.send(line);
    let reply = holder.line().expect("a reply");
    assert!(reply.starts_with(':'), "{line}: {reply}");
    holder
}

#[track_caller]
pub(crate) fn kill(c: &mut Client, holder: &Raw) {
    assert_eq!(c.int(&format!("CLIENT KILL ID {}", holder.id)), 1);
}

#[track_caller]
pub(crate) fn until_free(c: &mut Client, key: &str) {
    wait_for(&format!("{key} to be free"), || {
        (c.int(&format!("EXISTS {key}")) == 0).then_some(())
    });
}

/// How many holds are bound to connections.
#[track_caller]
pub(crate) fn bound(c: &mut Client) -> i64 {
    c.info("lock_held_bound").parse().unwrap()
}

fn every_way_to_lose_a_connection_ends_the_hold(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let ways: [fn(&mut Client, Raw); 3] = [
        |c, holder| kill(c, &holder),
        |_, holder| drop(holder),
        |_, mut holder| {
            holder.send("QUIT");
            while holder.line().is_some() {}
        },
    ];
    for (n, lose) in ways.into_iter().enumerate() {
        let held = holder(&server, "LOCK.ACQUIRE k me 600000 LINGER 0");
        assert_eq!(bound(&mut c), 1);
        let next = server.blocked("LOCK.ACQUIRE k next 600000 BLOCK 0");
        lose(&mut c, held);
        assert!(next.fence() > 0);
        assert_eq!(c.holders("k"), ["next"]);
        assert_eq!(bound(&mut c), 0);
        assert_eq!(c.info("lock_disconnected"), (n + 1).to_string());
        c.int("LOCK.RELEASE k next");
    }
    assert_eq!(c.info("lock_disconnected_later"), "0");
}

fn the_next_command_sees_it_already(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for linger in [0, 600_000] {
        let line = format!("LOCK.ACQUIRE k me 900000 LINGER {linger}");
        let held = holder(&server, &line);
        let kill = format!("CLIENT KILL ID {}", held.id);
        let replies = c.in_one_go(&[&kill, "LOCK.ACQUIRE k you 900000", "PTTL k"]);
        let ttl = replies[2].as_int();
        match linger {
            0 => assert!(replies[1].as_int() > 0, "{replies:?}"),
            _ => assert!(replies[1] == Reply::Nil && ttl <= 600_000, "{replies:?}"),
        }
        c.int("DEL k");
    }
}

fn the_deadline_comes_forward(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let held = holder(&server, "LOCK.ACQUIRE k me 600000 LINGER 300");
    let next = server.blocked("LOCK.ACQUIRE k next 600000 BLOCK 0");
    let begun_us = c.now_us();
    kill(&mut c, &held);
    assert!(next.fence() > 0);
    let waited_us = c.now_us() - begun_us;
    assert!((250_000..10_000_000).contains(&waited_us), "{waited_us}");
    assert_eq!(c.info("lock_disconnected_later"), "1");
    assert_eq!(c.info("lock_expired"), "1");
    assert_eq!(c.info("lock_disconnected"), "0");
}

fn the_deadline_never_moves_back(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let held = holder(&server, "LOCK.ACQUIRE k me 30000 LINGER 281474976710656");
    kill(&mut c, &held);
    wait_for("the binding to end", || (bound(&mut c) == 0).then_some(()));
    assert_eq!(c.call("LOCK.RENEW k other 1"), Reply::Int(0)); // A command has seen to it.
    assert!((1..=30_000).contains(&c.int("PTTL k")));
    // Nor beyond the end that PEXPIRE has set.
    let held = holder(&server, "LOCK.ACQUIRE short me 600000 LINGER 300000");
    c.int("PEXPIRE short 20000");
    kill(&mut c, &held);
    c.int("LOCK.RENEW short other 1");
    assert!((1..=20_000).contains(&c.int("PTTL short")));
    let holders = c.call("LOCK.INFO short").field("holders").items()[0].clone();
    assert!(holders.field("ttl").as_int() <= 20_000);
}

fn a_renewal_from_another_connection_keeps_the_binding(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let held = holder(&server, "LOCK.ACQUIRE k me 60000 LINGER 0");
    for _ in 0..3 {
        assert_eq!(c.int("LOCK.RENEW k me 600000"), 1);
    }
    assert_eq!(bound(&mut c), 1);
    kill(&mut c, &held);
    until_free(&mut c, "k");
    // A renewal after the loss is one of an ordinary hold.
    let held = holder(&server, "LOCK.ACQUIRE k me 600000 LINGER 60000");
    kill(&mut c, &held);
    assert_eq!(c.int("LOCK.RENEW k me 500000"), 1);
    assert!(c.int("PTTL k") > 60_000);
}

fn a_reset_connection_keeps_its_holds(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut held = holder(&server, "LOCK.ACQUIRE k me 600000 LINGER 0");
    held.send("RESET");
    assert_eq!(held.line().as_deref(), Some("+RESET"));
    assert_eq!(c.holders("k"), ["me"]);
    assert_eq!(bound(&mut c), 1);
    kill(&mut c, &held);
    until_free(&mut c, "k");
}

fn all_holds_of_a_connection_end(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut held = server.raw();
    // More than the timer looks at in one go.
    let count = 2_500;
    let lines = (0..count).map(|n| format!("LOCK.ACQUIRE k{n} me 600000 LINGER 0\r\n"));
    held.send_bytes(lines.collect::<String>().as_bytes());
    (0..count).for_each(|_| drop(held.line()));
    let other = holder(&server, "LOCK.ACQUIRE other me 600000 LINGER 0");
    c.int("LOCK.ACQUIRE unbound me 600000");
    assert_eq!(bound(&mut c), count + 1);
    drop(held);
    wait_for("all to end", || (c.int("DBSIZE") == 2).then_some(()));
    assert_eq!(bound(&mut c), 1);
    drop(other);
    until_free(&mut c, "other");
    assert_eq!(c.holders("unbound"), ["me"]);
    assert_eq!(c.info("lock_disconnected"), (count + 1).to_string());
}

fn readers_end_one_by_one(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let one = holder(&server, "RWLOCK.RLOCK k one 600000 LINGER 0");
    let two = holder(&server, "RWLOCK.RLOCK k two 600000 LINGER 0");
    c.int("RWLOCK.RLOCK k three 600000");
    let writer = server.blocked("RWLOCK.WLOCK k writer 600000 BLOCK 0");
    kill(&mut c, &one);
    kill(&mut c, &two);
    wait_for("the readers to end", || {
        (c.holders("k") == ["three"]).then_some(())
    });
    assert!(writer.is_pending());
    c.int("LOCK.RELEASE k three");
    assert!(writer.fence() > 0);
    // A reader that is over is forgotten when the others change the lock.
    let _late = holder(&server, "RWLOCK.RLOCK r late 1 LINGER 0");
    c.int("RWLOCK.RLOCK r stays 600000");
    wait_for("the deadline", || {
        (c.call("LOCK.CHECK r late") == Reply::Nil).then_some(())
    });
    c.int("LOCK.RENEW r stays 600000");
    assert_eq!(bound(&mut c), 0);
}

fn permits_end_one_by_one(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let one = holder(&server, "LOCK.ACQUIRE k one 600000 LIMIT 2 LINGER 0");
    let two = holder(&server, "LOCK.ACQUIRE k two 600000 LIMIT 2 LINGER 300000");
    let next = server.blocked("LOCK.ACQUIRE k next 600000 LIMIT 2 BLOCK 0");
    kill(&mut c, &two);
    c.int("LOCK.RENEW k other 1");
    assert!(next.is_pending());
    let permits = c.call("LOCK.INFO k").field("holders");
    let ttls = permits.items().iter().map(|p| p.field("ttl").as_int());
    assert_eq!(ttls.filter(|ttl| *ttl <= 300_000).count(), 1);
    kill(&mut c, &one);
    assert!(next.fence() > 0);
    assert_eq!(c.holders("k"), ["two", "next"]);
}

fn scripts_and_calls_are_refused(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let script = "return redis.pcall('LOCK.ACQUIRE', KEYS[1], 'me', '1000', 'LINGER', '5')";
    let mut run = |words: &[&str]| match c.send(words) {
        Reply::Error(error) => assert!(error.contains("LINGER needs a client"), "{error}"),
        other => panic!("{other:?}"),
    };
    run(&["EVAL", script, "1", "k"]);
    if kind.is_7_0_or_later() {
        let mut c = server.client();
        c.int("LOCK.ACQUIRE guard me 600000");
        run(&[
            "LOCK.EXEC",
            "guard",
            "me",
            "LOCK.ACQUIRE",
            "k",
            "me",
            "1000",
            "LINGER",
            "5",
        ]);
    }
    assert_eq!(c.int("EXISTS k"), 0);
    assert_eq!(bound(&mut c), 0);
}

fn a_transaction_may_linger(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut held = server.raw();
    for line in [
        "MULTI",
        "LOCK.ACQUIRE k me 600000 LINGER 0",
        "LOCK.ACQUIRE j me 600000 LINGER 0 BLOCK 0",
    ] {
        held.send(line);
        held.line();
    }
    held.send("EXEC");
    assert_eq!(held.line().as_deref(), Some("*2"));
    assert_eq!(bound(&mut c), 2);
    kill(&mut c, &held);
    until_free(&mut c, "k");
    until_free(&mut c, "j");
}
