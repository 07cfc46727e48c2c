//! Requests for several keys on the real side, and the end of a step. Each function has its twin in the shell.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::shell::{key_ref, place, Shell, Value};
use super::{linger_of, Client, Event, Keys, Limits, Place, Request, Scene};
use crate::lock::{Deadline, Effect, Hold, Lock, Refusal, Token};
use crate::wait::{
    Candidate, Entered, KeyRef, Listener, NewRequest, Several, Standing, Turn, Wanted,
};

impl Shell {
    /// Serves a key that is waited for, before a command does its own work.
    pub(super) fn serve_first(&mut self, at: Place, scene: &Scene) -> Option<KeyRef> {
        let key_ref = self.registry.key_ref(at.db.into(), &[at.name])?;
        if self.serve_all(at, &key_ref, scene) {
            self.watch(at, &key_ref, scene.now());
        }
        self.finish(scene, None);
        self.registry.key_ref(at.db.into(), &[at.name])
    }

    /// Has the keys served of a place that a token is about to give up.
    pub(super) fn serve_others_later(&mut self, key_ref: &KeyRef, token: Token<'_>) {
        let several = self.registry.keys_of_place(key_ref, token);
        self.serve_all_later(several.as_deref());
    }

    fn serve_all_later(&mut self, several: Option<&Several>) {
        for one in several.into_iter().flat_map(Several::iter) {
            self.registry.serve_later(one.key_ref.clone());
        }
    }

    pub(super) fn take_all(&mut self, client: Client, keys: Keys, what: Request, scene: &Scene) {
        let is_other = |shell: &Self, at| matches!(shell.values.get(&at), Some(Value::Other));
        for (at, _) in keys.iter() {
            self.look_up(at, scene);
            if !is_other(self, at) {
                self.serve_first(at, scene);
            }
        }
        if keys.iter().any(|(at, _)| is_other(self, at)) {
            self.events.push((client, Event::WrongType));
            return;
        }
        let (name, now) = ([what.token()], scene.now());
        let token = Token::new(&name).unwrap();
        let wanted = keys.iter().map(|(at, mode)| Wanted {
            key_ref: key_ref(at),
            mode,
        });
        let several = Rc::new(Several::new(wanted.collect()).unwrap());
        let hold_at = |at| self.lock(at).and_then(|lock| lock.hold_of(token, now));
        let own: Vec<_> = keys.iter().map(|(at, mode)| (mode, hold_at(at))).collect();
        let fence = own[0].1.map(|(_, hold)| hold.fence);
        let is_it = |(asked, own): &(_, Option<(_, Hold)>)| {
            own.is_some_and(|(mode, hold)| mode == *asked && Some(hold.fence) == fence)
        };
        if own.iter().all(is_it) {
            let hold = own[0].1.unwrap().1;
            return self.hold_all(client, keys, &several, what, hold, scene);
        }
        let standing = self.registry.standing(&several, token);
        if own.iter().any(|(_, own)| own.is_some()) || standing == Standing::Other {
            self.events.push((client, Event::Partial));
            return;
        }
        let is_free = keys.iter().all(|(at, mode)| {
            let (lock, asked) = (self.lock(at), (token, mode));
            let ahead = self.registry.ahead_of(&key_ref(at), asked, lock, now);
            !ahead.as_waiting().any && Lock::admits(lock, mode, token, now).is_ok()
        });
        if is_free {
            let hold = Hold {
                fence: self.fences.0.next(now).unwrap(),
                deadline: Deadline::after(now, what.ttl()),
                since_ms: now.ms(),
            };
            return self.hold_all(client, keys, &several, what, hold, scene);
        }
        self.enter_all(client, &several, what, scene);
    }

    fn hold_all(
        &mut self,
        client: Client,
        keys: Keys,
        several: &Several,
        what: Request,
        hold: Hold,
        scene: &Scene,
    ) {
        let (name, now) = ([what.token()], scene.now());
        let token = Token::new(&name).unwrap();
        self.events.push((client, Event::Granted(hold.fence.get())));
        self.registry.resume_several(several, token);
        for (at, mode) in keys.iter() {
            let own = self.lock(at).and_then(|lock| lock.hold_of(token, now));
            let own = own.map_or(hold, |(_, own)| own);
            let hold = Hold {
                deadline: Deadline::after(now, what.ttl()),
                ..own
            };
            let effect = Effect::Hold {
                now_ms: now.ms(),
                mode,
                token,
                hold,
            };
            self.commit(at, &effect);
            if let Some(key_ref) = self.registry.key_ref(at.db.into(), &[at.name]) {
                self.serve_changed(at, &key_ref, scene);
            }
            if self.registry.deliveries.is_waiting() {
                let deliveries = &mut self.registry.deliveries;
                deliveries.acknowledge(at.db.into(), &[at.name], hold.fence);
            }
        }
    }

