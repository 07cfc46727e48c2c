//! LOCK.INFO shows who listens at each place.

use super::fixture::{leaves_place, queued};
use crate::harness::{wait_for, Client, Info, Kind, Reply, Server};

on_every_server![
    info_shows_binary_channels_and_tokens,
    info_shows_so_many_and_counts_all,
    info_is_bounded_by_what_it_shows,
];

/// The holders and the waiters that are shown, and their counts.
fn shown(c: &mut Client, line: &str) -> (Vec<String>, Vec<String>, i64, i64) {
    let reply = c.call(line);
    let info = Info::of(&reply);
    let count = |field| reply.field(field).as_int();
    (
        info.holders.into_iter().map(|one| one.token).collect(),
        info.waiters.into_iter().map(|one| one.token).collect(),
        count("holder-count"),
        count("waiter-count"),
    )
}

fn info_shows_binary_channels_and_tokens(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let (key, token, channel) = (
        &b"a key\0\r\n"[..],
        &b"my \xff token\n"[..],
        &b"\x00 c\r\n"[..],
    );
    c.send(&[b"LOCK.ACQUIRE".as_slice(), key, b"a", b"60000"]);
    let words = [
        b"LOCK.ACQUIRE",
        key,
        token,
        b"60000",
        b"NOTIFY",
        b"0",
        channel,
    ];
    assert_eq!(c.send(&words), Reply::Simple("QUEUED".into()));
    let info = c.send(&[b"LOCK.INFO".as_slice(), key]);
    let waiter = info.field("waiters").items()[0].clone();
    assert_eq!(waiter.field("token").as_bytes(), token);
    assert_eq!(waiter.field("channel").as_bytes(), channel);
}

fn info_shows_so_many_and_counts_all(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    // Neither the order of the tokens nor that of the deadlines is that of the grants.
    for (token, ttl) in [("d", 80_000), ("b", 90_000), ("a", 60_000), ("c", 70_000)] {
        c.int(&format!("RWLOCK.RLOCK k {token} {ttl}"));
    }
    leaves_place(&mut c, "LOCK.ACQUIRE k x 60000 KEEP 60000");
    let one = server.blocked("RWLOCK.RLOCK k y 60000 BLOCK 0");
    queued(&mut c, "RWLOCK.RLOCK k y 60000 NOTIFY 0 c");
    leaves_place(&mut c, "RWLOCK.RLOCK k z 60000 KEEP 60000");
    let (holders, waiters) = (["d", "b", "a", "c"], ["x", "y", "y", "z"]);
    for (options, held, waited) in [
        ("", 4, 4),
        ("HOLDERS 3", 3, 4),
        ("waiters 2", 4, 2),
        ("WAITERS 0 holders 1", 1, 0),
        ("HOLDERS 0 WAITERS 3", 0, 3),
        ("HOLDERS 18446744073709551615 WAITERS 9", 4, 4),
    ] {
        let line = format!("LOCK.INFO k {options}");
        let (h, w, holder_count, waiter_count) = shown(&mut c, line.trim());
        assert_eq!(h, holders[..held], "{options}");
        assert_eq!(w, waiters[..waited], "{options}");
        assert_eq!((holder_count, waiter_count), (4, 4), "{options}");
    }
    // The other fields are as without options, and where they were.
    let Reply::Array(flat) = c.call("LOCK.INFO k HOLDERS 0 WAITERS 0") else {
        panic!("no flat array");
    };
    let names = ["mode", "holders", "waiters", "holder-count", "waiter-count"];
    let is = flat.iter().step_by(2).cloned();
    assert_eq!(is.collect::<Vec<_>>(), names.map(Reply::from));
    assert_eq!(flat[1], "shared".into());
    // Who has gone is not counted.
    c.int("LOCK.RELEASE k b");
    c.int("LOCK.RELEASE k x");
    one.fence();
    let (holders, waiters, ..) = shown(&mut c, "LOCK.INFO k");
    assert_eq!((holders, waiters), (words("d a c y"), words("z")));
    c.int("LOCK.RENEW k d 1");
    let left = wait_for("a deadline", || {
        let left = shown(&mut c, "LOCK.INFO k HOLDERS 1");
        (left.2 == 3).then_some(left)
    });
    assert_eq!(left, (words("a"), words("z"), 3, 1));
    c.call("DEL k");
    c.int("LOCK.RELEASE k z");
    assert_eq!(c.call("LOCK.INFO k HOLDERS 0"), Reply::Nil);
    for wrong in [
        "HOLDERS",
        "WAITERS x",
        "HOLDERS -1",
        "HOLDERS 1 HOLDERS 1",
        "ALL",
    ] {
        c.refused(&format!("LOCK.INFO k {wrong}"), "ERR ");
    }
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(String::from).collect()
}

/// Neither many holders, nor many waiters with long channels, make the reply long.
fn info_is_bounded_by_what_it_shows(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let (readers, places) = (100_000, 1_500);
    let channel = "c".repeat(1_024);
    c.send_all((0..readers).map(|n| format!("RWLOCK.RLOCK k reader-{n} 6000000")));
    c.send_all((0..places).map(|n| format!("LOCK.ACQUIRE k w{n} 6000000 NOTIFY 0 {channel}")));
    let too_long = format!("LOCK.ACQUIRE k w 60000 NOTIFY 0 {channel}c");
    for line in [&too_long, &format!("{too_long} KEEP 5")] {
        assert_eq!(c.error(line), "ERR the channel is longer than 1024 bytes");
    }
    let (holders, waiters, holder_count, waiter_count) = shown(&mut c, "LOCK.INFO k");
    let first = |name: &str| (0..1_000).map(|n| format!("{name}{n}")).collect::<Vec<_>>();
    assert_eq!((holders, waiters), (first("reader-"), first("w")));
    assert_eq!(
        (holder_count, waiter_count),
        (readers as i64, places as i64)
    );
    let few = shown(&mut c, "LOCK.INFO k HOLDERS 5 WAITERS 5");
    let counts = (readers as i64, places as i64);
    assert_eq!((few.0.len(), few.1.len(), (few.2, few.3)), (5, 5, counts));
}
