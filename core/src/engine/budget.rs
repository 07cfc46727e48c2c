//! How long the timer works in one turn. There may be a million waited keys, and the server serves
//! its clients between two turns.

use super::host::{Server, Work};

/// How long a turn takes at most, but for its last steps.
pub(super) const TURN_US: u64 = 1_000;

/// How long a command ends what is over before its own work.
pub(super) const COMMAND_US: u64 = 250;

/// Steps between two looks at the clock.
const STEPS: u32 = if cfg!(test) { 2 } else { 8 };

/// The time of a turn. All kinds of work share it, and each does one step at least, so that none
/// waits for another for ever.
pub(super) struct Budget {
    ends_us: u64,
    steps: u32,
}

impl Budget {
    /// Begins.
    pub(super) fn begin<S: Server>(server: S, us: u64) -> Self {
        Self {
            ends_us: server.monotonic_us().saturating_add(us),
            steps: 0,
        }
    }

    /// Notes a step. Whether the rest of this work is for the next turn.
    pub(super) fn is_over<S: Server>(&mut self, server: S, work: Work) -> bool {
        self.steps = self.steps.wrapping_add(1);
        self.steps % STEPS == 0 && !server.has_time(work, self.ends_us)
    }
}
