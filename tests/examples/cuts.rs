//! Connections that break: during a wait and during the work.

use std::time::Duration;

use crate::fixture::{Fixture, LOCK};
use crate::harness::Reply;

with_every_worker![
    waits_on_after_a_cut,
    keeps_its_place_over_a_cut,
    works_on_after_cuts,
];

fn waits_on_after_a_cut(mut fixture: Fixture) {
    let older = fixture.take_as("other");
    let mut worker = fixture.worker("--ttl 1000 --block 15000 --writes 2 --pause 20 --token T");
    for _ in 0..2 {
        fixture.wait_until_waiting("T");
        fixture.cut_all();
    }
    fixture.wait_until_waiting("T");
    fixture.release_as("other");
    let (_, fence) = worker.granted();
    assert!(fence > older);
    worker.finish().assert_done(2);
    assert_eq!(fixture.written_by("T").len(), 2);
    fixture.assert_free();
}

fn keeps_its_place_over_a_cut(mut fixture: Fixture) {
    fixture.take_as("other");
    let worker = fixture.worker("--ttl 1000 --block 15000 --writes 2 --pause 20 --token T");
    fixture.wait_until_waiting("T");
    // A place behind it that needs no connection.
    let next = format!("LOCK.ACQUIRE {LOCK} next 60000 KEEP 60000");
    assert_eq!(fixture.control.call(&next), Reply::Nil);
    fixture.cut_all();
    fixture.wait_until_waiting("T");
    assert_eq!(fixture.control.waiters(LOCK), ["T", "next"]);
    fixture.release_as("other");
    worker.finish().assert_done(2);
    assert_eq!(fixture.control.waiters(LOCK), ["next"]);
    fixture.control.call(&format!("LOCK.RELEASE {LOCK} next"));
    fixture.assert_free();
}

fn works_on_after_cuts(mut fixture: Fixture) {
    let mut worker = fixture.worker("--ttl 1200 --block 5000 --writes 8 --pause 200 --token T");
    for write in [2, 5] {
        worker.wrote(write);
        fixture.cut_all();
    }
    let ended = worker.finish();
    ended.assert_done(8);
    assert!(ended.span() > Duration::from_millis(1_200), "{ended:?}");
    // If a reply was lost, the write was sent again.
    let written = fixture.written_by("T").len();
    assert!((8..=10).contains(&written), "{written}");
    fixture.assert_free();
}
