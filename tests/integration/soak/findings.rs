//! The figures of a check.

use std::fmt;

/// How much was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    pub requests: usize,
    pub effects: usize,
    pub grants: usize,
    /// Those of them that are counted holds.
    pub permits: usize,
    /// Grants to requests that had waited.
    pub hand_offs: usize,
    /// Those of them that came by a channel.
    pub notified: usize,
    /// Those of these that are of several keys.
    pub notified_several: usize,
    /// Requests by a channel whose client has vanished, with KEEP and without.
    pub deaf_kept: usize,
    pub deaf: usize,
    /// Grants that were never delivered, because the client was gone.
    pub unheard: usize,
    /// Those of them that the server took back.
    pub taken_back: usize,
    /// Grants of several keys at once.
    pub several: usize,
    /// Requests that would have closed a cycle of waits.
    pub cycles: usize,
    /// Holds that ended with their connection.
    pub lingered: usize,
    /// Requests that found the place of their token.
    pub resumed: usize,
    /// Absent places that were seen.
    pub absent: usize,
    /// Writes that LOCK.EXEC carried out.
    pub guarded: usize,
    /// Those that it refused.
    pub not_held: usize,
    /// Holds that ATLEAST has kept for a moment.
    pub later: usize,
    pub timeouts: usize,
    pub samples: usize,
    pub waiters_seen: usize,
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            requests,
            effects,
            grants,
            permits,
            hand_offs,
            notified,
            notified_several,
            deaf_kept,
            deaf,
            unheard,
            taken_back,
            several,
            cycles,
            lingered,
            resumed,
            absent,
            guarded,
            not_held,
            later,
            timeouts,
            samples,
            waiters_seen,
        } = self;
        write!(
            f,
            "{requests} requests, {timeouts} of them timed out; {effects} effects; {grants} grants, {permits} of permits, {hand_offs} to waiters, {notified} by a channel, {notified_several} of these of several keys, \
             {deaf} and with KEEP {deaf_kept} requests by a channel whose client vanished; {unheard} unheard, {taken_back} taken back, {several} of several keys, {lingered} over with their connection, {later} kept by ATLEAST; {resumed} places resumed; {guarded} guarded writes, {not_held} refused; \
             {cycles} cycles refused; {samples} looks at {waiters_seen} waiters, {absent} of them absent"
        )
    }
}
