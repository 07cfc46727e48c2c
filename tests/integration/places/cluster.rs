//! Places in a cluster: shard channels, and slots that leave.

use std::time::{Duration, Instant};

use super::fixture::{
    figure, leaves_place, mode, place, places, queued, until_gone, Listener, Subscriber,
};
use crate::harness::{wait_for, Client, Cluster, Kind, Reply};

on_every_server![places_in_a_cluster];

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
    if kind.is_7_0_or_later() {
        a_channel_must_be_in_the_slot(&cluster, &mut c, key);
        a_shard_channel_hears(&cluster, &mut c, key);
        other_subscribers_do_not_count(&cluster, &mut c, key);
    } else {
        notify_is_refused(&mut c, key);
    }
    places_end_with_their_slot(kind, &cluster, key);
    if kind == Kind::Valkey9 {
        places_end_with_a_slot_that_moves_as_a_whole(&cluster, key);
    }
}

fn a_place_is_kept(c: &mut Client, key: &str) {
    c.int(&format!("LOCK.ACQUIRE {key} a 60000"));
    leaves_place(c, &format!("LOCK.ACQUIRE {key} b 60000 KEEP 60000"));
    c.int(&format!("LOCK.RELEASE {key} a"));
    assert_eq!(mode(c, key), "free");
    c.int(&format!("LOCK.ACQUIRE {key} b 60000"));
    leaves_place(c, &format!("LOCK.ACQUIRE {key} d 60000 KEEP 40"));
    c.int(&format!("LOCK.RELEASE {key} b"));
    until_gone(c, key, "d");
}

fn notify_is_refused(c: &mut Client, key: &str) {
    c.int(&format!("LOCK.ACQUIRE {key} a 60000"));
    for channel in ["c", key] {
        let error = c.error(&format!("LOCK.ACQUIRE {key} b 60000 NOTIFY 0 {channel}"));
        assert!(error.starts_with("ERR "), "{error}");
    }
    c.int(&format!("LOCK.RELEASE {key} a"));
    let error = c.error(&format!("LOCK.ACQUIRE {key} b 60000 NOTIFY 0 {key}"));
    assert!(error.starts_with("ERR "), "{error}");
    assert_eq!(c.call(&format!("LOCK.INFO {key}")), Reply::Nil);
}

