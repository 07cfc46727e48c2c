//! The work itself: the lock is kept alive, work is given up without a lock, and stops if the lock
//! is lost.

use std::time::{Duration, Instant};

use crate::events::Event;
use crate::fixture::{Fixture, LOCK};

with_every_worker![
    outlives_its_ttl_by_renewals,
    gives_up_when_its_time_to_wait_is_over,
    stops_when_its_lock_was_deleted,
    stops_when_the_resource_refuses,
    stops_by_its_own_clock_when_the_server_is_silent,
];

/// The tolerance for an event, on a machine that stalls.
const SLACK: Duration = Duration::from_millis(1_500);

fn outlives_its_ttl_by_renewals(mut fixture: Fixture) {
    let ttl = Duration::from_millis(1_200);
    let mut worker = fixture.worker("--ttl 1200 --block 5000 --writes 6 --pause 300");
    let (_, fence) = worker.granted();
    assert!(fence > 0);
    let ended = worker.finish();
    ended.assert_done(6);
    assert!(ended.span() > ttl, "nothing to outlive: {ended:?}");
    let renewed = ended.count(|event| *event == Event::Renewed);
    let thirds = ended.span().as_millis() as usize / 400;
    assert!((2..=thirds + 2).contains(&renewed), "{ended:?}");
    let log = fixture.log();
    assert_eq!(log.len(), 6);
    for entry in &log {
        assert_eq!((entry.fence, &entry.token), (fence, &log[0].token));
    }
    fixture.assert_free();
}

fn gives_up_when_its_time_to_wait_is_over(mut fixture: Fixture) {
    fixture.take_as("other");
    let block = Duration::from_millis(700);
    let begin = Instant::now();
    let worker = fixture.worker("--ttl 1000 --block 700 --writes 1 --pause 10 --token T");
    fixture.wait_until_waiting("T");
    let waiting = Instant::now();
    let ended = worker.finish();
    let (at, event) = ended.events.last().unwrap();
    assert_eq!(*event, Event::GaveUp);
    assert!(*at - begin >= block && *at - waiting < block + SLACK);
    assert_eq!(fixture.control.waiters(LOCK), [""; 0]);
    fixture.release_as("other");
    assert!(fixture.log().is_empty());
    fixture.assert_free();
}

fn stops_when_its_lock_was_deleted(mut fixture: Fixture) {
    let mut worker = fixture.worker("--ttl 3000 --block 5000 --writes 200 --pause 50 --token T");
    worker.wrote(1);
    let deleted = Instant::now();
    fixture.control.call(&format!("DEL {LOCK}"));
    // The next renewal returns 0. It comes a third of the ttl later at most, long before the
    // worker's own deadline.
    let lost = worker.lost();
    assert!(lost - deleted < Duration::from_millis(1_000) + SLACK);
    let ended = worker.finish();
    ended.assert_lost();
    // One write may have been in flight when the loss was noticed.
    let written = fixture.written_by("T").len();
    assert!((ended.writes()..=ended.writes() + 1).contains(&written));
    // It does not acquire again.
    fixture.assert_free();
}

fn stops_when_the_resource_refuses(mut fixture: Fixture) {
    // The next renewal is far off.
    let mut worker = fixture.worker("--ttl 9000 --block 5000 --writes 200 --pause 30 --token T");
    worker.wrote(2);
    let (_, fence) = worker.granted();
    fixture.control.call(&format!("DEL {LOCK}"));
    let newer = fixture.take_as("other");
    fixture.write_as("other", newer);
    let ended = worker.finish();
    ended.assert_refused(fence);
    let log = fixture.log();
    let last = log.last().unwrap();
    assert_eq!(
        (last.accepted, last.token.as_str()),
        (false, "T"),
        "{log:?}"
    );
    assert_eq!(fixture.written_by("T").len(), ended.writes());
    // Its release did not end the hold of the other owner.
    fixture.release_as("other");
    fixture.assert_free();
}

fn stops_by_its_own_clock_when_the_server_is_silent(mut fixture: Fixture) {
    let ttl = Duration::from_millis(1_000);
    let mut worker = fixture.worker("--ttl 1000 --block 5000 --writes 200 --pause 50 --token T");
    worker.wrote(2);
    let stopped = Instant::now();
    fixture.server.signal("STOP");
    let lost = worker.lost();
    fixture.server.signal("CONT");
    assert!(lost - stopped < ttl + SLACK, "{:?}", lost - stopped);
    // The server now reads what the worker had sent before. The next owner comes after that.
    let newer = fixture.take_as("other");
    fixture.write_as("other", newer);
    let ended = worker.finish();
    ended.assert_lost();
    let written = fixture.written_by("T").len();
    let sent = ended.writes() + 1;
    assert!((ended.writes()..=sent).contains(&written), "{ended:?}");
    fixture.release_as("other");
    fixture.assert_free();
}
