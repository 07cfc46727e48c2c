//! During the migration of a slot, and after one that fails.

use super::{never_arrives, until_held, value, Fixture, FROM, TO};
use crate::harness::{wait_for, Client, Kind, Reply, SHARDS};
use crate::stats::{held, stats};

on_servers![
    [valkey_9 Valkey9]
    an_importing_slot_holds_no_locks_before_takeover,
    a_cancelled_migration_loses_nothing,
    a_migration_with_a_broken_link_loses_nothing,
    a_deadline_during_migration_grants_one_waiter_once,
    nobody_is_granted_in_the_pause_before_takeover,
    a_lock_imported_without_a_ttl_is_repaired_after_takeover,
    waiters_of_an_absent_key_get_tryagain_when_its_slot_leaves,
    a_target_that_restarts_during_migration_drops_the_import,
];

/// All counters that are not 0.
fn counted(c: &mut Client) -> Vec<(String, u64)> {
    let mut stats = stats(c);
    stats.retain(|name, n| *n > 0 && !name.starts_with("held_") && !name.starts_with("wait"));
    stats.into_iter().collect()
}

/// Fails the test unless the target and its replica count nothing.
#[track_caller]
fn nothing_is_held_at_the_target(fixture: &Fixture, when: &str) {
    fixture.cluster.nodes[TO + SHARDS].wait_until_it_follows(&fixture.cluster.nodes[TO]);
    for node in [TO, TO + SHARDS] {
        let mut c = fixture.cluster.client(node);
        assert_eq!(held(&mut c), [0, 0, 0, 0], "{when}, at {node}");
        assert_eq!(counted(&mut c), [], "{when}, at {node}");
    }
}

/// Waits until the target has as many keys of the slot as the source.
#[track_caller]
fn wait_until_all_has_come(fixture: &Fixture) {
    wait_for("all to come", || {
        (fixture.keys_at(FROM) == fixture.keys_at(TO)).then_some(())
    });
}

fn an_importing_slot_holds_no_locks_before_takeover(kind: Kind) {
    let fixture = Fixture::start(kind);
    let [k, shared, other] = &fixture.keys(["k", "shared", "other"]);
    let mut source = fixture.source();
    source.int(&format!("LOCK.ACQUIRE {k} a 60000"));
    for reader in ["a", "b", "c"] {
        source.int(&format!("RWLOCK.RLOCK {shared} {reader} 60000"));
    }
    fixture.set_out();
    wait_until_all_has_come(&fixture);
    assert_eq!(fixture.keys_at(TO), 2);
    nothing_is_held_at_the_target(&fixture, "the snapshot");
    let payload = source.call(&format!("DUMP {shared}"));
    // The changes after the snapshot, in every form of an effect.
    for line in [
        format!("LOCK.RELEASE {k} a"),
        format!("LOCK.ACQUIRE {k} b 60000"),
        format!("RWLOCK.RLOCK {k} b 60000"),
        format!("LOCK.RELEASE {shared} b"),
        format!("RWLOCK.RLOCK {shared} d 60000"),
        format!("LOCK.ACQUIRE {other} a 60000"),
        format!("DEL {other}"),
        format!("LOCK.ACQUIRE {other} a 60000"),
        format!("SET {other} x"),
        format!("DEL {other}"),
        format!("EVAL redis.call('LOCK.ACQUIRE',KEYS[1],'a','60000') 1 {other}"),
        format!("LOCK.ACQUIRE {other} a 20"),
    ] {
        assert!(!matches!(source.call(&line), Reply::Error(_)), "{line}");
        wait_until_all_has_come(&fixture);
        nothing_is_held_at_the_target(&fixture, &line);
    }
    wait_for("it to expire", || {
        (fixture.keys_at(FROM) == 2).then_some(())
    });
    source.multi(&[
        &format!("LOCK.ACQUIRE {other} a 60000"),
        &format!("LOCK.RELEASE {other} a"),
    ]);
    let restored = source.restore(&format!("{other} 60000"), payload.as_bytes());
    restored.assert_ok();
    wait_until_all_has_come(&fixture);
    nothing_is_held_at_the_target(&fixture, "RESTORE");
    // No client of the target sees any of these keys.
    let mut target = fixture.target();
    for line in [
        format!("LOCK.ACQUIRE {k} z 60000 BLOCK 0"),
        format!("LOCK.RELEASE {k} b"),
        format!("LOCK.INFO {k}"),
    ] {
        target.refused(&line, "MOVED ");
    }
    assert_eq!(target.int("DBSIZE"), 0);
    let keys = [k, shared, other];
    let before = keys.map(|key| value(&mut source, key));
    fixture.arrive();
    assert_eq!(keys.map(|key| value(&mut target, key)), before);
    assert_eq!(held(&mut target), [0, 7, 3, 0]);
    assert_eq!(counted(&mut target), []);
    assert_eq!(held(&mut source), [0, 0, 0, 0]);
    fixture.replicas_agree();
}

