//! A grant to a waiter reaches the replicas and the append-only file, in order with other effects.

use crate::harness::{wait_for, Client, Kind, Reply, Server, AT_ONCE, SYNCED};
use crate::places::fixture::{leaves_place, queued, until_gone};

on_every_server![
    every_kind_of_hand_off_reaches_the_replica,
    every_kind_of_hand_off_survives_a_crash,
    grants_that_are_taken_back_reach_the_replica,
    waits_that_end_without_a_grant_replicate_nothing,
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

fn every_kind_of_hand_off_survives_a_crash(kind: Kind) {
    let mut server = Server::start_with(kind, &SYNCED);
    for lines in ENDS {
        let when = lines.join("; ");
        let mut c = server.client();
        c.int("LOCK.ACQUIRE k a 60000");
        let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
        let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
        end(&mut c, lines);
        let fence = b.fence();
        server.kill();
        d.broken();
        server.start_again();
        let mut c = server.client();
        assert_eq!(c.holds("k"), [("b".into(), fence)], "{when}");
        assert!(c.waiters("k").is_empty(), "{when}");
        let ttl = c.int("PTTL k");
        assert!((40_000..=60_000).contains(&ttl), "{when}: {ttl}");
        assert_eq!(c.int("LOCK.RENEW k b 60000"), 1, "{when}");
        c.int("LOCK.RELEASE k b");
        assert!(c.int("LOCK.ACQUIRE k next 60000") > fence, "{when}");
        c.call("FLUSHALL");
    }
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

fn waits_that_end_without_a_grant_replicate_nothing(kind: Kind) {
    let (primary, replica) = pair(kind);
    let mut c = primary.client();
    c.int("RWLOCK.RLOCK k a 60000");
    replica.wait_until_it_follows(&primary);
    let size = |c: &mut Client| (c.info("master_repl_offset"), c.info("aof_current_size"));
    let before = size(&mut c);
    let timed_out = primary.later("RWLOCK.WLOCK k w 60000 BLOCK 60");
    assert_eq!(timed_out.reply(), Reply::Nil);
    let killed = primary.blocked("RWLOCK.WLOCK k w 60000 BLOCK 0");
    c.int(&format!("CLIENT KILL ID {}", killed.id));
    killed.broken();
    drop(primary.raw_blocked("RWLOCK.WLOCK k w 60000 BLOCK 0"));
    wait_for("it to leave", || c.waiters("k").is_empty().then_some(()));
    assert_eq!(c.call("RWLOCK.WLOCK k w 60000"), Reply::Nil);
    // A place is in no file, either.
    leaves_place(&mut c, "RWLOCK.WLOCK k absent 60000 KEEP 60000");
    leaves_place(&mut c, "RWLOCK.WLOCK k absent 60000 BLOCK 1 KEEP 60000");
    queued(&mut c, "RWLOCK.WLOCK k notified 60000 NOTIFY 0 c");
    assert_eq!(c.waiters("k"), ["absent", "notified"]);
    c.int("LOCK.RELEASE k absent");
    c.int("LOCK.RELEASE k notified");
    leaves_place(&mut c, "RWLOCK.WLOCK k absent 60000 KEEP 60000");
    assert_eq!(c.int("LOCK.CANCEL k"), 1);
    assert!(c.waiters("k").is_empty());
    assert_eq!(size(&mut c), before);
    // A grant does replicate.
    let w = primary.blocked("RWLOCK.WLOCK k w 60000 BLOCK 0");
    assert_eq!(size(&mut c), before, "not the wait itself");
    c.int("LOCK.RELEASE k a");
    w.fence();
    assert_ne!(size(&mut c), before);
    // A turn that nobody takes is nothing, too.
    leaves_place(&mut c, "RWLOCK.WLOCK k absent 60000 KEEP 500");
    c.int("LOCK.RELEASE k w");
    let free = size(&mut c);
    until_gone(&mut c, "k", "absent");
    assert_eq!(size(&mut c), free);
    replica.assert_same_as(&primary, "after the grant");
}
