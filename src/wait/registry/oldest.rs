//! Which keys have been waited for the longest. There may be a million, so the search begins at the
//! oldest places, and ends when no other one can be older than those that it has found.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::rc::Rc;

use super::spans::SPAN;
use super::Registry;
use crate::wait::key_ref::KeyRef;
use crate::wait::place::{PlaceId, Ticket};

/// Up to how many waited keys all are looked at.
const FEW: usize = if cfg!(test) { 1 } else { 20_000 };

/// What waits for a key: since when, the key, how many places.
type Wait = (Ticket, KeyRef, usize, u64);

impl<L, S: BuildHasher> Registry<L, S> {
    /// The keys of a database with the longest waits, the longest first, `most` at most: each with
    /// the number of its places, and since when the first one is there, on the monotonic clock.
    pub fn longest_waits(&mut self, db: i32, most: usize) -> Vec<(KeyRef, usize, u64)> {
        let waits = match self.queues.len() <= FEW {
            true => self.longest_of_few(db, most),
            false => {
                let (waits, bounds) = self.longest_of_many(db, most);
                for (span, earliest) in bounds {
                    if let Some(bound) = self.oldest.bounds.get_mut(span) {
                        *bound = earliest;
                    }
                }
                waits
            }
        };
        let waits = waits.into_iter();
        let waits = waits.map(|(_, key, len, since_us)| (key, len, since_us));
        waits.collect()
    }

    fn longest_of_few(&self, db: i32, most: usize) -> Vec<Wait> {
        let waits = self.queues.of_db(db).filter_map(|(name, queue)| {
            let first = self.places.get(queue.first()?)?;
            let name = Rc::clone(name);
            let key = KeyRef { db, name };
            Some((first.ticket, key, queue.len(), first.since_us))
        });
        sorted(waits, most)
    }

    /// The same, and the bounds of the spans that were looked at.
    fn longest_of_many(&self, db: i32, most: usize) -> (Vec<Wait>, Vec<(usize, Ticket)>) {
        let bounds = self.oldest.bounds.iter();
        let mut spans: Vec<(Ticket, usize)> = bounds.copied().zip(0..).collect();
        spans.sort_unstable();
        let (mut found, mut seen) = (BTreeSet::new(), Vec::new());
        for (bound, span) in spans {
            // None of the others is older.
            if found.len() >= most && found.last().is_none_or(|(last, _)| *last < bound) {
                break;
            }
            seen.push((span, self.look_at_span(span, db, most, &mut found)));
        }
        let places = found.into_iter();
        let places = places.filter_map(|(_, id)| Some((id, self.places.get(id)?)));
        let waits = places.flat_map(|(id, place)| {
            let queues = place.keys().map(|key| (key, self.queues.of(key)));
            queues.filter_map(move |(key, queue)| {
                // One for several keys may stand behind others at some of them.
                let queue = queue.filter(|queue| queue.is_first(id))?;
                Some((place.ticket, key.clone(), queue.len(), place.since_us))
            })
        });
        (sorted(waits, most), seen)
    }

    /// Adds the places of a span that are the first ones of queues, if they are older than what was
    /// found. The earliest ticket there.
    fn look_at_span(
        &self,
        span: usize,
        db: i32,
        most: usize,
        found: &mut BTreeSet<(Ticket, PlaceId)>,
    ) -> Ticket {
        let begin = span.saturating_mul(SPAN);
        let places = (begin..begin.saturating_add(SPAN)).filter_map(|n| self.places.nth(n));
        let mut earliest = Ticket::LAST;
        for (id, place) in places {
            earliest = earliest.min(place.ticket);
            let is_older =
                found.len() < most || found.last().is_some_and(|last| (place.ticket, id) < *last);
            if !is_older || place.keys.first().db != db {
                continue;
            }
            let mut queues = place.keys().filter_map(|key| self.queues.of(key));
            if queues.any(|queue| queue.is_first(id)) {
                found.insert((place.ticket, id));
                if found.len() > most {
                    found.pop_last();
                }
            }
        }
        earliest
    }

    /// Whether the search finds what looking at all keys does.
    #[cfg(test)]
    pub(super) fn assert_oldest_tight(&self) {
        for (db, most) in [(0, 1), (0, 2), (0, usize::MAX), (1, 1)] {
            let found = self.longest_of_many(db, most).0;
            assert_eq!(found, self.longest_of_few(db, most));
        }
    }
}

fn sorted(waits: impl Iterator<Item = Wait>, most: usize) -> Vec<Wait> {
    let mut waits: Vec<_> = waits.collect();
    waits.sort_unstable_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
    waits.truncate(most);
    waits
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasherDefault, DefaultHasher};

    use super::*;
    use crate::lock::{Mode, Refusal, Token, Ttl};
    use crate::wait::keys::Keys;
    use crate::wait::{Listener, NewRequest};

    #[test]
    fn the_longest_waits_are_found_whoever_has_left() {
        let mut world = Registry::<u64, BuildHasherDefault<DefaultHasher>>::default();
        let (mut chance, mut now_us) = (1_u64, 0);
        for step in 0..2_000 {
            chance = chance
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let [key, token] = [chance >> 40 & 15, chance >> 50 & 3].map(|n| n.to_string());
            let key = KeyRef::new((chance >> 60 & 1) as i32, key.as_bytes());
            let token = Token::new(token.as_bytes()).unwrap();
            now_us += 1;
            if step % 500 > 400 || chance >> 33 & 1 == 0 {
                world.give_up(&key, token);
            } else if world.place_of_token(&key, token).is_none() {
                let new = NewRequest {
                    token,
                    mode: Mode::Exclusive,
                    ttl: Ttl::from_millis(1_000).unwrap(),
                    listener: Some(Listener::Client(step)),
                    times_out_at_us: None,
                    keep_ms: None,
                    is_server_generated: false,
                    linger: None,
                    result: None,
                    user: None,
                    refusal: Refusal::Busy,
                    now_us,
                };
                world.enter(&Keys::One(key.clone()), new);
            }
            world.assert_oldest_tight();
            if step % 7 == 0 {
                let waits = world.longest_waits(0, 3);
                assert!(waits.is_sorted_by_key(|(.., since_us)| *since_us));
                world.assert_oldest_tight();
            }
        }
    }
}
