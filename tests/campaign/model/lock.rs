//! A lock by the append-only file: the holds that a replica would have, and slow questions about them.

use crate::record::{Held, Mode, Shown};

#[derive(Clone, Debug, Default)]
pub struct Lock<'l> {
    holds: Vec<Held<'l>>,
    /// The key's own expiry, if it was set from outside.
    ends_ms: Option<u64>,
}

impl<'l> Lock<'l> {
    /// When a hold ends.
    pub fn end_ms(&self, held: &Held<'_>) -> u64 {
        self.ends_ms.unwrap_or(u64::MAX).min(held.deadline_ms)
    }

    /// The holds at this instant. A deadline still belongs to its hold.
    pub fn live(&self, now_ms: u64) -> impl Iterator<Item = &Held<'l>> {
        let holds = self.holds.iter();
        holds.filter(move |held| now_ms <= self.end_ms(held))
    }

    pub fn own(&self, token: &str, now_ms: u64) -> Option<Held<'l>> {
        let mut live = self.live(now_ms);
        live.find(|held| held.token == token).copied()
    }

    /// Whether the holds of others leave room for this one.
    pub fn admits(&self, token: &str, mode: Mode, now_ms: u64) -> bool {
        let others = self.live(now_ms).filter(|held| held.token != token);
        let (count, least) = others.fold((1, mode), |(count, least), held| {
            (count + 1, least.min(held.mode))
        });
        match self.own(token, now_ms) {
            Some(own) => mode >= own.mode || count <= mode,
            None => count <= least,
        }
    }

    /// Whether a hold of another token lasts longer than the key.
    pub fn outlives_key(&self, token: &str, now_ms: u64) -> bool {
        let mut others = self.live(now_ms).filter(|held| held.token != token);
        others.any(|held| self.end_ms(held) < held.deadline_ms)
    }

    /// The holds that are over have no effect any more, and the key ends with its last hold.
    pub fn hold(&mut self, held: Held<'l>, now_ms: u64) {
        self.release(held.token, now_ms);
        self.holds.push(held);
    }

    pub fn release(&mut self, token: &str, now_ms: u64) {
        self.holds
            .retain(|held| held.token != token && held.deadline_ms >= now_ms);
        self.ends_ms = None;
    }

    pub fn cap(&mut self, end_ms: u64) {
        for held in &mut self.holds {
            held.deadline_ms = held.deadline_ms.min(end_ms);
        }
        self.ends_ms = None;
    }

    pub fn ends(&mut self, end_ms: Option<u64>) {
        self.ends_ms = end_ms;
    }

    /// Whether LOCK.INFO may show these holds between two instants, in which some may end.
    pub fn fits(&self, shown: &Shown<'_>, (from_ms, until_ms): (u64, u64)) -> bool {
        let mode = |ms| self.live(ms).map(|held| held.mode).min();
        let ends = self.holds.iter().map(|held| self.end_ms(held) + 1);
        let mut modes = ends.chain([from_ms]).map(|ms| ms.clamp(from_ms, until_ms));
        let has_mode = modes.any(|ms| mode(ms) == shown.mode) || mode(until_ms) == shown.mode;
        let mut unseen = shown.holders.clone();
        let all = self.live(from_ms).all(|held| {
            let end_ms = self.end_ms(held);
            let is_it = |(token, fence, ttl_ms): &(&str, u64, u64)| {
                let is_in_time =
                    from_ms + ttl_ms <= end_ms && end_ms <= until_ms.saturating_add(*ttl_ms);
                *token == held.token && *fence == held.fence && is_in_time
            };
            match unseen.iter().position(is_it) {
                Some(at) => {
                    unseen.remove(at);
                    true
                }
                // Redis 8.2 deletes a key within the millisecond of its deadline.
                None => end_ms <= until_ms,
            }
        });
        all && unseen.is_empty() && (has_mode || shown.holders.is_empty())
    }
}
