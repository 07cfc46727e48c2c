//! LOCK.INFO shows who listens at each place.

use super::fixture::{leaves_place, queued};
use crate::harness::{wait_for, Client, Info, Kind, Reply, Server};

on_every_server![info_shows_so_many_and_counts_all];

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
