//! The state of a key by the append-only file: the core's own effects, applied as on a replica, and
//! slow queries of the result.

use redis_lock::lock::{Effect, Hold, Lock, Mode, TokenText};

use crate::harness::apply;

/// How many holders a hold tolerates, itself included.
pub fn tolerates(mode: Mode) -> usize {
    match mode {
        Mode::Exclusive => 1,
        Mode::Shared => usize::MAX,
        Mode::Counted(limit) => limit.get().try_into().unwrap(),
    }
}

/// The state of a key at a position of the file.
#[derive(Default)]
pub struct Replayed {
    lock: Option<Lock>,
    /// The key's own expiry, in milliseconds since the epoch.
    ends_ms: Option<u64>,
}

impl Replayed {
    /// All live holds at this instant.
    pub fn live(&self, now_ms: u64) -> Vec<(TokenText<'_>, Hold)> {
        let live = self.live_modes(now_ms).into_iter();
        live.map(|(token, _, hold)| (token, hold)).collect()
    }

    /// The same, with their modes.
    pub fn live_modes(&self, now_ms: u64) -> Vec<(TokenText<'_>, Mode, Hold)> {
        let key_lives = self.ends_ms.is_none_or(|end| now_ms <= end);
        let lock = self.lock.iter().filter(|_| key_lives);
        let holds = lock.flat_map(Lock::holds);
        holds
            .filter(|(.., hold)| now_ms <= hold.deadline.ms())
            .collect()
    }

    /// That of the live hold that tolerates the fewest holders.
    pub fn mode(&self, now_ms: u64) -> Option<Mode> {
        let live = self.live_modes(now_ms).into_iter();
        live.map(|(_, mode, _)| mode)
            .min_by_key(|mode| tolerates(*mode))
    }

    /// The live hold of a token at this instant.
    pub fn own(&self, token: &[u8], now_ms: u64) -> Option<Hold> {
        let live = self.live(now_ms);
        let own = live.iter().find(|(owner, _)| owner.as_bytes() == token);
        own.map(|(_, hold)| *hold)
    }

    /// Whether the holds of others at this instant exclude this mode.
    pub fn excludes(&self, token: &[u8], mode: Mode, now_ms: u64) -> bool {
        let live = self.live_modes(now_ms);
        let is_own = |owner: &TokenText<'_>| owner.as_bytes() == token;
        let own = live.iter().find(|(owner, ..)| is_own(owner));
        let others = live.iter().filter(|(owner, ..)| !is_own(owner));
        let all = others.clone().count() + 1;
        let tolerated = tolerates(mode);
        match own {
            Some((_, own, _)) => tolerated < tolerates(*own) && all > tolerated,
            None => {
                let smallest = others.map(|(_, mode, _)| tolerates(*mode)).min();
                all > smallest.map_or(tolerated, |smallest| smallest.min(tolerated))
            }
        }
    }

    /// Whether the token has a hold that tolerates more holders than this mode.
    pub fn narrows(&self, token: &[u8], mode: Mode, now_ms: u64) -> bool {
        let live = self.live_modes(now_ms);
        let own = live.iter().find(|(owner, ..)| owner.as_bytes() == token);
        own.is_some_and(|(_, own, _)| tolerates(mode) < tolerates(*own))
    }

    /// Whether the hold of another token lasts longer than the key.
    pub fn outlives_key(&self, token: &[u8], now_ms: u64) -> bool {
        let live = self.live(now_ms);
        let mut others = live.iter().filter(|(owner, _)| owner.as_bytes() != token);
        others.any(|(_, hold)| self.end_ms(*hold) < hold.deadline.ms())
    }

    /// When a hold ends.
    pub fn end_ms(&self, hold: Hold) -> u64 {
        let end = hold.deadline.ms();
        self.ends_ms.map_or(end, |key| key.min(end))
    }

    /// The key's own expiry is that of its last hold again, if it is held at all.
    pub fn apply(&mut self, effect: &Effect<'_>) {
        apply(effect, &mut self.lock);
        self.ends_ms = None;
    }

    /// The key got an expiry from outside, or lost it.
    pub fn ends(&mut self, end_ms: Option<u64>) {
        self.ends_ms = end_ms;
    }
}
