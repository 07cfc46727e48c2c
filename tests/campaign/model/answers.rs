//! What a client may be told, as its request arrives and when it is complete.

use std::time::Duration;

use super::{Answer, Entry, Grant, Model, Request, What, LATE_US, TURN_US};
use crate::record::Start;
use crate::wire::{PATIENCE, SILENCE};

impl<'r, 'l> Model<'r, 'l> {
    /// What the state at the arrival can refute.
    pub(super) fn check_answer(&mut self, at: usize, request: &'r Request<'l>) {
        let is_wrong = match (request.what, request.answer) {
            (What::Acquire, _) => return self.check_acquire(at, request),
            (What::Release | What::Renew, Answer::Number(0)) | (What::Check, Answer::Nil) => {
                self.surely_holds(at, request)
            }
            (What::Exec, Answer::Error(error)) if error.starts_with("NOTHELD ") => {
                self.surely_holds(at, request)
            }
            (What::Check, Answer::Number(fence)) => {
                let own = self.own_of(request, self.now_ms);
                own.is_none_or(|own| own.fence != fence)
            }
            (What::Release | What::Renew | What::Check | What::Exec, Answer::Error(_)) => true,
            _ => false,
        };
        if is_wrong {
            let key = request.keys[0].0;
            let held = self.keys[0].get(key);
            let text = format!("{:?} to {} with {held:?}", request.answer, request.text);
            self.refuse("answer", text);
        }
    }

    fn own_of(&self, request: &Request<'_>, now_ms: u64) -> Option<super::Held<'l>> {
        let lock = self.keys[0].get(request.keys[0].0)?;
        lock.own(request.token, now_ms)
    }

    /// Whether the token has a hold when the request arrives, and long enough for it.
    fn surely_holds(&self, at: usize, request: &Request<'l>) -> bool {
        // An effect may have the time of the beginning of its command, and Redis 8.2 ends a key within
        // the millisecond of its deadline.
        let mut later = self.record.log[at + 1..].iter();
        let seen_us = later.find_map(|entry| match entry {
            Entry::Mark(id) => self.record.looks.get(id).map(|look| look.server_us),
            _ => None,
        });
        let until_ms = seen_us.map_or(u64::MAX, |us| us / 1_000 + 1);
        self.own_of(request, until_ms).is_some()
            && !self.may_end_by_linger(at, request.keys[0].0, request.token)
    }

    fn check_acquire(&mut self, at: usize, request: &'r Request<'l>) {
        let (key, _) = request.keys[0];
        let text = match request.answer {
            Answer::Number(fence) => {
                let of_token = |entry: &Entry<'_>| {
                    matches!(entry, Entry::Hold(of, held, _)
                        if *of == key && held.token == request.token && held.fence == fence)
                };
                let end = request.ended_at.min(self.record.log.len());
                let is_there = self.record.log[at..end].iter().any(of_token);
                let end = self.end_of(request);
                let promised_us = end.map_or(u64::MAX, |end| end.promised_us());
                if !is_there && request.ended_us < promised_us {
                    let text = format!("the file has no such grant: {request:?}");
                    self.refuse("unknown fence", text);
                }
                return;
            }
            Answer::Nil => {
                let waited_us = request.ended_us - request.sent_us;
                let is_early = match request.wait_ms {
                    Some(0) => true,
                    Some(ms) => waited_us < ms * 1_000,
                    None => false,
                };
                // Another request of the token may say that it waits no more.
                if is_early && !self.is_given_up(at, request) {
                    let text = format!("null after {waited_us} us: {request:?}");
                    return self.refuse("early timeout", text);
                }
                let is_wrong = request.wait_ms.is_none() && !self.may_be_kept_out(request);
                is_wrong.then_some("null for a free lock")
            }
            Answer::Error(error) if error.starts_with("DEADLOCK ") => {
                let is_cycle = error.starts_with("DEADLOCK a cycle ");
                self.counts.cycles += usize::from(is_cycle);
                let is_right = self.may_close_a_cycle(request) || self.is_replaced(at, request);
                (!is_right).then_some("no deadlock")
            }
            Answer::Error(error) if error.starts_with("PARTIAL ") => {
                let holds = |(key, _): &(&str, usize)| {
                    let lock = self.keys[0].get(key);
                    lock.is_some_and(|lock| lock.own(request.token, self.now_ms).is_some())
                };
                (!request.keys.iter().any(holds)).then_some("it holds none of them")
            }
            Answer::Error(error) if error.starts_with("UNBLOCKED ") => {
                let is_struck = self.is_struck(at, request, "UNBLOCK");
                (!is_struck && !self.is_of_the_end(request)).then_some("nobody has unblocked it")
            }
            Answer::Error(error) if error.starts_with("CANCELLED ") => {
                (!self.is_given_up(at, request)).then_some("nobody has cancelled it")
            }
            Answer::Error(_) => Some("no such answer"),
            Answer::Lost => {
                let is_struck = self.is_struck(0, request, "KILL");
                let is_right = is_struck || self.is_of_the_end(request);
                (!is_right).then_some("closed without a reason")
            }
            // Nothing is published where a token gives its place up.
            Answer::Open if request.by_channel && self.is_given_up(at, request) => None,
            Answer::Open if self.has_stood_still(at, request) => None,
            Answer::Open => Some("no answer came"),
            Answer::Left => None,
        };
        if let Some(text) = text {
            let rule = match request.answer {
                Answer::Lost | Answer::Open => "unanswered",
                Answer::Error(error) if error.starts_with("UNBLOCKED ") => "unanswered",
                _ => "answer",
            };
            self.refuse(rule, format!("{text}: {request:?}"));
        }
    }

