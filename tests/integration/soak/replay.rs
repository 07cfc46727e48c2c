//! The state of a key by the append-only file: the core's own effects, applied as on a replica, and
//! slow queries of the result.

use redis_lock::lock::{Effect, Fate, Hold, Lock, Mode, TokenText};

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
        let key_lives = self.ends_ms.is_none_or(|end| now_ms <= end);
        let lock = self.lock.iter().filter(|_| key_lives);
        let holders = lock.flat_map(Lock::holders);
        holders
            .filter(|(_, hold)| now_ms <= hold.deadline.ms())
            .collect()
    }

    /// The smallest mode of the live holds at this instant.
    pub fn mode(&self, now_ms: u64) -> Option<Mode> {
        let modes = self.live_modes(now_ms).into_iter();
        modes
            .map(|(_, mode)| mode)
            .min_by_key(|mode| mode.tolerates())
    }

    /// The mode of a token's live hold at this instant.
    pub fn mode_of(&self, token: &[u8], now_ms: u64) -> Option<Mode> {
        let mut modes = self.live_modes(now_ms).into_iter();
        let own = modes.find(|(owner, _)| owner.as_bytes() == token);
        own.map(|(_, mode)| mode)
    }

    /// Whether a token shares the lock with others, or could.
    pub fn is_sharer(&self, token: &[u8], now_ms: u64) -> bool {
        let mode = self.mode_of(token, now_ms);
        mode.is_some_and(|mode| mode != Mode::Exclusive)
    }

    fn live_modes(&self, now_ms: u64) -> Vec<(TokenText<'_>, Mode)> {
        let key_lives = self.ends_ms.is_none_or(|end| now_ms <= end);
        let lock = self.lock.iter().filter(|_| key_lives);
        let live = lock.flat_map(Lock::holds);
        let live = live.filter(|(_, _, hold)| now_ms <= hold.deadline.ms());
        live.map(|(token, mode, _)| (token, mode)).collect()
    }

    /// The live hold of a token at this instant.
    pub fn own(&self, token: &[u8], now_ms: u64) -> Option<Hold> {
        let live = self.live(now_ms);
        let own = live.iter().find(|(owner, _)| owner.as_bytes() == token);
        own.map(|(_, hold)| *hold)
    }

    /// Whether the holds of others at this instant exclude this mode.
    pub fn excludes(&self, token: &[u8], mode: Mode, now_ms: u64) -> bool {
        let mut others = self.live_modes(now_ms);
        others.retain(|(owner, _)| owner.as_bytes() != token);
        let smallest = others.iter().map(|(_, mode)| mode.tolerates()).min();
        smallest.is_some_and(|n| n.min(mode.tolerates()) as usize <= others.len())
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
        let fate = match &mut self.lock {
            Some(lock) => effect.apply_to(lock),
            None => {
                self.lock = effect.apply_to_absent();
                Fate::Held
            }
        };
        if fate == Fate::Free {
            self.lock = None;
        }
        self.ends_ms = None;
    }

    /// The key got an expiry from outside, or lost it.
    pub fn ends(&mut self, end_ms: Option<u64>) {
        self.ends_ms = end_ms;
    }
}
