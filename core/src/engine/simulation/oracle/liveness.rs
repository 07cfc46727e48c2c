//! Rules of what the oracle itself comes to.

use super::super::Op;
use super::*;

impl Oracle {
    /// The clients that wait for a key, in the order in which they stand.
    pub(in super::super) fn listeners(&self, at: Place) -> Vec<Client> {
        let queue = self.queue(at);
        let requests = queue.iter().flat_map(|place| &place.requests);
        requests.map(|request| request.client).collect()
    }

    /// The new holds of a key in one step have their fences in the order of the grants.
    pub(in super::super) fn check_ranks(&self, op: Op, new: &mut [(u64, u64)]) {
        new.sort_unstable();
        let key = |id| self.holds.iter().find(|hold| hold.id == id);
        for (n, (id, fence)) in new.iter().enumerate() {
            let Some(hold) = key(*id) else { continue };
            let mut later = new[n + 1..].iter();
            let is_here = |id: u64| key(id).is_some_and(|other| other.at == hold.at);
            let early = later.find(|(id, later)| is_here(*id) && later <= fence);
            let tokens = early.map(|(id, _)| (hold.token, key(*id).map(|hold| hold.token)));
            assert_eq!(tokens, None, "{op:?}: granted in the wrong order");
        }
    }

    /// Nobody waits for ever where all places are for one key. Lets the graces end, and everybody
    /// release who does not wait, as often as somebody can: all must have been granted then. An
    /// owner that waits releases nothing before it is answered, and renews. Owners that wait for
    /// smaller limits may wait for each other: one of them gives up then.
    pub(in super::super) fn check_no_deadlock(&self, at: Place, scene: &Scene) {
        if self.places.is_empty() {
            return;
        }
        let is_free = self.standing(at, scene.now_ms).next().is_none();
        let is_kept = self.queue(at).first().is_some_and(NaivePlace::is_absent);
        assert!(!is_free || is_kept, "free while somebody waits: {self:#?}");
        let mut future = self.clone();
        future.places.retain(|place| !place.is_absent());
        if future.places.len() < self.places.len() {
            future.serve(at, scene);
        }
        while !future.places.is_empty() {
            let waits = |token| future.places.iter().any(|place| place.token == token);
            let mut holds = future.standing(at, scene.now_ms);
            let free = holds.find(|hold| !waits(hold.token)).map(|hold| hold.token);
            let Some(free) = free.or_else(|| future.counted_upgrade()) else {
                panic!("all wait for each other: {self:#?}");
            };
            drop(holds);
            future.places.retain(|place| place.token != free);
            future.release(at, free);
            future.serve(at, scene);
        }
    }

    /// A token with a hold that waits for one with a limit.
    fn counted_upgrade(&self) -> Option<u8> {
        let is_counted = |place: &&NaivePlace| place.modes().iter().any(|m| m.limit().is_some());
        let mut upgrades = self.places.iter().filter(|place| place.upgrade);
        upgrades.find(is_counted).map(|place| place.token)
    }
}
