//! Links that break under load: which are resynchronized from the backlog, and which need a full
//! synchronization.

use super::{primary, syncs};
use crate::harness::mixed_load;
use crate::harness::{figure, scale, Kind, Server};

on_every_server![
    a_cut_link_is_resynchronized_from_the_backlog,
    a_replica_beyond_the_backlog_gets_a_full_synchronization,
];

/// While another thread frees the data of a FLUSHDB, Redis 8 makes the primary's link wait, and
/// loses its offset if the link then breaks. With this setting it does not.
pub const STAYS_FREE: [&str; 2] = ["--lazyfree-lazy-user-flush", "yes"];

/// The number of times that the link is broken.
const CUTS: usize = 4;

fn a_cut_link_is_resynchronized_from_the_backlog(kind: Kind) {
    let primary = primary(kind);
    let replica = Server::start_replica_of(&primary, &STAYS_FREE);
    let cuts = CUTS * scale();
    let totals = mixed_load::run(&primary, 300, 6_000 * scale(), || {
        let mut c = primary.client();
        for _ in 0..cuts {
            c.until("CLIENT KILL TYPE replica", 1);
        }
    });
    replica.assert_same_as(&primary, "after the cuts");
    assert_eq!(syncs(&primary), (1, cuts));
    let ops = totals.ops;
    figure(
        kind,
        &format!("{cuts} cuts under {ops} operations, {cuts} partial resyncs"),
    );
}

fn a_replica_beyond_the_backlog_gets_a_full_synchronization(kind: Kind) {
    let primary = primary(kind);
    primary.client().text("CONFIG SET repl-backlog-size 16384");
    let replica = Server::start_replica_of(&primary, &[]);
    let rounds = 2 * scale();
    for round in 0..rounds {
        replica.lose_primary();
        // It still has its former data, which is no longer the primary's.
        mixed_load::run(&primary, 320 + round as u64, 6_000, || ());
        replica.follow(&primary);
        replica.assert_same_as(&primary, "after a full synchronization");
    }
    assert_eq!(syncs(&primary), (1 + rounds, 0));
    figure(
        kind,
        &format!("{rounds} full resyncs after more than the backlog"),
    );
}
