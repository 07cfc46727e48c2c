//! BLOCK: the queue, and every cause of a hand-off.

use std::time::{Duration, Instant};

use crate::harness::{wait_for, Kind, Reply, Server};

on_all_servers![
    releases_grant_waiters_in_order,
    readers_at_the_head_are_granted_together_and_pass_no_writer,
    a_request_without_block_does_not_overtake_a_waiter,
    a_timeout_gives_null_on_time_and_unblocks_the_next_waiter,
    a_downgrade_grants_the_waiting_readers,
    an_upgrade_waits_ahead_of_the_queue_and_keeps_its_shared_hold,
    a_second_upgrade_gets_deadlock,
    an_upgrade_whose_shared_hold_ends_waits_in_order,
    two_waiters_with_one_token_are_granted_together,
    the_ttl_counts_from_the_grant,
    a_server_generated_token_comes_with_the_grant,
    a_deadline_grants_the_next_waiter_soon_but_not_early,
    every_end_of_a_lock_grants_the_next_waiter,
    a_release_in_a_transaction_or_script_grants_the_next_waiter,
    where_blocking_is_forbidden_block_is_ignored,
    overwriting_the_key_with_another_type_gives_waiters_wrongtype,
    info_shows_the_queue_in_order;
    every: ttls_of_grants_in_one_long_step_count_from_each_grant
];

fn releases_grant_waiters_in_order(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let first = c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let d = server.blocked("RWLOCK.WLOCK k d 60000 BLOCK 0");
    assert_eq!(c.int("LOCK.RELEASE k a"), 1);
    let second = b.fence();
    assert!(second > first);
    assert!(d.is_pending());
    assert_eq!(
        c.call("LOCK.INFO k").field("holders").items()[0].field("token"),
        "b".into()
    );
    assert_eq!(c.int("LOCK.RELEASE k b"), 1);
    assert!(d.fence() > second);
    assert_eq!(c.int("LOCK.RELEASE k d"), 1);
    assert_eq!(c.int("EXISTS k"), 0);
}

fn readers_at_the_head_are_granted_together_and_pass_no_writer(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("RWLOCK.RLOCK k r0 60000");
    let w1 = server.blocked("RWLOCK.WLOCK k w1 60000 BLOCK 0");
    let r1 = server.blocked("RWLOCK.RLOCK k r1 60000 BLOCK 0");
    let r2 = server.blocked("RWLOCK.RLOCK k r2 60000 BLOCK 0");
    let w2 = server.blocked("RWLOCK.WLOCK k w2 60000 BLOCK 0");
    let r3 = server.blocked("RWLOCK.RLOCK k r3 60000 BLOCK 0");
    assert!(r1.is_pending(), "a reader must not pass a waiting writer");
    c.int("LOCK.RELEASE k r0");
    w1.fence();
    c.int("LOCK.RELEASE k w1");
    let (f1, f2) = (r1.fence(), r2.fence());
    assert!(f1 < f2);
    assert!(w2.is_pending() && r3.is_pending());
    c.int("LOCK.RELEASE k r1");
    assert!(w2.is_pending());
    c.int("LOCK.RELEASE k r2");
    w2.fence();
    c.int("LOCK.RELEASE k w2");
    r3.fence();
}

fn a_request_without_block_does_not_overtake_a_waiter(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let fence = c.int("RWLOCK.RLOCK k r 60000");
    let w = server.blocked("RWLOCK.WLOCK k w 60000 BLOCK 0");
    assert_eq!(c.call("RWLOCK.RLOCK k other 60000"), Reply::Nil);
    assert_eq!(
        c.int("RWLOCK.RLOCK k r 60000"),
        fence,
        "the holder itself may ask again"
    );
    c.int("LOCK.RELEASE k r");
    w.fence();
}

fn a_timeout_gives_null_on_time_and_unblocks_the_next_waiter(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("RWLOCK.RLOCK k r 60000");
    let start = Instant::now();
    let w = server.later("RWLOCK.WLOCK k w 60000 BLOCK 150");
    wait_for("the writer to wait", || {
        (c.call("LOCK.INFO k").field("waiters").items().len() == 1).then_some(())
    });
    let reader = server.blocked("RWLOCK.RLOCK k r2 60000 BLOCK 0");
    let (reply, at) = w.reply_and_instant();
    assert_eq!(reply, Reply::Nil);
    assert!(at - start >= Duration::from_millis(150), "{:?}", at - start);
    reader.fence();
    assert_eq!(server.blocked_clients(), 0);
}

