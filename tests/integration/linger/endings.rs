//! Bindings end with their holds, or when these leave their keys, and take no memory then.

use super::{bound, holder};
use crate::harness::{wait_for, Kind, Reply, Server};

on_every_server![
    a_hold_that_ends_otherwise_is_forgotten,
    acquires_take_no_memory,
];

fn a_hold_that_ends_otherwise_is_forgotten(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for end in [
        "DEL k",
        "UNLINK k",
        "SET k text",
        "RENAME k elsewhere",
        "MOVE k 1",
        "FLUSHDB",
        "FLUSHALL",
        "FLUSHALL ASYNC",
        "PEXPIRE k -1",
    ] {
        let held = holder(&server, "LOCK.ACQUIRE k me 600000 LINGER 0");
        assert_eq!(bound(&mut c), 1);
        c.call(end);
        assert_eq!(bound(&mut c), 0, "{end}");
        c.call("FLUSHALL");
        // Whatever is under the key now belongs to another one.
        c.int("LOCK.ACQUIRE k me 600000");
        drop(held);
        c.until_info("connected_clients", "1");
        c.int("LOCK.RENEW k other 1");
        assert_eq!(c.holders("k"), ["me"], "{end}");
        c.int("LOCK.RELEASE k me");
    }
    // At its deadline.
    let _held = holder(&server, "LOCK.ACQUIRE k me 1 LINGER 0");
    c.until_info("lock_held_bound", "0");
    // The key is deleted by the very command that takes the lock again.
    let held = holder(&server, "LOCK.ACQUIRE k me 30 LINGER 0");
    wait_for("the key to be taken anew", || {
        c.call("DEBUG SET-ACTIVE-EXPIRE 0");
        let reply = c.call("LOCK.ACQUIRE k you 600000 LINGER 0");
        matches!(reply, Reply::Int(_)).then_some(())
    });
    drop(held);
    assert_eq!(bound(&mut c), 1);
    assert_eq!(c.holders("k"), ["you"]);
}

fn acquires_take_no_memory(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let lines = |line: &dyn Fn(usize) -> String, count: usize| {
        let mut held = server.raw();
        for chunk in 0..count / 1_000 {
            let lines = (0..1_000).map(|n| line(chunk * 1_000 + n) + "\r\n");
            held.send_bytes(lines.collect::<String>().as_bytes());
            (0..1_000).for_each(|_| drop(held.line()));
        }
        held
    };
    let first = lines(&|_| "LOCK.ACQUIRE k me 600000 LINGER 0".into(), 1_000);
    let used = |c: &mut crate::harness::Client| -> i64 { c.info("used_memory").parse().unwrap() };
    let before = used(&mut c);
    let again = lines(&|_| "LOCK.ACQUIRE k me 600000 LINGER 0".into(), 30_000);
    let renewed = lines(&|_| "LOCK.RENEW k me 600000".into(), 10_000);
    assert_eq!(bound(&mut c), 1);
    let many = lines(
        &|n| match n % 2 {
            0 => format!("LOCK.ACQUIRE other t{n} 600000 LINGER 0"),
            _ => format!("LOCK.RELEASE other t{}", n - 1),
        },
        30_000,
    );
    assert_eq!(bound(&mut c), 1);
    drop((first, again, renewed, many));
    c.until("EXISTS k", 0);
    let grown = used(&mut c) - before;
    assert!(grown < 2_000_000, "{grown} bytes");
}
