//! While a slot is on its way, and when it never arrives.

use super::{gauges, is_sent_away, stats, value, Stage, FROM, TO};
use crate::harness::{wait_for, Client, Kind, Reply, SHARDS};

on_valkey_9![
    an_importing_slot_holds_no_locks_before_takeover,
    a_cancelled_migration_loses_nothing,
    a_migration_with_a_broken_link_loses_nothing,
    a_deadline_during_migration_grants_one_waiter_once,
    nobody_is_granted_in_the_pause_before_takeover,
    a_lock_imported_without_a_ttl_is_repaired_after_takeover,
    waiters_of_an_absent_key_get_tryagain_when_its_slot_leaves,
    a_target_that_restarts_during_migration_drops_the_import,
];

/// Every counter that is not 0.
fn counted(c: &mut Client) -> Vec<(String, u64)> {
    let mut stats = stats(c);
    stats.retain(|name, n| *n > 0 && !name.starts_with("held_") && !name.starts_with("wait"));
    stats.into_iter().collect()
}

/// Fails the test unless the target and its replica count nothing.
#[track_caller]
fn nothing_is_held_at_the_target(stage: &Stage, when: &str) {
    stage.cluster.nodes[TO + SHARDS].wait_until_it_follows(&stage.cluster.nodes[TO]);
    for node in [TO, TO + SHARDS] {
        let mut c = stage.cluster.client(node);
        assert_eq!(gauges(&mut c), [0, 0, 0], "{when}, at {node}");
        assert_eq!(counted(&mut c), [], "{when}, at {node}");
    }
}

/// Waits until the target has as many keys of the slot as the source.
#[track_caller]
fn wait_until_all_has_come(stage: &Stage) {
    wait_for("all to come", || {
        (stage.keys_at(FROM) == stage.keys_at(TO)).then_some(())
    });
}

fn an_importing_slot_holds_no_locks_before_takeover(kind: Kind) {
    let stage = Stage::start(kind);
    let [k, shared, other] = &stage.keys(["k", "shared", "other"]);
    let mut source = stage.source();
    source.int(&format!("LOCK.ACQUIRE {k} a 60000"));
    for reader in ["a", "b", "c"] {
        source.int(&format!("RWLOCK.RLOCK {shared} {reader} 60000"));
    }
    stage.set_out();
    wait_until_all_has_come(&stage);
    assert_eq!(stage.keys_at(TO), 2);
    nothing_is_held_at_the_target(&stage, "the snapshot");
    let payload = source.call(&format!("DUMP {shared}"));
    // What follows it, in every form that an effect has.
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
        wait_until_all_has_come(&stage);
        nothing_is_held_at_the_target(&stage, &line);
    }
    wait_for("it to expire", || (stage.keys_at(FROM) == 2).then_some(()));
    source.multi(&[
        &format!("LOCK.ACQUIRE {other} a 60000"),
        &format!("LOCK.RELEASE {other} a"),
    ]);
    let restored = source.send(&[
        &b"RESTORE"[..],
        other.as_bytes(),
        b"60000",
        payload.as_bytes(),
    ]);
    assert_eq!(restored, Reply::Simple("OK".into()));
    wait_until_all_has_come(&stage);
    nothing_is_held_at_the_target(&stage, "RESTORE");
    // No client of the target sees any of it.
    let mut target = stage.target();
    for line in [
        format!("LOCK.ACQUIRE {k} z 60000 BLOCK 0"),
        format!("LOCK.RELEASE {k} b"),
        format!("LOCK.INFO {k}"),
    ] {
        assert!(target.error(&line).starts_with("MOVED "), "{line}");
    }
    assert_eq!(target.int("DBSIZE"), 0);
    let keys = [k, shared, other];
    let before = keys.map(|key| value(&mut source, key));
    stage.arrive();
    assert_eq!(keys.map(|key| value(&mut target, key)), before);
    assert_eq!(gauges(&mut target), [0, 7, 3]);
    assert_eq!(counted(&mut target), []);
    assert_eq!(gauges(&mut source), [0, 0, 0]);
    stage.replicas_agree();
}

fn a_cancelled_migration_loses_nothing(kind: Kind) {
    never_arrives(kind, |stage| {
        assert_eq!(stage.source().text("CLUSTER CANCELSLOTMIGRATIONS"), "OK");
    });
}

