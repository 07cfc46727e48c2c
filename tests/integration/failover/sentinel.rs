//! Three sentinels and a primary that is killed, or stopped and resumed.

use std::sync::atomic::Ordering;
use std::thread;

use super::clients::Group;
use super::pair;
use crate::harness::{figure, scale, Kind, Reply, Sentinels};

on_every_server_at_night![sentinels_replace_a_primary_that_is_killed_or_stopped];

/// Both at once, in two groups, because most of the time is spent waiting.
fn sentinels_replace_a_primary_that_is_killed_or_stopped(kind: Kind) {
    let figures = thread::scope(|scope| {
        let sleeps = scope.spawn(|| sleeps(kind));
        [was_killed(kind), sleeps.join().unwrap()]
    });
    for what in figures {
        figure(kind, &what);
    }
}

fn was_killed(kind: Kind) -> String {
    let (mut old, new) = pair(kind);
    let sentinels = Sentinels::watch(&old);
    let (old_port, new_port) = (old.port, new.port);
    let group = Group::of(old_port, true);
    let (story, took) = group.live(|| {
        group.wait_for_grants(100 * scale());
        old.kill();
        let took = sentinels.wait_for_another_than(old_port);
        assert_eq!(sentinels.primary(), new_port);
        group.primary.store(new_port, Ordering::Relaxed);
        group.wait_for_grants(100 * scale());
        took
    });
    let (before, after) = story.assert_fences_grow(old_port, new_port);
    // A hold that was not replicated is lost with the primary. One confirmed by WAIT is not.
    story.assert_one_holder(|grant| grant.port == old_port && !grant.sure);
    let sure = story
        .grants
        .iter()
        .filter(|grant| grant.sure && grant.port == old_port);
    let sure = sure.count();
    assert!(sure > before / 2, "{sure} of {before}");
    assert!(story.sent_away.contains_key("broken connection"));
    let ms = took.as_millis();
    format!("{before} grants, {sure} sure by WAIT; killed; new primary after {ms} ms; {after} grants, none of a sure hold's lock before its release, every fence larger")
}

fn sleeps(kind: Kind) -> String {
    let (old, new) = pair(kind);
    // The other replica would accept no writes while this one is stopped.
    old.client().text("CONFIG SET min-replicas-to-write 1");
    let sentinels = Sentinels::watch(&old);
    let mut c = old.client();
    let held = c.int("LOCK.ACQUIRE held a 600000");
    c.int("LOCK.ACQUIRE k dead 3000");
    let b = old.blocked("LOCK.ACQUIRE k b 600000 BLOCK 0");
    let d = old.blocked("LOCK.ACQUIRE held d 600000 BLOCK 0");
    assert_eq!(c.int("WAIT 1 10000"), 1);
    old.signal("STOP");
    assert!(b.is_pending() && d.is_pending());
    let took = sentinels.wait_for_another_than(old.port);
    let mut n = new.client();
    n.until_info("role", "master");
    n.until("LOCK.INFO k", Reply::Nil);
    let fence = n.int("LOCK.ACQUIRE k e 600000");
    old.signal("CONT");
    // The sentinels make it a replica, and close its connections.
    for waiter in [b, d] {
        waiter.sent_away();
    }
    old.client().until_info("role", "slave");
    new.wait_for_its_replica();
    old.assert_same_as(&new, "after the failover");
    assert_eq!(old.client().holders("k"), ["e"]);
    assert_eq!(old.client().holders("held"), ["a"]);
    assert_eq!(n.int("LOCK.ACQUIRE held a 600000"), held);
    assert_eq!(n.call("LOCK.ACQUIRE k b 600000"), Reply::Nil);
    assert!(fence > held);
    format!("a primary that slept, replaced after {} ms, told both its waiters to go and granted nothing", took.as_millis())
}
