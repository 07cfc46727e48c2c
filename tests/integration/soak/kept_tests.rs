//! Forged histories of places that outlive their listeners.

use redis_lock::lock::Mode::{self, Exclusive, Shared};

use super::checker::check;
use super::forged::{held, start, Forged};
use super::history::{Outcome, Pause, What};
use super::rule::Rule;

const GRACE_MS: u64 = 50;

fn permit(limit: u32) -> Mode {
    Mode::of_limit(limit).unwrap()
}

/// `a` holds the lock. `b` has waited for 10 ms with KEEP, and `c` waits.
fn with_a_kept_place() -> (Forged, u64) {
    let mut h = held();
    let b = h.asks("b", What::Acquire(Exclusive, Some(10)));
    h.keeps(b, GRACE_MS);
    let c = h.waits("c", Exclusive);
    h.after(10);
    h.ends(b, Outcome::Null);
    (h, c)
}

#[test]
fn a_request_that_does_not_find_its_place_is_refused() {
    for (pause_ms, finds_it) in [(5, true), (5, false), (GRACE_MS + 1, false)] {
        let (mut h, c) = with_a_kept_place();
        h.after(pause_ms);
        let b = h.asks("b", What::Acquire(Exclusive, Some(20)));
        h.releases("a");
        match finds_it {
            true => {
                h.grants(b, 2);
                h.is_killed(c);
                let findings = check(&h.history).unwrap();
                assert_eq!(findings.resumed, 1);
            }
            false => {
                h.grants(c, 2);
                h.after(20);
                h.ends(b, Outcome::Null);
                h.judged(pause_ms != 5, Rule::OutOfOrder);
            }
        }
    }
}

#[test]
fn a_client_that_left_before_its_request_came_may_have_no_place() {
    for came_in_time in [true, false] {
        let mut h = held();
        let b = h.asks("b", What::Acquire(Exclusive, None));
        h.keeps(b, GRACE_MS);
        let since_us = h.now_us() + 1_500;
        h.after(1);
        if came_in_time {
            h.shows(Some(Exclusive), &[("a", 1)], &[("b", Exclusive)]);
            h.shown_absent(&["b"]);
        }
        h.after(1);
        let c = h.waits("c", Exclusive);
        h.ends(b, Outcome::Cut { since_us });
        let b = h.asks("b", What::Acquire(Exclusive, Some(20)));
        h.releases("a");
        h.grants(c, 2);
        h.after(20);
        h.ends(b, Outcome::Null);
        h.shows(Some(Exclusive), &[("c", 2)], &[]);
        h.judged(!came_in_time, Rule::OutOfOrder);
    }
}

#[test]
fn a_place_lasts_as_the_latest_request_says() {
    for is_kept in [true, false] {
        let (mut h, c) = with_a_kept_place();
        let poll = h.answered("b", What::Acquire(Exclusive, None), Outcome::Null);
        if is_kept {
            h.keeps(poll, GRACE_MS);
        }
        let b = h.asks("b", What::Acquire(Exclusive, Some(20)));
        h.releases("a");
        h.grants(c, 2);
        h.after(20);
        h.ends(b, Outcome::Null);
        h.judged(!is_kept, Rule::OutOfOrder);
    }
}

#[test]
fn a_grant_that_does_not_fit_beside_an_absent_place_is_refused() {
    for (kept, mode, fits) in [
        (Shared, Shared, true),
        (Shared, Exclusive, false),
        (Exclusive, Shared, false),
        (Exclusive, Exclusive, false),
        (permit(2), permit(2), true),
        (permit(2), permit(5), true),
        (permit(2), Shared, true),
        (permit(5), Exclusive, false),
    ] {
        for is_over in [false, true] {
            let mut h = held();
            h.polls("b", kept, GRACE_MS);
            let c = h.waits("c", mode);
            h.after(if is_over { GRACE_MS + 1 } else { GRACE_MS - 1 });
            h.releases("a");
            h.grants(c, 2);
            h.judged(fits || is_over, Rule::PastKept);
        }
    }
    // An absent permit takes one.
    for grants in [1, 2] {
        let mut h = held();
        h.polls("b", permit(2), GRACE_MS);
        let waiting = ["c", "d"].map(|token| h.waits(token, permit(2)));
        h.releases("a");
        for (number, fence) in waiting.into_iter().zip(2..).take(grants) {
            h.grants(number, fence);
        }
        if grants == 1 {
            h.is_killed(waiting[1]);
        }
        h.judged(grants == 1, Rule::PastKept);
    }
    // An absent place for several keys stops all behind it.
    for is_over in [false, true] {
        let mut h = held();
        let b = h.waits_for_two("b");
        for part in [b, b + 1] {
            h.keeps(part, GRACE_MS);
            h.ends(part, Outcome::Null);
            let request = h.history.requests.get_mut(&part).unwrap();
            request.what = What::Acquire(Shared, None);
        }
        let c = h.waits("c", Shared);
        h.after(if is_over { GRACE_MS + 1 } else { 1 });
        h.releases("a");
        h.grants(c, 2);
        h.judged(is_over, Rule::PastKept);
    }
    // A place that was given up is in nobody's way.
    let mut h = held();
    h.polls("b", Exclusive, GRACE_MS);
    let c = h.waits("c", Exclusive);
    h.answered("b", What::Release, Outcome::Done(false));
    h.releases("a");
    h.grants(c, 2);
    h.accepted();
}

