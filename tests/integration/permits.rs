//! LIMIT: counted holds, the permits of a semaphore. One test for each rule of the contract.

mod fixture;
mod payloads;
mod rate;

use crate::harness::{Kind, Reply, Server};
use crate::hostile::payload::Payload;
use fixture::{mode, permit, refused};

on_every_server![
    a_lock_without_limits_keeps_its_bytes,
    info_and_top_show_permits,
];

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
    permit(&mut c, "one", "b", 1);
    assert_v1(c.call("DUMP one").as_bytes(), 1, &["b"]);
    // Each of the others had a limit before.
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
