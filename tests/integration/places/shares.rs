//! One user of the server cannot take all room for those who wait.

use super::fixture::{figure, queued};
use crate::harness::workload::words;
use crate::harness::{Client, Kind, Reply, Server};

on_every_server![
    a_user_that_pipelines_places_leaves_room_for_others,
    scripts_and_transactions_count_against_a_share,
    requests_by_exec_count_against_a_share,
];

const RULES: &str = "~* &* -@all +lock.acquire +lock.release +auth +multi +exec +eval";

#[track_caller]
fn is_over_its_share(c: &mut Client, line: &str) {
    let error = c.error(line);
    assert!(
        error.starts_with("QUEUEFULL ") && error.contains("(max-waiters-share)"),
        "{line}: {error}"
    );
}

/// Sends many requests that keep places, and leaves.
fn floods(mut c: Client, keys: usize) {
    let lines = (0..2_000).map(|n| {
        let key = n % keys;
        words(&format!("LOCK.ACQUIRE app:{key} t{n} 60000 KEEP 3600000"))
    });
    c.pipeline(&lines.collect::<Vec<_>>());
}

fn a_user_that_pipelines_places_leaves_room_for_others(kind: Kind) {
    let server = Server::start_with(kind, &["max-waiters", "1000", "max-absent", "100"]);
    let mut c = server.client();
    let mut other = server.user("other", RULES);
    for key in 0..20 {
        c.int(&format!("LOCK.ACQUIRE app:{key} a 3600000"));
    }
    floods(server.user("flood", RULES), 1);
    // On one key `max-absent` stops it.
    assert_eq!(figure(&mut c, "waiters_absent"), 100);
    floods(server.user("flood", RULES), 20);
    // Half of `max-waiters`, but for the hundredth that is not attributed.
    let absent = figure(&mut c, "waiters_absent");
    assert!((490..=500).contains(&absent), "{absent}");
    for key in ["app:0", "app:1"] {
        for (token, c) in [("mine", &mut other), ("yours", &mut c)] {
            queued(c, &format!("LOCK.ACQUIRE {key} {token} 60000 NOTIFY 0 c"));
        }
    }
    let waits = server.blocked("LOCK.ACQUIRE app:0 d 60000 BLOCK 0");
    let ended = c.int("LOCK.CANCEL app:0");
    waits.error("CANCELLED ");
    assert_eq!(ended, 103);
    queued(&mut other, "LOCK.ACQUIRE app:0 mine 60000 NOTIFY 0 c");
}

fn scripts_and_transactions_count_against_a_share(kind: Kind) {
    let server = Server::start_with(kind, &["max-waiters", "10", "max-waiters-share", "20"]);
    let mut c = server.client();
    let mut one = server.user("one", RULES);
    c.int("LOCK.ACQUIRE k a 60000");
    let script = "EVAL return(redis.call('LOCK.ACQUIRE',KEYS[1],ARGV[1],60000,'KEEP',60000)) 1 k";
    assert_eq!(one.call(&format!("{script} b")), Reply::Nil);
    assert_eq!(one.call(&format!("{script} d")), Reply::Nil);
    one.refused_saying(&format!("{script} e"), "(max-waiters-share)");
    assert_eq!(c.call(&format!("{script} e")), Reply::Nil);
    assert_eq!(c.int("LOCK.CANCEL k"), 3);
    let lines = ["b", "d"].map(|token| format!("LOCK.ACQUIRE k {token} 60000 KEEP 60000"));
    let replies = one.multi(&lines.each_ref().map(String::as_str));
    assert_eq!(replies, [Reply::Nil, Reply::Nil]);
    for how in ["KEEP 60000", "NOTIFY 0 c", "BLOCK 0"] {
        is_over_its_share(&mut one, &format!("LOCK.ACQUIRE k e 60000 {how}"));
    }
    // The user of a place is that of its last request.
    let mut two = server.user("two", RULES);
    queued(&mut two, "LOCK.ACQUIRE k b 60000 NOTIFY 0 c");
    queued(&mut one, "LOCK.ACQUIRE k e 60000 NOTIFY 0 c");
    is_over_its_share(&mut one, "LOCK.ACQUIRE k f 60000 NOTIFY 0 c");
    c.ok("CONFIG SET lock.max-waiters-share 100");
    queued(&mut one, "LOCK.ACQUIRE k f 60000 NOTIFY 0 c");
}

fn requests_by_exec_count_against_a_share(kind: Kind) {
    let server = Server::start_with(kind, &["max-waiters", "10", "max-waiters-share", "20"]);
    let mut c = server.client();
    let mut one = server.user("one", "~* &* +@all");
    c.int("LOCK.ACQUIRE k a 60000");
    one.int("LOCK.ACQUIRE mine me 60000");
    let by_exec = |token| format!("LOCK.EXEC mine me LOCK.ACQUIRE k {token} 60000 KEEP 60000");
    assert_eq!(one.call(&by_exec("b")), Reply::Nil);
    assert_eq!(one.call("LOCK.ACQUIRE k d 60000 KEEP 60000"), Reply::Nil);
    is_over_its_share(&mut one, &by_exec("e"));
    is_over_its_share(&mut one, "LOCK.ACQUIRE k e 60000 KEEP 60000");
    // Another user has a share of its own.
    let mut two = server.user("two", "~* &* +@all");
    assert_eq!(two.call(&by_exec("e")), Reply::Nil);
}
