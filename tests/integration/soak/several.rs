//! Checks requests for several keys: all or none, in one step, under one fence. And the cycles of
//! waits that tokens with several holds can close.

use std::collections::BTreeSet;

use redis_lock::lock::{Effect, Fence, Mode, Token};

use super::checker::Checker;
use super::history::{effect, Entry, Parts, Request, Sample, Shown};
use super::replay::tolerates;

/// The key of an entry that grants a hold to this token under this fence.
fn granted<'h>(entry: &'h Entry, token: Token<'_>, fence: Fence) -> Option<&'h str> {
    let Entry::Effect(key, bytes) = entry else {
        return None;
    };
    match effect(bytes) {
        Effect::Hold {
            token: to, hold, ..
        } if to == token && hold.fence == fence => Some(key),
        _ => None,
    }
}

fn is_boundary(entry: &Entry) -> bool {
    matches!(entry, Entry::Mark(_) | Entry::Begin | Entry::End)
}

impl<'h> Checker<'h> {
    pub(super) fn parts_of(&self, request: &Request) -> impl Iterator<Item = &'h Request> {
        let history = self.history;
        let parts = request.parts.numbers();
        parts.map(|part| &history.requests[&part])
    }

    /// Whether the transaction around a grant has it for all its keys.
    pub(super) fn is_whole(&self, at: usize, parts: Parts, token: Token<'_>, fence: Fence) -> bool {
        let log = &self.history.log;
        let begin = (0..at)
            .rev()
            .take_while(|at| !is_boundary(&log[*at]))
            .last();
        let begin = begin.unwrap_or(at).checked_sub(1);
        let is_begun = begin.is_some_and(|begin| log[begin] == Entry::Begin);
        let after = log.iter().skip(begin.map_or(0, |begin| begin + 1));
        let step = after.take_while(|entry| !is_boundary(entry));
        let granted: BTreeSet<_> = step.filter_map(|e| granted(e, token, fence)).collect();
        let numbers = parts.numbers();
        let asked = numbers.map(|part| &self.history.requests[&part].key[..]);
        is_begun && granted == asked.collect()
    }

    /// Whether the same step has granted another key before, under the same fence.
    pub(super) fn is_granted_on(
        &self,
        at: usize,
        key: &str,
        token: Token<'_>,
        fence: Fence,
    ) -> bool {
        let before = self.history.log[..at].iter().rev();
        let mut step = before.take_while(|entry| !is_boundary(entry));
        step.any(|entry| granted(entry, token, fence).is_some_and(|other| other != key))
    }

    /// Whether all keys of the head of a queue admit it, as they are shown.
    pub(super) fn shown_keys_admit(
        &self,
        sample: &Sample,
        key: &str,
        (token, mode): &(String, Mode),
    ) -> bool {
        let several = self.queue(key).find(|timeline| {
            timeline.request.token == *token && timeline.request.parts.are_several()
        });
        let Some(several) = several else {
            return admits(&sample.shown[key], token, *mode);
        };
        self.parts_of(several.request).all(|part| {
            let shown = &sample.shown[&part.key];
            let head = shown.waiters.first().filter(|(head, _)| head == token);
            head.is_some_and(|(_, mode)| admits(shown, token, *mode))
        })
    }

    /// Whether a request may wait for a token that waits, over any number of others, for its own.
    pub(super) fn may_close_a_cycle(&self, at: usize, request: &Request) -> bool {
        let own = request.token.as_bytes();
        let mut tokens = BTreeSet::new();
        for part in self.parts_of(request) {
            tokens.extend(self.in_the_way(at, &part.key));
        }
        tokens.remove(own);
        let mut unseen: Vec<_> = tokens.iter().cloned().collect();
        while let Some(token) = unseen.pop() {
            let waited_for = self.queues.keys().filter(|key| {
                self.queue(key).any(|timeline| {
                    timeline.request.token.as_bytes() == token
                        && timeline.may_have_place(at, self.now_ms)
                })
            });
            for next in waited_for.flat_map(|key| self.in_the_way(at, key)) {
                if next == own {
                    return true;
                }
                if tokens.insert(next.clone()) {
                    unseen.push(next);
                }
            }
        }
        false
    }

    /// The tokens that hold a key, and those that may wait for it.
    fn in_the_way(&self, at: usize, key: &str) -> Vec<Vec<u8>> {
        let waiting = self
            .queue(key)
            .filter(|t| t.may_have_place(at, self.now_ms));
        let mut tokens: Vec<_> = waiting
            .map(|timeline| timeline.request.token.clone().into_bytes())
            .collect();
        if let Some(state) = self.replayed(key) {
            let live = state.live(self.now_ms).into_iter();
            tokens.extend(live.map(|(token, _)| token.as_bytes().to_vec()));
        }
        tokens
    }
}

/// Whether the shown holds of others leave room for a hold.
fn admits(shown: &Shown, token: &str, mode: Mode) -> bool {
    let others = shown.holders.iter().filter(|holder| holder.token != token);
    let others = others.count();
    let is_owner = others < shown.holders.len();
    let by_others = shown.mode.filter(|_| !is_owner);
    others < tolerates(mode).min(by_others.map_or(usize::MAX, tolerates))
}
