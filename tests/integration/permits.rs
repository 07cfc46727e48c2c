//! LIMIT: counted holds, the permits of a semaphore. One test for each rule of the contract.

mod fixture;
mod kept;
mod payloads;
mod rate;
mod waiting;

use std::time::Instant;

use crate::harness::{wait_for, Kind, Reply, Server};
use crate::hostile::payload::Payload;
use fixture::{limit, mode, permit, refused};

on_every_server![
    n_hold_and_not_one_more,
    a_limit_of_one_is_the_exclusive_hold,
    a_lock_without_limits_keeps_its_bytes,
    the_smallest_limit_counts_while_its_owner_holds,
    a_reader_counts_as_a_holder,
    a_writer_and_permits_exclude_each_other,
    a_token_that_asks_again_gets_its_own_fence,
    a_permit_is_renewed_released_checked_and_guards,
    the_server_makes_a_token_for_a_permit,
    info_and_top_show_permits,
    the_key_lives_as_long_as_its_last_permit,
    a_permit_ends_at_its_own_deadline,
    native_commands_see_one_key,
    the_largest_limit_is_accepted,
    a_thousand_permits,
];

fn n_hold_and_not_one_more(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut last = 0;
    for token in ["a", "b", "c"] {
        let fence = permit(&mut c, "k", token, 3);
        assert!(fence > last, "each has a fence of its own");
        last = fence;
    }
    refused(&mut c, "LOCK.ACQUIRE k d 60000 LIMIT 3");
    refused(&mut c, "LOCK.ACQUIRE k d 60000 LIMIT 2147483647");
    assert_eq!(c.holders("k"), ["a", "b", "c"]);
    assert_eq!(c.int("LOCK.RELEASE k b"), 1);
    assert!(permit(&mut c, "k", "d", 3) > last);
    refused(&mut c, "LOCK.ACQUIRE k b 60000 LIMIT 3");
    assert_eq!(c.holders("k"), ["a", "c", "d"]);
    for token in ["a", "c", "d"] {
        assert_eq!(c.int(&format!("LOCK.RELEASE k {token}")), 1);
    }
    assert_eq!(c.int("EXISTS k"), 0);
}

fn a_limit_of_one_is_the_exclusive_hold(kind: Kind) {
    let server = Server::start_with(kind, &["--rdbcompression", "no"]);
    let mut c = server.client_resp3();
    permit(&mut c, "k", "a", 1);
    assert_eq!(mode(&mut c, "k"), "exclusive");
    assert_eq!(limit(&mut c, "k"), None);
    refused(&mut c, "LOCK.ACQUIRE k b 60000 LIMIT 5");
    refused(&mut c, "RWLOCK.RLOCK k b 60000");
    let waiter = server.blocked("LOCK.ACQUIRE k b 60000 LIMIT 1 BLOCK 0");
    let place = c.call("LOCK.INFO k").field("waiters").items()[0].clone();
    assert_eq!(place.field("mode"), "exclusive".into());
    c.int("LOCK.RELEASE k a");
    waiter.fence();
    assert_eq!(mode(&mut c, "k"), "exclusive");
    assert_v1(c.call("DUMP k").as_bytes(), 1, &["b"]);
}

/// Fails the test unless a payload is what 0.1 writes for holds of these tokens in this mode.
#[track_caller]
fn assert_v1(dump: &[u8], mode: u8, tokens: &[&str]) {
    let record = Payload::read(dump).record;
    assert_eq!(record[..3], [1, 1, mode], "version, kind and mode");
    let mut rest = &record[3..];
    for token in tokens {
        let (numbers, tail) = rest.split_at(3 * 8);
        assert!(numbers.iter().any(|byte| *byte != 0));
        let (name, tail) = tail.split_at(2 + token.len());
        let len = u16::try_from(token.len()).unwrap().to_le_bytes();
        assert_eq!(name, [&len[..], token.as_bytes()].concat());
        rest = tail;
    }
    assert_eq!(rest, b"");
}

fn a_lock_without_limits_keeps_its_bytes(kind: Kind) {
    let server = Server::start_with(kind, &["--rdbcompression", "no"]);
    let mut c = server.client();
    // Each of them had a limit before.
    permit(&mut c, "was-permit", "a", 5);
    c.int("LOCK.ACQUIRE was-permit a 60000");
    assert_v1(c.call("DUMP was-permit").as_bytes(), 1, &["a"]);
    permit(&mut c, "was-mixed", "a", 5);
    c.int("RWLOCK.RLOCK was-mixed b 60000");
    c.int("RWLOCK.RLOCK was-mixed c 60000");
    let counted = Payload::read(c.call("DUMP was-mixed").as_bytes()).record;
    assert_eq!(counted[0], 2, "a limit needs the later version");
    c.int("LOCK.RELEASE was-mixed a");
    assert_v1(c.call("DUMP was-mixed").as_bytes(), 2, &["b", "c"]);
    c.int("RWLOCK.RLOCK was-counted a 60000");
    permit(&mut c, "was-counted", "b", 5);
    c.int("RWLOCK.RLOCK was-counted b 60000");
    assert_v1(c.call("DUMP was-counted").as_bytes(), 2, &["a", "b"]);
}

