//! The counters.

use super::{counted, of, stats};
use crate::harness::{wait_for, Client, Kind, Reply, Server};

on_every_server![
    each_answer_is_counted_once,
    each_end_of_a_wait_is_counted_once,
    each_end_of_a_hold_is_counted_once,
    moving_a_lock_counts_as_no_end,
    an_eviction_is_counted_as_one,
    grants_equal_ends_plus_live_holds,
];

/// The increase of the counters by a line.
#[track_caller]
fn by(c: &mut Client, line: &str) -> super::Stats {
    c.text("LOCK.RESETSTAT");
    c.call(line);
    counted(c)
}

fn each_answer_is_counted_once(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for (line, expected) in [
        ("LOCK.ACQUIRE k a 600000", &[("acquired", 1)][..]),
        (
            "LOCK.ACQUIRE k a 600000",
            &[("acquired", 1), ("reacquired", 1)],
        ),
        ("LOCK.ACQUIRE k b 600000", &[("refused", 1)]),
        ("RWLOCK.RLOCK k b 600000", &[("refused", 1)]),
        ("LOCK.RENEW k a 600000", &[("renewed", 1)]),
        ("LOCK.RENEW k b 600000", &[("lost_renewals", 1)]),
        ("LOCK.RENEW free b 600000", &[("lost_renewals", 1)]),
        ("LOCK.RELEASE k b", &[("not_owner", 1)]),
        ("LOCK.RELEASE free b", &[("not_owner", 1)]),
        ("LOCK.RELEASE k a", &[("released", 1)]),
        ("LOCK.RELEASE k a", &[("not_owner", 1)]),
        ("RWLOCK.RLOCK k * 600000", &[("acquired", 1)]),
        ("RWLOCK.RLOCK k b 600000", &[("acquired", 1)]),
        (
            "RWLOCK.RLOCK k b 600000",
            &[("acquired", 1), ("reacquired", 1)],
        ),
        ("RWLOCK.WLOCK k b 600000", &[("refused", 1)]),
        ("LOCK.RELEASE k b", &[("released", 1)]),
        ("DEL k", &[("forced", 1)]),
        ("RWLOCK.WLOCK k a 600000", &[("acquired", 1)]),
        (
            "RWLOCK.RLOCK k a 600000",
            &[("acquired", 1), ("reacquired", 1)],
        ),
        // In contexts that may not block.
        (
            "EVAL return(redis.call('LOCK.ACQUIRE',KEYS[1],'b','9','BLOCK','0')) 1 k",
            &[("refused", 1)],
        ),
        // Malformed and unknown commands do not count.
        ("LOCK.ACQUIRE k a", &[]),
        ("LOCK.ACQUIRE k a 0", &[]),
        ("LOCK.RELEASE k", &[]),
        ("LOCK.RENEW k a x", &[]),
        ("LOCK.INFO k", &[]),
        ("SET text x", &[]),
        ("LOCK.ACQUIRE text a 600000", &[]),
        ("LOCK.RELEASE text a", &[]),
        ("LOCK._APPLY k x", &[]),
        ("DEL text", &[]),
    ] {
        assert_eq!(by(&mut c, line), of(expected), "{line}");
    }
}

