//! A key whose slot leaves the node: it looks free there, but who waits for it is sent away and never granted.

use crate::harness::{wait_for, Client, Kind, Later, Reply, Server};

on_every_server![
    a_node_hands_on_as_any_server_does,
    a_key_that_migrates_takes_its_hold_along_and_sends_its_waiters_away,
    a_key_that_migrates_in_a_transaction_is_not_handed_on_in_it,
    a_lock_that_ends_while_its_slot_migrates_sends_its_waiters_away,
    a_slot_that_another_node_claims_sends_its_waiters_away,
    a_slot_that_nobody_serves_sends_its_waiters_away,
    waiters_are_sent_away_from_a_key_that_stays_behind,
    a_cluster_that_is_down_grants_nobody,
];

/// Slots from this one on are the first node's.
const HALF: u16 = 8_192;
/// The key of these tests, in slot 15495.
const KEY: &str = "a";
/// A key of the second node's, in slot 3300.
const OTHER_KEY: &str = "b";

/// Two nodes, each with half of the slots.
struct Cluster {
    one: Server,
    two: Server,
}

impl Cluster {
    fn start(kind: Kind, options: &[&str]) -> Self {
        let options = [&["--cluster-enabled", "yes"], options].concat();
        let nodes = [(); 2].map(|()| Server::start_with(kind, &options));
        for (node, slots) in nodes.iter().zip([HALF..16_384, 0..HALF]) {
            let mut words = vec!["CLUSTER".to_string(), "ADDSLOTS".to_string()];
            words.extend(slots.map(|slot| slot.to_string()));
            assert_eq!(node.client().send(&words), Reply::Simple("OK".into()));
        }
        let [one, two] = nodes;
        let mut c = one.client();
        // Different epochs, so that the nodes need not agree on them first.
        for (epoch, node) in [(1, &one), (2, &two)] {
            node.client()
                .text(&format!("CLUSTER SET-CONFIG-EPOCH {epoch}"));
        }
        c.text(&format!("CLUSTER MEET 127.0.0.1 {}", two.port));
        for node in [&one, &two] {
            wait_for("the cluster to be up", || is_up(node).then_some(()));
        }
        Self { one, two }
    }

    /// Lets the first node know that the key's slot is on its way to the second.
    fn begin_to_migrate(&self) {
        let (one, two) = (id(&self.one), id(&self.two));
        let slot = slot(&self.one);
        let (mut a, mut b) = (self.one.client(), self.two.client());
        b.text(&format!("CLUSTER SETSLOT {slot} IMPORTING {one}"));
        a.text(&format!("CLUSTER SETSLOT {slot} MIGRATING {two}"));
    }

    fn end_migration(&self) {
        let (two, slot) = (id(&self.two), slot(&self.one));
        for node in [&self.two, &self.one] {
            let mut c = node.client();
            c.text(&format!("CLUSTER SETSLOT {slot} NODE {two}"));
        }
    }
}

fn is_up(node: &Server) -> bool {
    let info = node.client().text("CLUSTER INFO");
    info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384")
}

fn id(node: &Server) -> String {
    node.client().text("CLUSTER MYID")
}

fn slot(node: &Server) -> i64 {
    node.client().int(&format!("CLUSTER KEYSLOT {KEY}"))
}

fn is_sent_away(waiter: Later) {
    match waiter.reply() {
        Reply::Error(error) => assert!(error.starts_with("TRYAGAIN "), "{error}"),
        other => panic!("{other:?}"),
    }
}

/// Nothing is left of the key on a node that has given it away.
fn assert_nothing_left(c: &mut Client) {
    // A key that has expired is dropped when the server comes to it.
    wait_for("the key to be dropped", || {
        (c.int("DBSIZE") == 0).then_some(())
    });
    assert_eq!(c.info("blocked_clients"), "0");
}

fn a_node_hands_on_as_any_server_does(kind: Kind) {
    let cluster = Cluster::start(kind, &[]);
    let mut c = cluster.one.client();
    for end in [
        "LOCK.RELEASE a a",
        "DEL a",
        "PEXPIRE a 20",
        "LOCK.RENEW a a 20",
        "FLUSHALL",
    ] {
        c.int("LOCK.ACQUIRE a a 60000");
        let b = cluster.one.blocked("LOCK.ACQUIRE a b 60000 BLOCK 0");
        let d = cluster.one.blocked("LOCK.ACQUIRE a d 60000 BLOCK 0");
        let e = cluster.one.blocked("LOCK.ACQUIRE a e 60000 BLOCK 50");
        c.call(end);
        b.fence();
        assert_eq!(e.reply(), Reply::Nil);
        // Granted and gone in one step.
        c.multi(&["LOCK.RELEASE a b", &format!("CLIENT KILL ID {}", d.id)]);
        d.broken();
        wait_for("the grant to be taken back", || {
            (c.call("LOCK.INFO a") == Reply::Nil).then_some(())
        });
    }
    let error = c.error(&format!("LOCK.ACQUIRE {OTHER_KEY} t 60000 BLOCK 0"));
    assert!(error.starts_with("MOVED "), "{error}");
}