fn a_downgrade_grants_the_waiting_readers(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let fence = c.int("RWLOCK.WLOCK k w 60000");
    let r1 = server.blocked("RWLOCK.RLOCK k r1 60000 BLOCK 0");
    let r2 = server.blocked("RWLOCK.RLOCK k r2 60000 BLOCK 0");
    let w2 = server.blocked("RWLOCK.WLOCK k w2 60000 BLOCK 0");
    assert_eq!(c.int("RWLOCK.RLOCK k w 60000"), fence);
    r1.fence();
    r2.fence();
    assert!(w2.is_pending());
    assert_eq!(c.call("LOCK.INFO k").field("holders").items().len(), 3);
}

fn an_upgrade_waits_ahead_of_the_queue_and_keeps_its_shared_hold(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let fence = c.int("RWLOCK.RLOCK k up 60000");
    c.int("RWLOCK.RLOCK k other 60000");
    let w = server.blocked("RWLOCK.WLOCK k w 60000 BLOCK 0");
    let up = server.blocked("RWLOCK.WLOCK k up 60000 BLOCK 0");
    assert_eq!(c.call("LOCK.INFO k").field("holders").items().len(), 2);
    c.int("LOCK.RELEASE k other");
    assert_eq!(up.fence(), fence);
    assert!(w.is_pending());
    assert_eq!(c.call("LOCK.INFO k").field("mode"), "exclusive".into());
    c.int("LOCK.RELEASE k up");
    w.fence();
}

fn a_second_upgrade_gets_deadlock(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("RWLOCK.RLOCK k a 60000");
    c.int("RWLOCK.RLOCK k b 60000");
    let a = server.blocked("RWLOCK.WLOCK k a 60000 BLOCK 0");
    for line in ["RWLOCK.WLOCK k b 60000 BLOCK 0", "RWLOCK.WLOCK k b 60000"] {
        assert!(c.error(line).starts_with("DEADLOCK "));
    }
    c.int("LOCK.RELEASE k b");
    a.fence();
}

fn an_upgrade_whose_shared_hold_ends_waits_in_order(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("RWLOCK.RLOCK k other 60000");
    let share = c.int("RWLOCK.RLOCK k up 60000");
    let w = server.blocked("RWLOCK.WLOCK k w 60000 BLOCK 0");
    let up = server.blocked("RWLOCK.WLOCK k up 60000 BLOCK 0");
    c.int("LOCK.RENEW k up 200");
    wait_for("the share to end", || {
        let holders = c.call("LOCK.INFO k").field("holders");
        (holders.items().len() == 1).then_some(())
    });
    c.int("LOCK.RELEASE k other");
    let writer = w.fence();
    assert!(up.is_pending());
    c.int("LOCK.RELEASE k w");
    let later = up.fence();
    assert!(
        later > writer && writer > share,
        "a new hold, with a new fence"
    );
}

fn two_waiters_with_one_token_are_granted_together(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let one = server.blocked("LOCK.ACQUIRE k twin 60000 BLOCK 0");
    let between = server.blocked("LOCK.ACQUIRE k other 60000 BLOCK 0");
    let two = server.blocked("LOCK.ACQUIRE k twin 60000 BLOCK 0");
    c.int("LOCK.RELEASE k a");
    assert_eq!(one.fence(), two.fence());
    assert!(between.is_pending());
    c.int("LOCK.RELEASE k twin");
    between.fence();
}

fn the_ttl_counts_from_the_grant(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    c.int("LOCK.RENEW k a 300");
    b.fence();
    let pttl = c.int("PTTL k");
    assert!((59_000..=60_000).contains(&pttl), "{pttl}");
}

/// Each of them reads the clock, so that no ttl is shorter by the length of the step.
fn ttls_of_grants_in_one_long_step_count_from_each_grant(kind: Kind) {
    const READERS: usize = 2_000;
    let server = Server::start(kind);
    let mut c = server.client();
    // A server's first fences are ahead of its clock.
    wait_for("the clock to catch up", || {
        let fence = c.int("LOCK.ACQUIRE k writer 600000");
        c.int("LOCK.RELEASE k writer");
        (fence <= i64::try_from(c.now_us()).unwrap()).then_some(())
    });
    c.int("LOCK.ACQUIRE k writer 600000");
    let readers: Vec<_> = (0..READERS)
        .map(|n| {
            let mut reader = server.raw();
            reader.send(&format!("RWLOCK.RLOCK k reader{n} 600000 BLOCK 0"));
            reader
        })
        .collect();
    wait_for("all to wait", || {
        (c.waiters("k").len() == READERS).then_some(())
    });
    c.int("LOCK.RELEASE k writer");
    let info = c.call("LOCK.INFO k");
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

fn a_server_generated_token_comes_with_the_grant(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k * 60000 BLOCK 0");
    c.int("LOCK.RELEASE k a");
    let reply = b.reply();
    let token = String::from_utf8(reply.items()[0].as_bytes().to_vec()).unwrap();
    assert_eq!(token.len(), 36);
    assert_eq!(c.int(&format!("LOCK.RELEASE k {token}")), 1);
}

fn a_deadline_grants_the_next_waiter_soon_but_not_early(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    // Redis 8 deletes a key within the millisecond of its deadline, as it does with every key.
    let least_ms = if kind.is_redis_8() { 59 } else { 60 };
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
        // Its lateness is measured elsewhere. A whole second would come from another mechanism.
        assert!(
            at - start < Duration::from_millis(1_060),
            "{:?}",
            at - start
        );
        c.int("LOCK.RELEASE k b");
    }
}

