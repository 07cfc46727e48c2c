//! Forged histories of requests that wait by a channel, and of clients that vanish meanwhile.

use redis_lock::lock::Mode::{self, Exclusive, Shared};

use super::checker::check;
use super::forged::{held, start, Forged};
use super::history::{Outcome, Pause, What};
use super::rule::Rule;

const GRACE_MS: u64 = 50;
const TIMEOUT_MS: u64 = 300;

/// `a` holds the lock. `b` waits by a channel, and `c` behind it.
fn with_a_channel() -> (Forged, u64, u64) {
    let mut h = held();
    let b = h.is_to_be_told("b", Exclusive, TIMEOUT_MS);
    let c = h.waits("c", Exclusive);
    (h, b, c)
}

const BOTH: [(&str, Mode); 2] = [("b", Exclusive), ("c", Exclusive)];

/// The same. A look tells that both have come, and three more that the server knows of the client of
/// `b`, which has vanished meanwhile.
fn with_a_deaf_place() -> (Forged, u64, u64) {
    let (mut h, b, c) = with_a_channel();
    h.shows(Some(Exclusive), &[("a", 1)], &BOTH);
    h.after(1);
    h.vanishes(b);
    for _ in 0..3 {
        h.after(1);
        h.shows(Some(Exclusive), &[("a", 1)], &BOTH);
    }
    (h, b, c)
}

#[test]
fn a_grant_that_passes_a_request_by_a_channel_is_refused() {
    for is_told in [true, false] {
        let (mut h, b, c) = with_a_channel();
        h.after(1);
        h.releases("a");
        match is_told {
            true => {
                h.grants(b, 2);
                h.is_killed(c);
                let findings = check(&h.history).unwrap();
                assert_eq!((findings.notified, findings.notified_several), (1, 0));
            }
            false => {
                h.grants(c, 2);
                h.after(TIMEOUT_MS);
                h.ends(b, Outcome::Null);
                h.refused_for(Rule::OutOfOrder);
            }
        }
    }
}

#[test]
fn a_grant_to_a_channel_that_nobody_hears_is_refused() {
    for is_passed_over in [true, false] {
        let (mut h, _, c) = with_a_deaf_place();
        h.releases("a");
        match is_passed_over {
            true => {
                h.grants(c, 2);
                h.shows(Some(Exclusive), &[("c", 2)], &[]);
                h.accepted();
            }
            false => {
                h.gives("b", Exclusive, 2);
                h.is_killed(c);
                h.shows(Some(Exclusive), &[("b", 2)], &[]);
                h.refused_for(Rule::Ghost);
            }
        }
    }
}

#[test]
fn a_request_by_a_channel_stands_until_its_timeout_and_no_longer() {
    for (looks_after_ms, is_right) in [(TIMEOUT_MS - 20, true), (TIMEOUT_MS + 200, false)] {
        let mut h = start();
        let end_ms = h.now_ms + 10_000;
        let a = h.asks("a", What::Acquire(Exclusive, None));
        h.gives_until("a", Exclusive, 1, end_ms);
        h.delivered(a, 1);
        let b = h.is_to_be_told("b", Exclusive, TIMEOUT_MS);
        h.after(1);
        h.vanishes(b);
        h.after(looks_after_ms);
        for _ in 0..4 {
            h.after(1);
            h.shows(Some(Exclusive), &[("a", 1)], &[("b", Exclusive)]);
        }
        h.after(TIMEOUT_MS);
        h.shows(Some(Exclusive), &[("a", 1)], &[]);
        h.judged(is_right, Rule::ShownQueue);
    }
}

#[test]
fn the_place_of_a_client_that_vanished_is_kept_only_with_keep() {
    for finds_it in [true, false] {
        let (mut h, b, c) = with_a_deaf_place();
        h.keeps(b, GRACE_MS);
        h.releases("a");
        h.shows(None, &[], &BOTH);
        h.shown_absent(&["b"]);
        let again = h.is_to_be_told("b", Exclusive, TIMEOUT_MS);
        match finds_it {
            true => {
                h.grants(again, 2);
                h.is_killed(c);
                h.shows(Some(Exclusive), &[("b", 2)], &[]);
                h.accepted();
            }
            false => {
                h.shows(None, &[], &BOTH);
                h.grants(c, 2);
                h.after(TIMEOUT_MS);
                h.ends(again, Outcome::Null);
                h.shows_nothing();
                h.refused_for(Rule::OutOfOrder);
            }
        }
    }
    // Without KEEP it comes back to another place.
    let (mut h, _, c) = with_a_deaf_place();
    h.releases("a");
    h.grants(c, 2);
    let again = h.is_to_be_told("b", Exclusive, TIMEOUT_MS);
    h.after(TIMEOUT_MS);
    h.ends(again, Outcome::Null);
    h.shows_nothing();
    h.accepted();
    // And nobody is absent.
    let (mut h, _, c) = with_a_deaf_place();
    h.shows(Some(Exclusive), &[("a", 1)], &BOTH);
    h.shown_absent(&["b"]);
    h.is_killed(c);
    h.after(2 * TIMEOUT_MS);
    h.shows_nothing();
    h.refused_for(Rule::ShownQueue);
}

