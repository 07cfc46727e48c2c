//! Places in a cluster: shard channels, and slots that leave.

use super::fixture::{figure, leaves_place, place, places, queued, Subscriber};
use crate::harness::{wait_for, Client, Cluster, Kind, Listener, Reply, SHARDS};
use crate::linger::{holder, kill};

on_every_server![
    places_in_a_cluster,
    a_node_without_pubsub_counts_the_receivers,
];

const FROM: usize = 0;
const TO: usize = 1;

/// One cluster for all, because it takes a while to start.
fn places_in_a_cluster(kind: Kind) {
    let cluster = Cluster::start(kind);
    let [key] = &cluster.keys_of(FROM, 1)[..] else {
        panic!("a key");
    };
    let mut c = cluster.client(FROM);
    a_place_is_kept(&mut c, key);
    a_channel_must_be_in_the_slot(&cluster, &mut c, key);
    a_shard_channel_hears(&cluster, &mut c, key);
    other_subscribers_do_not_count(&cluster, &mut c, key);
    a_subscriber_at_a_replica_hears_no_grant(&cluster, &mut c, key);
    waiters_are_told_when_their_slot_leaves(&cluster, key, Way::KeyByKey);
    if kind == Kind::Valkey9 {
        goes_back(&cluster, key);
        waiters_are_told_when_their_slot_leaves(&cluster, key, Way::AsAWhole);
    }
}

fn a_place_is_kept(c: &mut Client, key: &str) {
    c.int(&format!("LOCK.ACQUIRE {key} a 60000"));
    leaves_place(c, &format!("LOCK.ACQUIRE {key} b 60000 KEEP 60000"));
    c.int(&format!("LOCK.RELEASE {key} a"));
    assert_eq!(c.mode(key), "free");
    c.int(&format!("LOCK.ACQUIRE {key} b 60000"));
    leaves_place(c, &format!("LOCK.ACQUIRE {key} d 60000 KEEP 500"));
    c.int(&format!("LOCK.RELEASE {key} b"));
    c.until_waiters(key, &[]);
}

fn a_channel_must_be_in_the_slot(cluster: &Cluster, c: &mut Client, key: &str) {
    let elsewhere = cluster.keys_of(TO, 1).remove(0);
    for is_held in [false, true] {
        if is_held {
            c.int(&format!("LOCK.ACQUIRE {key} a 60000"));
        }
        for channel in [elsewhere.as_str(), "{other}c"] {
            let line = format!("LOCK.ACQUIRE {key} b 60000 NOTIFY 0 {channel}");
            c.refused(&line, "CROSSSLOT");
        }
        let info = c.call(&format!("LOCK.INFO {key}"));
        assert_eq!(info == Reply::Nil, !is_held);
    }
    c.int(&format!("LOCK.RELEASE {key} a"));
}

fn a_shard_channel_hears(cluster: &Cluster, c: &mut Client, key: &str) {
    let channel = format!("{{{key}}}:c");
    let mut sub = Subscriber::new(&cluster.nodes[FROM], &format!("SSUBSCRIBE {channel}"));
    c.int(&format!("LOCK.ACQUIRE {key} a 60000"));
    queued(
        c,
        &format!("LOCK.ACQUIRE {key} b 60000 NOTIFY 0 {channel} KEEP 60000"),
    );
    assert_eq!(
        place(c, key, "b").listener,
        Listener::Channel(channel.clone())
    );
    c.int(&format!("LOCK.RELEASE {key} a"));
    sub.fence(key, "b");
    queued(
        c,
        &format!("LOCK.ACQUIRE {key} d 60000 NOTIFY 10 {channel}"),
    );
    assert_eq!(sub.text(), format!("timeout 0 {} {key} d", key.len()));
    c.int(&format!("LOCK.RELEASE {key} b"));
    assert_eq!(sub.so_far(), [""; 0]);
}

