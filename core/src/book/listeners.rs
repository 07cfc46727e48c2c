//! Whatever listens at places: blocked clients, and channels.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, Hash};
use std::num::NonZeroU64;
use std::ops::Bound::{Excluded, Unbounded};
use std::rc::Rc;

use super::{bytes, queues};
use crate::rules::place::Linger;
use crate::rules::place::{Listener, PlaceId, Seq};

/// Exactly the listeners of all requests.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Listeners<L, S> {
    by_client: HashMap<L, (PlaceId, Seq), S>,
    /// The places of each channel.
    by_channel: HashMap<Rc<[u8]>, BTreeSet<PlaceId>, S>,
    /// What the holds of requests are bound to, if they have said LINGER. Few have, so it is not in
    /// the request.
    lingers: BTreeMap<Seq, Linger>,
    /// Those of them that listen by a channel: they end with their connections.
    by_connection: BTreeMap<(NonZeroU64, Seq), PlaceId>,
    /// What the requests take.
    pub(crate) bytes: usize,
    pub(crate) last_seq: u64,
}

impl<L, S: Default> Default for Listeners<L, S> {
    fn default() -> Self {
        Self {
            by_client: HashMap::default(),
            by_channel: HashMap::default(),
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
    pub(crate) fn of_client(&self, client: L) -> Option<(PlaceId, Seq)> {
        self.by_client.get(&client).copied()
    }

    /// The requests that listen by a channel and end with this connection.
    pub(crate) fn of_connection(
        &self,
        connection: NonZeroU64,
    ) -> impl Iterator<Item = (PlaceId, Seq)> + '_ {
        let all = (connection, Seq(0))..=(connection, Seq(u64::MAX));
        let all = self.by_connection.range(all);
        all.map(|((_, seq), id)| (*id, *seq))
    }

    /// Whether a request listens by a channel and ends with one of these connections.
    pub(crate) fn ends_with(&self, seq: Seq, lost: &BTreeSet<NonZeroU64>) -> bool {
        self.lingers.get(&seq).is_some_and(|linger| {
            let (client, by) = (linger.client, &self.by_connection);
            lost.contains(&client) && by.contains_key(&(client, seq))
        })
    }
}

/// Channels.
impl<L, S: BuildHasher> Listeners<L, S> {
    /// The name as the other requests of the channel have it.
    pub(crate) fn shared(&self, name: &Rc<[u8]>) -> Rc<[u8]> {
        let known = self.by_channel.get_key_value(name);
        Rc::clone(known.map_or(name, |(known, _)| known))
    }

    /// Whether a channel listens at any place.
    pub(crate) fn has_channel(&self, name: &[u8]) -> bool {
        self.by_channel.contains_key(name)
    }

    /// The places at which a channel listens, after one of them.
    pub(crate) fn places(
        &self,
        name: &[u8],
        after: Option<PlaceId>,
    ) -> impl Iterator<Item = PlaceId> + '_ {
        let from = after.map_or(Unbounded, Excluded);
        let here = self.by_channel.get(name).into_iter();
        here.flat_map(move |all| all.range((from, Unbounded)).copied())
    }
}

/// Changes.
impl<L: Copy + Eq + Hash, S: BuildHasher + Default> Listeners<L, S> {
    /// The number of a new request.
    pub(crate) fn next_seq(&mut self) -> Seq {
        self.last_seq = self.last_seq.saturating_add(1);
        Seq(self.last_seq)
    }

    /// Notes what listens for a request.
    pub(crate) fn insert(
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
            Listener::Client(client) => drop(self.by_client.insert(client, (id, seq))),
            Listener::Channel(name) => {
                if !self.by_channel.contains_key(&name) {
                    self.bytes = self.bytes.saturating_add(bytes::of_channel(&name));
                }
                self.by_channel.entry(name).or_default().insert(id);
                if let Some(linger) = linger {
                    self.by_connection.insert((linger.client, seq), id);
                }
            }
        }
    }

    /// Forgets what has listened for a request. Returns what its hold is bound to.
    pub(crate) fn remove(
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
            Listener::Client(client) => {
                self.by_client.remove(client);
                if self.by_client.is_empty() {
                    self.by_client.shrink_to(queues::SPARE);
                }
            }
            Listener::Channel(name) => {
                if let Some(linger) = linger {
                    self.by_connection.remove(&(linger.client, seq));
                }
                let rest = self.by_channel.get_mut(name);
                if rest.is_some_and(|rest| rest.remove(&id) && rest.is_empty()) {
                    self.by_channel.remove(name);
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
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.by_client.len(), self.by_connection.len())
    }

    /// All pairs of a channel and a place.
    pub(crate) fn pairs(&self) -> BTreeSet<(Rc<[u8]>, PlaceId)> {
        let all = self.by_channel.iter();
        let pairs = all.flat_map(|(name, ids)| ids.iter().map(|id| (Rc::clone(name), *id)));
        pairs.collect()
    }

    pub(crate) fn lingers(&self, seq: Seq) -> bool {
        self.lingers.contains_key(&seq)
    }

    /// What all of them take, counted anew.
    pub(crate) fn bytes_anew(&self, requests: usize) -> usize {
        let channels = self.by_channel.keys();
        requests * bytes::REQUEST
            + self.lingers.len() * bytes::LINGER
            + channels.map(|name| bytes::of_channel(name)).sum::<usize>()
    }
}
