//! Fences over a change of the primary. The new ones are larger than all that the old primary gave,
//! also those that were not replicated, even if the clock of the new primary is behind.

use crate::harness::dump::raise_fences_by_an_hour;
use crate::harness::workload::words;
use crate::harness::{figure, scale, start_by, wait_for, Client, Clock, Kind, Server, AT_ONCE};

on_every_server![
    fences_exceed_unreplicated_ones_after_a_failover,
    fences_ahead_of_the_clock_exceed_unreplicated_ones_after_a_failover,
];

fn replica_of(primary: &Server, clock: &Clock) -> Server {
    let replica = start_by(clock, primary.kind, &[]);
    replica.follow(primary);
    replica.wait_until_it_follows(primary);
    replica
}

/// Acquires this many locks at once, and releases them. Returns the largest fence.
fn take(c: &mut Client, count: usize) -> i64 {
    let lines = (0..count).map(|n| format!("LOCK.ACQUIRE k{n} me 600000"));
    let replies = c.pipeline(&lines.map(|line| words(&line)).collect::<Vec<_>>());
    c.call("FLUSHALL");
    replies.iter().map(|reply| reply.as_int()).max().unwrap()
}

/// The link breaks, and the primary gives fences. The replica is promoted a moment later, before
/// its clock reaches the primary's clock at that time.
fn fences_exceed_unreplicated_ones_after_a_failover(kind: Kind) {
    let primary = Server::start_with(kind, &AT_ONCE);
    let mut c = primary.client();
    let (mut fences, mut promotions) = (0, 0);
    for _ in 0..scale() {
        let replicas = [50_000, 50_000, 900_000].map(|behind_us| {
            let clock = Clock::ahead_by_us(-behind_us);
            let replica = replica_of(&primary, &clock);
            (behind_us, replica, clock)
        });
        // All servers have run for longer than they began ahead.
        let started = c.now_us();
        wait_for("a second", || {
            (c.now_us() > started + 1_050_000).then_some(())
        });
        primary.client().until_fences_follow_the_clock();
        for (behind_us, replica, _clock) in replicas {
            let mut r = replica.client();
            take(&mut c, 50); // which it receives
            replica.wait_until_it_follows(&primary);
            r.text("REPLICAOF 127.0.0.1 1");
            let last = take(&mut c, 200);
            r.text("REPLICAOF NO ONE");
            let next = r.int("LOCK.ACQUIRE new me 600000");
            assert!(next > last, "{behind_us}: {next} after {last}");
            // It is also ahead of the fence that the old primary would give now.
            assert!(next > c.int("LOCK.ACQUIRE late me 600000"));
            c.call("FLUSHALL");
            (fences, promotions) = (fences + 200, promotions + 1);
        }
    }
    figure(kind, &format!("{promotions} promotions by a clock 50 or 900 ms behind, {fences} fences given before them and not replicated, all smaller than the next"));
}

/// Once fences are ahead of the clock, they increase by one, and no clock helps.
fn fences_ahead_of_the_clock_exceed_unreplicated_ones_after_a_failover(kind: Kind) {
    let primary = Server::start_with(kind, &AT_ONCE);
    let mut c = primary.client();
    raise_fences_by_an_hour(&mut c);
    let replica = Server::start_replica_of(&primary, &AT_ONCE);
    let mut r = replica.client();
    for round in 0..3 {
        r.text("REPLICAOF 127.0.0.1 1");
        let last = take(&mut c, 5_000);
        r.text("REPLICAOF NO ONE");
        let next = take(&mut r, 1);
        assert!(next > last, "{round}: {next} after {last}");
        // Back and forth: the former new primary is behind now.
        primary.follow(&replica);
        primary.wait_until_it_follows(&replica);
        c.text("REPLICAOF 127.0.0.1 1");
        let last = take(&mut r, 5_000);
        c.text("REPLICAOF NO ONE");
        let next = take(&mut c, 1);
        assert!(next > last, "{round}: {next} after {last}");
        replica.follow(&primary);
        replica.wait_until_it_follows(&primary);
    }
}
