//! Forged histories of holds that were taken back, and of some that were not.

use redis_lock::lock::Mode::{Exclusive, Shared};

use super::forged::{held, start};
use super::rule::Rule;

#[test]
fn taking_back_a_delivered_share_is_refused() {
    let mut h = start();
    h.takes("a", Shared, 1);
    h.takes("b", Shared, 2);
    let b = h.waits("b", Exclusive);
    h.releases("a");
    h.gives("b", Exclusive, 2);
    h.is_killed(b);
    h.ends_hold("b"); // Its shared hold was delivered, and stays converted.
    h.refused_for(Rule::TakenAway);
}

#[test]
fn an_undelivered_grant_that_stays_is_refused() {
    for taken_back in [false, true] {
        let mut h = held();
        let b = h.waits("b", Exclusive);
        h.releases("a");
        h.history.operator = 3; // The request of the hold.
        h.gives("b", Exclusive, 2);
        h.is_killed(b);
        h.shows(Some(Exclusive), &[("b", 2)], &[]);
        if taken_back {
            h.ends_hold("b");
        }
        for _ in 0..2 {
            h.after(3);
            match taken_back {
                true => h.shows_nothing(),
                false => h.shows(Some(Exclusive), &[("b", 2)], &[]),
            }
        }
        h.judged(taken_back, Rule::NotTakenBack);
    }
}

#[test]
fn an_undelivered_hold_stays_for_the_grace_and_no_longer() {
    for is_in_time in [false, true] {
        let mut h = held();
        let b = h.waits("b", Exclusive);
        h.keeps(b, 20);
        h.releases("a");
        h.history.operator = 3; // The request of the hold.
        h.gives("b", Exclusive, 2);
        h.is_killed(b);
        for _ in 0..2 {
            h.after(if is_in_time { 9 } else { 23 });
            h.shows(Some(Exclusive), &[("b", 2)], &[]);
        }
        h.ends_hold("b");
        h.judged(is_in_time, Rule::NotTakenBack);
    }
}