fn each_end_of_a_wait_is_counted_once(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 600000");
    assert_eq!(
        by(&mut c, "LOCK.ACQUIRE k b 600000 BLOCK 1"),
        of(&[("timed_out", 1), ("waited", 1)])
    );
    // Granted, two of them with one token.
    c.text("LOCK.RESETSTAT");
    let waiters = [0, 1].map(|_| server.blocked("LOCK.ACQUIRE k b 600000 BLOCK 0"));
    c.int("LOCK.RELEASE k a");
    for waiter in waiters {
        waiter.fence();
    }
    let granted = of(&[
        ("waited", 2),
        ("handed_over", 2),
        ("acquired", 2),
        ("reacquired", 1),
        ("released", 1),
    ]);
    assert_eq!(counted(&mut c), granted);
    // Disconnected before a grant.
    c.text("LOCK.RESETSTAT");
    let gone = server.blocked("LOCK.ACQUIRE k gone 600000 BLOCK 0");
    c.call(&format!("CLIENT KILL ID {}", gone.id));
    gone.broken();
    wait_for("it to leave", || {
        (stats(&mut c)["waiters"] == 0).then_some(())
    });
    assert_eq!(counted(&mut c), of(&[("waited", 1)]));
    // Disconnected before delivery.
    c.text("LOCK.RESETSTAT");
    let gone = server.blocked("LOCK.ACQUIRE k gone 600000 BLOCK 0");
    c.multi(&["LOCK.RELEASE k b", &format!("CLIENT KILL ID {}", gone.id)]);
    gone.broken();
    wait_for("it to be taken back", || {
        (stats(&mut c)["taken_back"] == 1).then_some(())
    });
    let taken_back = of(&[
        ("waited", 1),
        ("handed_over", 1),
        ("acquired", 1),
        ("released", 1),
        ("taken_back", 1),
    ]);
    assert_eq!(counted(&mut c), taken_back);
    // Only a conversion: its shared hold stays, so no hold ends.
    for token in ["up", "other"] {
        c.int(&format!("RWLOCK.RLOCK k {token} 600000"));
    }
    let gone = server.blocked("RWLOCK.WLOCK k up 600000 BLOCK 0");
    c.text("LOCK.RESETSTAT");
    let kill = format!("CLIENT KILL ID {}", gone.id);
    c.multi(&["LOCK.RELEASE k other", &kill]);
    gone.broken();
    wait_for("it to be taken back", || {
        (c.call("LOCK.INFO k").field("mode") == Reply::from("shared")).then_some(())
    });
    let undone = of(&[
        ("handed_over", 1),
        ("acquired", 1),
        ("reacquired", 1),
        ("released", 1),
    ]);
    assert_eq!(counted(&mut c), undone);
    c.int("LOCK.RELEASE k up");
    // Not allowed to wait.
    c.text("LOCK.RESETSTAT");
    c.int("RWLOCK.RLOCK k a 600000");
    c.int("RWLOCK.RLOCK k b 600000");
    let upgrade = server.blocked("RWLOCK.WLOCK k a 600000 BLOCK 0");
    assert_eq!(
        by(&mut c, "RWLOCK.WLOCK k b 600000 BLOCK 0"),
        of(&[("deadlocks", 1)])
    );
    c.int("LOCK.RELEASE k b");
    upgrade.fence();
    let upgraded = of(&[
        ("deadlocks", 1),
        ("handed_over", 1),
        ("acquired", 1),
        ("reacquired", 1),
        ("released", 1),
    ]);
    assert_eq!(counted(&mut c), upgraded);
    // The key had another type by then.
    c.text("LOCK.RESETSTAT");
    let waiter = server.blocked("LOCK.ACQUIRE k c 600000 BLOCK 0");
    c.call("SET k x");
    assert!(matches!(waiter.reply(), Reply::Error(error) if error.starts_with("WRONGTYPE")));
    assert_eq!(counted(&mut c), of(&[("waited", 1), ("forced", 1)]));
    // Too many waiters.
    let server = Server::start_with(kind, &["max-waiters", "0"]);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 600000");
    assert_eq!(
        by(&mut c, "LOCK.ACQUIRE k b 600000 BLOCK 0"),
        of(&[("queue_full", 1)])
    );
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
    wait_for("the key to go", || (c.int("EXISTS k") == 0).then_some(()));
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

fn moving_a_lock_counts_as_no_end(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k me 600000");
    for line in [
        "RENAME k new",
        "RENAMENX new k",
        "MOVE k 1",
        "SWAPDB 0 1",
        "SWAPDB 0 1",
        "PERSIST k",
        "DEBUG RELOAD",
    ] {
        assert_eq!(by(&mut c, line), of(&[]), "{line}");
    }
    // The overwritten lock ends, and the new one does not.
    c.int("LOCK.ACQUIRE k me 600000");
    c.int("RWLOCK.RLOCK target a 600000");
    c.int("RWLOCK.RLOCK target b 600000");
    assert_eq!(by(&mut c, "RENAME k target"), of(&[("forced", 2)]));
    assert_eq!(by(&mut c, "LOCK.RELEASE target me"), of(&[("released", 1)]));
}

fn an_eviction_is_counted_as_one(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for reader in 0..5 {
        c.int(&format!("RWLOCK.RLOCK k reader{reader} 600000"));
    }
    c.call("CONFIG SET maxmemory-policy volatile-random");
    c.text("LOCK.RESETSTAT");
    c.call("CONFIG SET maxmemory 1");
    c.call("SET text x");
    c.call("CONFIG SET maxmemory 0");
    assert_eq!(counted(&mut c), of(&[("evicted", 1)]));
    // An overwritten lock does not count as evicted when the key is evicted later.
    c.int("LOCK.ACQUIRE k me 600000");
    c.call("CONFIG SET maxmemory-policy allkeys-random");
    c.text("LOCK.RESETSTAT");
    c.call("SET k x");
    assert_eq!(counted(&mut c), of(&[("forced", 1)]));
    c.call("CONFIG SET maxmemory 1");
    c.call("SET text x");
    c.call("CONFIG SET maxmemory 0");
    assert_eq!(c.int("DBSIZE"), 0);
    assert_eq!(counted(&mut c), of(&[("forced", 1)]));
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
