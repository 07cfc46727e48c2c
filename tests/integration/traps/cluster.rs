//! A key whose slot leaves the node. It looks free there, but its waiters get TRYAGAIN and are
//! never granted.

use crate::harness::{for_ms, now_us, wait_for, Client, Cluster, Kind, Later, Reply, Server};

on_every_server![
    a_key_migrated_in_a_transaction_grants_nobody,
    waiters_of_a_lock_that_ends_in_a_migrating_slot_get_tryagain,
    waiters_get_tryagain_when_another_node_claims_the_slot,
    waiters_of_a_key_left_behind_by_its_slot_get_tryagain,
    a_partitioned_primary_that_allows_reads_grants_nobody,
    a_slot_that_leaves_with_its_lock_grants_nobody,
    renamed_commands_unblock_no_waiter,
];
// Clusters of the others have one database.
on_servers![[valkey_9 Valkey9] waiters_in_another_database_wait_while_their_lock_is_here];

/// The key of these tests, in slot 15495.
const KEY: &str = "a";
/// Its node, of two with half of the slots each.
const FROM: usize = 1;
const TO: usize = 0;

/// Nothing is left of the key on a node that has given it away.
fn assert_nothing_left(c: &mut Client) {
    // An expired key is dropped when the server's cycle reaches it.
    c.until("DBSIZE", 0);
    assert_eq!(c.info("blocked_clients"), "0");
}

/// After the MIGRATE the key looks free to a command of the same transaction, which the server
/// allows.
fn a_key_migrated_in_a_transaction_grants_nobody(kind: Kind) {
    for then in [
        "LOCK.RELEASE a nobody",
        "LOCK.ACQUIRE a other 60000",
        "RWLOCK.RLOCK a other 60000",
        "LOCK.RENEW a a 60000",
    ] {
        let cluster = Cluster::of(kind, 2, &[]);
        let (mut c, mut other) = (cluster.client(FROM), cluster.client(TO));
        let fence = c.int("LOCK.ACQUIRE a a 60000");
        let b = cluster.nodes[FROM].blocked("LOCK.ACQUIRE a b 60000 BLOCK 0");
        cluster.begin_to_move(cluster.slot(KEY), FROM, TO);
        let migrate = format!("MIGRATE 127.0.0.1 {} a 0 5000", cluster.nodes[TO].port);
        let replies = c.in_one_go(&["MULTI", &migrate, then, "EXEC"]);
        let replies = replies[3].items();
        assert_eq!(replies[0], Reply::Simple("OK".into()));
        assert!(replies[1].as_error().starts_with("TRYAGAIN "), "{then}");
        b.error("TRYAGAIN ");
        assert_nothing_left(&mut c);
        cluster.end_of_move(cluster.slot(KEY), FROM, TO);
        assert_eq!(other.holders("a"), ["a"]);
        assert_eq!(other.int("LOCK.ACQUIRE a a 60000"), fence);
    }
    // A free key that is still here can be acquired, next to one that has migrated.
    let cluster = Cluster::of(kind, 2, &[]);
    let mut c = cluster.client(FROM);
    c.int("LOCK.ACQUIRE {a}1 a 60000");
    let replies = c.multi(&[
        "DEL {a}1",
        "LOCK.ACQUIRE {a}1 b 60000",
        "LOCK.ACQUIRE a b 60000",
    ]);
    assert!(
        replies.iter().all(|reply| matches!(reply, Reply::Int(1..))),
        "{replies:?}"
    );
}

fn waiters_of_a_lock_that_ends_in_a_migrating_slot_get_tryagain(kind: Kind) {
    let cluster = Cluster::of(kind, 2, &[]);
    let (mut c, mut other) = (cluster.client(FROM), cluster.client(TO));
    let fence = c.int("LOCK.ACQUIRE a a 5000");
    let b = cluster.nodes[FROM].blocked("LOCK.ACQUIRE a b 60000 BLOCK 0");
    let d = cluster.nodes[FROM].blocked("LOCK.ACQUIRE a d 60000 BLOCK 0");
    cluster.begin_to_move(cluster.slot(KEY), FROM, TO);
    b.error("TRYAGAIN ");
    d.error("TRYAGAIN ");
    c.refused("LOCK.ACQUIRE a b 60000", "ASK ");
    assert_nothing_left(&mut c);
    other.text("ASKING");
    assert!(other.int("LOCK.ACQUIRE a b 60000") > fence);
}

