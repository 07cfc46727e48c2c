//! Checks what depends on the hold of a token at one moment: LOCK.EXEC, LOCK.CHECK, and RELEASE with
//! ATLEAST. The append-only file tells who held the lock.

use redis_lock::lock::{Hold, Token};

use super::checker::Checker;
use super::history::{Outcome, Request, What};
use super::rule::Rule;

impl<'h> Checker<'h> {
    /// A guarded write was carried out.
    pub(super) fn guarded(&mut self, at: usize, key: &'h str) {
        let current = self.current.map(|number| &self.history.requests[&number]);
        let asked = current.filter(|request| {
            let is_asked = request.what == What::Exec && request.key == key;
            is_asked && request.outcome != Outcome::Done(false)
        });
        let Some(request) = asked.filter(|_| !self.carried_out) else {
            return self.refuse(Rule::Unguarded, at, format!("{key}: nobody asked for it"));
        };
        self.carried_out = true;
        self.findings.guarded += 1;
        if self.own_of(request, self.now_ms).is_none() {
            let text = format!("at {}: {request:?}", self.now_ms);
            self.refuse(Rule::Unguarded, at, text);
        }
    }

    /// The replies that the state at the arrival can refute.
    pub(super) fn check_guarded_answer(&mut self, at: usize, request: &'h Request) {
        let own = self.own_of(request, self.now_ms);
        // Redis 8 ends a key within the millisecond of its deadline.
        let later = self.own_of(request, request.ended_us / 1_000 + 1);
        let stands = own.is_some() && later.is_some();
        let may_have_ended = || {
            let token = Token::new(request.token.as_bytes());
            token.is_ok_and(|token| {
                self.may_end_with_its_connection(at, &request.key, token, self.now_ms)
            })
        };
        let is_wrong = match request.outcome {
            Outcome::Fence(fence) => own.is_none_or(|own| own.fence.get() != fence),
            Outcome::Null | Outcome::Done(false) => stands && !may_have_ended(),
            _ => false,
        };
        self.findings.not_held += usize::from(request.outcome == Outcome::Done(false));
        if is_wrong {
            self.refuse(Rule::WrongAnswer, at, format!("{own:?} for {request:?}"));
        }
    }

    /// The command in execution releases this hold with ATLEAST.
    fn releases_later(&self, key: &str, token: Token<'_>) -> Option<u64> {
        let is_current = self.is_current(What::Release, key, token);
        let current = self.current.filter(|_| is_current)?;
        self.history.requests[&current].at_least_ms
    }

    /// A hold is kept, with another deadline. If ATLEAST has done it, that is the only right one.
    pub(super) fn kept_at_least(
        &mut self,
        at: usize,
        key: &'h str,
        token: Token<'_>,
        own: Hold,
        hold: Hold,
    ) {
        let Some(at_least_ms) = self.releases_later(key, token) else {
            return;
        };
        let ends_ms = self.keys[key].end_ms(own).min(own.since.ms() + at_least_ms);
        if self.carried_out || hold.deadline.ms() != ends_ms {
            let text = format!("{token:?} on {key} until {ends_ms}: {hold:?}");
            self.refuse(Rule::AtLeast, at, text);
        }
        self.carried_out = true;
        self.findings.later += 1;
        // It is an ordinary hold from now on.
        self.bindings.release(hold.fence.get());
    }

    /// A hold ends. ATLEAST may not do that too early.
    pub(super) fn ended_at_least(
        &mut self,
        at: usize,
        key: &'h str,
        token: Token<'_>,
        own: Hold,
        now_ms: u64,
    ) {
        let at_least_ms = self.releases_later(key, token).unwrap_or(0);
        let latest_ms = self.next_known_ms(at).max(now_ms);
        if latest_ms < own.since.ms() + at_least_ms {
            let text = format!("{token:?} on {key} at {now_ms}: {own:?}");
            self.refuse(Rule::AtLeast, at, text);
        }
    }

    fn own_of(&self, request: &Request, now_ms: u64) -> Option<Hold> {
        let state = self.replayed(&request.key)?;
        state.own(request.token.as_bytes(), now_ms)
    }
}
