//! The places at which channels listen.

use std::hash::BuildHasher;
use std::rc::Rc;

use crate::lock::Segmented;
use crate::wait::place::PlaceId;
use crate::wait::tree::SortedSet;

/// Channels by their names, which their requests share.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Channels<S> {
    by_name: Segmented<Rc<[u8]>, Listening, S>,
}

/// The places of a channel: most have one.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Listening {
    first: PlaceId,
    rest: Option<Box<SortedSet<PlaceId>>>,
}

/// Questions.
impl<S: BuildHasher> Channels<S> {
    /// The name as the other requests of the channel have it.
    pub(super) fn shared(&self, name: Rc<[u8]>) -> Rc<[u8]> {
        let known = self.by_name.of(&name).get_key_value(&name);
        known.map_or(name, |(known, _)| Rc::clone(known))
    }

    /// Whether a channel listens at any place.
    pub(super) fn contains(&self, name: &[u8]) -> bool {
        self.by_name.get(name).is_some()
    }

    /// The places at which a channel listens.
    pub(super) fn places(&self, name: &[u8]) -> impl Iterator<Item = PlaceId> + '_ {
        let listening = self.by_name.get(name).into_iter();
        listening.flat_map(|all| {
            let rest = all.rest.iter().flat_map(|rest| rest.iter());
            std::iter::once(all.first).chain(rest)
        })
    }

    /// The place with the next number at which a channel listens, in the order of the numbers.
    pub(super) fn place_after(&self, name: &[u8], seen: Option<PlaceId>) -> Option<PlaceId> {
        let listening = self.by_name.get(name)?;
        let first = Some(listening.first).filter(|first| Some(*first) > seen);
        let rest = listening.rest.as_ref();
        let next = rest.and_then(|rest| match seen {
            None => rest.first(),
            Some(seen) => rest.from(seen).find(|id| *id != seen),
        });
        first.into_iter().chain(next).min()
    }

    /// The names.
    #[cfg(test)]
    pub(super) fn names(&self) -> impl Iterator<Item = &Rc<[u8]>> {
        self.by_name.iter().map(|(name, _)| name)
    }

    /// All pairs of a channel and a place.
    #[cfg(test)]
    pub(super) fn pairs(&self) -> std::collections::BTreeSet<(Rc<[u8]>, PlaceId)> {
        let names = self.names();
        let pairs = names.flat_map(|name| self.places(name).map(|id| (Rc::clone(name), id)));
        pairs.collect()
    }
}

/// Changes.
impl<S: BuildHasher + Default> Channels<S> {
    /// Notes that a channel listens at a place, which no channel does yet. Answers whether it is
    /// the channel's first.
    pub(super) fn insert(&mut self, name: &Rc<[u8]>, id: PlaceId) -> bool {
        if let Some(listening) = self.by_name.of_mut(name).get_mut(name) {
            listening.rest.get_or_insert_default().insert(id);
            return false;
        }
        let listening = Listening {
            first: id,
            rest: None,
        };
        self.by_name.insert(Rc::clone(name), listening);
        true
    }

    /// Notes that a channel does not listen at a place any more. Answers whether it was the
    /// channel's last.
    pub(super) fn remove(&mut self, name: &[u8], id: PlaceId) -> bool {
        let Some(listening) = self.by_name.of_mut(name).get_mut(name) else {
            return false;
        };
        match &mut listening.rest {
            Some(rest) if listening.first != id => drop(rest.remove(id)),
            Some(rest) => match rest.pop_first() {
                Some(next) => listening.first = next,
                None => return self.by_name.remove_entry(name).is_some(),
            },
            None if listening.first == id => return self.by_name.remove_entry(name).is_some(),
            None => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::hash::RandomState;

    use super::*;

    #[test]
    fn the_memory_of_many_channels_comes_back() {
        let mut channels = Channels::<RandomState>::default();
        let names: Vec<Rc<[u8]>> = (0..9_999_u32).map(|n| n.to_be_bytes()[..].into()).collect();
        for name in &names {
            assert!(channels.insert(name, PlaceId::MIN));
        }
        assert!(names.iter().all(|name| channels.remove(name, PlaceId::MIN)));
        assert!(channels.by_name.capacity() < 9_000);
    }
}
