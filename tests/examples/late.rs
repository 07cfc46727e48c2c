//! Owners that are too late: stopped past their ttl, or dead.

use std::time::{Duration, Instant};

use crate::bed::{Bed, LOCK};
use crate::harness::wait_for;
use crate::proxy::{Fate, Proxy};
use crate::worker::Worker;

with_every_worker![
    writes_nothing_after_a_stop_past_its_ttl,
    writes_nothing_after_a_sleep_that_nobody_used,
    writes_nothing_for_a_grant_that_it_slept_through,
    writes_nothing_for_a_grant_that_comes_late,
    leaves_the_lock_to_the_next_when_it_is_killed,
];

fn writes_nothing_after_a_stop_past_its_ttl(mut bed: Bed) {
    let mut worker = bed.worker("--ttl 1000 --block 5000 --writes 200 --pause 50 --token T");
    worker.wrote(2);
    let (_, fence) = worker.granted();
    worker.stop();
    let newer = bed.take_as("other");
    assert!(newer > fence);
    bed.write_as("other", newer);
    worker.go_on();
    let ended = worker.finish();
    ended.assert_late(fence);
    // One that was on its way when the worker was stopped may be known to the resource alone.
    let written = bed.written_by("T").len();
    assert!((ended.writes()..=ended.writes() + 1).contains(&written));
    assert_eq!(bed.control.holders(LOCK), ["other"]);
    bed.release_as("other");
    bed.assert_free();
}

/// The resource would take its writes: only the worker's own clock knows better, or a renewal that comes before the write.
fn writes_nothing_after_a_sleep_that_nobody_used(mut bed: Bed) {
    let mut worker = bed.worker("--ttl 1000 --block 5000 --writes 200 --pause 300 --token T");
    worker.wrote(2);
    worker.stop();
    wait_for("the lock to be free", || {
        bed.control.holders(LOCK).is_empty().then_some(())
    });
    let before = bed.written_by("T").len();
    worker.go_on();
    worker.finish().assert_lost();
    assert_eq!(bed.written_by("T").len(), before);
    bed.assert_free();
}

fn writes_nothing_for_a_grant_that_it_slept_through(mut bed: Bed) {
    bed.take_as("first");
    let worker = bed.worker("--ttl 700 --block 15000 --writes 2 --pause 20 --token T");
    bed.wait_until_waiting("T");
    worker.stop();
    bed.release_as("first");
    assert_eq!(bed.control.holders(LOCK), ["T"]);
    let newer = bed.take_as("second");
    worker.go_on();
    waits_again_or_ends(&mut bed, worker, newer);
}

fn writes_nothing_for_a_grant_that_comes_late(mut bed: Bed) {
    let proxy = Proxy::to(bed.server.port, Fate::Late(Duration::from_millis(1_500)));
    let options = "--ttl 700 --block 15000 --writes 2 --pause 20 --token T";
    let worker = bed.worker_on(proxy.port, options);
    wait_for("a grant", || proxy.caught());
    let newer = bed.take_as("second");
    waits_again_or_ends(&mut bed, worker, newer);
}

/// What a worker may do about a grant whose time is over when it reads of it: call itself late, or stand in line again, both with the
/// same token. The resource would take its write, for nobody has written since.
fn waits_again_or_ends(bed: &mut Bed, mut worker: Worker, newer: i64) {
    wait_for("the worker to see that it is late", || {
        let waiters = bed.control.waiters(LOCK);
        (waiters == ["T"] || worker.has_ended()).then_some(())
    });
    assert_eq!(bed.written_by("T"), []);
    bed.release_as("second");
    let ended = worker.finish();
    let written = bed.written_by("T");
    assert_eq!(written.len(), ended.writes());
    assert!(written.iter().all(|entry| entry.fence > newer));
    bed.assert_free();
}

fn leaves_the_lock_to_the_next_when_it_is_killed(mut bed: Bed) {
    let mut first = bed.worker("--ttl 1000 --block 5000 --writes 1000 --pause 50");
    first.wrote(1);
    let mut second = bed.worker("--ttl 1000 --block 15000 --writes 2 --pause 20");
    wait_for("the second to wait", || {
        (bed.control.waiters(LOCK).len() == 1).then_some(())
    });
    let (_, older) = first.granted();
    first.kill();
    let killed = Instant::now();
    let (at, newer) = second.granted();
    assert!(newer > older);
    assert!(at - killed < Duration::from_millis(1_000 + 1_500));
    second.finish().assert_done(2);
    let log = bed.log();
    let (late, early): (Vec<_>, Vec<_>) = log.iter().partition(|entry| entry.fence == newer);
    assert_eq!(late.len(), 2);
    // Each made a name of its own.
    assert!(early.iter().all(|entry| entry.token != late[0].token));
    bed.assert_free();
}