fn a_key_that_migrates_takes_its_hold_along_and_sends_its_waiters_away(kind: Kind) {
    let cluster = Cluster::start(kind, &[]);
    let (mut c, mut other) = (cluster.one.client(), cluster.two.client());
    c.int("LOCK.ACQUIRE a a 60000");
    let b = cluster.one.blocked("LOCK.ACQUIRE a b 60000 BLOCK 0");
    let d = cluster.one.blocked("LOCK.ACQUIRE a d 60000 BLOCK 0");
    let e = cluster.one.blocked("RWLOCK.RLOCK a e 60000 BLOCK 15000");
    cluster.begin_to_migrate();
    // As long as the key is here the node serves it.
    c.int("LOCK.RELEASE a a");
    let fence = b.fence();
    assert!(d.is_pending() && e.is_pending());
    let migrated = c.text(&format!("MIGRATE 127.0.0.1 {} a 0 5000", cluster.two.port));
    assert_eq!(migrated, "OK");
    is_sent_away(d);
    is_sent_away(e);
    assert_nothing_left(&mut c);
    assert!(c.error("LOCK.INFO a").starts_with("ASK "));
    assert_eq!(other.text("ASKING"), "OK");
    assert_eq!(other.int("LOCK.RENEW a b 60000"), 1);
    cluster.end_migration();
    assert!(c.error("LOCK.RELEASE a b").starts_with("MOVED "));
    assert_eq!(other.int("LOCK.ACQUIRE a b 60000"), fence);
    let d = cluster.two.blocked("LOCK.ACQUIRE a d 60000 BLOCK 0");
    assert_eq!(other.int("LOCK.RELEASE a b"), 1);
    assert!(d.fence() > fence);
}

