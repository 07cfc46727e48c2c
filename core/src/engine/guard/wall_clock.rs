//! Steps of the wall clock, against a clock that nobody can set.

use super::settings::DRIFT;

/// The steps that are passed over, in microseconds.
const SMALL_STEPS_US: i64 = 2_000;

/// How long a look is good for, in microseconds. A step seems smaller by the drift of all the time
/// since the last look. Each grant and each renewal looks, so that time is no longer than a lease,
/// from which clients take as much.
const FRESH_US: u64 = 100_000;

/// For how long a step back matters to those who compare this clock with theirs, in microseconds:
/// more than the last beats of a hand-over span.
const BACK_US: u64 = 2_000_000;

/// The wall clock, as it was looked at last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WallClock(Option<Looked>);

/// The clocks when they were looked at last.
#[derive(Clone, Copy, Debug)]
struct Looked {
    /// How far the wall clock is ahead of the other one.
    ahead_us: i64,
    at_us: u64,
    /// How far it was stepped forward since the guard began last for it.
    stepped_us: i64,
    /// When it was set back last.
    back_us: Option<u64>,
}

impl WallClock {
    /// Whether it must be looked at: it was stepped since the last look, as it seems, or that is
    /// long ago. After a step back, one forward by as much would be none.
    #[inline]
    pub(super) fn must_look(&self, wall_us: u64, boot_us: u64) -> bool {
        self.0.is_none_or(|looked| {
            let ahead_us = ahead_us(wall_us, boot_us);
            let grown_us = ahead_us.saturating_sub(looked.ahead_us);
            let is_forward = grown_us.saturating_add(looked.stepped_us) > SMALL_STEPS_US;
            let is_old = boot_us.saturating_sub(looked.at_us) > FRESH_US;
            is_old || is_forward || grown_us < -SMALL_STEPS_US
        })
    }

    /// Whether it was stepped forward since it was looked at last. The speeds of two clocks may
    /// differ, and clients count their leases shorter by as much.
    pub(super) fn was_stepped(&mut self, wall_us: u64, boot_us: u64) -> bool {
        // A busy server looks each microsecond. Only the jitter that is up would add up then.
        if !self.must_look(wall_us, boot_us) {
            return false;
        }
        let ahead_us = ahead_us(wall_us, boot_us);
        let before = self.0.unwrap_or(Looked {
            ahead_us,
            at_us: boot_us,
            stepped_us: 0,
            back_us: None,
        });
        let passed_us = boot_us.saturating_sub(before.at_us);
        let drift_us = passed_us.saturating_mul(DRIFT) / 1_000;
        let drift_us = i64::try_from(drift_us).unwrap_or(i64::MAX);
        let grown_us = ahead_us.saturating_sub(before.ahead_us);
        let step_us = grown_us.saturating_sub(drift_us).max(0);
        let stepped_us = before.stepped_us.saturating_add(step_us);
        let was_stepped = stepped_us > SMALL_STEPS_US;
        self.0 = Some(Looked {
            ahead_us,
            at_us: boot_us,
            stepped_us: if was_stepped { 0 } else { stepped_us },
            back_us: match grown_us < -SMALL_STEPS_US {
                true => Some(boot_us),
                false => before.back_us,
            },
        });
        was_stepped
    }

    /// When it was set back last.
    pub(super) fn set_back_us(&self) -> Option<u64> {
        self.0.and_then(|looked| looked.back_us)
    }

    /// Whether it was set back a moment ago: the last beats say wrongly how far others are ahead.
    pub(super) fn was_set_back(&self, boot_us: u64) -> bool {
        let back_us = self.set_back_us();
        back_us.is_some_and(|us| boot_us.saturating_sub(us) < BACK_US)
    }
}

/// How far the wall clock is ahead of the other one. Neither reaches 2^63 microseconds.
#[inline]
fn ahead_us(wall_us: u64, boot_us: u64) -> i64 {
    let signed = |us: u64| i64::try_from(us).unwrap_or(i64::MAX);
    signed(wall_us).saturating_sub(signed(boot_us))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients take 1 % from their leases.
    #[test]
    fn a_step_of_a_tenth_of_a_long_time_is_a_step() {
        let mut clock = WallClock::default();
        assert!(!clock.was_stepped(0, 0));
        assert!(!clock.clone().was_stepped(27_300_000, 27_300_000));
        assert!(clock.was_stepped(30_020_000, 27_300_000));
    }
}
