//! Replicas under load. Whatever happens to the links or a replica, in the end they have the same
//! data as the primary: value, ttl and fence of every key.

use crate::harness::mixed_load::{self, LoadTotals};
use crate::harness::{figure, scale, Kind, Server, AT_ONCE};

mod diskless;
mod reading;
mod restarts;
mod resync;

use resync::STAYS_FREE;

on_every_server![
    the_effects_of_many_clients_reach_a_replica,
    the_effects_of_many_clients_reach_a_replica_of_a_replica,
];

/// A primary that synchronizes its replicas without delay, and resynchronizes them from its backlog
/// when their links have broken.
pub fn primary(kind: Kind) -> Server {
    let backlog = ["--repl-backlog-size", "64mb"];
    Server::start_with(kind, &[&AT_ONCE[..], &backlog].concat())
}

/// The number of full and of partial synchronizations.
fn syncs(primary: &Server) -> (usize, usize) {
    let mut c = primary.client();
    let mut count = |field| c.info(field).parse().unwrap();
    (count("sync_full"), count("sync_partial_ok"))
}

fn the_effects_of_many_clients_reach_a_replica(kind: Kind) {
    let primary = primary(kind);
    let replica = Server::start_replica_of(&primary, &[]);
    let (mut totals, mut keys) = (LoadTotals::default(), 0);
    let rounds = 8 * scale();
    for seed in 0..rounds {
        totals.add(&mixed_load::run(&primary, seed as u64, 12_600, || ()));
        keys += replica.assert_same_as(&primary, &format!("seed {seed}"));
    }
    assert!(totals.ops >= 100_000 * scale(), "{totals:?}");
    assert!(keys > 20 * scale(), "only {keys} keys were compared");
    assert_eq!(syncs(&primary), (1, 0), "the link has never broken");
    let LoadTotals { ops, waited, .. } = totals;
    figure(kind, &format!("{ops} operations, {waited} of them grants to waiters; {keys} keys compared in {rounds} digests, none differs"));
}

fn the_effects_of_many_clients_reach_a_replica_of_a_replica(kind: Kind) {
    let primary = primary(kind);
    let middle = Server::start_replica_of(&primary, &[&AT_ONCE[..], &STAYS_FREE].concat());
    let last = Server::start_replica_of(&middle, &STAYS_FREE);
    let totals = mixed_load::run(&primary, 200, 6_000 * scale(), || {
        for _ in 0..2 {
            primary.client().call("CLIENT KILL TYPE replica");
            middle.wait_until_link_is_up();
            middle.client().call("CLIENT KILL TYPE replica");
            last.wait_until_link_is_up();
        }
    });
    middle.assert_same_as(&primary, "in the middle");
    last.assert_same_as(&middle, "at the end");
    // The middle server continues alone, and the last one follows it.
    middle.stand_alone();
    last.wait_until_link_is_up();
    let next = middle.client().int("LOCK.ACQUIRE new me 600000");
    assert!(next > totals.largest_fence);
    last.assert_same_as(&middle, "after the promotion");
    assert_eq!(syncs(&primary), (1, 2));
    let (full, partial) = syncs(&middle);
    assert!(full == 1 && partial >= 2, "{full} {partial}");
    figure(
        kind,
        &format!("{} operations over 4 broken links", totals.ops),
    );
}
