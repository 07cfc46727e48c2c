//! Checks the requests as they arrive, and puts them in their queues.

use redis_lock::lock::{Mode, Token};

use super::checker::Checker;
use super::history::{Outcome, Request, What};
use super::rule::Rule;

impl<'h> Checker<'h> {
    pub(super) fn asked(&mut self, at: usize, number: u64) {
        let request = &self.history.requests[&number];
        self.current = Some(number);
        self.carried_out = false;
        self.now_ms = self.now_ms.max(request.asked_us / 1_000);
        self.check_answer(at, request);
        if let What::Acquire(..) = request.what {
            for part in request.parts.numbers() {
                self.line_up(at, part);
            }
        }
    }

    /// The replies that the state at the arrival alone can refute.
    fn check_answer(&mut self, at: usize, request: &'h Request) {
        let (asked_ms, ended_ms) = (request.asked_us / 1_000, request.ended_us / 1_000);
        let token = request.token.as_bytes();
        match (request.what, &request.outcome) {
            (What::Release | What::Renew, Outcome::Done(false)) => {
                let state = self.keys.entry(&request.key).or_default();
                let stands =
                    state.own(token, asked_ms).is_some() && state.own(token, ended_ms).is_some();
                let is_over = || {
                    let token = Token::new(token);
                    token.is_ok_and(|t| {
                        self.may_end_with_its_connection(at, &request.key, t, self.now_ms)
                    })
                };
                if stands && !is_over() {
                    self.refuse(Rule::WrongAnswer, at, format!("0 to a holder: {request:?}"));
                }
            }
            (What::Exec | What::Check, _) => self.check_guarded_answer(at, request),
            (What::Acquire(_, None), Outcome::Null) if !self.may_be_kept_out(at, request) => {
                self.refuse(
                    Rule::WrongAnswer,
                    at,
                    format!("null when free: {request:?}"),
                );
            }
            (What::Acquire(..), Outcome::Error(error)) if error.starts_with("PARTIAL ") => {
                let mut parts = self.parts_of(request);
                let may_hold_some = parts.any(|part| {
                    let state = self.replayed(&part.key);
                    state.is_some_and(|state| state.own(token, asked_ms).is_some())
                });
                if !may_hold_some {
                    self.refuse(Rule::WrongAnswer, at, format!("holds none: {request:?}"));
                }
            }
            (What::Acquire(..), Outcome::Error(error)) if error.starts_with("DEADLOCK ") => {
                let is_cycle = error.starts_with("DEADLOCK a cycle ");
                self.findings.cycles += usize::from(is_cycle);
                let is_told_later = self.may_be_told_later(at, request);
                let is_right = (is_cycle && self.may_close_a_cycle(at, request))
                    || self.is_second_upgrade(at, request)
                    || is_told_later;
                if !is_right {
                    self.refuse(Rule::WrongAnswer, at, format!("no deadlock: {request:?}"));
                }
            }
            _ => {}
        }
    }

    /// Whether others hold one of its keys, or may wait for it.
    fn may_be_kept_out(&self, at: usize, request: &Request) -> bool {
        let asked_ms = request.asked_us / 1_000;
        self.parts_of(request).any(|part| {
            let What::Acquire(mode, _) = part.what else {
                return false;
            };
            let state = self.replayed(&part.key);
            state.is_some_and(|state| state.excludes(part.token.as_bytes(), mode, asked_ms))
                || self
                    .queue(&part.key)
                    .any(|timeline| timeline.may_have_place(at, self.now_ms))
        })
    }

    fn is_second_upgrade(&self, at: usize, request: &Request) -> bool {
        let other_upgrades = self.queue(&request.key).any(|timeline| {
            self.upgrades.contains_key(&timeline.number)
                && timeline.mode == Mode::Exclusive
                && timeline.request.token != request.token
                && timeline.may_stand(at, self.now_ms)
        });
        let asked_ms = request.asked_us / 1_000;
        let state = self.replayed(&request.key);
        let own = state.and_then(|state| state.own(request.token.as_bytes(), asked_ms));
        let is_exclusive = matches!(request.what, What::Acquire(Mode::Exclusive, _));
        other_upgrades && own.is_some() && is_exclusive
    }

    fn line_up(&mut self, at: usize, number: u64) {
        let request = &self.history.requests[&number];
        let asked_ms = request.asked_us / 1_000;
        let token = request.token.as_bytes();
        let state = self.keys.entry(&request.key).or_default();
        let own = state.own(token, asked_ms);
        let upgrades = matches!(request.what, What::Acquire(mode, _) if state.narrows(token, mode, asked_ms))
            && !request.parts.are_several();
        if let (true, Some(hold)) = (upgrades, own) {
            self.upgrades.insert(number, hold.fence.get());
        }
        let now_ms = self.now_ms;
        let arrives_ms = self.next_known_ms(at).min(request.ended_us / 1_000);
        let timelines = &self.timelines;
        let queue = self.queues.entry(&request.key).or_default();
        queue.retain(|waiter| timelines[waiter].may_have_place(at, now_ms));
        let own = queue.iter().map(|waiter| &timelines[waiter]);
        let own: Vec<_> = own.filter(|t| t.request.token == request.token).collect();
        // It may come later than what was logged last, and another client may have gone by then.
        let surely = own
            .iter()
            .filter(|t| t.surely_waits(at, arrives_ms) || t.surely_has_place(at, arrives_ms));
        let latest = surely.map(|t| t.place.1).min();
        let is_resumed = latest.is_some() && !own.iter().any(|t| t.surely_waits(at, arrives_ms));
        self.findings.resumed += usize::from(is_resumed);
        let earliest = own.iter().map(|t| t.place.0).min();
        queue.push(number);
        if let Some(timeline) = self.timelines.get_mut(&number) {
            let (first, last) = timeline.place;
            timeline.place = (earliest.unwrap_or(first), latest.unwrap_or(last));
        }
    }
}