    /// Whether the server has not worked for as long as the request waits, from its arrival until
    /// its client had no more patience. One that writes to a busy disk stands still.
    fn has_stood_still(&self, at: usize, request: &Request<'l>) -> bool {
        let wait = Duration::from_millis(request.wait_ms.unwrap_or(0));
        let patience = match request.by_channel {
            true => wait + SILENCE,
            false => PATIENCE,
        };
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let until_us = request.sent_us + us(patience);
        let life = self.record.log[at..].iter();
        let life = life.take_while(|entry| !matches!(entry, Entry::Starts(_)));
        let looks = life.filter_map(|entry| match entry {
            Entry::Mark(id) => self.record.looks.get(id),
            _ => None,
        });
        let seen_us: Vec<u64> = looks
            .filter(|look| look.at_us <= until_us)
            .map(|look| look.server_us)
            .collect();
        let gaps_us = seen_us
            .windows(2)
            .map(|pair| pair[1].saturating_sub(pair[0]));
        let worked_us: u64 = gaps_us.map(|us| us.min(TURN_US)).sum();
        worked_us < us(wait) + LATE_US
    }

    /// Whether others hold one of its keys, or wait for it.
    fn may_be_kept_out(&self, request: &Request<'l>) -> bool {
        request.keys.iter().any(|(key, mode)| {
            let lock = self.keys[0].get(key);
            let is_held = lock.is_some_and(|lock| !lock.admits(request.token, *mode, self.now_ms));
            let places = self.views.get(key).and_then(|view| view.shown);
            let mut places = places.into_iter().flat_map(|shown| &shown.places);
            is_held || places.any(|place| place.token != request.token)
        })
    }

    /// Whether a later request ends its wait: a release or a cancel, or one with the same token.
    fn is_given_up(&self, at: usize, request: &Request<'l>) -> bool {
        let mut later = self.record.requests.iter();
        later.any(|one| {
            let is_later = one
                .arrived
                .is_some_and(|other| at < other && other <= request.ended_at);
            let is_of_token = match one.what {
                What::Release | What::Acquire => one.token == request.token,
                What::Cancel => one.token.is_empty() || one.token == request.token,
                _ => false,
            };
            let shares = one
                .keys
                .iter()
                .any(|(key, _)| request.mode_of(key).is_some());
            is_later && is_of_token && shares
        })
    }

