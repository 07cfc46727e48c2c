//! How much the timer does in one turn. There may be a million waited keys, and the server serves
//! its clients between two turns.

use super::host::{Server, TurnPart};

/// How long each part of a turn takes at most, but for its last step. A turn has nine parts
/// and a step of the sweep.
const SHARE_US: u64 = 250;

/// Steps between two looks at the clock.
const STEPS: u32 = if cfg!(test) { 2 } else { 8 };

/// One part of a turn. Each part does one step at least, so that no part waits for another for
/// ever.
pub(super) struct Share {
    part: TurnPart,
    ends_us: u64,
    steps: u32,
}

impl Share {
    /// Begins.
    pub(super) fn begin<S: Server>(server: S, part: TurnPart) -> Self {
        Self {
            part,
            ends_us: server.monotonic_us().saturating_add(SHARE_US),
            steps: 0,
        }
    }

    /// Notes a step. Whether the rest is for the next turn.
    pub(super) fn is_over<S: Server>(&mut self, server: S) -> bool {
        self.steps = self.steps.wrapping_add(1);
        self.steps % STEPS == 0 && !server.has_time(self.part, self.ends_us)
    }
}