fn a_cancelled_migration_loses_nothing(kind: Kind) {
    is_broken_off(kind, |fixture| {
        fixture.source().ok("CLUSTER CANCELSLOTMIGRATIONS");
    });
}

fn a_migration_with_a_broken_link_loses_nothing(kind: Kind) {
    is_broken_off(kind, |fixture| {
        let mut source = fixture.source();
        let clients = source.text("CLIENT LIST");
        let fields = |line: &str| line.split(' ').map(str::to_string).collect::<Vec<_>>();
        let mut links = clients.lines().map(fields).filter(|fields| {
            let flags = fields.iter().find_map(|field| field.strip_prefix("flags="));
            flags.is_some_and(|flags| flags.contains('E'))
        });
        let link = links.next().expect("a link");
        let id = link[0].strip_prefix("id=").expect("an id");
        assert_eq!(source.int(&format!("CLIENT KILL ID {id}")), 1);
    });
}

/// All has come when `act` breaks it off: twice, because a key to be deleted once must not be counted
/// the second time either.
fn is_broken_off(kind: Kind, act: impl Fn(&Fixture)) {
    never_arrives(Fixture::start(kind), 2, |fixture| {
        fixture.set_out();
        wait_until_all_has_come(fixture);
        assert_eq!(fixture.keys_at(TO), 2);
        act(fixture);
        wait_for("the target to clean up", || {
            (fixture.keys_at(TO) == 0).then_some(())
        });
        fixture.cluster.wait_for_migration_state(TO, "failed");
        fixture.cluster.nodes[TO + SHARDS].wait_until_it_follows(&fixture.cluster.nodes[TO]);
        for node in [TO, TO + SHARDS] {
            until_held(&mut fixture.cluster.client(node), [0, 0, 0, 0]);
        }
        nothing_is_held_at_the_target(fixture, "a migration that was broken off");
        fixture.cluster.prevent(FROM, "prevent-pause", false);
    });
}

/// The source decides while it owns the slot, and the target receives the effects.
fn a_deadline_during_migration_grants_one_waiter_once(kind: Kind) {
    let fixture = Fixture::start(kind);
    let [k, alone] = &fixture.keys(["k", "alone"]);
    let (mut source, mut target) = (fixture.source(), fixture.target());
    source.int(&format!("LOCK.ACQUIRE {k} a 1500"));
    source.int(&format!("LOCK.ACQUIRE {alone} a 1500"));
    let b = fixture
        .cluster
        .blocked(FROM, &format!("LOCK.ACQUIRE {k} b 60000 BLOCK 0"));
    let c = fixture
        .cluster
        .blocked(FROM, &format!("LOCK.ACQUIRE {k} c 60000 BLOCK 0"));
    fixture.set_out();
    let fence = b.fence();
    source.until(&format!("EXISTS {alone}"), 0);
    wait_until_all_has_come(&fixture);
    nothing_is_held_at_the_target(&fixture, "a deadline");
    assert!(c.is_pending());
    fixture.arrive();
    c.error("TRYAGAIN ");
    assert_eq!(target.holders(k), ["b"]);
    assert_eq!(target.int(&format!("LOCK.ACQUIRE {k} b 60000")), fence);
    assert_eq!(held(&mut target), [1, 0, 1, 0]);
    fixture.replicas_agree();
}

/// The source may no longer write, and the target may not write yet.
fn nobody_is_granted_in_the_pause_before_takeover(kind: Kind) {
    let fixture = Fixture::start(kind);
    let [k] = &fixture.keys(["k"]);
    let (mut source, mut target) = (fixture.source(), fixture.target());
    fixture.cluster.prevent(TO, "prevent-failover", true);
    let fence = source.int(&format!("LOCK.ACQUIRE {k} a 1500"));
    let waiters = ["b", "c"].map(|token| {
        let line = format!("LOCK.ACQUIRE {k} {token} 60000 BLOCK 0");
        fixture.cluster.blocked(FROM, &line)
    });
    let late = fixture
        .cluster
        .blocked(FROM, &format!("LOCK.ACQUIRE {k} late 60000 BLOCK 1600"));
    fixture.cluster.begin_to_migrate(fixture.slots(), FROM, TO);
    fixture
        .cluster
        .wait_for_migration_state(TO, "failover-granted");
    let read = format!("PTTL {k}");
    wait_for("the deadline to pass", || {
        (source.int(&read) < 0).then_some(())
    });
    // A timeout is not a write.
    assert_eq!(late.reply(), Reply::Nil);
    assert!(waiters.iter().all(|waiter| waiter.is_pending()));
    nothing_is_held_at_the_target(&fixture, "the pause");
    fixture.cluster.prevent(TO, "prevent-failover", false);
    fixture.cluster.end_of_migration(FROM, TO);
    waiters
        .into_iter()
        .for_each(|waiter| waiter.error("TRYAGAIN "));
    // Nobody holds it, and the next client may acquire it.
    assert_eq!(target.call(&format!("LOCK.INFO {k}")), Reply::Nil);
    assert!(target.int(&format!("LOCK.ACQUIRE {k} d 60000")) > fence);
    assert_eq!(stats(&mut source)["handed_over"], 0);
    fixture.replicas_agree();
}