/// Behind the MIGRATE the key looks free to a command of the same transaction, which the server lets through.
fn a_key_that_migrates_in_a_transaction_is_not_handed_on_in_it(kind: Kind) {
    for then in [
        "LOCK.RELEASE a nobody",
        "LOCK.ACQUIRE a other 60000",
        "RWLOCK.RLOCK a other 60000",
        "LOCK.RENEW a a 60000",
    ] {
        let cluster = Cluster::start(kind, &[]);
        let (mut c, mut other) = (cluster.one.client(), cluster.two.client());
        let fence = c.int("LOCK.ACQUIRE a a 60000");
        let b = cluster.one.blocked("LOCK.ACQUIRE a b 60000 BLOCK 0");
        cluster.begin_to_migrate();
        let migrate = format!("MIGRATE 127.0.0.1 {} a 0 5000", cluster.two.port);
        let replies = c.in_one_go(&["MULTI", &migrate, then, "EXEC"]);
        let replies = replies[3].items();
        assert_eq!(replies[0], Reply::Simple("OK".into()));
        match &replies[1] {
            Reply::Error(error) => assert!(error.starts_with("TRYAGAIN "), "{then}: {error}"),
            reply => panic!("{then}: {reply:?}"),
        }
        is_sent_away(b);
        assert_nothing_left(&mut c);
        cluster.end_migration();
        assert_eq!(other.holders("a"), ["a"]);
        assert_eq!(other.int("LOCK.ACQUIRE a a 60000"), fence);
    }
    // A key that is free and here is taken as ever, behind one that has gone.
    let cluster = Cluster::start(kind, &[]);
    let mut c = cluster.one.client();
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

fn a_lock_that_ends_while_its_slot_migrates_sends_its_waiters_away(kind: Kind) {
    let cluster = Cluster::start(kind, &[]);
    let (mut c, mut other) = (cluster.one.client(), cluster.two.client());
    let fence = c.int("LOCK.ACQUIRE a a 1500");
    let b = cluster.one.blocked("LOCK.ACQUIRE a b 60000 BLOCK 0");
    let d = cluster.one.blocked("LOCK.ACQUIRE a d 60000 BLOCK 0");
    cluster.begin_to_migrate();
    is_sent_away(b);
    is_sent_away(d);
    assert!(c.error("LOCK.ACQUIRE a b 60000").starts_with("ASK "));
    assert_nothing_left(&mut c);
    other.text("ASKING");
    assert!(other.int("LOCK.ACQUIRE a b 60000") > fence);
}

fn a_slot_that_another_node_claims_sends_its_waiters_away(kind: Kind) {
    let cluster = Cluster::start(kind, &[]);
    let (mut c, mut other) = (cluster.one.client(), cluster.two.client());
    c.int("LOCK.ACQUIRE a a 60000");
    let b = cluster.one.blocked("LOCK.ACQUIRE a b 60000 BLOCK 0");
    let d = cluster.one.blocked("LOCK.ACQUIRE a d 60000 BLOCK 0");
    // Only the second node is told, and gossips it.
    let (slot, one, two) = (slot(&cluster.one), id(&cluster.one), id(&cluster.two));
    other.text(&format!("CLUSTER SETSLOT {slot} IMPORTING {one}"));
    other.text(&format!("CLUSTER SETSLOT {slot} NODE {two}"));
    is_sent_away(b);
    is_sent_away(d);
    assert_nothing_left(&mut c);
    other.int("LOCK.ACQUIRE a b 60000");
}

fn a_slot_that_nobody_serves_sends_its_waiters_away(kind: Kind) {
    let cluster = Cluster::start(kind, &["--cluster-require-full-coverage", "no"]);
    let mut c = cluster.one.client();
    c.int("LOCK.ACQUIRE a a 1500");
    let b = cluster.one.blocked("LOCK.ACQUIRE a b 60000 BLOCK 0");
    c.text(&format!("CLUSTER DELSLOTS {}", slot(&cluster.one)));
    assert!(c.error("LOCK.RELEASE a a").starts_with("CLUSTERDOWN "));
    is_sent_away(b);
    c.text(&format!("CLUSTER ADDSLOTS {}", slot(&cluster.one)));
    wait_for("the lock to be free", || {
        (c.call("LOCK.INFO a") == Reply::Nil).then_some(())
    });
    c.int("LOCK.ACQUIRE a b 60000");
}

/// The lock stays where it was, and its holder may be gone for long: who waits must not wait for that.
fn waiters_are_sent_away_from_a_key_that_stays_behind(kind: Kind) {
    let cluster = Cluster::start(kind, &["--cluster-require-full-coverage", "no"]);
    let (mut c, mut other) = (cluster.one.client(), cluster.two.client());
    let slot = slot(&cluster.one);
    c.int("LOCK.ACQUIRE a a 60000");
    let [b, d] = ["b", "d"].map(|token| {
        let line = format!("LOCK.ACQUIRE a {token} 60000 BLOCK 0");
        cluster.one.blocked(&line)
    });
    // As an operator does who gives the locks up.
    for node in [&cluster.one, &cluster.two] {
        node.client().call(&format!("CLUSTER DELSLOTS {slot}"));
    }
    other.text(&format!("CLUSTER ADDSLOTS {slot}"));
    is_sent_away(b);
    is_sent_away(d);
    assert_eq!(c.info("blocked_clients"), "0");
    let e = cluster.two.later("LOCK.ACQUIRE a e 60000 BLOCK 0");
    e.fence();
}

fn a_cluster_that_is_down_grants_nobody(kind: Kind) {
    let Cluster { one, mut two } = Cluster::start(kind, &["--cluster-node-timeout", "1000"]);
    let mut c = one.client();
    c.int("LOCK.ACQUIRE a a 60000");
    let b = one.blocked("LOCK.ACQUIRE a b 60000 BLOCK 0");
    let d = one.blocked("LOCK.ACQUIRE a d 60000 BLOCK 0");
    two.kill();
    wait_for("the cluster to be down", || (!is_up(&one)).then_some(()));
    assert!(c.error("LOCK.RELEASE a a").starts_with("CLUSTERDOWN "));
    // Something ends the lock that needs no slot.
    c.text("FLUSHALL");
    for waiter in [b, d] {
        match waiter.reply() {
            // The module's word or the server's own, whichever looks first.
            Reply::Error(e) => assert!(e.starts_with("TRYAGAIN ") || e.starts_with("CLUSTERDOWN ")),
            other => panic!("{other:?}"),
        }
    }
    assert_nothing_left(&mut c);
}