    /// Whether another lock took the place of its lock while it waited.
    fn is_replaced(&self, at: usize, request: &Request<'l>) -> bool {
        let end = request.ended_at.min(self.record.log.len());
        let mut meanwhile = self.record.log[at..end].iter();
        meanwhile.any(|entry| match entry {
            Entry::Renamed(_, to) => request.mode_of(to).is_some(),
            Entry::Swapped => true,
            _ => false,
        })
    }

    /// Whether somebody has struck at its connection, from this position on.
    fn is_struck(&self, at: usize, request: &Request<'l>, word: &str) -> bool {
        let mut all = self.record.requests.iter();
        all.any(|one| {
            one.what == What::Strike(request.connection)
                && one.text.contains(word)
                && one.arrived >= Some(at)
        })
    }

    /// The end of the server's life in which a request was sent.
    fn end_of(&self, request: &Request<'l>) -> Option<Start<'l>> {
        let mut starts = self.record.log.iter().filter_map(|entry| match entry {
            Entry::Starts(start) => Some(*start),
            _ => None,
        });
        starts.find(|start| start.at_us > request.sent_us)
    }

    /// Whether the server may have told nothing of it, because it ended.
    fn is_of_the_end(&self, request: &Request<'l>) -> bool {
        let end = self.end_of(request);
        end.is_some_and(|end| request.ended_us >= end.struck_us)
    }

    /// Whoever answered has the mark of its request in the file.
    pub(super) fn check_all_answered(&mut self, promised_us: u64, until_us: u64) {
        let record = self.record;
        for request in &record.requests {
            let has_answer = matches!(request.answer, Answer::Number(_) | Answer::Nil);
            let is_lost = request.arrived.is_none() && has_answer;
            let is_of_life = (self.started_us..until_us).contains(&request.sent_us);
            if is_lost && is_of_life && request.ended_us < promised_us && !request.keys.is_empty() {
                let text = format!("answered, and not in the file: {request:?}");
                self.refuse("lost", text);
            }
        }
    }

    /// The request is complete: what it was answered has been done.
    pub(super) fn end_of_command(&mut self) {
        let Some(request) = self
            .current
            .filter(|one| !self.is_carried_out && one.keys.len() == 1)
        else {
            return;
        };
        let is_done = match request.what {
            What::Release | What::Renew => request.answer == Answer::Number(1),
            What::Exec => matches!(request.answer, Answer::Number(_)),
            _ => false,
        };
        if is_done {
            let text = format!("{:?} for nothing: {request:?}", request.answer);
            self.refuse("answer", text);
        }
    }

    /// A guarded write was carried out.
    pub(super) fn counted(&mut self, key: &'l str) {
        let current = self.current.filter(|one| {
            let is_asked = one.what == What::Exec && one.mode_of(key).is_some();
            is_asked && !self.is_carried_out && !one.is_error("NOTHELD ")
        });
        let own = current.and_then(|request| self.own_of(request, self.now_ms));
        self.is_carried_out = true;
        self.counts.guarded += 1;
        if own.is_none() {
            let text = format!("a write at {key} by {current:?}");
            self.refuse("unguarded", text);
        }
    }

    /// A grant that no request was told is one of a client that has gone.
    pub(super) fn check_heard(&mut self, key: &str, grant: &Grant<'l>) {
        if self.told.contains(&grant.held.fence) {
            return;
        }
        let asked = self.record.acquires_of(key, grant.held.token);
        let mut waiting = asked.filter(|one| one.may_stand_at(grant.at));
        let has_gone = |one: &Request<'_>| !matches!(one.answer, Answer::Nil | Answer::Number(_));
        if !waiting.any(has_gone) {
            let text = format!("nobody was told of {:?} of {key}", grant.held);
            self.refuse("unheard", text);
        }
    }
}