/// The node asks for each key of a slot that moves, in the key's own database.
fn waiters_in_another_database_wait_while_their_lock_is_here(kind: Kind) {
    let cluster = Cluster::of(kind, 2, &["--cluster-databases", "4"]);
    let mut c = cluster.client(FROM);
    c.ok("SELECT 3");
    c.int("LOCK.ACQUIRE a a 60000");
    let mut waiter = cluster.client(FROM);
    waiter.ok("SELECT 3");
    let waiter = Later::send(waiter, "LOCK.ACQUIRE a b 60000 BLOCK 0");
    c.until_waiters("a", &["b"]);
    cluster.begin_to_move(cluster.slot(KEY), FROM, TO);
    // It asks once a second.
    for_ms(1_500, || assert!(waiter.is_pending()));
    assert_eq!(c.int("LOCK.RELEASE a a"), 1);
    assert!(waiter.fence() > 0);
}

fn waiters_get_tryagain_when_another_node_claims_the_slot(kind: Kind) {
    let cluster = Cluster::of(kind, 2, &[]);
    let (mut c, mut other) = (cluster.client(FROM), cluster.client(TO));
    c.int("LOCK.ACQUIRE a a 60000");
    let b = cluster.nodes[FROM].blocked("LOCK.ACQUIRE a b 60000 BLOCK 0");
    let d = cluster.nodes[FROM].blocked("LOCK.ACQUIRE a d 60000 BLOCK 0");
    // Only the second node is informed, and gossips it.
    let (slot, one, two) = (cluster.slot(KEY), cluster.id(FROM), cluster.id(TO));
    other.text(&format!("CLUSTER SETSLOT {slot} IMPORTING {one}"));
    other.text(&format!("CLUSTER SETSLOT {slot} NODE {two}"));
    b.error("TRYAGAIN ");
    d.error("TRYAGAIN ");
    assert_nothing_left(&mut c);
    other.int("LOCK.ACQUIRE a b 60000");
}

/// The lock stays on its node, and its holder may be gone for long. Waiters must not wait for that.
fn waiters_of_a_key_left_behind_by_its_slot_get_tryagain(kind: Kind) {
    let cluster = Cluster::of(kind, 2, &["--cluster-require-full-coverage", "no"]);
    let mut c = cluster.client(FROM);
    c.int("LOCK.ACQUIRE a a 60000");
    let [b, d] = ["b", "d"].map(|token| {
        let line = format!("LOCK.ACQUIRE a {token} 60000 BLOCK 0");
        cluster.nodes[FROM].blocked(&line)
    });
    // This is how an operator abandons the locks.
    cluster.claim(cluster.slot(KEY), TO);
    b.error("TRYAGAIN ");
    d.error("TRYAGAIN ");
    assert_eq!(c.info("blocked_clients"), "0");
    let e = cluster.nodes[TO].later("LOCK.ACQUIRE a e 60000 BLOCK 0");
    e.fence();
}

/// Locks with successive deadlines, each with a waiter.
struct Row {
    keys: Vec<String>,
    waiters: Vec<Later>,
}

impl Row {
    const LEN: usize = 80;
    const APART_MS: usize = 100;

    fn set(server: &Server) -> Self {
        let mut c = server.client();
        let keys: Vec<_> = (0..Self::LEN).map(|n| format!("{{{KEY}}}{n}")).collect();
        let wait = |key: &String| {
            c.int(&format!("LOCK.ACQUIRE {key} dead 60000"));
            server.blocked(&format!("LOCK.ACQUIRE {key} b 60000 BLOCK 0"))
        };
        let waiters = keys.iter().map(wait).collect();
        let renew = |(n, key)| {
            let ttl_ms = (n + 2) * Self::APART_MS;
            format!("LOCK.RENEW {key} dead {ttl_ms}")
        };
        let renewals: Vec<_> = keys.iter().enumerate().map(renew).collect();
        let lines: Vec<_> = renewals.iter().map(String::as_str).collect();
        for renewed in c.in_one_go(&lines) {
            assert_eq!(renewed, Reply::Int(1));
        }
        Self { keys, waiters }
    }
}

