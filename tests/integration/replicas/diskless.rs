//! Full synchronizations under load, by every transfer method, and one that breaks off.

use std::thread;

use super::{primary, syncs};
use crate::harness::dump::raise_fences_by_an_hour;
use crate::harness::mixed_load;
use crate::harness::{figure, scale, wait_for, Kind, Reply, Server, State};

on_every_server![
    every_way_of_synchronizing_works_under_load,
    an_aborted_synchronization_keeps_the_old_data_set,
];

/// Whether the primary is diskless, how the replica loads, and the messages in its log.
const WAYS: [(&str, &str, &str); 4] = [
    ("no", "disabled", "to disk"),
    ("yes", "disabled", "to disk"),
    ("yes", "swapdb", "to parser"),
    ("yes", "on-empty-db", "to parser"),
];

fn every_way_of_synchronizing_works_under_load(kind: Kind) {
    // All at once, because most of the time is spent waiting.
    thread::scope(|scope| {
        let ways = WAYS.map(|way| scope.spawn(move || arrives_by(way, kind)));
        ways.into_iter().for_each(|way| way.join().unwrap());
    });
    let syncs = 2 * WAYS.len();
    figure(
        kind,
        &format!("{syncs} full resyncs under load, in {} ways", WAYS.len()),
    );
}

fn arrives_by((diskless, load, says): (&str, &str, &str), kind: Kind) {
    let primary = primary(kind);
    let way = format!("diskless {diskless}, load {load}");
    let set = format!("CONFIG SET repl-diskless-sync {diskless}");
    primary.client().text(&set);
    let replica = Server::start_with(kind, &["--repl-diskless-load", load]);
    mixed_load::run(&primary, 500, 3_000 * scale(), || {
        replica.follow(&primary);
        replica.wait_until_link_is_up();
    });
    replica.assert_same_as(&primary, &way);
    assert!(replica.log().contains(says), "{way}:\n{}", replica.log());
    // Once more, with existing data.
    replica.stand_alone();
    replica.client().int("LOCK.ACQUIRE mine me 600000");
    mixed_load::run(&primary, 501, 3_000 * scale(), || {
        replica.follow(&primary);
        replica.wait_until_link_is_up();
    });
    replica.assert_same_as(&primary, &way);
    assert_eq!(syncs(&primary), (2, 0), "{way}");
}

fn an_aborted_synchronization_keeps_the_old_data_set(kind: Kind) {
    let old = primary(kind);
    let mut c = old.client();
    let held = c.int("LOCK.ACQUIRE held me 600000");
    for n in 0..20 {
        c.int(&format!("RWLOCK.RLOCK shared reader{n} 600000"));
    }
    let ahead = raise_fences_by_an_hour(&mut c);
    let replica = Server::start_replica_of(&old, &["--repl-diskless-load", "swapdb"]);
    let before = State::of(&mut replica.client());
    let shown = replica.client().steady_info("shared");

    // Another primary, which sends a large key every 10 ms, so that each is transferred separately.
    let new = primary(kind);
    let mut n = new.client();
    for key in 0..200 {
        n.int(&format!("LOCK.ACQUIRE other{key} me 600000"));
    }
    n.text("DEBUG POPULATE 100 big 300000");
    n.text("CONFIG SET repl-diskless-sync yes");
    // With its own channel, which Redis 8 has, a forked process continues to send after the primary
    // is gone.
    n.call("CONFIG SET repl-rdb-channel no");
    n.text("CONFIG SET rdbcompression no");
    n.text("CONFIG SET rdb-key-save-delay 10000");
    replica.follow(&new);
    let mut r = replica.client();
    wait_for("the data set to come", || {
        let info = r.text("INFO persistence");
        let loading = info.contains("\nloading:1") || info.contains("\nasync_loading:1");
        loading.then_some(())
    });
    drop(new);
    wait_for("it to break off", || {
        let info = r.text("INFO persistence");
        let loading = info.contains("\nloading:1") || info.contains("\nasync_loading:1");
        (!loading).then_some(())
    });
    replica.lose_primary();
    State::of(&mut r).assert_same(&before, "after half a data set");
    assert_eq!(r.steady_info("shared"), shown);
    r.text("REPLICAOF NO ONE");
    assert_eq!(r.int("LOCK.ACQUIRE held me 600000"), held);
    assert_eq!(r.call("LOCK.ACQUIRE held you 600000"), Reply::Nil);
    assert!(r.int("LOCK.ACQUIRE next me 600000") > ahead);
}
