//! LINGER: a hold ends soon after the connection that acquired it is lost.

use crate::harness::{Client, Kind, Raw, Server};

mod endings;
mod servers;

on_every_server![
    every_way_to_lose_a_connection_ends_the_hold,
    a_reset_connection_keeps_its_holds,
    scripts_and_calls_are_refused,
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

fn a_reset_connection_keeps_its_holds(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut held = holder(&server, "LOCK.ACQUIRE k me 600000 LINGER 0");
    held.send("RESET");
    assert_eq!(held.line().as_deref(), Some("+RESET"));
    assert_eq!(c.holders("k"), ["me"]);
    assert_eq!(bound(&mut c), 1);
    kill(&mut c, &held);
    c.until("EXISTS k", 0);
}

fn scripts_and_calls_are_refused(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let script = "return redis.pcall('LOCK.ACQUIRE', KEYS[1], 'me', '1000', 'LINGER', '5')";
    let mut run = |words: &[&str]| {
        let reply = c.send(words);
        assert!(
            reply.as_error().contains("LINGER needs a client"),
            "{reply:?}"
        );
    };
    run(&["EVAL", script, "1", "k"]);
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
    assert_eq!(c.int("EXISTS k"), 0);
    assert_eq!(bound(&mut c), 0);
}