fn the_smallest_limit_counts_while_its_owner_holds(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    permit(&mut c, "k", "a", 5);
    permit(&mut c, "k", "b", 2);
    assert_eq!(limit(&mut c, "k"), Some(2));
    refused(&mut c, "LOCK.ACQUIRE k c 60000 LIMIT 5");
    c.int("LOCK.RELEASE k b");
    assert_eq!(limit(&mut c, "k"), Some(5));
    permit(&mut c, "k", "c", 5);
    // A request with a smaller limit than there are holders is refused. The others do not notice.
    refused(&mut c, "LOCK.ACQUIRE k d 60000 LIMIT 2");
    permit(&mut c, "k", "d", 3);
    assert_eq!(limit(&mut c, "k"), Some(3));
    refused(&mut c, "LOCK.ACQUIRE k e 60000 LIMIT 5");
    c.int("LOCK.RELEASE k d");
    permit(&mut c, "k", "e", 5);
    permit(&mut c, "k", "f", 5);
    assert_eq!(limit(&mut c, "k"), Some(5));
    // Two have the smallest one: it counts until both are gone.
    c.int("LOCK.RELEASE k a");
    c.int("LOCK.RELEASE k c");
    permit(&mut c, "k", "g", 4);
    permit(&mut c, "k", "h", 4);
    c.int("LOCK.RELEASE k g");
    assert_eq!(limit(&mut c, "k"), Some(4));
    c.int("LOCK.RELEASE k h");
    assert_eq!(limit(&mut c, "k"), Some(5));
}

fn a_reader_counts_as_a_holder(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("RWLOCK.RLOCK k r 60000");
    assert_eq!(
        (mode(&mut c, "k"), limit(&mut c, "k")),
        ("shared".into(), None)
    );
    permit(&mut c, "k", "a", 2);
    assert_eq!(mode(&mut c, "k"), "counted");
    refused(&mut c, "LOCK.ACQUIRE k b 60000 LIMIT 2");
    refused(&mut c, "RWLOCK.RLOCK k s 60000");
    c.int("LOCK.RELEASE k a");
    c.int("RWLOCK.RLOCK k s 60000");
    assert_eq!(mode(&mut c, "k"), "shared");
    refused(&mut c, "LOCK.ACQUIRE k b 60000 LIMIT 2");
    permit(&mut c, "k", "b", 3);
    refused(&mut c, "RWLOCK.RLOCK k t 60000");
    assert_eq!(c.holders("k"), ["r", "s", "b"]);
}

fn a_writer_and_permits_exclude_each_other(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    permit(&mut c, "k", "a", 5);
    for line in ["LOCK.ACQUIRE k w 60000", "RWLOCK.WLOCK k w 60000"] {
        refused(&mut c, line);
    }
    c.int("LOCK.RELEASE k a");
    c.int("LOCK.ACQUIRE k w 60000");
    refused(&mut c, "LOCK.ACQUIRE k a 60000 LIMIT 2147483647");
    for command in ["RWLOCK.WLOCK", "RWLOCK.RLOCK"] {
        let error = c.error(&format!("{command} k w 60000 LIMIT 5"));
        assert!(error.starts_with("ERR unknown option"), "{error}");
    }
}

fn a_token_that_asks_again_gets_its_own_fence(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let first = permit(&mut c, "k", "a", 2);
    let second = permit(&mut c, "k", "b", 2);
    let (resent, again) = (permit(&mut c, "k", "a", 2), permit(&mut c, "k", "b", 2));
    assert_eq!((resent, again), (first, second));
    assert_eq!(c.holders("k"), ["a", "b"]);
    refused(&mut c, "LOCK.ACQUIRE k c 60000 LIMIT 2");
    // Its deadline is set anew.
    assert_eq!(c.int("LOCK.ACQUIRE k a 900000 LIMIT 2"), first);
    assert!(c.int("PTTL k") > 800_000);
    assert_eq!(c.info("lock_reacquired"), "3");
}

