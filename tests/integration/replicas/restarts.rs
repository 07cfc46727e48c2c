//! Replicas that end and restart while the primary is under load.

use std::fs;

use super::{primary, syncs};
use crate::harness::mixed_load;
use crate::harness::{figure, scale, Kind, Server};

on_every_server![
    a_replica_killed_under_load_catches_up,
    a_replica_shut_down_under_load_resumes_by_partial_resync,
];

fn a_replica_killed_under_load_catches_up(kind: Kind) {
    let primary = primary(kind);
    let mut replica = Server::start_replica_of(&primary, &[]);
    let rounds = scale();
    let totals = mixed_load::run(&primary, 400, 6_000 * scale(), || {
        for _ in 0..rounds {
            // With the file of its synchronization, and with nothing.
            for keeps_its_file in [true, false] {
                replica.kill();
                if !keeps_its_file {
                    fs::remove_file(replica.dir().join("dump.rdb")).unwrap();
                }
                replica.start_again();
                replica.wait_until_link_is_up();
            }
        }
    });
    replica.assert_same_as(&primary, "after the kills");
    assert_eq!(syncs(&primary), (1 + rounds, rounds));
    let kills = 2 * rounds;
    figure(
        kind,
        &format!("{kills} kills of a replica under {} operations", totals.ops),
    );
}

fn a_replica_shut_down_under_load_resumes_by_partial_resync(kind: Kind) {
    let primary = primary(kind);
    let mut replica = Server::start_replica_of(&primary, &[]);
    let restarts = 2 * scale();
    let totals = mixed_load::run(&primary, 410, 6_000 * scale(), || {
        for _ in 0..restarts {
            replica.shut_down_saving();
            replica.start_again();
            replica.wait_until_link_is_up();
        }
    });
    replica.assert_same_as(&primary, "after the restarts");
    // Its RDB records how far it had followed.
    assert_eq!(syncs(&primary), (1, restarts));
    let next = {
        replica.stand_alone();
        replica.client().int("LOCK.ACQUIRE new me 600000")
    };
    assert!(next > totals.largest_fence);
    figure(
        kind,
        &format!(
            "{restarts} shutdowns of a replica under {} operations",
            totals.ops
        ),
    );
}
