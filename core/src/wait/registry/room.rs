//! Is there room for one more request?

use std::hash::BuildHasher;

use super::Registry;
use crate::book::bytes;
use crate::lock::{CompactToken, Refusal, Token};
use crate::rules::key_ref::KeyRef;
use crate::rules::keys::Keys;
use crate::rules::place::Place;
use crate::rules::{turn, Book};

/// How much may wait. Each request counts, and each place at which nobody listens.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For one key.
    pub per_key: usize,
    /// For all keys.
    pub per_server: usize,
    /// Places of one key at which nobody listens.
    pub absent_per_key: usize,
    /// For all keys, of one user whose name is known.
    pub per_user: usize,
    /// Bytes, for all keys.
    pub bytes: usize,
}

/// Which limit is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitMet {
    /// [`Limits::per_key`].
    Key,
    /// [`Limits::per_server`].
    Server,
    /// [`Limits::absent_per_key`].
    Absent,
    /// [`Limits::per_user`].
    User,
    /// [`Limits::bytes`].
    Bytes,
    /// 100 requests of a token wait.
    Place,
    /// 1,000 tokens convert their holds of a lock.
    Conversions,
}

/// How many requests may wait at one place.
const MOST_REQUESTS: usize = 100;

/// A request that is about to wait, or to leave a place.
#[derive(Clone, Copy, Debug)]
pub struct Newcomer<'a> {
    /// For whom.
    pub token: Token<'a>,
    /// What it waits for.
    pub keys: &'a Keys,
    /// How it comes.
    pub by: ListensBy<'a>,
    /// The result that it takes in place of a hold.
    pub result: Option<&'a [u8]>,
    /// The user that asks; `None` if no share of it is bounded.
    pub user: Option<&'a [u8]>,
    /// Why it was not granted.
    pub refusal: Refusal,
}

/// How a request comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListensBy<'a> {
    /// A blocked client listens for it.
    Client,
    /// A channel of this name does.
    Channel(&'a [u8]),
    /// Nobody does: it leaves a place.
    Nobody,
}

impl<L, S: BuildHasher> Registry<L, S> {
    /// Checks whether there is room for a request.
    pub fn admit(&self, comer: &Newcomer<'_>, limits: &Limits) -> Result<(), LimitMet> {
        let Newcomer { keys, by, .. } = *comer;
        let own = self.place_of(keys, comer.token);
        let own = own.and_then(|id| self.book.place(id));
        // Its token's place goes on, or a request of it is replaced.
        let is_more = own.is_none_or(|own| match by {
            ListensBy::Client => !own.is_absent(),
            ListensBy::Channel(_) => !own.is_absent() && own.channel().is_none(),
            ListensBy::Nobody => false,
        });
        if is_more {
            keys.iter()
                .try_for_each(|key| self.admit_to_queue(key, by, limits))?;
            if self.book.load.counts.waiting() >= limits.per_server {
                return Err(LimitMet::Server);
            }
            let is_over = |name: &[u8]| self.book.load.users.waiting(name) >= limits.per_user;
            if comer.user.is_some_and(is_over) {
                return Err(LimitMet::User);
            }
        }
        self.admit_to_place(comer, own)?;
        let bytes = match own {
            // A blocked client costs the server far more than its request does here.
            Some(_) if !is_more => 0,
            Some(_) => bytes::REQUEST,
            // Mostly there is room for the most that it can be.
            None if by == ListensBy::Client
                && self.fits(bytes::most_of(comer.token, keys), limits) =>
            {
                0
            }
            None => self.bytes_of_place(comer),
        };
        let is_known = |name| self.book.listeners.has_channel(name);
        let bytes = match by {
            ListensBy::Channel(name) if !is_known(name) => {
                bytes.saturating_add(bytes::of_channel(name))
            }
            _ => bytes,
        };
        let bytes = bytes.saturating_add(comer.result.map_or(0, bytes::of_result));
        if bytes > 0 && !self.fits(bytes, limits) {
            return Err(LimitMet::Bytes);
        }
        Ok(())
    }

    /// Checks what is bounded whatever the settings are, because it is walked over.
    fn admit_to_place(&self, comer: &Newcomer<'_>, own: Option<&Place<L>>) -> Result<(), LimitMet> {
        if own.is_some_and(|own| own.requests.len() >= MOST_REQUESTS) {
            return Err(LimitMet::Place);
        }
        if comer.refusal == Refusal::BusyUpgrade && own.is_none() {
            let key = self.book.queues.id_of(comer.keys.first());
            if key.is_some_and(|key| !turn::may_convert(&self.book, key)) {
                return Err(LimitMet::Conversions);
            }
        }
        Ok(())
    }

    fn fits(&self, bytes: usize, limits: &Limits) -> bool {
        self.bytes().saturating_add(bytes) <= limits.bytes
    }

    fn admit_to_queue(
        &self,
        key: &KeyRef,
        by: ListensBy<'_>,
        limits: &Limits,
    ) -> Result<(), LimitMet> {
        let here = self.counts_of(key.db, &key.name);
        if here.waiting() >= limits.per_key {
            return Err(LimitMet::Key);
        }
        if by == ListensBy::Nobody && here.absent as usize >= limits.absent_per_key {
            return Err(LimitMet::Absent);
        }
        Ok(())
    }

    /// What a new place takes, with its first request.
    fn bytes_of_place(&self, comer: &Newcomer<'_>) -> usize {
        let token = CompactToken::from(comer.token);
        let place = bytes::of_new_place(token.heap_bytes(), comer.keys);
        let keys = comer.keys.iter();
        let new = keys.filter(|key| self.book.queues.id_of(key).is_none());
        let all = new.fold(place, |sum, key| {
            sum.saturating_add(bytes::of_key(&key.name))
        });
        match comer.by {
            ListensBy::Nobody => all,
            ListensBy::Client | ListensBy::Channel(_) => all.saturating_add(bytes::REQUEST),
        }
    }

    /// Counts bytes and users anew, and compares the running sums with that.
    #[cfg(test)]
    pub(super) fn assert_sums_tight(&self, ids: &[crate::rules::place::PlaceId]) {
        let (mut of_places, mut requests) = (0, 0);
        let mut users = std::collections::BTreeMap::new();
        for place in ids.iter().filter_map(|id| self.book.place(*id)) {
            of_places += bytes::of_place(place);
            requests += place.requests.len();
            let of_requests = place.requests.iter().filter_map(|request| request.user);
            for user in of_requests.chain(place.table_keys().user) {
                *users.entry(user).or_insert(0) += 1;
            }
        }
        let queues = self.book.queues.iter();
        let names = queues.map(|(_, queue)| bytes::of_key(&queue.key.name));
        let book = &self.book;
        assert_eq!(book.load.bytes, of_places);
        assert_eq!(book.queues.bytes, names.sum::<usize>());
        assert_eq!(book.listeners.bytes, book.listeners.bytes_anew(requests));
        assert_eq!(book.load.users.all(), users);
    }
}

#[cfg(test)]
mod tests;
