//! The checker on forged histories: a correct one is accepted, and each rule refuses what violates
//! it, and no other rule does.

use std::collections::BTreeMap;

use redis_lock::lock::Mode::{Exclusive, Shared};

use super::checker::check;
use super::forged::{held, start, KEY, TTL_MS};
use super::history::{Entry, Mark, Outcome, Pause, What};
use super::rule::Rule;

#[test]
fn a_correct_history_is_accepted() {
    let mut h = held();
    let b = h.waits("b", Shared);
    let c = h.waits("c", Shared);
    let d = h.asks("d", What::Acquire(Exclusive, Some(10)));
    let queue = [("b", Shared), ("c", Shared), ("d", Exclusive)];
    h.shows(Some(Exclusive), &[("a", 1)], &queue);
    h.after(11);
    h.ends(d, Outcome::Null);
    h.releases("a");
    h.gives("b", Shared, 2);
    h.gives("c", Shared, 3);
    h.delivered(b, 2);
    h.delivered(c, 3);
    // Converts ahead of the queue, in which one client is killed.
    let w = h.waits("w", Exclusive);
    let b = h.waits("b", Exclusive);
    let readers = [("b", 2), ("c", 3)];
    h.shows(
        Some(Shared),
        &readers,
        &[("b", Exclusive), ("w", Exclusive)],
    );
    h.releases("c");
    h.grants(b, 2);
    h.is_killed(w);
    h.shows(Some(Exclusive), &[("b", 2)], &[]);
    // A grant to a disconnected client is taken back.
    let x = h.waits("x", Exclusive);
    h.is_deleted();
    h.gives("x", Exclusive, 4);
    h.vanishes(x);
    h.ends_hold("x");
    h.shows_nothing();
    let findings = check(&h.history).unwrap();
    assert_eq!((findings.grants, findings.hand_offs), (4, 3));
    assert_eq!((findings.unheard, findings.taken_back), (1, 1));
}

#[test]
fn two_holders_are_refused() {
    for (first, second) in [
        (Exclusive, Exclusive),
        (Exclusive, Shared),
        (Shared, Exclusive),
    ] {
        let mut h = start();
        h.takes("a", first, 1);
        h.after(TTL_MS); // The deadline itself still belongs to the hold.
        h.takes("b", second, 2);
        h.refused_for(Rule::TwoHolders);
    }
    let mut h = held();
    h.after(TTL_MS + 1);
    h.takes("b", Exclusive, 2);
    h.accepted();
    // The expiry of the key caps its holds.
    let mut h = held();
    h.mark(Mark::Operated);
    let end_ms = Some(h.now_ms + 5);
    h.history.log.push(Entry::Ends(KEY.into(), end_ms));
    h.after(6);
    h.takes("b", Exclusive, 2);
    h.accepted();
    // Even if effects are written later.
    for capped in [false, true] {
        let mut h = start();
        h.takes("a", Shared, 1);
        h.mark(Mark::Operated);
        let end_ms = h.now_ms + 5;
        h.history.log.push(Entry::Ends(KEY.into(), Some(end_ms)));
        if capped {
            h.is_capped(end_ms);
        }
        h.takes("b", Shared, 2);
        h.judged(capped, Rule::Lengthened);
    }
    // A later expiry lengthens no hold.
    let mut h = held();
    h.mark(Mark::Operated);
    h.history.log.push(Entry::Ends(KEY.into(), None));
    h.after(TTL_MS + 1);
    h.shows(Some(Exclusive), &[("a", 1)], &[]);
    h.refused_for(Rule::ShownHolds);
}

#[test]
fn fences_that_do_not_rise_are_refused() {
    for second in [7, 6] {
        let mut h = start();
        h.takes("a", Exclusive, 7);
        h.releases("a");
        h.after(1);
        h.since_ms.clear();
        h.takes("b", Exclusive, second);
        h.refused_for(Rule::FenceOrder);
    }
}

#[test]
fn a_reacquire_with_another_fence_is_refused() {
    let mut h = held();
    h.takes("a", Shared, 2);
    h.refused_for(Rule::KeptFence);
}

#[test]
fn an_effect_from_the_past_is_refused() {
    for clock_lead_ms in [0, 1] {
        let mut h = start();
        h.history.clock_lead_ms = clock_lead_ms;
        let a = h.asks("a", What::Acquire(Shared, None));
        h.grants(a, 1);
        let b = h.waits("b", Shared);
        h.now_ms -= 1;
        h.gives("b", Shared, 2);
        h.vanishes(b);
        h.judged(clock_lead_ms != 0, Rule::TimeOrder);
    }
}

