//! A server that is stopped and resumed. Leases and timeouts pass meanwhile.

use crate::harness::{start_by, Clock, Kind, Reply};

on_every_server![
    deadlines_passed_while_the_server_was_stopped_have_expired,
    those_in_time_come_first_after_a_standstill,
];

fn deadlines_passed_while_the_server_was_stopped_have_expired(kind: Kind) {
    let clock = Clock::ahead_by_us(0);
    let server = start_by(&clock, kind, &[]);
    let mut c = server.client();
    let first = c.int("LOCK.ACQUIRE k a 60000");
    c.int("LOCK.ACQUIRE long a 600000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let gone = server.raw_blocked("LOCK.ACQUIRE k gone 60000 BLOCK 0");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    let e = server.blocked("LOCK.ACQUIRE long e 60000 BLOCK 60000");
    server.signal("STOP");
    drop(gone);
    clock.pass_ms(61_000); // longer than the ttl and the timeout
    assert!(d.is_pending() && e.is_pending());
    server.signal("CONT");
    let second = b.fence();
    assert!(second > first);
    assert_eq!(e.reply(), Reply::Nil);
    assert_eq!(c.int("LOCK.RENEW k a 60000"), 0);
    assert_eq!(c.int("LOCK.RELEASE k b"), 1);
    assert!(d.fence() > second);
    assert_eq!(c.holders("k"), ["d"]);
    assert_eq!(c.holders("long"), ["a"]);
    assert_eq!(server.blocked_clients(), 0);
}

/// Each way by which a key is served: the first command that the server reads decides.
fn those_in_time_come_first_after_a_standstill(kind: Kind) {
    const MS: i64 = 50_000;
    let clock = Clock::ahead_by_us(0);
    let server = start_by(&clock, kind, &[]);
    let mut c = server.client();
    let keys = ["{k}release", "{k}cancel", "{k}several"];
    let waiters = keys.map(|key| {
        c.int(&format!("LOCK.ACQUIRE {key} a 60000"));
        let late = server.blocked(&format!("LOCK.ACQUIRE {key} late 60000 BLOCK {MS}"));
        c.call(&format!("LOCK.ACQUIRE {key} gone 60000 KEEP {MS}"));
        let next = server.blocked(&format!("LOCK.ACQUIRE {key} next 60000 BLOCK 0"));
        (late, next)
    });
    let mut first = server.raw();
    server.signal("STOP");
    clock.pass_ms(MS + 1_000);
    let lines = [
        "LOCK.RELEASE {k}release a",
        "LOCK.ACQUIRE {k}release gone 60000 KEEP 60000",
        "DEL {k}cancel",
        "LOCK.CANCEL {k}cancel TOKEN nobody",
        "DEL {k}several",
        "LOCK.MACQUIRE 2 {k}several {k}other me 60000",
    ];
    first.send(&lines.join("\r\n"));
    server.signal("CONT");
    for expected in [":1", "$-1", ":1", ":0", ":1", "$-1"] {
        assert_eq!(first.line().unwrap(), expected);
    }
    for (key, (late, next)) in keys.iter().zip(waiters) {
        assert_eq!(late.reply(), Reply::Nil, "{key}");
        next.fence();
        assert_eq!(c.holders(key), ["next"]);
    }
    // The token whose grace was over begins at the end.
    assert_eq!(c.waiters("{k}release"), ["gone"]);
    assert!(c.waiters("{k}cancel").is_empty() && c.waiters("{k}several").is_empty());
}
