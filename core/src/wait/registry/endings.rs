//! Many places end for one reason, a few at a time.

use std::hash::{BuildHasher, Hash};
use std::num::NonZeroU64;
use std::rc::Rc;

use super::agenda::{Endings, Unheard, MOST};
use super::Registry;
use crate::lock::Token;
use crate::rules::grant::ChannelRequest;
use crate::rules::key_ref::KeyRef;
use crate::rules::keys::Keys;
use crate::rules::leave::{LeaveReason, Leaving, Removed};
use crate::rules::place::{Place, PlaceId, Seq};
use crate::rules::Book;

/// A step of it.
#[derive(Debug)]
pub enum Ending<L> {
    /// A place was cancelled. Those who have listened are to be told.
    Cancelled(Vec<Removed<L>>),
    /// A request has ended, because nobody listens to its channel.
    Unheard(Option<Removed<L>>),
    /// A request has ended with its connection. The caller marks the key.
    Lost(Option<Removed<L>>),
}

impl<L: Copy + Eq + Hash, S: BuildHasher + Default> Registry<L, S> {
    /// Ends all places for a key. Answers how many requests and absent places those are, and those
    /// that have ended now. The others end by [`Registry::next_ending`].
    pub fn cancel(&mut self, key: &KeyRef) -> (usize, Vec<Removed<L>>) {
        if self.are_few(self.all_at(key)) {
            let removed = self.dismiss(key, MOST);
            return (removed.len(), removed);
        }
        let count = self.counts_of(key.db, &key.name).waiting();
        let last = self.book.last_ticket();
        self.agenda.endings.cancelled.insert(key.clone(), last);
        (count, Vec::new())
    }

    /// Whether so many places may end in one step, by their keys and requests.
    fn are_few(&self, ids: impl Iterator<Item = PlaceId>) -> bool {
        let mut sum = 0_usize;
        let mut places = ids.filter_map(|id| self.book.place(id));
        places.all(|place| {
            sum = sum.saturating_add(place.ids.len().max(place.requests.len()));
            sum <= MOST
        })
    }

    /// Ends the place of a token that asks again, if it is cancelled and has not ended yet: the
    /// token begins at the end of the queue.
    pub fn end_cancelled(&mut self, keys: &Keys, token: Token<'_>) -> Vec<Removed<L>> {
        if self.agenda.endings.cancelled.is_empty() {
            return Vec::new(); // The usual case.
        }
        let id = self.place_of(keys, token);
        let place = id.and_then(|id| Some((id, self.book.place(id)?)));
        let is_cancelled = |(_, place): &(PlaceId, &Place<L>)| {
            let mut last = place
                .keys
                .iter()
                .filter_map(|key| self.agenda.endings.cancelled.get(key));
            last.any(|last| place.ticket <= *last)
        };
        let id = place.filter(is_cancelled).map(|(id, _)| id);
        id.map_or_else(Vec::new, |id| self.end(id))
    }

    /// Takes out all requests that listen by a channel, because nobody has received its message.
    /// With KEEP their places stay. Nobody is to be told. The waiters behind them may be next, so
    /// their keys are to be served before the step ends: see [`Registry::take_unserved`]. If there
    /// are too many, they end by [`Registry::next_ending`].
    pub fn unheard(&mut self, channel: &[u8], leaving: Leaving) -> Vec<Removed<L>> {
        if !self.are_few(self.book.listeners.places(channel, None)) {
            let last = Seq(self.book.listeners.last_seq);
            let unheard = &mut self.agenda.endings.unheard;
            match unheard.get_mut(channel) {
                Some(all) if all.last == last => {}
                _ => drop(unheard.insert(channel.into(), Unheard { last, seen: None })),
            }
            return Vec::new();
        }
        let ids: Vec<PlaceId> = self.book.listeners.places(channel, None).collect();
        let removed = ids.into_iter().filter_map(|id| {
            let place = self.book.place(id)?;
            let seq = place.channel()?;
            self.agenda.step.unserved.extend(place.keys.iter().cloned());
            self.leave(id, seq, LeaveReason::Ungranted(leaving))
        });
        removed.collect()
    }

    /// Takes out the requests of a lost connection that listen by a channel and end with it
    /// (LINGER). With KEEP their places stay. Nobody is to be told. The caller marks the keys. If
    /// there are too many, they end by [`Registry::next_ending`], and none is granted until then.
    pub fn remove_lingering(&mut self, client: NonZeroU64, leaving: Leaving) -> Vec<Removed<L>> {
        let ids = self.book.listeners.of_connection(client).map(|(id, _)| id);
        if !self.are_few(ids) {
            self.agenda.endings.lost.insert(client);
            return Vec::new();
        }
        let requests: Vec<_> = self.book.listeners.of_connection(client).collect();
        let removed = requests
            .into_iter()
            .filter_map(|(id, seq)| self.leave(id, seq, LeaveReason::Ungranted(leaving)));
        removed.collect()
    }