fn a_permit_is_renewed_released_checked_and_guards(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let a = permit(&mut c, "k", "a", 2);
    let b = permit(&mut c, "k", "b", 2);
    assert_eq!(c.int("LOCK.CHECK k a"), a);
    assert_eq!(c.int("LOCK.CHECK k b"), b);
    assert_eq!(c.call("LOCK.CHECK k c"), Reply::Nil);
    assert_eq!(c.int("LOCK.RENEW k a 900000"), 1);
    assert_eq!(c.int("LOCK.RENEW k c 900000"), 0);
    assert!(c.int("PTTL k") > 800_000);
    assert_eq!(limit(&mut c, "k"), Some(2), "a renewal leaves the limit");
    if kind.is_7_0_or_later() {
        assert_eq!(c.int("LOCK.EXEC k a INCR n"), 1);
        assert_eq!(c.int("LOCK.EXEC k b INCR n"), 2);
        assert!(c.error("LOCK.EXEC k c INCR n").starts_with("NOTHELD"));
    }
    // With ATLEAST it is held for a while, in its mode.
    assert_eq!(c.int("LOCK.RELEASE k a ATLEAST 30000"), 1);
    assert_eq!(c.int("LOCK.CHECK k a"), a);
    assert_eq!(limit(&mut c, "k"), Some(2));
    refused(&mut c, "LOCK.ACQUIRE k c 60000 LIMIT 2");
    assert_eq!(c.int("LOCK.RELEASE k a"), 1);
    assert_eq!(c.int("LOCK.RELEASE k a"), 0);
    assert_eq!(c.call("LOCK.CHECK k a"), Reply::Nil);
    permit(&mut c, "k", "c", 2);
}

fn the_server_makes_a_token_for_a_permit(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let made = c.call("LOCK.ACQUIRE k * 60000 LIMIT 2");
    let [token, fence] = made.items() else {
        panic!("{made:?}");
    };
    let token = String::from_utf8(token.as_bytes().to_vec()).unwrap();
    assert_eq!(c.int(&format!("LOCK.CHECK k {token}")), fence.as_int());
    let other = c.call("LOCK.ACQUIRE k * 60000 LIMIT 2 BLOCK 5");
    assert_ne!(other.items()[0], made.items()[0]);
    assert_eq!(c.call("LOCK.ACQUIRE k * 60000 LIMIT 2 BLOCK 5"), Reply::Nil);
}

fn info_and_top_show_permits(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client_resp3();
    permit(&mut c, "k", "a", 5);
    permit(&mut c, "k", "b", 2);
    for line in [
        "LOCK.ACQUIRE k c 60000 LIMIT 7 KEEP 600000",
        "RWLOCK.RLOCK k r 60000 KEEP 600000",
        "LOCK.ACQUIRE k w 60000 KEEP 600000",
    ] {
        refused(&mut c, line);
    }
    let info = c.call("LOCK.INFO k");
    let names = |reply: &Reply| match reply {
        Reply::Map(pairs) => pairs.iter().map(|(name, _)| name.clone()).collect(),
        flat => flat.items().iter().step_by(2).cloned().collect::<Vec<_>>(),
    };
    let expected = |names: &[&str]| {
        names
            .iter()
            .map(|name| Reply::from(*name))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        names(&info),
        expected(&[
            "mode",
            "limit",
            "holders",
            "waiters",
            "holder-count",
            "waiter-count"
        ])
    );
    assert_eq!(info.field("mode"), "counted".into());
    assert_eq!(info.field("limit"), Reply::Int(2));
    for holder in info.field("holders").items() {
        assert_eq!(names(holder), expected(&["token", "fence", "ttl", "since"]));
    }
    let waiters = info.field("waiters");
    let [permit, reader, writer] = waiters.items() else {
        panic!("{waiters:?}");
    };
    assert_eq!(
        names(permit),
        expected(&["token", "mode", "limit", "waited"])
    );
    assert_eq!(permit.field("mode"), "counted".into());
    assert_eq!(permit.field("limit"), Reply::Int(7));
    for (waiter, mode) in [(reader, "shared"), (writer, "exclusive")] {
        assert_eq!(names(waiter), expected(&["token", "mode", "waited"]));
        assert_eq!(waiter.field("mode"), mode.into());
    }
    let top = c.call("LOCK.TOP").items()[0].clone();
    assert_eq!(top.field("mode"), "counted".into());
    assert_eq!(top.field("holders"), Reply::Int(2));
    assert_eq!(top.field("waiters"), Reply::Int(3));
    assert_eq!(top.field("token"), "a".into());
}

