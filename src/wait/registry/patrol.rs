//! The patrol: it looks at waited keys now and then, because nobody tells of some changes.

use super::changes::Lap;

/// How many keys a patrol looks at, and how many places it passes. With more of them, each has its
/// turn later.
pub(super) const KEYS: usize = 1_000;
pub(super) const PLACES: usize = 10_000;

#[derive(Clone, Debug, Default)]
pub(super) struct Patrol {
    pub(super) lap: Lap,
    pub(super) keys_left: usize,
}