#[test]
fn a_place_for_several_keys_keeps_others_out_while_its_client_is_away() {
    for (is_over, has_keep) in [(false, true), (true, true), (false, false)] {
        let mut h = held();
        let b = h.waits_for_two("b");
        let c = h.waits("c", Exclusive);
        // The time of this effect tells that all have come.
        let renews = h.asks("a", What::Renew);
        h.gives("a", Exclusive, 1);
        h.ends(renews, Outcome::Done(true));
        h.after(1);
        for part in [b, b + 1] {
            let request = h.history.requests.get_mut(&part).unwrap();
            request.what = What::Acquire(Exclusive, Some(1));
            request.by_channel = true;
            request.keep_ms = has_keep.then_some(GRACE_MS);
            h.vanishes(part);
        }
        h.after(if is_over { GRACE_MS + 1 } else { 10 });
        h.releases("a");
        h.grants(c, 2);
        h.judged(is_over || !has_keep, Rule::PastKept);
    }
}

#[test]
fn a_wait_whose_end_nobody_tells_is_refused() {
    for is_given_up in [true, false] {
        let (mut h, _, c) = with_a_channel();
        h.after(1);
        if is_given_up {
            h.answered("b", What::Release, Outcome::Done(false));
        }
        h.is_killed(c);
        h.judged(is_given_up, Rule::Unanswered);
    }
}

#[test]
fn a_grant_that_a_channel_received_may_stay() {
    for by_channel in [true, false] {
        let (mut h, b, c) = with_a_channel();
        h.history.requests.get_mut(&b).unwrap().by_channel = by_channel;
        h.is_killed(c);
        h.history.operator = 4; // The connection of the next request.
        h.releases("a");
        h.gives("b", Exclusive, 2);
        h.is_killed(b);
        for _ in 0..4 {
            h.shows(Some(Exclusive), &[("b", 2)], &[]);
            h.after(3);
        }
        h.judged(by_channel, Rule::NotTakenBack);
    }
}

#[test]
fn a_renewal_does_not_end_the_place_of_an_upgrade() {
    let mut h = start();
    h.takes("a", Shared, 1);
    h.takes("b", Shared, 2);
    let b = h.is_to_be_told("b", Exclusive, TIMEOUT_MS);
    h.after(1);
    h.vanishes(b);
    let renews = h.asks("b", What::Renew);
    h.gives("b", Shared, 2);
    h.ends(renews, Outcome::Done(true));
    for _ in 0..4 {
        h.after(1);
        h.shows(Some(Shared), &[("a", 1), ("b", 2)], &[("b", Exclusive)]);
    }
    h.after(TIMEOUT_MS);
    h.shows_nothing();
    h.accepted();
}

#[test]
fn a_grace_begins_after_a_pause_that_puts_the_timeout_off() {
    let mut h = start();
    let end_ms = h.now_ms + 10_000;
    let a = h.asks("a", What::Acquire(Exclusive, None));
    h.gives_until("a", Exclusive, 1, end_ms);
    h.delivered(a, 1);
    let b = h.is_to_be_told("b", Exclusive, TIMEOUT_MS);
    h.keeps(b, GRACE_MS);
    h.after(1);
    h.vanishes(b);
    for _ in 0..3 {
        h.after(1);
        h.shows(Some(Exclusive), &[("a", 1)], &[("b", Exclusive)]);
    }
    h.after(TIMEOUT_MS - 50);
    let from_us = h.now_us();
    h.after(300);
    let until_us = h.now_us();
    h.history.pauses.push(Pause { from_us, until_us });
    // It acts again after 30 ms at the latest.
    h.after(35);
    for _ in 0..4 {
        h.after(1);
        h.shows(Some(Exclusive), &[("a", 1)], &[("b", Exclusive)]);
        h.shown_absent(&["b"]);
    }
    h.after(TIMEOUT_MS);
    h.shows(Some(Exclusive), &[("a", 1)], &[]);
    h.accepted();
}
