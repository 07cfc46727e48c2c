//! The clocks of a server.

/// How the clocks of a server differ from true time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clocks {
    /// How far the wall clock is ahead at the beginning.
    pub(super) wall_ahead_us: i64,
    /// By how many of a thousand the wall clock is fast.
    pub(super) wall_fast: i64,
    /// The same for the monotonic clock. It begins anywhere.
    pub(super) mono_fast: i64,
    pub(super) mono_begins_us: u64,
}

/// The wall clock at the beginning, where it is right.
const EPOCH_US: u64 = 1_000_000_000_000;

impl Clocks {
    pub(super) fn wall_us(&self, true_us: u64) -> u64 {
        let began_us = EPOCH_US.checked_add_signed(self.wall_ahead_us).unwrap();
        began_us + since_beginning(true_us, self.wall_fast)
    }

    pub(super) fn mono_us(&self, true_us: u64) -> u64 {
        self.mono_begins_us + since_beginning(true_us, self.mono_fast)
    }
}

fn since_beginning(true_us: u64, fast: i64) -> u64 {
    let speed = 1_000_u64.checked_add_signed(fast).unwrap();
    true_us * speed / 1_000
}
