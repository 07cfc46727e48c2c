//! The results that requests take in place of a hold (LOCK.ONCE). Few do, so their names are not in
//! the places.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::bytes;
use crate::rules::key_ref::KeyRef;
use crate::rules::place::{Place, PlaceId, Seq, Ticket};

/// The places of one lock by the results that answer them, in the order of the queue.
type OfLock = BTreeMap<Rc<[u8]>, BTreeSet<(Ticket, PlaceId)>>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Results {
    /// Places of which a request has said a result, or which are kept by such words.
    asked: BTreeMap<PlaceId, Asked>,
    /// Exactly the places in `asked` that a result answers now, by their lock.
    of: BTreeMap<KeyRef, OfLock>,
    /// What all of it takes.
    pub(crate) bytes: usize,
}

/// The names of the results of one place.
#[derive(Clone, Debug, Default)]
struct Asked {
    of: BTreeMap<Seq, Rc<[u8]>>,
    /// Of the words by which the place is kept.
    kept: Option<Rc<[u8]>>,
    /// What answers the place now.
    answers: Option<Rc<[u8]>>,
}

/// Questions.
impl Results {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// The results that may answer those who wait for a lock.
    pub(crate) fn of_lock(&self, key: &KeyRef) -> impl Iterator<Item = &Rc<[u8]>> {
        self.of.get(key).into_iter().flat_map(BTreeMap::keys)
    }

    /// The first place that a result answers.
    pub(crate) fn first(&self, key: &KeyRef, result: &[u8]) -> Option<PlaceId> {
        let places = self.of.get(key)?.get(result)?;
        places.first().map(|(_, id)| *id)
    }

    /// What answers a place.
    pub(crate) fn of_place(&self, id: PlaceId) -> Option<&Rc<[u8]>> {
        self.asked.get(&id)?.answers.as_ref()
    }

    /// What a request takes.
    pub(crate) fn of_request(&self, id: PlaceId, seq: Seq) -> Option<&Rc<[u8]>> {
        self.asked.get(&id)?.of.get(&seq)
    }
}

/// Changes. [`Results::follow`] comes after each of them.
impl Results {
    pub(crate) fn add(&mut self, id: PlaceId, seq: Seq, result: Rc<[u8]>) {
        self.bytes = self.bytes.saturating_add(bytes::of_result(&result));
        self.asked.entry(id).or_default().of.insert(seq, result);
    }

    pub(crate) fn take(&mut self, id: PlaceId, seq: Seq) -> Option<Rc<[u8]>> {
        let result = self.asked.get_mut(&id)?.of.remove(&seq)?;
        self.bytes = self.bytes.saturating_sub(bytes::of_result(&result));
        Some(result)
    }

    /// The place is kept by these words.
    pub(crate) fn keep(&mut self, id: PlaceId, result: Option<Rc<[u8]>>) {
        if result.is_none() && !self.asked.contains_key(&id) {
            return;
        }
        let kept = result.as_deref().map_or(0, bytes::of_result);
        let asked = self.asked.entry(id).or_default();
        let before = std::mem::replace(&mut asked.kept, result);
        let before = before.as_deref().map_or(0, bytes::of_result);
        self.bytes = self.bytes.saturating_add(kept).saturating_sub(before);
    }

    /// Follows a place that has changed: its newest request says what answers it, or the words by
    /// which it is kept.
    pub(crate) fn follow<L>(&mut self, id: PlaceId, place: &Place<L>) {
        let Some(asked) = self.asked.get_mut(&id) else {
            return;
        };
        let answers = match (place.is_over(), place.newest()) {
            (true, _) => None,
            (_, None) => asked.kept.clone(),
            (_, Some(newest)) => asked.of.get(&newest).cloned(),
        };
        let before = std::mem::replace(&mut asked.answers, answers.clone());
        if before != answers {
            self.index(id, place, before, answers);
        }
        if place.is_over() {
            self.keep(id, None);
            self.asked.remove(&id);
        }
    }

    fn index<L>(
        &mut self,
        id: PlaceId,
        place: &Place<L>,
        before: Option<Rc<[u8]>>,
        after: Option<Rc<[u8]>>,
    ) {
        let (key, spot) = (place.keys.first(), (place.ticket, id));
        let all = self.of.entry(key.clone()).or_default();
        if let Some(after) = after {
            all.entry(after).or_default().insert(spot);
        }
        if let Some(before) = before {
            let rest = all.get_mut(&before);
            if rest.is_some_and(|rest| rest.remove(&spot) && rest.is_empty()) {
                all.remove(&before);
            }
        }
        if all.is_empty() {
            self.of.remove(key);
        }
    }
}

#[cfg(test)]
impl Results {
    /// Every name is of a request that waits, or keeps a place, and every entry has its place.
    pub(crate) fn assert_tight<'p, L: 'p>(&self, place: impl Fn(PlaceId) -> Option<&'p Place<L>>) {
        let (mut bytes, mut answered) = (0, 0);
        for (id, asked) in &self.asked {
            let place = place(*id).expect("a place for each name");
            assert!(asked.of.keys().all(|seq| place.request(*seq).is_some()));
            let names = asked.of.values().chain(&asked.kept);
            bytes += names.map(|name| bytes::of_result(name)).sum::<usize>();
            answered += usize::from(asked.answers.is_some());
        }
        assert_eq!(bytes, self.bytes);
        let entries = self.of.values().flat_map(BTreeMap::values);
        assert_eq!(entries.map(BTreeSet::len).sum::<usize>(), answered);
    }
}
