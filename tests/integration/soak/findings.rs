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
            unheard,
            taken_back,
            several,
            cycles,
            lingered,
            timeouts,
            samples,
            waiters_seen,
        } = self;
        write!(
            f,
            "{requests} requests, {timeouts} of them timed out; {effects} effects; {grants} grants, {permits} of permits, {hand_offs} to waiters, \
             {unheard} unheard, {taken_back} taken back, {several} of several keys, {lingered} over with their connection; {cycles} cycles refused; {samples} looks at {waiters_seen} waiters"
        )
    }
}