/// With `cluster-allow-reads-when-down` a node answers reads, although it can no longer know the
/// owner of its slots.
fn a_partitioned_primary_that_allows_reads_grants_nobody(kind: Kind) {
    let options = [
        "--cluster-node-timeout",
        "1000",
        "--cluster-allow-reads-when-down",
        "yes",
    ];
    let cluster = Cluster::of(kind, 2, &options);
    let mut c = cluster.client(FROM);
    let Row { keys, waiters } = Row::set(&cluster.nodes[FROM]);
    cluster.nodes[TO].signal("STOP");
    wait_for("the cluster to be down", || match c.call("SET {a}text x") {
        Reply::Error(error) => {
            assert!(error.starts_with("CLUSTERDOWN "), "{error}");
            Some(())
        }
        _ => None,
    });
    // A fence shows when it was given.
    let down_us = i64::try_from(now_us()).unwrap();
    assert_eq!(c.int(&format!("EXISTS {KEY}")), 0, "reads are answered");
    // It ends all remaining locks, and needs no slot.
    wait_for("more deadlines to pass", || {
        let passed_us = now_us() - u64::try_from(down_us).unwrap();
        (passed_us > 300_000).then_some(())
    });
    c.text("FLUSHALL");
    let (mut before, mut sent_away) = (0, 0);
    for (key, waiter) in keys.iter().zip(waiters) {
        match waiter.reply() {
            Reply::Int(fence) => {
                assert!(fence < down_us, "{key} after {} us", fence - down_us);
                before += 1;
            }
            Reply::Error(e) if e.starts_with("TRYAGAIN ") || e.starts_with("CLUSTERDOWN ") => {
                sent_away += 1;
            }
            other => panic!("{key}: {other:?}"),
        }
    }
    assert!(before > 0, "deadlines hand on while the cluster is up");
    assert!(sent_away > 5, "too slow a machine: {before} were granted");
    assert_eq!(c.int("DBSIZE"), 0);
    cluster.nodes[TO].signal("CONT");
    wait_for("the cluster to be up", || {
        (c.call("SET {a}text x") == Reply::Simple("OK".into())).then_some(())
    });
    c.int("LOCK.ACQUIRE a dead 100");
    cluster.nodes[FROM]
        .later("LOCK.ACQUIRE a b 60000 BLOCK 0")
        .fence();
}

/// The lock ends and the slot leaves in one step, so that the timer has a lock to hand off that
/// clients would find elsewhere.
fn a_slot_that_leaves_with_its_lock_grants_nobody(kind: Kind) {
    let cluster = Cluster::of(kind, 2, &[]);
    let (mut c, mut other) = (cluster.client(FROM), cluster.client(TO));
    let fence = c.int("LOCK.ACQUIRE a a 60000");
    let b = cluster.nodes[FROM].blocked("LOCK.ACQUIRE a b 60000 BLOCK 0");
    let d = cluster.nodes[FROM].blocked("LOCK.ACQUIRE a d 60000 BLOCK 0");
    cluster.begin_to_move(cluster.slot(KEY), FROM, TO);
    let leave = format!(
        "CLUSTER SETSLOT {} NODE {}",
        cluster.slot(KEY),
        cluster.id(TO)
    );
    let replies = c.in_one_go(&["DEL a", &leave, "LOCK.RELEASE a a"]);
    assert_eq!(replies[0], Reply::Int(1));
    assert!(replies[2].as_error().starts_with("MOVED "), "{replies:?}");
    other.text(&leave);
    b.error("TRYAGAIN ");
    d.error("TRYAGAIN ");
    assert_nothing_left(&mut c);
    assert!(other.int("LOCK.ACQUIRE a b 60000") > fence);
}

/// A node checks whether it serves a key in a way that cannot be renamed.
fn renamed_commands_unblock_no_waiter(kind: Kind) {
    for name in ["EXISTS", "EVAL"] {
        let cluster = Cluster::of(kind, 2, &["--rename-command", name, ""]);
        let mut c = cluster.client(FROM);
        c.refused(name, "ERR unknown command");
        // Longer than the interval at which a node checks whether it serves its waited keys.
        c.int("LOCK.ACQUIRE a a 2200");
        let b = cluster.nodes[FROM].blocked("LOCK.ACQUIRE a b 60000 BLOCK 0");
        let d = cluster.nodes[FROM].blocked("LOCK.ACQUIRE a d 60000 BLOCK 0");
        b.fence();
        c.int("DEL a");
        d.fence();
    }
}
