//! The counters of holds that end. The others are in tests/scenarios/counters.txt.

use super::{counted, of, stats};
use crate::harness::{wait_for, Client, Kind, Server};

on_every_server![
    each_end_of_a_hold_is_counted_once,
    grants_equal_ends_plus_live_holds,
];

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

/// After any history without a flush, every hold is either live or has ended in exactly one way.
fn grants_equal_ends_plus_live_holds(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut next = 7u64;
    let mut draw = |n: u64| {
        // The middle bits of a linear congruential generator.
        next = next
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (next >> 33) % n
    };
    for _ in 0..4_000 {
        let (key, token, ttl) = (
            draw(6),
            draw(4),
            [1, 3, 600_000][usize::try_from(draw(3)).unwrap()],
        );
        let line = match draw(12) {
            0..=2 => format!("LOCK.ACQUIRE k{key} t{token} {ttl}"),
            3..=5 => format!("RWLOCK.RLOCK k{key} t{token} {ttl}"),
            6 => format!("LOCK.ACQUIRE k{key} t{token} {ttl} BLOCK 6"),
            7 | 8 => format!("LOCK.RELEASE k{key} t{token}"),
            9 => format!("LOCK.RENEW k{key} t{token} {ttl}"),
            10 => format!("PEXPIRE k{key} {}", 1 + draw(50)),
            _ => match draw(6) {
                0 => format!("DEL k{key}"),
                1 => format!("SET k{key} x PX 2"),
                2 => format!("RENAME k{key} k{}", draw(6)),
                3 => format!("PERSIST k{key}"),
                4 => format!(
                    "MULTI;LOCK.RELEASE k{key} t{token};RWLOCK.RLOCK k{key} t{token} {ttl};EXEC"
                ),
                _ => format!("SETEX k{key} 1 x"),
            },
        };
        line.split(';').for_each(|line| drop(c.call(line)));
    }
    let s = stats(&mut c);
    assert_eq!(
        s["held_exclusive"]
            + s["held_shared"]
            + s["held_counted"]
            + s["released"]
            + s["expired"]
            + s["forced"]
            + s["taken_back"],
        s["acquired"] - s["reacquired"],
        "{s:?}"
    );
    assert_eq!(s["waited"], s["handed_over"] + s["timed_out"], "{s:?}");
    for name in [
        "released",
        "expired",
        "forced",
        "reacquired",
        "timed_out",
        "handed_over",
    ] {
        assert!(s[name] > 5, "{name} hardly came: {s:?}");
    }
    c.call("DEL k0 k1 k2 k3 k4 k5");
    assert_eq!(super::held(&mut c), [0, 0, 0, 0]);
}
