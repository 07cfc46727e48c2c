//! A busy server: long scripts and functions, and DEBUG SLEEP. The campaign has them under load.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::harness::{packed, start_by, Clock, Kind, Reply, Server};

on_every_server![
    a_busy_server_delays_a_hand_off_but_loses_none,
    deadlines_and_timeouts_are_served_while_every_loop_turn_is_slow,
    a_grant_late_in_a_transaction_has_its_full_ttl,
];

const ENDLESS: &str = "while true do end";

fn a_busy_server_delays_a_hand_off_but_loses_none(kind: Kind) {
    let clock = Clock::ahead_by_us(0);
    let server = start_by(&clock, kind, &["--lua-time-limit", "5"]);
    let mut c = server.client();
    let mut calls = vec![(vec!["EVAL", ENDLESS, "0"], "SCRIPT KILL")];
    // Only a function without writes may be called read-only.
    let library = format!(
        "#!lua name=endless\nredis.register_function{{function_name='endless', \
             callback=function() {ENDLESS} end, flags={{'no-writes'}}}}"
    );
    assert_eq!(
        c.send(&["FUNCTION", "LOAD", &library]),
        Reply::from("endless")
    );
    let functions = ["FCALL", "FCALL_RO"];
    calls.extend(functions.map(|call| (vec![call, "endless", "0"], "FUNCTION KILL")));
    for (call, kill) in calls {
        c.int("LOCK.ACQUIRE k a 60000");
        c.int("LOCK.ACQUIRE other a 90000");
        let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
        let e = server.blocked("LOCK.ACQUIRE other e 60000 BLOCK 60000");
        let mut caller = server.busy_with(&packed(&call));
        clock.pass_ms(60_000);
        assert!(b.is_pending() && e.is_pending(), "the server runs a script");
        for line in [
            "LOCK.RELEASE other a",
            "LOCK.ACQUIRE free f 1000",
            "LOCK.INFO k",
        ] {
            assert!(c.error(line).starts_with("BUSY"), "{line}");
        }
        assert_eq!(c.text(kill), "OK");
        assert!(caller.line().unwrap().starts_with('-'));
        b.fence();
        assert_eq!(e.reply(), Reply::Nil);
        assert_eq!(
            (c.holders("k"), c.holders("other")),
            (vec!["b".into()], vec!["a".into()])
        );
        c.call("DEL k other");
    }
}

/// Each turn of the server's loop lasts longer than the tolerance of a timer, for the whole test.
fn deadlines_and_timeouts_are_served_while_every_loop_turn_is_slow(kind: Kind) {
    const NAPS: usize = 60;
    const ENOUGH: usize = 15;
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    c.int("LOCK.ACQUIRE long a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let e = server.blocked("LOCK.ACQUIRE long e 60000 BLOCK 300");
    c.int("LOCK.RENEW k a 300");
    let (naps, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    // Both are due in the middle of the second sleep.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sleeper = server.client();
            while !over.load(Ordering::Relaxed) && naps.fetch_add(1, Ordering::Relaxed) < NAPS {
                sleeper.text("DEBUG SLEEP 0.25");
            }
        });
        let (granted, timed_out) = (b.reply(), e.reply());
        over.store(true, Ordering::Relaxed);
        assert!(matches!(granted, Reply::Int(_)), "{granted:?}");
        assert_eq!(timed_out, Reply::Nil);
    });
    let naps = naps.load(Ordering::Relaxed);
    assert!(naps < ENOUGH, "after {naps} naps of 0.25 s");
}

/// In a transaction, a command sees the time at which the transaction began (7.2+). The ttl of a
/// hand-off must not be counted from there.
fn a_grant_late_in_a_transaction_has_its_full_ttl(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 5000 BLOCK 0");
    c.multi(&["DEBUG SLEEP 1.5", "LOCK.RELEASE k a"]);
    b.fence();
    let left_ms = c.int("PTTL k");
    assert!((3_600..=5_000).contains(&left_ms), "{left_ms}");
}
