//! BLOCK: the queue, and when it moves on.

use std::time::{Duration, Instant};

use crate::harness::{Kind, Reply, Server};

on_every_server![a_deadline_grants_the_next_waiter_soon_but_not_early];

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