fn every_end_of_a_lock_grants_the_next_waiter(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for end in [
        "DEL k",
        "UNLINK k",
        "RENAME k elsewhere",
        "MOVE k 5",
        "FLUSHDB",
        "FLUSHALL",
        "FLUSHALL ASYNC",
        "SWAPDB 0 7",
        "PEXPIRE k 20",
        "PEXPIREAT k 1",
        "LOCK.RENEW k a 20",
        "LOCK.ACQUIRE k a 20",
        "EVAL return{redis.call('DEL',KEYS[1])} 1 k",
    ] {
        c.int("LOCK.ACQUIRE k a 60000");
        let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
        c.call(end);
        b.fence();
        let holders = c.call("LOCK.INFO k").field("holders");
        assert_eq!(holders.items()[0].field("token"), "b".into(), "{end}");
        c.call("FLUSHALL");
    }
}

fn a_release_in_a_transaction_or_script_grants_the_next_waiter(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    c.call("MULTI");
    c.call("LOCK.RELEASE k a");
    c.call("LOCK.ACQUIRE k a 60000");
    let replies = c.call("EXEC");
    assert_eq!(
        replies.items(),
        [Reply::Int(1), Reply::Nil],
        "it was handed on at once"
    );
    b.fence();
    let script = "return redis.call('LOCK.RELEASE',KEYS[1],ARGV[1])";
    assert_eq!(c.send(&["EVAL", script, "1", "k", "b"]), Reply::Int(1));
    d.fence();
    c.call("MULTI");
    c.call("DEL k");
    c.call("LOCK.ACQUIRE k a 60000");
    assert!(matches!(
        c.call("EXEC").items(),
        [Reply::Int(1), Reply::Int(_)]
    ));
}

fn where_blocking_is_forbidden_block_is_ignored(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    c.call("MULTI");
    c.call("LOCK.ACQUIRE k b 60000 BLOCK 0");
    assert_eq!(c.call("EXEC").items(), [Reply::Nil]);
    let script = "return redis.call('RWLOCK.RLOCK',KEYS[1],'b',1000,'BLOCK',0)";
    assert_eq!(c.send(&["EVAL", script, "1", "k"]), Reply::Nil);
    if kind.is_7_0_or_later() {
        let library = "#!lua name=l\nredis.register_function('f',function(keys) return \
                       redis.call('LOCK.ACQUIRE',keys[1],'b',1000,'BLOCK',0) end)";
        c.send(&["FUNCTION", "LOAD", library]);
        assert_eq!(c.call("FCALL f 1 k"), Reply::Nil);
    }
    assert_eq!(server.blocked_clients(), 0);
}

fn overwriting_the_key_with_another_type_gives_waiters_wrongtype(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let d = server.blocked("RWLOCK.RLOCK k d 60000 BLOCK 0");
    c.call("SET k text");
    for waiter in [b, d] {
        match waiter.reply() {
            Reply::Error(error) => assert!(error.starts_with("WRONGTYPE"), "{error}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(c.text("GET k"), "text");
}

fn info_shows_the_queue_in_order(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("RWLOCK.RLOCK k up 60000");
    c.int("RWLOCK.RLOCK k other 60000");
    let _w = server.blocked("RWLOCK.WLOCK k w 60000 BLOCK 0");
    let _r = server.blocked("RWLOCK.RLOCK k r 60000 BLOCK 0");
    let _up = server.blocked("RWLOCK.WLOCK k up 60000 BLOCK 0");
    let waiters = c.call("LOCK.INFO k").field("waiters");
    let shown: Vec<_> = waiters
        .items()
        .iter()
        .map(|w| (w.field("token"), w.field("mode")))
        .collect();
    let expected = [("up", "exclusive"), ("w", "exclusive"), ("r", "shared")];
    assert_eq!(
        shown,
        expected.map(|(token, mode)| (token.into(), mode.into()))
    );
    let waited = waiters.items()[1].field("waited").as_int();
    assert!((0..20_000).contains(&waited));
}
