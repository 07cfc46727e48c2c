//! The counters of holds that end. The others are in tests/scenarios/counters.txt.

use super::{counted, of};
use crate::harness::{wait_for, Client, Kind, Server};

on_every_server![each_end_of_a_hold_is_counted_once];

/// The increase of the counters by a line.
#[track_caller]
fn by(c: &mut Client, line: &str) -> super::Stats {
    c.text("LOCK.RESETSTAT");
    c.call(line);
    counted(c)
}

fn each_end_of_a_hold_is_counted_once(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let readers = |c: &mut Client, ttl: u32| {
        for reader in 0..100 {
            c.int(&format!("RWLOCK.RLOCK readers reader{reader} {ttl}"));
        }
    };
    // Ended by force.
    for line in [
        "DEL readers",
        "UNLINK readers",
        "SET readers x",
        "RENAME text readers",
        "SUNIONSTORE readers nothing",
    ] {
        c.call("SET text x");
        c.call("DEL readers");
        readers(&mut c, 600_000);
        assert_eq!(by(&mut c, line), of(&[("forced", 100)]), "{line}");
    }
    // Ended by time, without any command.
    c.call("DEL readers");
    c.text("LOCK.RESETSTAT");
    readers(&mut c, 1_000);
    c.int("LOCK.ACQUIRE k me 1");
    wait_for("both to expire", || (c.int("DBSIZE") <= 1).then_some(()));
    c.call("DEL text");
    assert_eq!(counted(&mut c), of(&[("acquired", 101), ("expired", 101)]));
    c.call("DEBUG SET-ACTIVE-EXPIRE 0");
    // Ended by time, noticed by a command.
    for line in [
        "LOCK.ACQUIRE k you 600000",
        "LOCK.INFO k",
        "LOCK.RELEASE k me",
        "LOCK.RENEW k me 600000",
        "GET k",
    ] {
        c.call("DEL k");
        c.text("LOCK.RESETSTAT");
        c.int("LOCK.ACQUIRE k me 600000");
        c.int("LOCK.RENEW k me 50");
        let over_us = c.now_us() + 52_000;
        wait_for("it to be over", || (c.now_us() > over_us).then_some(()));
        c.call(line);
        let counted = counted(&mut c);
        assert_eq!(counted.get("expired"), Some(&1), "{line}: {counted:?}");
        assert!(
            !counted.contains_key("forced") && !counted.contains_key("released"),
            "{line}: {counted:?}"
        );
    }
    // Ended by a deadline that was brought forward from outside: it cannot be told from force.
    c.call("DEL k");
    c.text("LOCK.RESETSTAT");
    c.int("LOCK.ACQUIRE k me 600000");
    // Long enough that the server does not find it in the past and delete the key at once.
    c.int("PEXPIRE k 50");
    c.until("EXISTS k", 0);
    assert_eq!(counted(&mut c), of(&[("acquired", 1), ("forced", 1)]));
    // Ended by time, while a client waits.
    c.call("DEL k");
    c.text("LOCK.RESETSTAT");
    c.int("LOCK.ACQUIRE k me 30");
    server.later("LOCK.ACQUIRE k you 600000 BLOCK 0").fence();
    let counted_so_far = counted(&mut c);
    assert_eq!(counted_so_far["expired"], 1, "{counted_so_far:?}");
    // One shared hold of several.
    c.call("DEL k");
    c.int("RWLOCK.RLOCK k long 600000");
    c.int("RWLOCK.RLOCK k short 1");
    let ttl = |c: &mut Client| c.call("LOCK.INFO k").field("holders").items().len();
    wait_for("the share to be over", || (ttl(&mut c) == 1).then_some(()));
    assert_eq!(
        by(&mut c, "RWLOCK.RLOCK k third 600000"),
        of(&[("acquired", 1), ("expired", 1)])
    );
    assert_eq!(by(&mut c, "LOCK.RELEASE k short"), of(&[("not_owner", 1)]));
}