#[test]
fn an_invented_fence_is_refused() {
    let mut h = start();
    h.takes("a", Shared, 1);
    let b = h.asks("b", What::Acquire(Shared, None));
    h.delivered(b, 1); // The fence of another request.
    h.refused_for(Rule::UnknownFence);
    let mut h = start();
    let a = h.asks("a", What::Acquire(Shared, None));
    h.after(1);
    let late = h.asks("a", What::Acquire(Shared, None));
    h.grants(late, 1);
    h.now_ms -= 1;
    h.delivered(a, 1); // Before it was granted.
    h.refused_for(Rule::UnknownFence);
}

#[test]
fn a_grant_without_request_is_refused() {
    let mut h = start();
    h.takes("a", Shared, 1);
    h.gives("b", Shared, 2);
    h.refused_for(Rule::Ghost);
    // To a killed client.
    let mut h = held();
    let b = h.waits("b", Exclusive);
    h.is_killed(b);
    h.is_deleted();
    h.gives("b", Exclusive, 2);
    h.refused_for(Rule::Ghost);
    // To a client that did not wait.
    let mut h = held();
    let b = h.asks("b", What::Acquire(Exclusive, None));
    h.vanishes(b);
    h.is_deleted();
    h.gives("b", Exclusive, 2);
    h.refused_for(Rule::Ghost);
    // To a client that was disconnected long before.
    let mut h = held();
    let b = h.waits("b", Exclusive);
    h.vanishes(b);
    h.after(1);
    for _ in 0..3 {
        h.looks(BTreeMap::new());
    }
    h.is_deleted();
    h.gives("b", Exclusive, 2);
    h.refused_for(Rule::Ghost);
    // A renewal does not acquire a lost lock again.
    let mut h = start();
    let renewal = h.asks("a", What::Renew);
    h.gives("a", Exclusive, 1);
    h.vanishes(renewal);
    h.refused_for(Rule::Ghost);
}

#[test]
fn a_grant_after_a_null_reply_is_refused() {
    let mut h = held();
    let b = h.asks("b", What::Acquire(Exclusive, Some(10)));
    h.after(11);
    h.ends(b, Outcome::Null);
    h.is_deleted();
    h.gives("b", Exclusive, 2);
    h.refused_for(Rule::Unheard);
}

#[test]
fn a_grant_out_of_order_is_refused() {
    // (holder, first waiter, granted waiter)
    for (held, first, second) in [
        (Exclusive, Exclusive, Exclusive),
        (Shared, Exclusive, Shared),
        (Exclusive, Shared, Exclusive),
    ] {
        let mut h = start();
        h.takes("a", held, 1);
        let b = h.waits("b", first);
        let c = h.waits("c", second);
        if held == Exclusive {
            h.is_deleted();
        }
        h.grants(c, 2);
        h.after(TTL_MS + 1);
        h.mark(Mark::Operated);
        h.grants(b, 3);
        h.refused_for(Rule::OutOfOrder);
    }
    // A request without BLOCK overtakes a waiter.
    let mut h = start();
    h.takes("a", Shared, 1);
    let b = h.asks("b", What::Acquire(Exclusive, Some(50)));
    h.takes("c", Shared, 2);
    h.after(51);
    h.ends(b, Outcome::Null);
    h.refused_for(Rule::OutOfOrder);
    // An earlier reader overtakes a conversion.
    let mut h = start();
    h.takes("a", Shared, 1);
    h.takes("b", Shared, 2);
    let w = h.waits("w", Exclusive);
    let c = h.waits("c", Shared);
    let b = h.waits("b", Exclusive);
    h.is_killed(w);
    h.grants(c, 3);
    h.is_killed(b);
    h.refused_for(Rule::OutOfOrder);
}

#[test]
fn a_waiter_without_answer_is_refused() {
    let mut h = held();
    h.waits("b", Exclusive);
    h.refused_for(Rule::Unanswered);
    let mut h = held();
    let b = h.waits("b", Exclusive);
    h.ends(b, Outcome::Closed);
    h.refused_for(Rule::Unanswered);
    let mut h = held();
    let b = h.waits("b", Exclusive);
    h.ends(b, Outcome::Error("UNBLOCKED by nobody".into()));
    h.refused_for(Rule::Unanswered);
}

