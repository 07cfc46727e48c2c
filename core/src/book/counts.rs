//! How much waits.

use crate::rules::place::{Kind, TableKeys};

/// How many places there are, and how many requests at them. There are never 2^32 of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Places at which at least one blocked client listens.
    pub clients: u32,
    /// The other places at which a channel listens.
    pub channels: u32,
    /// Places at which nobody listens.
    pub absent: u32,
    /// Requests that wait.
    pub requests: u32,
}

impl Counts {
    /// All places.
    pub const fn all(&self) -> usize {
        let listened = self.clients.saturating_add(self.channels);
        listened.saturating_add(self.absent) as usize
    }

    /// All that waits: each request, and each place at which nobody listens.
    pub const fn waiting(&self) -> usize {
        self.requests.saturating_add(self.absent) as usize
    }

    /// Follows a place that has changed.
    pub(crate) fn change(&mut self, before: &TableKeys, after: &TableKeys) {
        if before.kind != after.kind {
            if let Some(count) = after.kind.map(|kind| self.at(kind)) {
                *count = count.saturating_add(1);
            }
            if let Some(count) = before.kind.map(|kind| self.at(kind)) {
                debug_assert!(*count > 0, "a place that was not counted");
                *count = count.saturating_sub(1);
            }
        }
        self.requests = self.requests.saturating_add(after.requests);
        debug_assert!(
            self.requests >= before.requests,
            "a request that was not counted"
        );
        self.requests = self.requests.saturating_sub(before.requests);
    }

    fn at(&mut self, kind: Kind) -> &mut u32 {
        match kind {
            Kind::Client => &mut self.clients,
            Kind::Channel => &mut self.channels,
            Kind::Absent => &mut self.absent,
        }
    }
}