    /// Whether a request ends with a connection that is lost.
    pub(super) fn is_lost(&self, seq: Seq) -> bool {
        !self.agenda.endings.lost.is_empty()
            && self
                .book
                .listeners
                .ends_with(seq, &self.agenda.endings.lost)
    }

    /// Whether [`Registry::next_ending`] has something to do.
    pub fn has_endings(&self) -> bool {
        !self.agenda.endings.is_empty()
    }

    /// Forgets what is to end: all places end for another reason.
    pub fn clear_endings(&mut self) {
        self.agenda.endings = Endings::default();
    }

    /// Ends the next place or request. Its keys are marked. `None` if there is none.
    pub fn next_ending(&mut self, leaving: Leaving) -> Option<Ending<L>> {
        if let Some((key, last)) = self.agenda.endings.cancelled.first_key_value() {
            let (key, last) = (key.clone(), *last);
            let first = self.book.queues.id_of(&key);
            let first = first.and_then(|key| self.book.first_at(key));
            let is_one = |id: &PlaceId| {
                let place = self.book.place(*id);
                place.is_some_and(|place| place.ticket <= last)
            };
            let removed = match first.filter(is_one) {
                Some(id) => self.end(id),
                None => {
                    self.agenda.endings.cancelled.remove(&key);
                    Vec::new()
                }
            };
            self.mark(&key);
            return Some(Ending::Cancelled(removed));
        }
        if let Some(client) = self.agenda.endings.lost.first().copied() {
            let next = self.book.listeners.of_connection(client).next();
            let Some((id, seq)) = next else {
                self.agenda.endings.lost.remove(&client);
                return Some(Ending::Lost(None));
            };
            return Some(Ending::Lost(self.leave(
                id,
                seq,
                LeaveReason::Ungranted(leaving),
            )));
        }
        let (channel, all) = self.agenda.endings.unheard.first_key_value()?;
        let (channel, last, seen) = (Rc::clone(channel), all.last, all.seen);
        let Some(id) = self.book.listeners.places(&channel, seen).next() else {
            self.agenda.endings.unheard.remove(&channel);
            return Some(Ending::Unheard(None));
        };
        if let Some(all) = self.agenda.endings.unheard.get_mut(&channel) {
            all.seen = Some(id);
        }
        let seq = self.book.place(id).and_then(Place::channel);
        let removed = seq.filter(|seq| *seq <= last).and_then(|seq| {
            let one = ChannelRequest { place: id, seq };
            self.end_unheard(&one, leaving)
        });
        Some(Ending::Unheard(removed))
    }

    /// Ends a request that nobody has listened to. The keys of its place are marked.
    pub fn end_unheard(&mut self, one: &ChannelRequest, leaving: Leaving) -> Option<Removed<L>> {
        let removed = self.leave(one.place, one.seq, LeaveReason::Ungranted(leaving))?;
        for key in removed.keys.iter() {
            self.mark(key);
        }
        Some(removed)
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasherDefault, DefaultHasher};

    use super::*;
    use crate::lock::{FenceClock, Mode, Now, Refusal, Token, Ttl};
    use crate::rules::keys::{Keys, Several, Wanted};
    use crate::wait::{Listener, NewRequest, Step, Terms};

    type World = Registry<u64, BuildHasherDefault<DefaultHasher>>;

    const LEAVING: Leaving = Leaving::at(0);

    fn key(name: &[u8]) -> KeyRef {
        KeyRef::new(0, name)
    }

    fn enter_for(world: &mut World, keys: &Keys, number: usize, channel: &[u8]) {
        let token = format!("t{number}");
        let new = NewRequest {
            token: Token::new(token.as_bytes()).unwrap(),
            mode: Mode::Exclusive,
            ttl: Ttl::from_millis(1_000).unwrap(),
            listener: Some(Listener::channel(channel)),
            times_out_at_us: None,
            keep_ms: (channel == b"k").then_some(60_000),
            is_server_generated: false,
            linger: None,
            result: None,
            user: None,
            refusal: Refusal::Busy,
            now_us: 0,
        };
        world.enter(keys, new);
    }

    fn enter(world: &mut World, key: &KeyRef, number: usize, channel: &[u8]) {
        enter_for(world, &Keys::One(key.clone()), number, channel);
    }