    fn enter_all(&mut self, client: Client, several: &Rc<Several>, what: Request, scene: &Scene) {
        let Request::Take { limits, keep, .. } = what else {
            unreachable!()
        };
        let name = [what.token()];
        let new = NewRequest {
            token: Token::new(&name).unwrap(),
            mode: several.first().mode,
            ttl: what.ttl(),
            listener: match limits {
                Limits::NoWait => None,
                _ if limits.is_channel() => Some(Listener::channel(&client.to_be_bytes())),
                _ => Some(Listener::Client(client)),
            },
            times_out_at_us: limits.times_out_at_us(scene),
            keep_ms: (keep > 0).then_some(keep),
            is_server_generated: false,
            linger: Some(linger_of(client)),
            refusal: Refusal::Busy,
            now: scene.now(),
            now_us: scene.mono_us,
        };
        let entered = self.registry.enter_several(several, new);
        self.events.push(match entered {
            Entered::Waits { .. } => (client, Event::Waits),
            _ => (client, Event::Null),
        });
        if entered.must_serve() {
            self.serve_all_later(Some(several));
        }
    }
}

/// The end of a step.
impl Shell {
    /// Serves what is left, and grants the requests for several keys whose turn has come. `touched` are the keys that the timer has
    /// changed: it opens no key again.
    pub(super) fn finish(&mut self, scene: &Scene, mut touched: Option<BTreeSet<KeyRef>>) {
        loop {
            if touched.is_some() {
                self.registry.mark_unserved();
            }
            while let Some(key_ref) = self.registry.take_unserved() {
                self.serve_again(&key_ref, scene);
            }
            let Some(candidate) = self.registry.take_candidate() else {
                return;
            };
            let is_touched = |one: &Wanted| touched.iter().any(|t| t.contains(&one.key_ref));
            if candidate.several.iter().any(is_touched) {
                self.registry.put_off_candidate(&candidate);
            } else if self.is_its_turn(&candidate, scene) {
                self.grant_all(&candidate, scene, &mut touched);
            }
        }
    }

    fn serve_again(&mut self, key_ref: &KeyRef, scene: &Scene) {
        let at = place(key_ref);
        let is_other = self.look_up(at, scene) && self.lock(at).is_none();
        if is_other || !scene.serves(at) {
            self.registry.mark(key_ref.db, &key_ref.name);
        } else if let Some(key_ref) = self.registry.key_ref(at.db.into(), &[at.name]) {
            self.serve_changed(at, &key_ref, scene);
        }
    }

    fn is_its_turn(&mut self, candidate: &Candidate, scene: &Scene) -> bool {
        candidate.several.iter().all(|one| {
            let at = place(&one.key_ref);
            let is_other = self.look_up(at, scene) && self.lock(at).is_none();
            if is_other || !scene.serves(at) {
                self.registry.mark(one.key_ref.db, &one.key_ref.name);
                return false;
            }
            let lock = match self.values.get(&at) {
                Some(Value::Lock(lock, _)) => Some(lock),
                _ => None,
            };
            let registry = &mut self.registry;
            let turn = registry.is_turn_of(candidate, &one.key_ref, lock, scene.now());
            match turn {
                Turn::Its => {}
                Turn::Other => self.registry.serve_later(one.key_ref.clone()),
                // Nobody may have told of the lock that is there.
                Turn::Nobody => self.watch(at, &one.key_ref, scene.now()),
            }
            turn == Turn::Its
        })
    }

    fn grant_all(
        &mut self,
        candidate: &Candidate,
        scene: &Scene,
        touched: &mut Option<BTreeSet<KeyRef>>,
    ) {
        let now = scene.now();
        let fence = self.fences.0.next(now).unwrap();
        let offer = self.registry.offer_several(candidate, fence, now);
        let is_heard = offer.is_some() && scene.has_subscribers;
        if let Some(offer) = offer.filter(|_| !is_heard) {
            assert!(self.registry.unheard(offer, scene.mono_us).is_some());
            self.serve_all_later(Some(&candidate.several));
        }
        let registry = &mut self.registry;
        let Some(granted) = registry.grant_several(candidate, fence, now, is_heard) else {
            return;
        };
        for one in granted.several.iter() {
            let at = place(&one.key_ref);
            self.commit(at, &granted.effect(one.mode));
            if let Some(key_ref) = self.registry.key_ref(one.key_ref.db, &one.key_ref.name) {
                self.serve_changed(at, &key_ref, scene);
            }
            touched.iter_mut().for_each(|touched| {
                touched.insert(one.key_ref.clone());
            });
        }
        for (removed, grant) in granted.requests {
            if let (Some(Listener::Client(client)), Some(grant)) = (&removed.listener, grant) {
                self.in_flight.push((*client, grant));
            }
            self.tell(removed, Event::Granted(fence.get()));
        }
    }
}