/// A subscriber by SUBSCRIBE or PSUBSCRIBE hears no shard channel.
fn other_subscribers_do_not_count(cluster: &Cluster, c: &mut Client, key: &str) {
    // Another one than before: the server may not know yet that its subscriber has gone.
    let channel = format!("{{{key}}}:other");
    let mut sub = Subscriber::new(&cluster.nodes[FROM], &format!("SUBSCRIBE {channel}"));
    sub.subscribe("PSUBSCRIBE *");
    let unheard = figure(c, "unheard");
    c.int(&format!("LOCK.ACQUIRE {key} a 60000"));
    queued(c, &format!("LOCK.ACQUIRE {key} b 60000 NOTIFY 0 {channel}"));
    c.int(&format!("LOCK.RELEASE {key} a"));
    assert_eq!(c.call(&format!("LOCK.INFO {key}")), Reply::Nil);
    assert_eq!(figure(c, "unheard"), unheard + 1);
    assert_eq!(sub.so_far(), [""; 0]);
}

/// Publishes a mark until the subscriber hears it: nodes send each other messages only while they are
/// connected. Answers what else it has heard by then. No two marks of a channel may be the same.
#[track_caller]
fn heard_by(c: &mut Client, sub: &mut Subscriber, channel: &str, mark: &str) -> Vec<String> {
    let mut heard = Vec::new();
    wait_for(&format!("{mark} to arrive"), || {
        c.int(&format!("SPUBLISH {channel} mark:{mark}"));
        heard.extend(sub.so_far());
        heard.contains(&format!("mark:{mark}")).then_some(())
    });
    heard.retain(|text| !text.starts_with("mark:"));
    heard
}

/// A replica takes SSUBSCRIBE, and gets all messages of the shard.
fn a_subscriber_at_a_replica_hears_no_grant(cluster: &Cluster, c: &mut Client, key: &str) {
    // On a channel of its own: other messages may still be on their way to the replica.
    let channel = format!("{{{key}}}:replica");
    let line = format!("SSUBSCRIBE {channel}");
    let mut sub = Subscriber::new(&cluster.nodes[FROM + SHARDS], &line);
    assert_eq!(heard_by(c, &mut sub, &channel, "begin"), [""; 0]);
    let unheard = figure(c, "unheard");
    let all = [
        format!("LOCK.ACQUIRE {key} b 60000 NOTIFY 0 {channel} KEEP 60000"),
        format!("LOCK.MACQUIRE 2 {key} {{{key}}}2 b 60000 NOTIFY 0 {channel} KEEP 60000"),
    ];
    for (n, ask) in all.iter().enumerate() {
        c.int(&format!("LOCK.ACQUIRE {key} a 60000"));
        queued(c, ask);
        c.int(&format!("LOCK.RELEASE {key} a"));
        assert_eq!(c.mode(key), "free");
        assert!(place(c, key, "b").is_absent());
        assert_eq!(
            heard_by(c, &mut sub, &channel, &format!("absent-{n}")),
            [""; 0]
        );
        // Its token gives the place up.
        c.int(&format!("LOCK.RELEASE {key} b"));
    }
    assert_eq!(figure(c, "unheard"), unheard + 2);
    // It hears what others hear.
    let mut local = Subscriber::new(&cluster.nodes[FROM], &line);
    for (n, ask) in all.iter().enumerate() {
        c.int(&format!("LOCK.ACQUIRE {key} a 60000"));
        queued(c, ask);
        c.int(&format!("LOCK.RELEASE {key} a"));
        let fence = local.fence(key, "b");
        assert_eq!(c.int(&format!("LOCK.CHECK {key} b")), fence);
        let text = format!("granted {fence} {} {key} b", key.len());
        assert_eq!(
            heard_by(c, &mut sub, &channel, &format!("granted-{n}")),
            [text]
        );
        local.so_far();
        c.int(&format!("LOCK.RELEASE {key} b"));
        c.call(&format!("LOCK.RELEASE {{{key}}}2 b"));
    }
}

/// How a slot leaves a node.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    KeyByKey,
    AsAWhole,
}

