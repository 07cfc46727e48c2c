//! Whatever listens at places: blocked clients, and channels.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hash};
use std::num::NonZeroU64;

use super::channels::Channels;
use crate::wait::bindings::Linger;
use crate::wait::bytes;
use crate::wait::place::PlaceId;
use crate::wait::request::{Listener, Seq};
use crate::wait::table::Table;

/// Exactly the listeners of all requests.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Listeners<L, S> {
    by_client: Table<L, (PlaceId, Seq), S>,
    pub(super) channels: Channels<S>,
    /// What the holds of requests are bound to, if they have said LINGER. Few have, so it is not in
    /// the request.
    lingers: BTreeMap<Seq, Linger>,
    /// Those of them that listen by a channel: they end with their connections.
    by_connection: BTreeMap<(NonZeroU64, Seq), PlaceId>,
    /// What the requests take.
    pub(super) bytes: usize,
    pub(super) last_seq: u64,
}

impl<L, S: Default> Default for Listeners<L, S> {
    fn default() -> Self {
        Self {
            by_client: Table::default(),
            channels: Channels::default(),
            lingers: BTreeMap::new(),
            by_connection: BTreeMap::new(),
            bytes: 0,
            last_seq: 0,
        }
    }
}

/// Questions.
impl<L: Copy + Eq + Hash, S: BuildHasher> Listeners<L, S> {
    /// The request of a client.
    pub(super) fn of_client(&self, client: L) -> Option<(PlaceId, Seq)> {
        self.by_client.get(&client).copied()
    }

    /// The requests that listen by a channel and end with this connection.
    pub(super) fn of_connection(
        &self,
        connection: NonZeroU64,
    ) -> impl Iterator<Item = (PlaceId, Seq)> + '_ {
        let all = (connection, Seq(0))..=(connection, Seq(u64::MAX));
        let all = self.by_connection.range(all);
        all.map(|((_, seq), id)| (*id, *seq))
    }

    /// Whether a request listens by a channel and ends with one of these connections.
    pub(super) fn ends_with(&self, seq: Seq, lost: &BTreeSet<NonZeroU64>) -> bool {
        self.lingers.get(&seq).is_some_and(|linger| {
            let (client, by) = (linger.client, &self.by_connection);
            lost.contains(&client) && by.contains_key(&(client, seq))
        })
    }
}

/// Changes.
impl<L: Copy + Eq + Hash, S: BuildHasher + Default> Listeners<L, S> {
    /// The number of a new request.
    pub(super) fn next_seq(&mut self) -> Seq {
        self.last_seq = self.last_seq.saturating_add(1);
        Seq(self.last_seq)
    }

    /// Notes what listens for a request.
    pub(super) fn insert(
        &mut self,
        id: PlaceId,
        seq: Seq,
        listener: Listener<L>,
        linger: Option<Linger>,
    ) {
        self.bytes = self.bytes.saturating_add(bytes::REQUEST);
        if let Some(linger) = linger {
            self.lingers.insert(seq, linger);
            self.bytes = self.bytes.saturating_add(bytes::LINGER);
        }
        match listener {
            Listener::Client(client) => self.by_client.insert(client, (id, seq)),
            Listener::Channel(name) => {
                if self.channels.insert(&name, id) {
                    self.bytes = self.bytes.saturating_add(bytes::of_channel(&name));
                }
                if let Some(linger) = linger {
                    self.by_connection.insert((linger.client, seq), id);
                }
            }
        }
    }

    /// Forgets what has listened for a request. Returns what its hold is bound to.
    pub(super) fn remove(
        &mut self,
        id: PlaceId,
        seq: Seq,
        listener: &Listener<L>,
    ) -> Option<Linger> {
        let linger = match self.lingers.is_empty() {
            true => None,
            false => self.lingers.remove(&seq),
        };
        self.bytes = self.bytes.saturating_sub(bytes::REQUEST);
        if linger.is_some() {
            self.bytes = self.bytes.saturating_sub(bytes::LINGER);
        }
        match listener {
            Listener::Client(client) => drop(self.by_client.remove(client)),
            Listener::Channel(name) => {
                if let Some(linger) = linger {
                    self.by_connection.remove(&(linger.client, seq));
                }
                if self.channels.remove(name, id) {
                    self.bytes = self.bytes.saturating_sub(bytes::of_channel(name));
                }
            }
        }
        linger
    }
}

#[cfg(test)]
impl<L, S: BuildHasher> Listeners<L, S> {
    /// How many clients listen, and how many requests end with their connections.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.by_client.values().count(), self.by_connection.len())
    }

    pub(super) fn lingers(&self, seq: Seq) -> bool {
        self.lingers.contains_key(&seq)
    }

    /// What all of them take, counted anew.
    pub(super) fn bytes_anew(&self, requests: usize) -> usize {
        let channels = self.channels.names();
        requests * bytes::REQUEST
            + self.lingers.len() * bytes::LINGER
            + channels.map(|name| bytes::of_channel(name)).sum::<usize>()
    }
}