fn a_channel_must_be_in_the_slot(cluster: &Cluster, c: &mut Client, key: &str) {
    let elsewhere = cluster.keys_of(TO, 1).remove(0);
    for is_held in [false, true] {
        if is_held {
            c.int(&format!("LOCK.ACQUIRE {key} a 60000"));
        }
        for channel in [elsewhere.as_str(), "{other}c"] {
            let line = format!("LOCK.ACQUIRE {key} b 60000 NOTIFY 0 {channel}");
            let error = c.error(&line);
            assert!(error.starts_with("CROSSSLOT"), "{line}: {error}");
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
    let channel = format!("{{{key}}}:c");
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

/// Takes one place of each kind. Answers with the client that blocks, and the subscriber.
fn take_places(
    kind: Kind,
    cluster: &Cluster,
    node: usize,
    key: &str,
) -> (crate::harness::Later, Option<Subscriber>) {
    let mut c = cluster.client(node);
    c.int(&format!("LOCK.ACQUIRE {key} a 60000"));
    leaves_place(
        &mut c,
        &format!("LOCK.ACQUIRE {key} absent 60000 KEEP 60000"),
    );
    let sub = kind.is_7_0_or_later().then(|| {
        let sub = Subscriber::new(&cluster.nodes[node], &format!("SSUBSCRIBE {key}"));
        queued(
            &mut c,
            &format!("LOCK.ACQUIRE {key} notified 60000 NOTIFY 0 {key} KEEP 60000"),
        );
        sub
    });
    let line = format!("LOCK.ACQUIRE {key} blocked 60000 BLOCK 0 KEEP 60000");
    (cluster.blocked(node, &line), sub)
}

fn is_told_to_try_again(blocked: crate::harness::Later) {
    match blocked.reply() {
        Reply::Error(error) => {
            let words = ["TRYAGAIN ", "UNBLOCKED ", "MOVED "];
            assert!(words.iter().any(|word| error.starts_with(word)), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

fn no_place_is_left(cluster: &Cluster, node: usize) {
    let mut c = cluster.client(node);
    wait_for("all places to end", || {
        (figure(&mut c, "waiters") == 0).then_some(())
    });
}

fn places_end_with_their_slot(kind: Kind, cluster: &Cluster, key: &str) {
    let (blocked, sub) = take_places(kind, cluster, FROM, key);
    let slot = cluster.slot(key);
    cluster.begin_to_move(slot, FROM, TO);
    cluster.move_keys(slot, FROM, TO);
    is_told_to_try_again(blocked);
    if let Some(mut sub) = sub {
        let text = format!("tryagain 0 {} {key} notified", key.len());
        assert_eq!(sub.text(), text);
    }
    no_place_is_left(cluster, FROM);
    cluster.end_of_move(slot, FROM, TO);
    cluster.wait_until_all_agree();
    // The hold lives on at the new owner, and nobody waits for it there.
    let mut to = cluster.client(TO);
    assert_eq!(to.holders(key), ["a"]);
    assert_eq!(places(&mut to, key), []);
    to.int(&format!("LOCK.RELEASE {key} a"));
    // And the slot goes back.
    cluster.begin_to_move(slot, TO, FROM);
    cluster.move_keys(slot, TO, FROM);
    cluster.end_of_move(slot, TO, FROM);
    cluster.wait_until_all_agree();
    assert_eq!(
        cluster.client(FROM).call(&format!("LOCK.INFO {key}")),
        Reply::Nil
    );
    a_free_lock_that_leaves(cluster, key);
}

/// No key moves: only places were there.
fn a_free_lock_that_leaves(cluster: &Cluster, key: &str) {
    let mut c = cluster.client(FROM);
    c.int(&format!("LOCK.ACQUIRE {key} a 60000"));
    leaves_place(
        &mut c,
        &format!("LOCK.ACQUIRE {key} absent 60000 KEEP 60000"),
    );
    let line = format!("LOCK.ACQUIRE {key} blocked 60000 BLOCK 0 KEEP 60000");
    let blocked = cluster.blocked(FROM, &line);
    c.int(&format!("LOCK.RELEASE {key} a"));
    assert!(blocked.is_pending());
    let slot = cluster.slot(key);
    cluster.begin_to_move(slot, FROM, TO);
    assert_eq!(cluster.move_keys(slot, FROM, TO), 0);
    cluster.end_of_move(slot, FROM, TO);
    let start = Instant::now();
    is_told_to_try_again(blocked);
    no_place_is_left(cluster, FROM);
    assert!(start.elapsed() < Duration::from_secs(5));
    cluster.wait_until_all_agree();
    // Back again.
    cluster.begin_to_move(slot, TO, FROM);
    cluster.end_of_move(slot, TO, FROM);
    cluster.wait_until_all_agree();
    assert_eq!(c.call(&format!("LOCK.INFO {key}")), Reply::Nil);
}

fn places_end_with_a_slot_that_moves_as_a_whole(cluster: &Cluster, key: &str) {
    let (blocked, sub) = take_places(Kind::Valkey9, cluster, FROM, key);
    let slot = cluster.slot(key);
    cluster.begin_to_migrate([slot, slot], FROM, TO);
    cluster.end_of_migration(FROM, TO);
    is_told_to_try_again(blocked);
    no_place_is_left(cluster, FROM);
    // The server ends the subscription, too: either tells the subscriber.
    drop(sub);
    let mut to = cluster.client(TO);
    assert_eq!(to.holders(key), ["a"]);
    assert_eq!(places(&mut to, key), []);
}