/// A waiter of each kind, and a hold that is bound to its connection.
fn waiters_are_told_when_their_slot_leaves(cluster: &Cluster, key: &str, way: Way) {
    let [one, two, bound] = ["one", "two", "bound"].map(|name| format!("{{{key}}}:{name}"));
    let (mut c, mut to) = (cluster.client(FROM), cluster.client(TO));
    c.int(&format!("LOCK.ACQUIRE {key} a 60000"));
    leaves_place(
        &mut c,
        &format!("LOCK.ACQUIRE {key} absent 60000 KEEP 60000"),
    );
    let mut sub = Subscriber::new(&cluster.nodes[FROM], &format!("SSUBSCRIBE {key}"));
    queued(
        &mut c,
        &format!("LOCK.ACQUIRE {key} notified 60000 NOTIFY 0 {key} KEEP 60000"),
    );
    let line = format!("LOCK.ACQUIRE {key} blocked 60000 BLOCK 0 KEEP 60000");
    let blocked = cluster.blocked(FROM, &line);
    c.int(&format!("LOCK.MACQUIRE 2 {one} {two} you 60000"));
    let both = format!("LOCK.MACQUIRE 2 {one} {two} me 60000");
    let several = cluster.nodes[FROM].blocked(&format!("{both} BLOCK 0"));
    let line = format!("LOCK.ACQUIRE {bound} me 600000 LINGER 0");
    let lingers = holder(&cluster.nodes[FROM], &line);
    assert_eq!(c.info("lock_held_bound"), "1");

    let slot = cluster.slot(key);
    if way == Way::KeyByKey {
        cluster.begin_to_move(slot, FROM, TO);
    }
    // One of the keys is free now, and the other one leaves.
    c.int(&format!("DEL {one}"));
    if way == Way::KeyByKey {
        assert_eq!(cluster.move_keys(slot, FROM, TO), 3);
        blocked.error("TRYAGAIN ");
        several.error("TRYAGAIN ");
        let text = format!("tryagain 0 {} {key} notified", key.len());
        assert_eq!(sub.text(), text);
    } else {
        cluster.begin_to_migrate([slot, slot], FROM, TO);
        cluster.end_of_migration(FROM, TO);
        // The server ends the waits and the subscription, too: either tells them.
        for waiter in [blocked, several] {
            waiter.error_of(&["TRYAGAIN ", "UNBLOCKED ", "MOVED "]);
        }
    }
    c.until_info("lock_waiters", "0");
    c.until_info("lock_held_bound", "0");
    if way == Way::KeyByKey {
        cluster.end_of_move(slot, FROM, TO);
        cluster.wait_until_all_agree();
    }
    kill(&mut c, &lingers);
    // The holds live on at the new owner, and nobody waits for them there.
    assert_eq!(to.holders(key), ["a"]);
    assert_eq!(places(&mut to, key), []);
    assert_eq!(to.int(&format!("LOCK.RENEW {bound} me 600000")), 1);
    assert_eq!(to.info("lock_held_bound"), "0");
    // The request for two keys was granted none of them on either node.
    assert_eq!(to.holders(&two), ["you"]);
    assert_eq!(to.call(&both), Reply::Nil);
    to.int(&format!("LOCK.RELEASE {two} you"));
    assert!(to.int(&both) > 0);
    to.int(&format!("DEL {key} {one} {two} {bound}"));
}

fn goes_back(cluster: &Cluster, key: &str) {
    let slot = cluster.slot(key);
    cluster.begin_to_move(slot, TO, FROM);
    cluster.end_of_move(slot, TO, FROM);
    cluster.wait_until_all_agree();
    let mut c = cluster.client(FROM);
    assert_eq!(c.call(&format!("LOCK.INFO {key}")), Reply::Nil);
}

/// It cannot tell a subscriber of its own from one at a replica, and grants as outside of a cluster.
fn a_node_without_pubsub_counts_the_receivers(kind: Kind) {
    let server = Cluster::node(kind, &["--rename-command", "PUBSUB", ""]);
    let mut c = server.client();
    c.refused("PUBSUB SHARDNUMSUB", "ERR unknown command");
    let mut sub = Subscriber::new(&server, "SSUBSCRIBE {k}c");
    c.int("LOCK.ACQUIRE k a 60000");
    queued(
        &mut c,
        "LOCK.ACQUIRE k b 60000 NOTIFY 0 {k}nobody KEEP 60000",
    );
    queued(&mut c, "LOCK.ACQUIRE k d 60000 NOTIFY 0 {k}c");
    c.int("LOCK.RELEASE k a");
    assert!(place(&mut c, "k", "b").is_absent());
    c.int("LOCK.RELEASE k b");
    sub.fence("k", "d");
    assert_eq!(c.holders("k"), ["d"]);
}
