//! Forged histories of guarded writes, of checks, and of releases with ATLEAST.

use redis_lock::lock::Mode::{Exclusive, Shared};

use super::forged::{held, start, Forged, KEY, TTL_MS};
use super::history::{Entry, Mark, Outcome, What};
use super::rule::Rule;

impl Forged {
    fn writes(&mut self) {
        self.history.log.push(Entry::Guarded(KEY.into()));
    }

    fn executes(&mut self, token: &str, writes: usize, outcome: Outcome) {
        let number = self.asks(token, What::Exec);
        (0..writes).for_each(|_| self.writes());
        self.ends(number, outcome);
    }

    fn releases_at_least(&mut self, token: &str, at_least_ms: u64) {
        let number = self.asks(token, What::Release);
        let request = self.history.requests.get_mut(&number).unwrap();
        request.at_least_ms = Some(at_least_ms);
        self.ends(number, Outcome::Done(true));
    }
}

#[test]
fn a_guarded_write_without_its_hold_is_refused() {
    let (done, refused) = (Outcome::Done(true), Outcome::Done(false));
    for (token, after_ms, writes, outcome, rule) in [
        ("a", 0, 1, &done, None),
        ("a", TTL_MS, 1, &done, None),
        ("a", TTL_MS + 1, 1, &done, Some(Rule::Unguarded)),
        ("b", 0, 1, &done, Some(Rule::Unguarded)),
        ("a", 0, 2, &done, Some(Rule::Unguarded)),
        ("a", 0, 0, &done, Some(Rule::WrongAnswer)),
        ("b", 0, 0, &refused, None),
        ("b", 0, 1, &refused, Some(Rule::Unguarded)),
        ("a", TTL_MS + 1, 0, &refused, None),
        ("a", TTL_MS - 1, 0, &refused, Some(Rule::WrongAnswer)),
    ] {
        let mut h = start();
        h.takes("a", Shared, 1);
        h.after(after_ms);
        h.executes(token, writes, outcome.clone());
        match rule {
            None => h.accepted(),
            Some(rule) => h.refused_for(rule),
        }
    }
    // Nobody has asked for it.
    let mut h = held();
    h.mark(Mark::Operated);
    h.writes();
    h.refused_for(Rule::Unguarded);
}

#[test]
fn a_wrong_answer_to_a_check_is_refused() {
    for (token, after_ms, outcome, is_right) in [
        ("a", 0, Outcome::Fence(1), true),
        ("a", 0, Outcome::Fence(2), false),
        ("a", 0, Outcome::Null, false),
        ("a", TTL_MS + 1, Outcome::Null, true),
        ("a", TTL_MS + 1, Outcome::Fence(1), false),
        ("b", 0, Outcome::Null, true),
        ("b", 0, Outcome::Fence(1), false),
    ] {
        let mut h = held();
        h.after(after_ms);
        h.answered(token, What::Check, outcome);
        h.judged(is_right, Rule::WrongAnswer);
    }
}

#[test]
fn a_release_with_another_deadline_than_atleast_says_is_refused() {
    for (at_least_ms, ends_after_ms, is_right) in [
        (20, 20, true),
        (20, 19, false),
        (20, 21, false),
        // It brings the deadline forward, and never back.
        (TTL_MS + 50, TTL_MS, true),
        (TTL_MS + 50, TTL_MS + 50, false),
    ] {
        let mut h = held();
        let since_ms = h.now_ms;
        h.after(5);
        h.releases_at_least("a", at_least_ms);
        h.gives_until("a", Exclusive, 1, since_ms + ends_after_ms);
        h.judged(is_right, Rule::AtLeast);
    }
    for (at_least_ms, is_right) in [(5, true), (6, false)] {
        let mut h = held();
        h.after(5);
        h.releases_at_least("a", at_least_ms);
        h.ends_hold("a");
        h.takes("b", Exclusive, 2);
        h.judged(is_right, Rule::AtLeast);
    }
    // One for nothing.
    let mut h = held();
    h.releases_at_least("a", 20);
    h.refused_for(Rule::WrongAnswer);
}
