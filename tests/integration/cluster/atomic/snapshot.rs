//! While the source of a `CLUSTER MIGRATION` writes its keys, and after one that ends there. Its
//! child sleeps after each key.

use super::{never_arrives, until_held, Fixture, FROM, TO};
use crate::harness::{wait_for, Client, Kind};
use crate::stats::held;

on_servers![
    [redis_8_6 Redis8_6]
    a_hand_over_during_the_snapshot_arrives_once,
    a_cancelled_import_loses_nothing,
    a_target_that_dies_during_the_import_loses_nothing,
    locks_that_are_trimmed_one_by_one_are_not_told_as_forced,
];

/// The time in which tests act, for each key that is written.
const DELAY_US: u32 = 1_500_000;

/// Starts the migration, and waits until a key has come to the target, which does not own the slot.
#[track_caller]
fn set_out(fixture: &Fixture) {
    let delay = format!("CONFIG SET rdb-key-save-delay {DELAY_US}");
    fixture.source().ok(&delay);
    fixture.cluster.begin_to_migrate(fixture.slots(), FROM, TO);
    // The target counts no key of a slot that it does not own.
    let mut target = fixture.target();
    wait_for("a key to come", || {
        let calls = target.text("INFO commandstats");
        calls.contains("cmdstat_restore:").then_some(())
    });
    // The child has what it was before, and so the next migration is fast.
    fixture.source().ok("CONFIG SET rdb-key-save-delay 0");
}

fn a_hand_over_during_the_snapshot_arrives_once(kind: Kind) {
    let fixture = Fixture::start(kind);
    let [k, other] = &fixture.keys(["k", "other"]);
    let (mut source, mut target) = (fixture.source(), fixture.target());
    let fence = source.int(&format!("LOCK.ACQUIRE {k} a 60000"));
    source.int(&format!("LOCK.ACQUIRE {other} a 60000"));
    let [b, c] = ["b", "c"].map(|token| {
        let line = format!("LOCK.ACQUIRE {k} {token} 60000 BLOCK 0");
        fixture.cluster.blocked(FROM, &line)
    });
    set_out(&fixture);
    target.refused(&format!("LOCK.ACQUIRE {k} z 60000 BLOCK 0"), "MOVED ");
    assert_eq!(source.int(&format!("LOCK.RELEASE {k} a")), 1);
    let fence_of_b = b.fence();
    assert!(fence_of_b > fence);
    assert!(c.is_pending());
    fixture.cluster.end_of_migration(FROM, TO);
    c.error("TRYAGAIN ");
    assert_eq!(target.holders(k), ["b"]);
    assert_eq!(target.int(&format!("LOCK.ACQUIRE {k} b 60000")), fence_of_b);
    until_held(&mut source, [0, 0, 0, 0]);
    assert_eq!(held(&mut target), [2, 0, 2, 0]);
    assert_eq!(source.info("lock_forced"), "0");
    fixture.replicas_agree();
}

fn a_cancelled_import_loses_nothing(kind: Kind) {
    is_broken_off(kind, |fixture| {
        let mut target = fixture.target();
        assert_eq!(target.int("CLUSTER MIGRATION CANCEL ALL"), 1);
        until_held(&mut target, [0, 0, 0, 0]);
        assert_eq!(target.info("lock_forced"), "0");
    });
}

fn a_target_that_dies_during_the_import_loses_nothing(kind: Kind) {
    is_broken_off(kind, |fixture| {
        fixture.cluster.nodes[TO].kill();
        fixture.cluster.nodes[TO].start_again_with(&["--appendonly", "yes"]);
        fixture.cluster.wait_until_all_agree();
    });
}

fn is_broken_off(kind: Kind, act: impl Fn(&mut Fixture)) {
    never_arrives(Fixture::start(kind), 1, |fixture| {
        set_out(fixture);
        act(fixture);
        until_held(&mut fixture.target(), [0, 0, 0, 0]);
        fixture.cluster.wait_for_migration_state(FROM, "failed");
    });
}

/// The server does so for the sake of a client with client-side caching.
fn locks_that_are_trimmed_one_by_one_are_not_told_as_forced(kind: Kind) {
    let fixture = Fixture::start(kind);
    let [held_key, shared, deleted] = &fixture.keys(["held", "shared", "deleted"]);
    let mut c = fixture.source();
    let mut caching = fixture.cluster.nodes[FROM].client_resp3();
    caching.ok("CLIENT TRACKING ON");
    for key in [held_key, deleted] {
        c.int(&format!("LOCK.ACQUIRE {key} me 600000"));
    }
    // The end of a lock with so many holds is counted before it is freed.
    for n in 0..100 {
        c.int(&format!("RWLOCK.RLOCK {shared} {n} 600000"));
    }
    let told = |c: &mut Client| (c.info("lock_forced"), c.call("LOCK.LOG").items().len());
    assert_eq!(c.int(&format!("DEL {deleted}")), 1);
    assert_eq!(told(&mut c), ("1".into(), 1), "a client's DEL");
    fixture.migrate();
    until_held(&mut c, [0, 0, 0, 0]);
    wait_for("the end of trimming", || {
        let log = fixture.cluster.nodes[FROM].log();
        log.contains("Active trim completed").then_some(())
    });
    assert_eq!(told(&mut c), ("1".into(), 1), "the end of the move");
    // The slot comes back.
    fixture.cluster.begin_to_migrate(fixture.slots(), TO, FROM);
    fixture.cluster.end_of_migration(TO, FROM);
    assert_eq!(c.int(&format!("DEL {held_key}")), 1);
    assert_eq!(told(&mut c), ("2".into(), 2), "after the return");
}
