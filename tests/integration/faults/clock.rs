//! The wall clock jumps by an hour while locks are held and waited for. Deadlines follow it, as
//! every ttl of the server does. Timeouts of waits do not. And all clocks stand.

use std::time::{Duration, Instant};

use crate::harness::{
    figure, scale, start_by, wait_for, Client, Clock, Kind, Reply, Server, SYNCED,
};

on_every_server![
    clock_set_forward_every_passed_deadline_expires,
    clock_set_forward_no_timeout_fires_early,
    clock_set_back_fences_rise_and_the_hold_stays_exclusive,
    clock_set_to_and_fro_every_waiter_is_answered,
    a_deadline_in_a_pause_of_all_commands_is_kept_after_it,
];

const HOUR_MS: i64 = 3_600_000;

fn start(kind: Kind) -> (Clock, Server, Client) {
    let clock = Clock::ahead_by_us(0);
    let server = start_by(&clock, kind, &[]);
    let c = server.client();
    (clock, server, c)
}

/// Sets the clock, and waits until the server has noticed.
fn jump(clock: &Clock, c: &mut Client, ahead_ms: i64) {
    clock.set_ahead_by_us(ahead_ms * 1_000);
    wait_for("the server's clock to jump", || {
        let ahead = i64::try_from(c.now_us() / 1000).unwrap() - crate::harness::now_ms();
        ((ahead - ahead_ms).abs() < 60_000).then_some(())
    });
}

fn clock_set_forward_every_passed_deadline_expires(kind: Kind) {
    let (clock, server, mut c) = start(kind);
    let a = c.int("LOCK.ACQUIRE k a 60000");
    c.int("RWLOCK.RLOCK shared r1 60000");
    c.int("RWLOCK.RLOCK shared r2 86400000");
    let day = c.int("LOCK.ACQUIRE day a 86400000");
    let b = server.blocked(&format!("LOCK.ACQUIRE k b {} BLOCK 0", 2 * HOUR_MS));
    let w = server.blocked("RWLOCK.WLOCK shared w 60000 BLOCK 0");
    let e = server.blocked("LOCK.ACQUIRE day e 60000 BLOCK 0");
    jump(&clock, &mut c, HOUR_MS);
    let b = b.fence();
    assert!(
        b >= a + 1000 * HOUR_MS - 60_000_000,
        "fences follow the clock"
    );
    assert_eq!(c.int("LOCK.RENEW k a 60000"), 0);
    assert_eq!(c.int("LOCK.RELEASE k a"), 0);
    assert_eq!(c.holders("k"), ["b"], "its whole ttl counts from the grant");
    assert!(c.int("PTTL k") > 2 * HOUR_MS - 60_000);
    assert_eq!(c.holders("shared"), ["r2"]);
    assert_eq!(c.int("LOCK.RELEASE shared r1"), 0);
    assert_eq!(
        c.int("LOCK.ACQUIRE day a 86400000"),
        day,
        "this one is not over"
    );
    assert!(w.is_pending() && e.is_pending());
    c.int("LOCK.RELEASE shared r2");
    assert!(w.fence() > b);
}

fn clock_set_forward_no_timeout_fires_early(kind: Kind) {
    let (clock, server, mut c) = start(kind);
    c.int("LOCK.ACQUIRE k a 86400000");
    let start = Instant::now();
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 600");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 3000000");
    jump(&clock, &mut c, HOUR_MS);
    let (reply, at) = b.reply_and_instant();
    assert_eq!(reply, Reply::Nil);
    assert!(at - start >= Duration::from_millis(600), "{:?}", at - start);
    assert!(d.is_pending(), "50 minutes have not passed");
    assert_eq!(c.waiters("k"), ["d"]);
    c.int("LOCK.RELEASE k a");
    d.fence();
}

fn clock_set_back_fences_rise_and_the_hold_stays_exclusive(kind: Kind) {
    let (clock, server, mut c) = start(kind);
    let mut last = c.int("LOCK.ACQUIRE k a 20000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    jump(&clock, &mut c, -HOUR_MS);
    assert!(
        c.int("PTTL k") > HOUR_MS - 60_000,
        "it lasts longer by that much"
    );
    assert_eq!(c.call("LOCK.ACQUIRE k d 60000"), Reply::Nil);
    for n in 0..100 {
        let fence = c.int(&format!("LOCK.ACQUIRE other{n} t 60000"));
        assert!(fence > last, "{fence} after {last}");
        last = fence;
    }
    assert!(b.is_pending());
    assert_eq!(c.int("LOCK.RENEW k a 300"), 1, "or until it is renewed");
    let b = b.fence();
    assert!(b > last);
    assert_eq!(c.int("LOCK.RELEASE k a"), 0);
    assert_eq!(c.holders("k"), ["b"]);
}

/// Short ttls and timeouts while the clock is set to and fro: every request is answered, and fences
/// keep rising.
fn clock_set_to_and_fro_every_waiter_is_answered(kind: Kind) {
    let (clock, server, mut c) = start(kind);
    let mut last = 0;
    let (mut granted, mut timed_out, jumps) = (0, 0, 6 * scale());
    for n in 0..jumps {
        let fence = c.int("LOCK.ACQUIRE k dead 80");
        assert!(fence > last);
        last = fence;
        let waiters: Vec<_> = (0..5)
            .map(|m| {
                let timeout = 100 + 60 * m;
                server.later(&format!("LOCK.ACQUIRE k w{m} 40 BLOCK {timeout}"))
            })
            .collect();
        let hours = [1, -1, 0, 2, -2, 24, -24, 0][n % 8];
        jump(&clock, &mut c, hours * HOUR_MS);
        let mut fences = Vec::new();
        for waiter in waiters {
            match waiter.reply() {
                Reply::Int(fence) => fences.push(fence),
                Reply::Nil => timed_out += 1,
                other => panic!("{other:?}"),
            }
        }
        fences.sort_unstable();
        for fence in fences {
            assert!(fence > last, "{fence} after {last}");
            (granted, last) = (granted + 1, fence);
        }
        c.int("DEL k");
    }
    assert!(granted > 0 && timed_out > 0, "{granted} {timed_out}");
    assert_eq!(server.blocked_clients(), 0);
    figure(kind, &format!("{jumps} jumps of up to two days: {granted} waiters granted, {timed_out} timed out, none forgotten"));
}

/// Whoever was granted in the pause would be answered, and the next question not.
fn a_deadline_in_a_pause_of_all_commands_is_kept_after_it(kind: Kind) {
    let clock = Clock::standing();
    let server = start_by(&clock, kind, &SYNCED);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    c.multi(&["LOCK.RENEW k a 200", "CLIENT PAUSE 2000 ALL"]);
    clock.reply(b);
    assert_eq!(c.holders("k"), ["b"]);
}