#[test]
fn an_early_timeout_is_refused() {
    for (timeout_ms, after_ms) in [(10, 9), (0, 1_000)] {
        let mut h = held();
        let b = h.asks("b", What::Acquire(Exclusive, Some(timeout_ms)));
        h.after(after_ms);
        h.ends(b, Outcome::Null);
        h.refused_for(Rule::EarlyTimeout);
    }
}

#[test]
fn a_missing_hand_off_is_refused() {
    let mut h = held();
    let b = h.waits("b", Exclusive);
    h.releases("a");
    h.mark(Mark::Operated);
    h.grants(b, 2);
    h.refused_for(Rule::Idle);
    // The second of two readers.
    let mut h = held();
    let b = h.waits("b", Shared);
    let c = h.waits("c", Shared);
    h.releases("a");
    h.grants(b, 2);
    h.mark(Mark::Operated);
    h.grants(c, 3);
    h.refused_for(Rule::Idle);
    // Free on its own, and observed several times.
    for (looks, paused) in [(5, false), (4, false), (5, true)] {
        let mut h = held();
        let b = h.waits("b", Exclusive);
        h.is_deleted();
        for _ in 0..looks {
            h.shows(None, &[], &[("b", Exclusive)]);
            h.after(1);
        }
        let from_us = h.now_us();
        let until_us = from_us + 1_000;
        if paused {
            h.history.pauses.push(Pause {
                from_us: from_us - 10_000,
                until_us,
            });
        }
        h.grants(b, 2);
        h.shows(Some(Exclusive), &[("b", 2)], &[]);
        h.judged((looks, paused) != (5, false), Rule::Idle);
    }
}

#[test]
fn an_info_reply_with_wrong_holds_is_refused() {
    for (mode, holders) in [
        (Some(Exclusive), &[("a", 2)][..]),
        (Some(Exclusive), &[("b", 1)]),
        (Some(Shared), &[("a", 1)]),
        (Some(Exclusive), &[("a", 1), ("b", 2)]),
        (None, &[]),
    ] {
        let mut h = held();
        h.shows(mode, holders, &[]);
        h.refused_for(Rule::ShownHolds);
    }
    let mut h = held();
    h.deadline_ms.insert(1, h.now_ms + TTL_MS + 1);
    h.shows(Some(Exclusive), &[("a", 1)], &[]);
    h.refused_for(Rule::ShownHolds);
}

#[test]
fn an_info_reply_with_a_wrong_queue_is_refused() {
    let (b, c) = (("b", Exclusive), ("c", Exclusive));
    for (queue, lawful) in [
        (&[b, c][..], true),
        (&[c, b], false),
        (&[b], false),
        (&[b, c, c], false),
        (&[b, c, ("d", Shared)], false),
        (&[b, ("c", Shared)], false),
    ] {
        let mut h = held();
        let first = h.waits("b", Exclusive);
        let second = h.waits("c", Exclusive);
        h.shows(Some(Exclusive), &[("a", 1)], queue);
        h.is_killed(first);
        h.is_killed(second);
        h.shows(Some(Exclusive), &[("a", 1)], &[]);
        h.judged(lawful, Rule::ShownQueue);
    }
}

#[test]
fn an_answer_of_the_wrong_kind_is_refused() {
    for what in [What::Release, What::Renew] {
        let mut h = held();
        h.answered("a", what, Outcome::Done(true));
        h.refused_for(Rule::WrongAnswer);
        let mut h = held();
        h.answered("a", what, Outcome::Done(false));
        h.refused_for(Rule::WrongAnswer);
    }
    for outcome in [
        Outcome::Null,
        Outcome::Error("DEADLOCK with nobody".into()),
        Outcome::Error("ERR of any kind".into()),
    ] {
        let mut h = start();
        h.answered("a", What::Acquire(Exclusive, None), outcome);
        h.refused_for(Rule::WrongAnswer);
    }
}

#[test]
fn leftovers_at_the_end_are_refused() {
    let mut h = held();
    h.history.blocked_at_end = 1;
    h.refused_for(Rule::LeftOver);
    let mut h = held();
    let b = h.waits("b", Exclusive);
    h.shows(Some(Exclusive), &[("a", 1)], &[("b", Exclusive)]);
    h.is_killed(b);
    h.refused_for(Rule::LeftOver);
}