#[test]
fn a_head_waits_only_for_an_absent_place_beside_which_it_does_not_fit() {
    for (kept, mode, may_wait) in [
        (Exclusive, Exclusive, true),
        (Exclusive, Shared, true),
        (Shared, Exclusive, true),
        (permit(1), permit(3), true),
        (Shared, Shared, false),
        (permit(2), permit(2), false),
    ] {
        let mut h = held();
        h.polls("b", kept, GRACE_MS);
        let c = h.waits("c", mode);
        h.is_deleted();
        for _ in 0..6 {
            h.shows(None, &[], &[("b", kept), ("c", mode)]);
            h.shown_absent(&["b"]);
            h.after(1);
        }
        h.grants(c, 2);
        h.shows(Some(mode), &[("c", 2)], &[]);
        let rules = check(&h.history).err().unwrap_or_default();
        let is_idle = rules.iter().any(|breach| breach.rule == Rule::Idle);
        assert_eq!(is_idle, !may_wait, "{kept:?} {mode:?}: {rules:?}");
    }
    // When the grace is over, there is no excuse left.
    for looks in [3, 6] {
        let mut h = held();
        h.polls("b", Exclusive, GRACE_MS);
        let c = h.waits("c", Exclusive);
        h.is_deleted();
        h.after(GRACE_MS + 1);
        for _ in 0..looks {
            h.shows(None, &[], &[("c", Exclusive)]);
            h.after(1);
        }
        h.grants(c, 2);
        h.shows(Some(Exclusive), &[("c", 2)], &[]);
        h.judged(looks == 3, Rule::Idle);
    }
}

#[test]
fn a_server_that_stood_still_is_noticed() {
    let mut h = start();
    for after_ms in [3, 60, 3] {
        h.shows_nothing();
        h.after(after_ms);
    }
    h.shows_nothing();
    assert_eq!(h.history.note_stalls(), 1);
    let pause = h.history.pauses[0];
    assert_eq!(pause.until_us - pause.from_us, 60_000);
}

#[test]
fn a_place_that_is_absent_for_too_long_is_refused() {
    for (looks, paused) in [(2, false), (3, false), (3, true)] {
        let mut h = held();
        h.polls("b", Exclusive, 20);
        h.after(20);
        for _ in 0..looks {
            h.shows(Some(Exclusive), &[("a", 1)], &[("b", Exclusive)]);
            h.shown_absent(&["b"]);
            h.after(3);
        }
        if paused {
            let until_us = h.now_us();
            let from_us = until_us - 20_000;
            h.history.pauses.push(Pause { from_us, until_us });
        }
        h.shows(Some(Exclusive), &[("a", 1)], &[]);
        h.judged((looks, paused) != (3, false), Rule::KeptTooLong);
    }
}

#[test]
fn an_info_reply_with_a_wrong_absent_place_is_refused() {
    for (is_kept, is_shown, is_absent) in [
        (true, true, true),
        (true, true, false),
        (true, false, false),
        (false, true, true),
        (false, false, false),
    ] {
        let mut h = held();
        match is_kept {
            true => h.polls("b", Exclusive, GRACE_MS),
            false => {
                h.answered("b", What::Acquire(Exclusive, None), Outcome::Null);
            }
        }
        let waiters = [("b", Exclusive)];
        let shown = if is_shown { &waiters[..] } else { &[] };
        h.shows(Some(Exclusive), &[("a", 1)], shown);
        if is_absent {
            h.shown_absent(&["b"]);
        }
        h.shows(Some(Exclusive), &[("a", 1)], &[("b", Exclusive)]);
        h.shown_absent(&["b"]);
        if !is_kept {
            h.history.log.pop();
            h.history.samples.pop_last();
        }
        h.after(GRACE_MS + 1);
        h.shows(Some(Exclusive), &[("a", 1)], &[]);
        h.judged(
            is_kept == is_shown && is_shown == is_absent,
            Rule::ShownQueue,
        );
    }
}