fn the_key_lives_as_long_as_its_last_permit(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for (token, ttl) in [("a", 20_000), ("b", 600_000), ("c", 40_000)] {
        c.int(&format!("LOCK.ACQUIRE k {token} {ttl} LIMIT 3"));
    }
    let pttl = c.int("PTTL k");
    assert!((500_000..=600_000).contains(&pttl), "{pttl}");
    c.int("LOCK.RELEASE k b");
    let pttl = c.int("PTTL k");
    assert!((20_001..=40_000).contains(&pttl), "{pttl}");
    c.int("LOCK.RENEW k a 300000");
    assert!(c.int("PTTL k") > 200_000);
    // PEXPIRE ends all of them.
    c.int("PEXPIRE k 10000");
    for holder in c.call("LOCK.INFO k").field("holders").items() {
        assert!(holder.field("ttl").as_int() <= 10_000, "{holder:?}");
    }
}

fn a_permit_ends_at_its_own_deadline(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000 LIMIT 3");
    let start = Instant::now();
    let b = c.int("LOCK.ACQUIRE k b 60 LIMIT 2");
    refused(&mut c, "LOCK.ACQUIRE k c 60000 LIMIT 3");
    let c_fence = wait_for("the permit to end", || {
        match c.call("LOCK.ACQUIRE k c 60000 LIMIT 3") {
            Reply::Nil => None,
            fence => Some(fence.as_int()),
        }
    });
    assert!(start.elapsed().as_millis() >= 60 && c_fence > b);
    assert_eq!(c.call("LOCK.CHECK k b"), Reply::Nil);
    assert_eq!(c.int("LOCK.RENEW k b 60000"), 0);
    assert_eq!(c.int("LOCK.RELEASE k b"), 0);
    // With it its limit has gone.
    assert_eq!(limit(&mut c, "k"), Some(3));
    assert_eq!(c.holders("k"), ["a", "c"]);
}

fn native_commands_see_one_key(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for token in ["a", "b"] {
        permit(&mut c, "k", token, 2);
    }
    assert_eq!(c.text("TYPE k"), "redislock");
    assert!(matches!(
        c.call("COPY k copy"),
        Reply::Error(_) | Reply::Int(0)
    ));
    assert_eq!(c.int("EXISTS copy"), 0);
    assert_eq!(c.call("SET k legacy NX PX 1000"), Reply::Nil);
    // A forced unlock ends all of them, and as many waiters enter.
    let waiters = ["c", "d", "e"]
        .map(|token| server.blocked(&format!("LOCK.ACQUIRE k {token} 60000 LIMIT 2 BLOCK 0")));
    assert_eq!(c.int("DEL k"), 1);
    let [first, second, third] = waiters;
    first.fence();
    second.fence();
    assert!(third.is_pending());
    assert_eq!(c.holders("k"), ["c", "d"]);
    for token in ["a", "b"] {
        assert_eq!(c.int(&format!("LOCK.RELEASE k {token}")), 0);
    }
    c.call("SET k text");
    assert!(matches!(third.reply(), Reply::Error(error) if error.starts_with("WRONGTYPE")));
    let error = c.error("LOCK.ACQUIRE k a 1000 LIMIT 2");
    assert!(error.starts_with("WRONGTYPE"), "{error}");
}

fn the_largest_limit_is_accepted(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for token in ["a", "b"] {
        permit(&mut c, "k", token, 2_147_483_647);
    }
    c.int("RWLOCK.RLOCK k r 60000");
    assert_eq!(limit(&mut c, "k"), Some(2_147_483_647));
}

fn a_thousand_permits(kind: Kind) {
    const N: i64 = 1_000;
    let server = Server::start(kind);
    let mut c = server.client();
    for n in 0..N {
        permit(&mut c, "k", &format!("t{n}"), N);
    }
    refused(&mut c, &format!("LOCK.ACQUIRE k more 60000 LIMIT {N}"));
    assert_eq!(c.info("lock_held_counted"), N.to_string());
    let waiters = ["x", "y"]
        .map(|token| server.blocked(&format!("LOCK.ACQUIRE k {token} 60000 LIMIT {N} BLOCK 0")));
    let [x, y] = waiters;
    c.int("LOCK.RELEASE k t500");
    x.fence();
    assert!(y.is_pending());
    c.int("LOCK.RELEASE k t0");
    y.fence();
    assert_eq!(c.holders("k").len(), 1_000);
    assert_eq!(c.int("LOCK.RENEW k t999 900000"), 1);
    for n in (1..N).filter(|n| *n != 500) {
        assert_eq!(c.int(&format!("LOCK.RELEASE k t{n}")), 1);
    }
    assert_eq!(c.holders("k"), ["x", "y"]);
}
