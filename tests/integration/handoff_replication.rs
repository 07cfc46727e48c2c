//! A grant to a waiter reaches the replicas and the append-only file, in order with other effects.

use crate::harness::{wait_for, Client, Kind, Reply, Server, AT_ONCE};

on_every_server![
    every_kind_of_hand_off_reaches_the_replica,
    grants_that_are_taken_back_reach_the_replica,
];

/// The ways to end the hold of `a` on `k`. Several lines form a transaction.
const ENDS: [&[&str]; 18] = [
    &["LOCK.RELEASE k a"],
    &["LOCK.RENEW k a 20"],
    &["LOCK.ACQUIRE k a 20"],
    &["DEL k"],
    &["UNLINK k"],
    &["FLUSHALL"],
    &["FLUSHDB"],
    &["FLUSHALL ASYNC"],
    &["PEXPIRE k 20"],
    &["PEXPIREAT k 1"],
    &["RENAME k elsewhere"],
    &["MOVE k 3"],
    &["SWAPDB 0 7"],
    &["SET other 1", "LOCK.RELEASE k a", "SET other 2"],
    &["SET other 1", "DEL k", "SET other 2"],
    &["EVAL return{redis.call('LOCK.RELEASE',KEYS[1],'a')} 1 k"],
    &["EVAL return{redis.call('DEL',KEYS[1])} 1 k"],
    &["EVAL redis.call('SET','other',1);redis.call('DEL',KEYS[1]) 1 k"],
];

/// The ways to take the lock: alone, and with another one.
const TAKES: [&str; 2] = ["LOCK.ACQUIRE k", "LOCK.MACQUIRE 2 k z"];

/// Ends the hold of `a`, for which other clients wait.
fn end(c: &mut Client, lines: &[&str]) {
    match lines {
        [line] => {
            let reply = c.call(line);
            assert!(!matches!(reply, Reply::Error(_)), "{line}: {reply:?}");
        }
        lines => {
            c.multi(lines);
        }
    }
}

fn pair(kind: Kind) -> (Server, Server) {
    let options = [&["--appendonly", "yes"], &AT_ONCE[..]].concat();
    Server::pair(kind, &options)
}

fn every_kind_of_hand_off_reaches_the_replica(kind: Kind) {
    let (primary, replica) = pair(kind);
    let mut c = primary.client();
    for (take, lines) in TAKES
        .iter()
        .flat_map(|take| ENDS.map(|lines| (take, lines)))
    {
        let when = format!("{take}: {}", lines.join("; "));
        c.int("LOCK.ACQUIRE k a 60000");
        let b = primary.blocked(&format!("{take} b 60000 BLOCK 0"));
        let d = primary.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
        end(&mut c, lines);
        let fence = b.fence();
        assert_eq!(c.holds("k"), [("b".into(), fence)], "{when}");
        replica.assert_same_as(&primary, &when);
        let ttl = replica.client().int("PTTL k");
        assert!((50_000..=60_000).contains(&ttl), "{when}: {ttl}");
        assert_eq!(c.int(&format!("{take} b 50000")), fence, "{when}");
        replica.assert_same_as(&primary, &when);
        c.int("LOCK.RELEASE k b");
        d.fence();
        c.int("LOCK.RELEASE k d");
        replica.assert_same_as(&primary, &when);
        c.call("FLUSHALL");
    }
    // Redis 8 counts the primary's link for a moment, while another thread frees the data of its
    // FLUSHALL.
    wait_for("nobody to wait on the replica", || {
        (replica.blocked_clients() == 0).then_some(())
    });
    assert_eq!(replica.client().info("sync_full"), "0");
    assert_eq!(c.info("sync_full"), "1", "the link has never broken");
}

fn grants_that_are_taken_back_reach_the_replica(kind: Kind) {
    let (primary, replica) = pair(kind);
    let mut c = primary.client();
    let releases = ["LOCK.RELEASE k a", "DEL k"];
    for (take, release) in TAKES
        .iter()
        .flat_map(|take| releases.map(|one| (take, one)))
    {
        c.int("LOCK.ACQUIRE k a 60000");
        let b = primary.blocked(&format!("{take} b 60000 BLOCK 0"));
        let d = primary.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
        c.multi(&[release, &format!("CLIENT KILL ID {}", b.id)]);
        b.broken();
        let fence = d.fence();
        assert_eq!(c.holds("k"), [("d".into(), fence)]);
        c.until("EXISTS z", 0);
        replica.assert_same_as(&primary, release);
        c.call("FLUSHALL");
    }
}
