//! Checks LINGER: a hold that is bound to a connection ends soon after it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use redis_lock::lock::Token;

use super::checker::{Checker, Unheard};
use super::history::{History, Outcome, Request, Sample, What};
use super::info_replies::Due;
use super::rule::Rule;

/// What LINGER binds, by the requests of the clients.
#[derive(Default)]
pub(super) struct Bindings<'h> {
    /// The requests for holds, by key and token.
    acquires: HashMap<&'h str, HashMap<&'h [u8], Vec<&'h Request>>>,
    /// The connections that their clients closed, by when, with the beginning.
    cuts: BTreeMap<(u64, i64), u64>,
    /// Since when a connection may be lost.
    lost_us: HashMap<i64, u64>,
    /// The delivered holds with LINGER 0, by connection.
    ending: HashMap<i64, Vec<&'h Request>>,
    /// The fences of holds that have left their keys.
    unbound: BTreeSet<u64>,
    /// Holds that must end.
    due: Vec<Unheard<'h>>,
}

/// The server needs so long to notice a lost connection, and two looks.
const SOON_US: u64 = 20_000;

impl<'h> Bindings<'h> {
    /// A hold is not bound any more.
    pub(super) fn release(&mut self, fence: u64) {
        self.unbound.insert(fence);
    }

    pub(super) fn of(history: &'h History) -> Self {
        let mut bindings = Self::default();
        for request in history.requests.values() {
            if let What::Acquire(..) = request.what {
                let of_key = bindings.acquires.entry(&request.key).or_default();
                let of_token = of_key.entry(request.token.as_bytes()).or_default();
                of_token.push(request);
            }
            if let Outcome::Cut { since_us } = request.outcome {
                let cut = (request.ended_us, request.connection);
                bindings.cuts.insert(cut, since_us);
                bindings.lost_us.insert(request.connection, since_us);
            }
            if let (Some(0), Outcome::Fence(_)) = (request.linger_ms, &request.outcome) {
                let ending = bindings.ending.entry(request.connection);
                ending.or_default().push(request);
            }
        }
        bindings
    }
}

impl<'h> Checker<'h> {
    /// A connection was lost before this instant at the latest.
    pub(super) fn loses(&mut self, connection: i64, lost_us: u64) {
        let since_us = self.bindings.lost_us.entry(connection).or_insert(lost_us);
        *since_us = lost_us.min(*since_us);
        let ending = self.bindings.ending.get(&connection).cloned();
        for request in ending.into_iter().flatten() {
            let of_key = &self.bindings.acquires[&request.key[..]];
            // With one request it is certain which connection the hold is bound to.
            let is_certain = of_key[request.token.as_bytes()].len() == 1;
            let Outcome::Fence(fence) = request.outcome else {
                continue;
            };
            if is_certain && !self.bindings.unbound.contains(&fence) {
                self.bindings.due.push(Unheard {
                    key: &request.key,
                    token: request.token.clone().into_bytes(),
                    fence,
                    at: 0,
                    due: Due::since(lost_us + SOON_US),
                });
            }
        }
    }

    /// The clients have closed these connections.
    pub(super) fn loses_those_cut_before(&mut self, now_us: u64) {
        while let Some(cut) = self.bindings.cuts.first_entry() {
            let (ended_us, connection) = *cut.key();
            if ended_us > now_us {
                return;
            }
            cut.remove();
            self.loses(connection, ended_us);
        }
    }

    /// A lock that leaves its key leaves its bindings behind.
    pub(super) fn unbind(&mut self, key: &str) {
        let Some(state) = self.keys.get(key) else {
            return;
        };
        let fences = state.live(0).into_iter().map(|(_, hold)| hold.fence.get());
        self.bindings.unbound.extend(fences);
    }

    /// Whether a hold may have ended because its connection was lost.
    pub(super) fn may_end_with_its_connection(
        &self,
        at: usize,
        key: &'h str,
        token: Token<'_>,
        now_ms: u64,
    ) -> bool {
        let acquires = self.bindings.acquires.get(key);
        let own = acquires.and_then(|tokens| tokens.get(token.as_bytes()));
        let mut own = own.into_iter().flatten();
        let latest_ms = || self.next_known_ms(at).max(now_ms);
        own.any(|request| {
            let lost_us = self.bindings.lost_us.get(&request.connection);
            request.linger_ms.is_some() && lost_us.is_some_and(|us| us / 1_000 <= latest_ms())
        })
    }

    /// No hold with LINGER 0 stands long after its connection.
    pub(super) fn check_bound(&mut self, at: usize, sample: &Sample) {
        for mut bound in std::mem::take(&mut self.bindings.due) {
            if !bound.due.is_over(sample) {
                self.bindings.due.push(bound);
                continue;
            }
            let state = self.replayed(bound.key);
            let own = state.and_then(|s| s.own(&bound.token, sample.server_us / 1_000));
            let stands = own.is_some_and(|own| own.fence.get() == bound.fence);
            let is_bound = !self.bindings.unbound.contains(&bound.fence);
            if stands && is_bound && !self.was_paused(bound.due.since_us, sample) {
                let text = format!("{own:?} on {} at {} us", bound.key, sample.server_us);
                self.refuse(Rule::Lingers, at, text);
            }
        }
    }
}