/// The source was paused before it could repair the ttl.
fn a_lock_imported_without_a_ttl_is_repaired_after_takeover(kind: Kind) {
    let fixture = Fixture::start(kind);
    let [k] = &fixture.keys(["k"]);
    let (mut source, mut target) = (fixture.source(), fixture.target());
    source.int(&format!("LOCK.ACQUIRE {k} a 60000"));
    let payload = source.call(&format!("DUMP {k}"));
    fixture.set_out();
    source.call("MULTI");
    source.restore(&format!("{k} 0 REPLACE"), payload.as_bytes());
    source.call("CLIENT PAUSE 60000 WRITE");
    let done = source.call("EXEC");
    assert_eq!(
        done.items(),
        [Reply::Simple("OK".into()), Reply::Simple("OK".into())]
    );
    assert_eq!(source.int(&format!("PTTL {k}")), -1);
    fixture.arrive();
    wait_for("it to be repaired", || {
        (target.int(&format!("PTTL {k}")) > 0).then_some(())
    });
    source.ok("CLIENT UNPAUSE");
    assert_eq!(held(&mut target), [1, 0, 1, 0]);
    fixture.replicas_agree();
}

/// No key moves with the slot that would tell the module of it.
fn waiters_of_an_absent_key_get_tryagain_when_its_slot_leaves(kind: Kind) {
    let fixture = Fixture::start(kind);
    let [k] = &fixture.keys(["k"]);
    let (mut source, mut target) = (fixture.source(), fixture.target());
    let fence = source.int(&format!("LOCK.ACQUIRE {k} a 600000"));
    let waiters = ["b", "c"].map(|token| {
        let line = format!("LOCK.ACQUIRE {k} {token} 60000 BLOCK 0");
        fixture.cluster.blocked(FROM, &line)
    });
    // Nobody is granted in the meantime.
    source.multi(&[
        &format!("LOCK.RENEW {k} a 20"),
        "CONFIG SET min-replicas-to-write 2",
    ]);
    wait_for("it to expire", || {
        (fixture.keys_at(FROM) == 0).then_some(())
    });
    assert!(waiters.iter().all(|waiter| waiter.is_pending()));
    fixture.migrate();
    waiters
        .into_iter()
        .for_each(|waiter| waiter.error("TRYAGAIN "));
    assert!(target.int(&format!("LOCK.ACQUIRE {k} b 60000")) > fence);
}

fn a_target_that_restarts_during_migration_drops_the_import(kind: Kind) {
    let mut fixture = Fixture::start(kind);
    let [k] = &fixture.keys(["k"]);
    let own = fixture.cluster.keys_of(TO, 1).remove(0);
    let mut source = fixture.source();
    let fence = source.int(&format!("LOCK.ACQUIRE {k} a 60000"));
    let line = format!("LOCK.ACQUIRE {k} b 60000 BLOCK 0");
    let b = fixture.cluster.blocked(FROM, &line);
    fixture
        .target()
        .int(&format!("LOCK.ACQUIRE {own} me 60000"));
    fixture.set_out();
    wait_until_all_has_come(&fixture);
    fixture.cluster.nodes[TO].kill();
    fixture.cluster.nodes[TO].start_again_with(&["--appendonly", "yes"]);
    fixture.cluster.wait_until_all_agree();
    let mut target = fixture.target();
    wait_for("the target to clean up", || {
        (fixture.keys_at(TO) == 0).then_some(())
    });
    assert_eq!(held(&mut target), [1, 0, 1, 0]);
    assert_eq!(counted(&mut target), []);
    fixture.cluster.wait_for_migration_state(FROM, "failed");
    assert!(b.is_pending());
    fixture.cluster.prevent(FROM, "prevent-pause", false);
    fixture.migrate();
    b.error("TRYAGAIN ");
    assert_eq!(target.int(&format!("LOCK.ACQUIRE {k} a 60000")), fence);
    assert_eq!(held(&mut target), [2, 0, 2, 0]);
    fixture.cluster.nodes[TO + SHARDS].wait_until_link_is_up();
    fixture.replicas_agree();
}
