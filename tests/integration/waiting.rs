//! BLOCK: the queue, and when it moves on.

use std::time::{Duration, Instant};

use crate::harness::{wait_for, Kind, Reply, Server};

on_every_server![
    a_deadline_grants_the_next_waiter_soon_but_not_early,
    ttls_of_grants_in_one_long_step_count_from_each_grant
];

/// Each of them reads the clock, so that no ttl is shorter by the length of the step.
fn ttls_of_grants_in_one_long_step_count_from_each_grant(kind: Kind) {
    const READERS: usize = 2_000;
    let server = Server::start(kind);
    let mut c = server.client();
    c.until_fences_follow_the_clock();
    c.int("LOCK.ACQUIRE k writer 600000");
    let readers: Vec<_> = (0..READERS)
        .map(|n| {
            let mut reader = server.raw();
            reader.send(&format!("RWLOCK.RLOCK k reader{n} 600000 BLOCK 0"));
            reader
        })
        .collect();
    wait_for("all to wait", || {
        let waiting = c
            .call("LOCK.INFO k WAITERS 0")
            .field("waiter-count")
            .as_int();
        (waiting == READERS as i64).then_some(())
    });
    c.int("LOCK.RELEASE k writer");
    let info = c.call(&format!("LOCK.INFO k HOLDERS {READERS}"));
    drop(readers);
    let number = |holder: &Reply, name| holder.field(name).as_int();
    let holders = info.field("holders");
    let (first, last) = (&holders.items()[0], holders.items().last().unwrap());
    assert_eq!(holders.items().len(), READERS);
    let took_us = number(last, "fence") - number(first, "fence");
    let took_ms = number(last, "since") - number(first, "since");
    // To the millisecond, by the fences, which follow the clock.
    assert!(
        (took_us - took_ms * 1_000).abs() <= 1_000,
        "{took_us} us, {took_ms} ms"
    );
    assert!(took_ms >= 1, "{took_us} us");
    // The remaining ttls, which have all counted since their grants.
    let leases = holders.items().iter();
    let leases = leases.map(|holder| number(holder, "ttl") - number(holder, "since"));
    let lease = number(first, "ttl") - number(first, "since");
    assert!(leases.into_iter().all(|other| other == lease));
}

fn a_deadline_grants_the_next_waiter_soon_but_not_early(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    // Redis 8 deletes a key within the millisecond of its deadline, as it does with every key.
    let least_ms = if kind.is_redis_8() { 59 } else { 60 };
    let mut soonest = Duration::MAX;
    for _ in 0..10 {
        let start = Instant::now();
        c.int("LOCK.ACQUIRE k dead 60");
        let b = server.later("LOCK.ACQUIRE k b 60000 BLOCK 5000");
        let (reply, at) = b.reply_and_instant();
        assert!(matches!(reply, Reply::Int(_)), "{reply:?}");
        assert!(
            at - start >= Duration::from_millis(least_ms),
            "{:?}",
            at - start
        );
        soonest = soonest.min(at - start);
        c.int("LOCK.RELEASE k b");
    }
    // Its lateness is measured elsewhere. A whole second would come from another mechanism.
    assert!(soonest < Duration::from_millis(1_060), "{soonest:?}");
}