    fn grant_next(world: &mut World, key: &KeyRef) -> Option<Step<u64>> {
        let (now, mut fences) = (Now::from_millis(1_000), FenceClock::default());
        world.grant_next(key, None, &Terms::ANY, now, |now| now, &mut fences)
    }

    fn len_of(world: &World, key: &KeyRef) -> usize {
        world.counts_of(key.db, &key.name).all()
    }

    /// How many places and requests end. The way is over.
    fn end_all(world: &mut World) -> usize {
        let mut count = 0;
        while let Some(ending) = world.next_ending(LEAVING) {
            count += match ending {
                Ending::Cancelled(all) => all.len(),
                Ending::Unheard(one) | Ending::Lost(one) => one.iter().count(),
            };
        }
        assert!(world.is_tight() && !world.has_endings());
        count
    }

    #[test]
    fn of_many_cancelled_places_none_is_granted_and_those_who_come_later_stay() {
        let (mut world, k) = (World::default(), key(b"k"));
        (0..MOST + 1).for_each(|n| enter(&mut world, &k, n, b"c"));
        let (count, now) = world.cancel(&k);
        assert_eq!((count, now.len()), (MOST + 1, 0));
        enter(&mut world, &k, MOST + 1, b"c");
        assert!(grant_next(&mut world, &k).is_none() && world.has_work());
        // One that asks again begins at the end.
        let keys = Keys::One(k.clone());
        let mut ends = |token: &[u8]| world.end_cancelled(&keys, Token::new(token).unwrap()).len();
        assert_eq!((ends(b"t5"), ends(b"t1001"), ends(b"t9999")), (1, 0, 0));
        assert_eq!(end_all(&mut world), MOST);
        assert!(world.agenda.marks.has(&k));
        assert!(matches!(grant_next(&mut world, &k), Some(Step::Offered(_))));
        assert_eq!(world.cancel(&k).1.len(), 1);
        assert!(world.is_empty());
    }

    #[test]
    fn of_many_absent_places_of_an_emptied_database_none_is_left() {
        let (mut world, k) = (World::default(), key(b"k"));
        for n in 0..MOST + 500 {
            enter(&mut world, &k, n, b"k");
            let removed = world.unheard(b"k", LEAVING);
            assert!(removed.iter().all(|one| !one.is_last));
        }
        enter(&mut world, &k, 0, b"heard");
        while world.take_unserved().is_some() {}
        world.db_emptied(None);
        world.follow_changes(&k);
        assert_eq!(len_of(&world, &k), 500);
        while world.is_behind() {
            world.pass_on();
        }
        assert!(world.is_tight() && world.agenda.marks.has(&k));
        assert_eq!(len_of(&world, &k), 1);
    }

    #[test]
    fn of_many_unheard_requests_none_is_offered_and_those_that_come_later_stay() {
        let (mut world, k) = (World::default(), key(b"k"));
        (0..MOST + 2).for_each(|n| enter(&mut world, &k, n, b"c"));
        (0..2).for_each(|n| enter(&mut world, &key(b"l"), n, b"d"));
        assert!(world.unheard(b"c", LEAVING).is_empty());
        // The token of the second place has asked again: somebody may hear now.
        enter(&mut world, &k, 1, b"c");
        let Some(Step::Unheard(one)) = grant_next(&mut world, &k) else {
            panic!("nobody has listened");
        };
        assert!(world.end_unheard(&one, LEAVING).is_some());
        assert!(matches!(grant_next(&mut world, &k), Some(Step::Offered(_))));
        assert_eq!(end_all(&mut world), MOST);
        assert_eq!((len_of(&world, &k), len_of(&world, &key(b"l"))), (1, 2));
        // Few end at once.
        assert_eq!(world.unheard(b"d", LEAVING).len(), 2);
    }

    #[test]
    fn places_for_many_keys_end_one_by_one() {
        const KEYS: usize = 100;
        let (mut world, k) = (World::default(), key(b"k"));
        for n in 0..=MOST.div_euclid(KEYS) {
            let names = (1..KEYS).map(|own| key(format!("{n}:{own}").as_bytes()));
            let wanted = [k.clone()].into_iter().chain(names).map(|key_ref| Wanted {
                key_ref,
                mode: Mode::Exclusive,
            });
            let several = Several::new(wanted).unwrap();
            enter_for(&mut world, &Keys::Several(Rc::new(several)), n, b"c");
        }
        let all = len_of(&world, &k);
        assert!(world.unheard(b"c", LEAVING).is_empty());
        world.clear_endings();
        assert_eq!(world.cancel(&k).0, all);
        assert_eq!((len_of(&world, &k), end_all(&mut world)), (all, all));
        assert!(world.is_empty());
    }
}
