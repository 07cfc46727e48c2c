//! What the settings say.

#[cfg(any(test, feature = "fault-injection"))]
use super::rules::Rule;

/// By how much the clocks of two servers may differ, in milliseconds.
pub const CLOCKS_APART_MS: u64 = 1_000;

/// How much longer than a lease a server waits after its start, in milliseconds.
pub const AFTER_START_MS: u64 = 1_000;

/// By how many of a thousand the speeds of two clocks may differ.
pub(super) const DRIFT: u64 = 10;

/// How often a primary tells its replicas of the guard, asks what they have received, and looks at
/// its slots.
pub(in crate::engine) const BEAT_US: u64 = 250_000;

/// After what the server waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// After nothing.
    #[default]
    Off,
    /// After a start, and a step of the wall clock.
    Restart,
    /// Also after a promotion, and in slots that move.
    Failover,
    /// Also while no majority of the servers follows this one.
    Quorum,
}

/// What the settings of the server say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// After what it waits.
    pub scope: Scope,
    /// The longest lease, in milliseconds.
    pub max_ttl_ms: u64,
    /// How late an old primary may still grant, in milliseconds.
    pub slack_ms: u64,
    /// How many servers a group has, the primary included.
    pub members: usize,
    /// How old what a member has acknowledged may be, in milliseconds.
    pub fresh_ms: u64,
    /// The rule that is left out, to see that it matters.
    #[cfg(any(test, feature = "fault-injection"))]
    pub without: Option<Rule>,
}

impl Settings {
    /// For how long nothing new is granted where another server may have decided, in microseconds:
    /// C in `docs/FAILOVER.md`. The longest lease of all is `longest_ms`.
    pub(super) const fn wait_us(&self, longest_ms: u64) -> u64 {
        match self.scope {
            Scope::Quorum => with_drift_us(longest_ms.saturating_add(self.fresh_ms)),
            _ => longest_ms
                .saturating_add(self.slack_ms)
                .saturating_mul(1_000),
        }
    }
}

/// A time of another server's clock that is certainly over here, in microseconds.
pub(super) const fn with_drift_us(ms: u64) -> u64 {
    ms.saturating_mul(4 * DRIFT + 1_000)
}
