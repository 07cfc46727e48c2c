//! Holds that end: by their owners, with their connections, or because nobody has heard of them.

use super::{Answer, Entry, Grant, Lock, Look, Model, What, LATE_US};
use crate::record::Held;

/// A hold that must end soon.
#[derive(Clone, Debug)]
pub(super) struct Due<'l> {
    rule: &'static str,
    key: &'l str,
    token: &'l str,
    fence: u64,
    /// The server's work by then.
    worked: u64,
}

impl<'r, 'l> Model<'r, 'l> {
    pub(super) fn released(&mut self, at: usize, key: &'l str, token: &'l str, now_ms: u64) {
        if now_ms > 0 {
            self.check_time(key, now_ms);
        }
        let mut lock = self.keys[0].remove(key).unwrap_or_default();
        let own = lock.own(token, self.now_ms);
        let is_asked = self.is_current(What::Release, key, token) && !self.is_carried_out;
        self.check_length(key, &lock, token, self.now_ms);
        lock.release(token, now_ms);
        self.keys[0].insert(key, lock);
        match own {
            Some(own) if is_asked => {
                self.is_carried_out = true;
                let latest_ms = self.next_ms[at + 1].max(now_ms);
                let at_least_ms = self.current.and_then(|one| one.at_least_ms).unwrap_or(0);
                if latest_ms < own.since_ms + at_least_ms {
                    let text = format!("{own:?} of {key} ended at {now_ms}");
                    self.refuse("at least", text);
                }
            }
            Some(own)
                if self.told.contains(&own.fence) && !self.may_end_by_linger(at, key, token) =>
            {
                let text = format!("{own:?} of {key} ended without a reason");
                self.refuse("taken away", text);
            }
            Some(_) => self.counts.taken_back += 1,
            None => {}
        }
    }

    /// A hold is kept with another deadline. If ATLEAST has done it, there is one right deadline.
    pub(super) fn kept_at_least(
        &mut self,
        key: &'l str,
        lock: &Lock<'l>,
        own: Held<'l>,
        held: Held<'l>,
    ) {
        let is_asked = self.is_current(What::Release, key, own.token);
        let at_least_ms = self
            .current
            .filter(|_| is_asked)
            .and_then(|one| one.at_least_ms);
        let Some(at_least_ms) = at_least_ms else {
            return;
        };
        let ends_ms = lock.end_ms(&own).min(own.since_ms + at_least_ms);
        if self.is_carried_out || held.deadline_ms != ends_ms {
            let text = format!("{held:?} of {key}, and not until {ends_ms}");
            self.refuse("at least", text);
        }
        self.is_carried_out = true;
        self.counts.kept += 1;
        // It is an ordinary hold from now on.
        self.unbound.insert(own.fence);
    }

    /// Whether a hold may have ended because its connection was lost.
    pub(super) fn may_end_by_linger(&self, at: usize, key: &str, token: &str) -> bool {
        let mut later = self.record.log.iter().skip(at);
        let read_us = later.find_map(|entry| match entry {
            Entry::Mark(id) => self.record.looks.get(id).map(|look| look.at_us),
            _ => None,
        });
        let read_us = read_us.unwrap_or(u64::MAX);
        let mut all = self.record.acquires_of(key, token);
        all.any(|one| {
            let lost_us = self.record.lost_us.get(&one.connection);
            one.linger_ms.is_some() && lost_us.is_some_and(|us| *us <= read_us)
        })
    }

    /// A connection is lost. With LINGER 0 its holds end.
    pub(super) fn lose(&mut self, connection: i64) {
        let record = self.record;
        let bound = record.requests.iter().filter(|one| {
            let is_certain = |key| record.acquires_of(key, one.token).count() == 1;
            one.connection == connection && one.linger_ms == Some(0) && is_certain(one.keys[0].0)
        });
        for request in bound {
            let Answer::Number(fence) = request.answer else {
                continue;
            };
            let worked = self.worked();
            let dues = request.keys.iter().map(|(key, _)| Due {
                rule: "lingers",
                key,
                token: request.token,
                fence,
                worked,
            });
            self.dues.extend(dues);
        }
    }

    /// Somebody kills a connection, or ends its wait, in the step of these grants: nobody hears of them.
    pub(super) fn strike(&mut self, connection: i64, grants: impl Iterator<Item = Grant<'l>>) {
        self.lose(connection);
        for grant in grants {
            let Held { token, fence, .. } = grant.held;
            let asked = self.record.acquires_of(grant.key, token);
            let here: Vec<_> = asked
                .filter(|one| one.arrived < Some(grant.at) && grant.at <= one.ended_at)
                .collect();
            let is_unheard = here
                .iter()
                .all(|one| one.connection == connection && !one.by_channel);
            if here.is_empty() || !is_unheard || self.told.contains(&fence) {
                continue;
            }
            let keep_ms = here.iter().filter_map(|one| one.keep_ms).max().unwrap_or(0);
            self.dues.push(Due {
                rule: "not taken back",
                key: grant.key,
                token,
                fence,
                worked: self.worked() + keep_ms * 1_000,
            });
        }
    }

    pub(super) fn check_dues(&mut self, look: &Look<'l>) {
        let (worked, now_ms) = (self.worked(), look.server_us / 1_000);
        let mut over = Vec::new();
        let keys = &self.keys[0];
        let unbound = &self.unbound;
        self.dues.retain(|due| {
            let own = keys
                .get(due.key)
                .and_then(|lock| lock.own(due.token, now_ms));
            let stands = own.is_some_and(|own| own.fence == due.fence);
            let is_over = stands && !unbound.contains(&due.fence) && worked > due.worked + LATE_US;
            if is_over {
                over.push(due.clone());
            }
            stands && !is_over
        });
        for due in over {
            let text = format!("{due:?} stands at {now_ms}");
            self.refuse(due.rule, text);
        }
    }
}