fn a_migration_with_a_broken_link_loses_nothing(kind: Kind) {
    never_arrives(kind, |stage| {
        let mut source = stage.source();
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

/// A slot sets out, and `act` breaks that off.
fn never_arrives(kind: Kind, act: impl Fn(&Stage)) {
    let stage = Stage::start(kind);
    let [k, shared] = &stage.keys(["k", "shared"]);
    let (mut source, mut target) = (stage.source(), stage.target());
    let fence = source.int(&format!("LOCK.ACQUIRE {k} a 60000"));
    for reader in 0..100 {
        source.int(&format!("RWLOCK.RLOCK {shared} r{reader} 60000"));
    }
    let [b, c] = ["b", "c"].map(|token| {
        let line = format!("LOCK.ACQUIRE {k} {token} 60000 BLOCK 0");
        stage.cluster.blocked(FROM, &line)
    });
    // What is to be deleted once must not count the second time either.
    for _ in 0..2 {
        stage.set_out();
        wait_until_all_has_come(&stage);
        assert_eq!(stage.keys_at(TO), 2);
        act(&stage);
        wait_for("the target to clean up", || {
            (stage.keys_at(TO) == 0).then_some(())
        });
        stage.cluster.wait_for_migration_state(TO, "failed");
        assert!(b.is_pending() && c.is_pending());
        stage.cluster.nodes[TO + SHARDS].wait_until_it_follows(&stage.cluster.nodes[TO]);
        // A lock of many shares is freed on another thread.
        for node in [TO, TO + SHARDS] {
            let mut c = stage.cluster.client(node);
            wait_for("all to be freed", || {
                (gauges(&mut c) == [0, 0, 0]).then_some(())
            });
        }
        nothing_is_held_at_the_target(&stage, "a migration that was broken off");
        assert_eq!(gauges(&mut source), [1, 100, 2]);
    }
    assert_eq!(source.int(&format!("LOCK.ACQUIRE {k} a 60000")), fence);
    assert_eq!(source.int(&format!("LOCK.RELEASE {k} a")), 1);
    let fence_of_b = b.fence();
    assert!(fence_of_b > fence);
    stage.replicas_agree();
    // And the next attempt succeeds.
    stage.cluster.prevent(FROM, "prevent-pause", false);
    stage.migrate();
    is_sent_away(c);
    assert_eq!(target.int(&format!("LOCK.ACQUIRE {k} b 60000")), fence_of_b);
    assert_eq!(gauges(&mut target), [1, 100, 2]);
    stage.replicas_agree();
}

/// The source decides as long as it owns the slot, and the target hears of it.
fn a_deadline_during_migration_grants_one_waiter_once(kind: Kind) {
    let stage = Stage::start(kind);
    let [k, alone] = &stage.keys(["k", "alone"]);
    let (mut source, mut target) = (stage.source(), stage.target());
    source.int(&format!("LOCK.ACQUIRE {k} a 1500"));
    source.int(&format!("LOCK.ACQUIRE {alone} a 1500"));
    let b = stage
        .cluster
        .blocked(FROM, &format!("LOCK.ACQUIRE {k} b 60000 BLOCK 0"));
    let c = stage
        .cluster
        .blocked(FROM, &format!("LOCK.ACQUIRE {k} c 60000 BLOCK 0"));
    stage.set_out();
    let fence = b.fence();
    wait_for("it to expire", || {
        (source.int(&format!("EXISTS {alone}")) == 0).then_some(())
    });
    wait_until_all_has_come(&stage);
    nothing_is_held_at_the_target(&stage, "a deadline");
    assert!(c.is_pending());
    stage.arrive();
    is_sent_away(c);
    assert_eq!(target.holders(k), ["b"]);
    assert_eq!(target.int(&format!("LOCK.ACQUIRE {k} b 60000")), fence);
    assert_eq!(gauges(&mut target), [1, 0, 1]);
    stage.replicas_agree();
}

/// The source may not write any more, and the target not yet.
fn nobody_is_granted_in_the_pause_before_takeover(kind: Kind) {
    let stage = Stage::start(kind);
    let [k] = &stage.keys(["k"]);
    let (mut source, mut target) = (stage.source(), stage.target());
    stage.cluster.prevent(TO, "prevent-failover", true);
    let fence = source.int(&format!("LOCK.ACQUIRE {k} a 1500"));
    let waiters = ["b", "c"].map(|token| {
        let line = format!("LOCK.ACQUIRE {k} {token} 60000 BLOCK 0");
        stage.cluster.blocked(FROM, &line)
    });
    let late = stage
        .cluster
        .blocked(FROM, &format!("LOCK.ACQUIRE {k} late 60000 BLOCK 1600"));
    stage.cluster.begin_to_migrate(stage.slots(), FROM, TO);
    stage
        .cluster
        .wait_for_migration_state(TO, "failover-granted");
    let read = format!("PTTL {k}");
    wait_for("the deadline to pass", || {
        (source.int(&read) < 0).then_some(())
    });
    // A timeout is no write.
    assert_eq!(late.reply(), Reply::Nil);
    assert!(waiters.iter().all(|waiter| waiter.is_pending()));
    nothing_is_held_at_the_target(&stage, "the pause");
    stage.cluster.prevent(TO, "prevent-failover", false);
    stage.cluster.end_of_migration(FROM, TO);
    waiters.into_iter().for_each(is_sent_away);
    // Nobody has it, and the next one may.
    assert_eq!(target.call(&format!("LOCK.INFO {k}")), Reply::Nil);
    assert!(target.int(&format!("LOCK.ACQUIRE {k} d 60000")) > fence);
    assert_eq!(stats(&mut source)["handed_over"], 0);
    stage.replicas_agree();
}

/// The source was paused before it could mend it.
fn a_lock_imported_without_a_ttl_is_repaired_after_takeover(kind: Kind) {
    let stage = Stage::start(kind);
    let [k] = &stage.keys(["k"]);
    let (mut source, mut target) = (stage.source(), stage.target());
    source.int(&format!("LOCK.ACQUIRE {k} a 60000"));
    let payload = source.call(&format!("DUMP {k}"));
    stage.set_out();
    let replace = [
        b"RESTORE",
        k.as_bytes(),
        b"0",
        payload.as_bytes(),
        b"REPLACE",
    ];
    source.call("MULTI");
    source.send(&replace);
    source.call("CLIENT PAUSE 60000 WRITE");
    let done = source.call("EXEC");
    assert_eq!(
        done.items(),
        [Reply::Simple("OK".into()), Reply::Simple("OK".into())]
    );
    assert_eq!(source.int(&format!("PTTL {k}")), -1);
    stage.arrive();
    wait_for("it to be mended", || {
        (target.int(&format!("PTTL {k}")) > 0).then_some(())
    });
    assert_eq!(source.text("CLIENT UNPAUSE"), "OK");
    assert_eq!(gauges(&mut target), [1, 0, 1]);
    stage.replicas_agree();
}

/// There is no key that goes with the slot, by which the module would learn of it.
fn waiters_of_an_absent_key_get_tryagain_when_its_slot_leaves(kind: Kind) {
    let stage = Stage::start(kind);
    let [k] = &stage.keys(["k"]);
    let (mut source, mut target) = (stage.source(), stage.target());
    let fence = source.int(&format!("LOCK.ACQUIRE {k} a 500"));
    let waiters = ["b", "c"].map(|token| {
        let line = format!("LOCK.ACQUIRE {k} {token} 60000 BLOCK 0");
        stage.cluster.blocked(FROM, &line)
    });
    // Nothing is handed on meanwhile.
    source.text("CONFIG SET min-replicas-to-write 2");
    wait_for("it to expire", || (stage.keys_at(FROM) == 0).then_some(()));
    assert!(waiters.iter().all(|waiter| waiter.is_pending()));
    stage.migrate();
    waiters.into_iter().for_each(is_sent_away);
    assert!(target.int(&format!("LOCK.ACQUIRE {k} b 60000")) > fence);
}

fn a_target_that_restarts_during_migration_drops_the_import(kind: Kind) {
    let mut stage = Stage::start(kind);
    let [k] = &stage.keys(["k"]);
    let own = stage.cluster.keys_of(TO, 1).remove(0);
    let mut source = stage.source();
    let fence = source.int(&format!("LOCK.ACQUIRE {k} a 60000"));
    let line = format!("LOCK.ACQUIRE {k} b 60000 BLOCK 0");
    let b = stage.cluster.blocked(FROM, &line);
    stage.target().int(&format!("LOCK.ACQUIRE {own} me 60000"));
    stage.set_out();
    wait_until_all_has_come(&stage);
    stage.cluster.nodes[TO].kill();
    stage.cluster.nodes[TO].start_again_with(&["--appendonly", "yes"]);
    stage.cluster.wait_until_all_agree();
    let mut target = stage.target();
    wait_for("the target to clean up", || {
        (stage.keys_at(TO) == 0).then_some(())
    });
    assert_eq!(gauges(&mut target), [1, 0, 1]);
    assert_eq!(counted(&mut target), []);
    stage.cluster.wait_for_migration_state(FROM, "failed");
    assert!(b.is_pending());
    stage.cluster.prevent(FROM, "prevent-pause", false);
    stage.migrate();
    is_sent_away(b);
    assert_eq!(target.int(&format!("LOCK.ACQUIRE {k} a 60000")), fence);
    assert_eq!(gauges(&mut target), [2, 0, 2]);
    stage.cluster.nodes[TO + SHARDS].wait_until_link_is_up();
    stage.replicas_agree();
}
