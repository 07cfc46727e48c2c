//! Owners that are late: stopped beyond their ttl, or dead.

use std::time::{Duration, Instant};

use crate::fixture::{Fixture, LOCK};
use crate::harness::wait_for;

with_every_worker![
    writes_nothing_after_a_stop_past_its_ttl,
    writes_nothing_after_a_sleep_that_nobody_used,
    writes_nothing_for_a_grant_that_it_slept_through,
    leaves_the_lock_to_the_next_when_it_is_killed,
];

fn writes_nothing_after_a_stop_past_its_ttl(mut fixture: Fixture) {
    let mut worker = fixture.worker("--ttl 1000 --block 5000 --writes 200 --pause 50 --token T");
    worker.wrote(2);
    let (_, fence) = worker.granted();
    worker.stop();
    let newer = fixture.take_as("other");
    assert!(newer > fence);
    fixture.write_as("other", newer);
    worker.go_on();
    let ended = worker.finish();
    ended.assert_late(fence);
    // If a write was in flight when the worker was stopped, only the resource may know of it.
    let written = fixture.written_by("T").len();
    assert!((ended.writes()..=ended.writes() + 1).contains(&written));
    assert_eq!(fixture.control.holders(LOCK), ["other"]);
    fixture.release_as("other");
    fixture.assert_free();
}

/// The resource would accept its writes. Only the worker's own clock knows better, or a renewal
/// before the write.
fn writes_nothing_after_a_sleep_that_nobody_used(mut fixture: Fixture) {
    let mut worker = fixture.worker("--ttl 1000 --block 5000 --writes 200 --pause 300 --token T");
    worker.wrote(2);
    worker.stop();
    wait_for("the lock to be free", || {
        fixture.control.holders(LOCK).is_empty().then_some(())
    });
    let before = fixture.written_by("T").len();
    worker.go_on();
    worker.finish().assert_lost();
    assert_eq!(fixture.written_by("T").len(), before);
    fixture.assert_free();
}

fn writes_nothing_for_a_grant_that_it_slept_through(mut fixture: Fixture) {
    fixture.take_as("first");
    let mut worker = fixture.worker("--ttl 700 --block 15000 --writes 2 --pause 20 --token T");
    fixture.wait_until_waiting("T");
    worker.stop();
    fixture.release_as("first");
    assert_eq!(fixture.control.holders(LOCK), ["T"]);
    let newer = fixture.take_as("second");
    worker.go_on();
    // It reports itself late, or queues again with the same token. The resource would accept its
    // write, because nobody has written since.
    wait_for("the worker to see that it is late", || {
        let waiters = fixture.control.waiters(LOCK);
        (waiters == ["T"] || worker.has_ended()).then_some(())
    });
    assert_eq!(fixture.written_by("T"), []);
    fixture.release_as("second");
    let ended = worker.finish();
    let written = fixture.written_by("T");
    assert_eq!(written.len(), ended.writes());
    assert!(written.iter().all(|entry| entry.fence > newer));
    fixture.assert_free();
}

fn leaves_the_lock_to_the_next_when_it_is_killed(mut fixture: Fixture) {
    let mut first = fixture.worker("--ttl 1000 --block 5000 --writes 1000 --pause 50");
    first.wrote(1);
    let mut second = fixture.worker("--ttl 1000 --block 15000 --writes 2 --pause 20");
    wait_for("the second to wait", || {
        (fixture.control.waiters(LOCK).len() == 1).then_some(())
    });
    let (_, older) = first.granted();
    first.kill();
    let killed = Instant::now();
    let (at, newer) = second.granted();
    assert!(newer > older);
    assert!(at - killed < Duration::from_millis(1_000 + 1_500));
    second.finish().assert_done(2);
    let log = fixture.log();
    let (late, early): (Vec<_>, Vec<_>) = log.iter().partition(|entry| entry.fence == newer);
    assert_eq!(late.len(), 2);
    // Each worker generated its own token.
    assert!(early.iter().all(|entry| entry.token != late[0].token));
    fixture.assert_free();
}
