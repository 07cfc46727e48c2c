//! Requests for two keys at once: MACQUIRE as the shell carries it out.

use std::rc::Rc;

use super::*;
use crate::lock::{Grant, Hold};
use crate::wait::{Several, TurnAt, Wanted};

/// Two keys, and the mode in which each is asked for.
pub(super) type Both = [(u8, Mode); 2];

/// Why a request for two keys is not granted at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unfit {
    Busy,
    Partial,
}

pub(super) fn several(both: Both) -> Rc<Several> {
    let wanted = both.map(|(key, mode)| Wanted {
        key_ref: key_ref(key),
        mode,
    });
    Rc::new(Several::new(wanted.into_iter()).unwrap())
}

impl World {
    pub(super) fn ask_both(&mut self, token: u8, both: Both, how: How) {
        let several = several(both);
        if self.decide_both(token, &several) != Err(Unfit::Busy) {
            return;
        }
        if how != How::NoWait {
            let name = bytes(token);
            let name = Token::new(&name).unwrap();
            let all = both.map(|(key, mode)| asked(key, mode, false, how));
            let cycle = self.search(name, all.to_vec());
            let mut waited = self.clone();
            waited.enter_both(token, &several, how.waiting());
            let say = format!("{token} asks {both:?} {how:?}");
            let keys = both.map(|(key, _)| key);
            self.compare(waited, (token, &keys), cycle.as_deref(), &say);
            if let Some(cycle) = cycle {
                *self.refused.entry(cycle.len()).or_default() += 1;
                self.registry.resume(&Keys::Several(several), name);
                return;
            }
        }
        self.enter_both(token, &several, how);
    }

    /// A token that was absent asks again for the keys of its place.
    pub(super) fn ask_again_for(&mut self, token: u8, several: &Rc<Several>) {
        if self.decide_both(token, several) == Err(Unfit::Busy) {
            self.enter_both(token, several, How::Block);
        }
    }

    /// What the decision says. A request that is granted takes its holds.
    fn decide_both(&mut self, token: u8, several: &Rc<Several>) -> Result<(), Unfit> {
        let name = bytes(token);
        let name = Token::new(&name).unwrap();
        let keys = Keys::Several(Rc::clone(several));
        let own = several.iter().map(|one| {
            let lock = self.locks.get(&one.key_ref.name[0]);
            lock.and_then(|lock| lock.hold_of(name, NOW))
        });
        let own: Vec<_> = own.collect();
        let fence = own[0].map(|(_, hold)| hold.fence);
        let is_it = |(one, own): (&Wanted, &Option<(Mode, Hold)>)| {
            own.is_some_and(|(mode, hold)| mode == one.mode && Some(hold.fence) == fence)
        };
        if several.iter().zip(&own).all(is_it) {
            self.registry.resume(&keys, name);
            return Ok(());
        }
        let is_other = self.registry.waits_otherwise(&keys, name);
        if is_other || own.iter().any(Option::is_some) {
            return Err(Unfit::Partial);
        }
        let is_free = |one: &Wanted| {
            let lock = self.locks.get(&one.key_ref.name[0]);
            let asked = (name, one.mode);
            let ahead = self.registry.ahead_of(&one.key_ref, asked, lock, NOW);
            !ahead.any && Lock::admits(lock, one.mode, name, NOW).is_ok()
        };
        if !several.iter().all(is_free) {
            return Err(Unfit::Busy);
        }
        let fence = self.fences().next(NOW).unwrap();
        let ttl = Ttl::from_millis(1 << 40).unwrap();
        self.registry.resume(&keys, name);
        self.last_fence = fence.get();
        for one in several.iter() {
            let grant = Grant::new(None, one.mode, ttl, fence, NOW);
            self.apply(one.key_ref.name[0], &grant.effect(name));
            self.registry.lock_granted(&one.key_ref);
        }
        Ok(())
    }

    fn enter_both(&mut self, token: u8, several: &Rc<Several>, how: How) {
        let (name, mode) = (bytes(token), several.first().mode);
        let name = Token::new(&name).unwrap();
        let new = self.new_request(name, mode, how, Refusal::Busy);
        let keys = Keys::Several(Rc::clone(several));
        self.registry.enter(&keys, new);
    }

    /// Grants the first place for two keys whose turn has come at both. Whether there was one.
    pub(super) fn grant_both(&mut self) -> bool {
        while let Some(candidate) = self.registry.take_candidate() {
            let is_its_turn = candidate.several.iter().all(|one| {
                let lock = self.locks.get(&one.key_ref.name[0]);
                let key_ref = &one.key_ref;
                self.registry.turn_of(&candidate, key_ref, lock, NOW) == TurnAt::Its
            });
            if !is_its_turn {
                continue;
            }
            let fence = self.fences().next(NOW).unwrap();
            let is_heard = self
                .registry
                .offer_candidate(&candidate, fence, NOW)
                .is_some();
            let registry = &mut self.registry;
            let all = registry.grant_candidate(&candidate, fence, NOW, is_heard);
            let last = all.last().unwrap().grant;
            self.last_fence = fence.get();
            for one in candidate.several.iter() {
                let grant = Grant {
                    mode: one.mode,
                    ..last
                };
                self.apply(one.key_ref.name[0], &grant.effect(candidate.token()));
            }
            for (_, grant) in all.into_iter().filter_map(Granted::into_delivery) {
                self.registry.deliveries.delivered(&grant);
            }
            return true;
        }
        false
    }
}
