//! The book as a flat list: every question walks over all places. In tests the rules ask both, and
//! the answers agree.

use std::cmp::Reverse;
use std::hash::BuildHasher;

use super::Indexed;
use crate::lock::{CompactToken, Mode, Occupancy, Token};
use crate::rules::key_ref::{KeyId, KeyRef};
use crate::rules::place::{Place, PlaceId, Stands, Ticket};
use crate::rules::Book;

pub(crate) struct Flat<'b, L> {
    places: Vec<(PlaceId, &'b Place<L>)>,
}

impl<L, S: BuildHasher> Indexed<L, S> {
    pub(crate) fn flat(&self) -> Flat<'_, L> {
        Flat {
            places: (0..self.slots()).filter_map(|n| self.nth(n)).collect(),
        }
    }
}

impl<L> Flat<'_, L> {
    /// The places of a key, in the order of their tickets.
    fn at(&self, key: KeyId, before: Ticket) -> Vec<(PlaceId, &Place<L>)> {
        let here = self.places.iter().filter(|(_, place)| {
            place.ids.contains(&key) && place.ticket < before && !place.is_over()
        });
        let mut here: Vec<_> = here.copied().collect();
        here.sort_by_key(|(_, place)| place.ticket);
        here
    }

    /// Those in the line that let nobody pass, or those that do.
    fn line(&self, key: KeyId, before: Ticket, stops: bool) -> Vec<(PlaceId, &Place<L>)> {
        let mut here = self.at(key, before);
        here.retain(|(_, place)| {
            let passes = place.is_absent()
                && !place.is_for_several_keys()
                && place.mode() != Mode::Exclusive;
            place.stands == Stands::InLine && passes != stops
        });
        here
    }
}

impl<L> Book for Flat<'_, L> {
    type Client = L;

    fn key(&self, key: KeyId) -> Option<&KeyRef> {
        let mut pairs = self
            .places
            .iter()
            .flat_map(|(_, p)| p.ids.iter().zip(p.keys.iter()));
        pairs.find(|(id, _)| **id == key).map(|(_, name)| name)
    }

    fn place(&self, id: PlaceId) -> Option<&Place<L>> {
        let mut all = self.places.iter();
        all.find(|(other, _)| *other == id).map(|(_, place)| *place)
    }

    fn of_token(&self, key: KeyId, token: Token<'_>) -> Option<PlaceId> {
        let mut here = self.at(key, Ticket::END).into_iter();
        here.find(|(_, place)| place.token.is(token))
            .map(|(id, _)| id)
    }

    fn first_owner(&self, key: KeyId) -> Option<PlaceId> {
        let here = self.at(key, Ticket::END).into_iter();
        let owners = here.filter(|(_, place)| place.stands == Stands::Owns);
        let first = owners.min_by_key(|(_, place)| (!place.wants_exclusive(), place.ticket));
        first.map(|(id, _)| id)
    }

    fn converts(&self, key: KeyId) -> impl Iterator<Item = PlaceId> {
        let mut here = self.at(key, Ticket::END);
        here.retain(|(_, place)| place.stands == Stands::Converts);
        here.sort_by_key(|(_, place)| (Reverse(place.widest()), place.ticket));
        here.into_iter().map(|(id, _)| id)
    }

    fn first_stop(&self, key: KeyId, before: Ticket) -> Option<PlaceId> {
        self.line(key, before, true).first().map(|(id, _)| *id)
    }

    fn passed(&self, key: KeyId, before: Ticket) -> Occupancy {
        let passed = self.line(key, before, false);
        let tolerated = passed.iter().map(|(_, place)| place.mode().tolerates());
        Occupancy {
            holders: passed.len(),
            tolerated: tolerated.min().unwrap_or(Mode::ANY),
        }
    }

    fn first_permit(&self, key: KeyId) -> Option<PlaceId> {
        let passed = self.line(key, Ticket::END, false).into_iter();
        let mut permits = passed.filter(|(_, place)| place.mode() != Mode::Shared);
        permits.next().map(|(id, _)| id)
    }

    fn places_of<'b>(&'b self, token: &'b CompactToken) -> impl Iterator<Item = PlaceId> {
        let own = self
            .places
            .iter()
            .filter(|(_, place)| place.token == *token);
        own.map(|(id, _)| *id)
    }

    fn elsewhere_too(&self, key: KeyId, before: Ticket) -> impl Iterator<Item = PlaceId> {
        let mut here = self.at(key, before);
        here.retain(|(_, place)| {
            let own = self
                .places
                .iter()
                .filter(|(_, other)| other.token == place.token);
            place.is_for_several_keys() || own.count() > 1
        });
        here.into_iter().map(|(id, _)| id)
    }

    fn stops_ahead(&self, key: KeyId, before: Ticket) -> impl Iterator<Item = PlaceId> {
        let mut stops = self.line(key, before, true);
        stops.reverse();
        stops.into_iter().map(|(id, _)| id)
    }
}
