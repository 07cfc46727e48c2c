//! Forged histories of grants of several keys, and of holds that are bound to a connection.

use redis_lock::lock::Mode::{self, Exclusive, Shared};

use super::forged::{held, start, TTL_MS};
use super::history::{Entry, Outcome, What};
use super::rule::Rule;

#[test]
fn a_grant_of_several_keys_that_is_not_whole_is_refused() {
    for (is_one_step, has_all) in [(true, true), (true, false), (false, true)] {
        let mut h = held();
        let b = h.waits_for_two("b");
        h.releases("a");
        if is_one_step {
            h.history.log.push(Entry::Begin);
        }
        h.gives("b", Exclusive, 2);
        if has_all {
            h.also_for_the_other_key();
        }
        if is_one_step {
            h.history.log.push(Entry::End);
        }
        h.delivered(b, 2);
        h.delivered(b + 1, 2);
        let breaches = super::checker::check(&h.history).err().unwrap_or_default();
        let is_torn = breaches.iter().any(|breach| breach.rule == Rule::Torn);
        assert_eq!(is_torn, !(is_one_step && has_all), "{breaches:?}");
        assert_eq!(breaches.is_empty(), is_one_step && has_all, "{breaches:?}");
    }
}

#[test]
fn a_hold_that_outlives_the_connection_it_is_bound_to_is_refused() {
    for ends in [false, true] {
        let mut h = start();
        let a = h.asks("a", What::Acquire(Exclusive, None));
        h.grants(a, 1);
        let request = h.history.requests.get_mut(&a).unwrap();
        request.linger_ms = Some(0);
        h.is_killed(a);
        h.delivered(a, 1);
        if ends {
            h.ends_hold("a");
        }
        for _ in 0..2 {
            h.after(25);
            match ends {
                true => h.shows_nothing(),
                false => h.shows(Some(Exclusive), &[("a", 1)], &[]),
            }
        }
        h.judged(ends, Rule::Lingers);
    }
}

#[test]
fn a_deadlock_without_a_cycle_is_refused() {
    let mut h = held();
    let b = h.waits("b", Exclusive);
    h.ends(b, Outcome::Error("DEADLOCK a cycle of 2 waits: k".into()));
    h.refused_for(Rule::WrongAnswer);
}

#[test]
fn a_limit_that_ends_during_a_look_need_not_be_shown() {
    let permit = |limit| Mode::of_limit(limit).unwrap();
    for (mode, is_right) in [(Shared, true), (permit(2), true), (permit(3), false)] {
        let mut h = start();
        h.takes("a", permit(2), 1);
        h.after(1);
        h.takes("b", Shared, 2);
        h.after(TTL_MS);
        h.shows(Some(mode), &[("b", 2)], &[]);
        let mut sample = h.history.samples.last_entry().unwrap();
        sample.get_mut().server_us -= 1_000;
        sample.get_mut().ended_us += 1_000;
        h.judged(is_right, Rule::ShownHolds);
    }
}
