//! The rules of waiting said naively: flat lists, walked from end to end. No marks, no schedule, no tickets, no tables.
//!
//! A key is served by looking at all its holds and waiters; the timer looks at every key there is. Time is not acted on: a hold that is
//! over stays in its list and counts for nothing.

// Long because: the rules of waiting are said once more as one whole.

use super::{Client, Event, Limits, Place, Request, Scene, EVERY_DB};
use crate::lock::Mode;

#[derive(Clone, Copy, Debug)]
pub(super) struct NaiveHold {
    pub(super) at: Place,
    pub(super) token: u8,
    pub(super) mode: Mode,
    pub(super) deadline: u64,
    /// Grows with each new hold, as fences do. A copy of a hold has the same.
    pub(super) id: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct NaiveWaiter {
    pub(super) client: Client,
    pub(super) at: Place,
    pub(super) token: u8,
    pub(super) mode: Mode,
    pub(super) ttl: u64,
    pub(super) upgrade: bool,
    pub(super) times_out_at_us: Option<u64>,
}

/// A grant that its client has not heard of.
#[derive(Clone, Copy, Debug)]
pub(super) struct NaiveGrant {
    pub(super) client: Client,
    at: Place,
    token: u8,
    id: u64,
    /// Whether the lock may be under another key by now.
    has_left: bool,
    is_known: bool,
    before: Option<(Mode, u64)>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Oracle {
    pub(super) holds: Vec<NaiveHold>,
    /// Keys that were given an end from outside since they were written to.
    pub(super) ends: Vec<(Place, u64)>,
    /// Keys of another type.
    pub(super) others: Vec<Place>,
    pub(super) waiters: Vec<NaiveWaiter>,
    pub(super) pending: Vec<NaiveGrant>,
    lost: Vec<NaiveGrant>,
    pub(super) last_id: u64,
    pub(super) events: Vec<(Client, Event)>,
}

/// One key.
impl Oracle {
    fn end(&self, at: Place) -> u64 {
        let end = self.ends.iter().find(|(place, _)| *place == at);
        end.map_or(u64::MAX, |(_, end)| *end)
    }

    /// The holds that stand.
    pub(super) fn standing(&self, at: Place, now: u64) -> impl Iterator<Item = &NaiveHold> {
        let is_over = self.end(at) < now;
        let here = self.holds.iter().filter(move |hold| hold.at == at);
        here.filter(move |hold| !is_over && hold.deadline >= now)
    }

    pub(super) fn own(&self, at: Place, token: u8, now: u64) -> Option<NaiveHold> {
        self.standing(at, now)
            .find(|hold| hold.token == token)
            .copied()
    }

    fn admits(&self, at: Place, token: u8, mode: Mode, now: u64) -> bool {
        let mut others = self.standing(at, now).filter(|hold| hold.token != token);
        match mode {
            Mode::Exclusive => others.next().is_none(),
            Mode::Shared => others.all(|hold| hold.mode == Mode::Shared),
        }
    }

    /// Before a write, the holds end with their key.
    fn settle_end(&mut self, at: Place) {
        let end = self.end(at);
        let here = self.holds.iter_mut().filter(|hold| hold.at == at);
        here.for_each(|hold| hold.deadline = hold.deadline.min(end));
        self.ends.retain(|(place, _)| *place != at);
    }

    fn take(&mut self, at: Place, token: u8, mode: Mode, deadline: u64, now: u64) -> u64 {
        let own = self.own(at, token, now);
        self.settle_end(at);
        let id = own.map_or(self.last_id + 1, |own| own.id);
        self.last_id = self.last_id.max(id);
        self.release(at, token);
        self.holds.push(NaiveHold {
            at,
            token,
            mode,
            deadline,
            id,
        });
        id
    }

    fn release(&mut self, at: Place, token: u8) {
        self.settle_end(at);
        self.holds
            .retain(|hold| hold.at != at || hold.token != token);
    }

    /// Says anew who upgrades, and where everybody stands.
    fn look_again(&mut self, at: Place, now: u64) {
        let owners: Vec<u8> = self.standing(at, now).map(|hold| hold.token).collect();
        self.waiters.sort_by_key(|waiter| waiter.client);
        let mut here: Vec<&mut NaiveWaiter> =
            self.waiters.iter_mut().filter(|w| w.at == at).collect();
        for waiter in &mut here {
            waiter.upgrade &= owners.contains(&waiter.token);
        }
        let converts = |w: &NaiveWaiter| w.mode == Mode::Exclusive && owners.contains(&w.token);
        let standing = here.iter().find(|waiter| waiter.upgrade);
        let upgrading = standing
            .or(here.iter().find(|w| converts(w)))
            .map(|w| w.token);
        for waiter in here {
            waiter.upgrade = converts(waiter) && Some(waiter.token) == upgrading;
        }
    }

    /// The waiters of a key in their order.
    pub(super) fn queue(&self, at: Place) -> Vec<NaiveWaiter> {
        let here = self.waiters.iter().filter(|waiter| waiter.at == at);
        let mut queue: Vec<NaiveWaiter> = here.copied().collect();
        queue.sort_by_key(|waiter| (!waiter.upgrade, waiter.client));
        queue
    }

    /// What an owner can have at once comes first, then what it can never have, then the head.
    pub(super) fn serve(&mut self, at: Place, now: u64) {
        while self.waiters.iter().any(|waiter| waiter.at == at) {
            self.look_again(at, now);
            let queue = self.queue(at);
            let owners = queue
                .iter()
                .filter(|w| self.own(at, w.token, now).is_some());
            let granted = owners
                .clone()
                .filter(|w| self.admits(at, w.token, w.mode, now))
                .min_by_key(|waiter| waiter.client);
            let refused = owners.clone().find(|waiter| !waiter.upgrade);
            let next = *granted.or(refused).or(queue.first()).unwrap();
            let before = self.own(at, next.token, now);
            if self.admits(at, next.token, next.mode, now) {
                let id = self.take(at, next.token, next.mode, now + next.ttl, now);
                self.granted(&next, id, before.map(|hold| (hold.mode, hold.deadline)));
            } else if before.is_some() && !next.upgrade {
                self.events.push((next.client, Event::Deadlock));
            } else {
                return;
            }
            self.waiters.retain(|waiter| waiter.client != next.client);
        }
    }

    fn granted(&mut self, waiter: &NaiveWaiter, id: u64, before: Option<(Mode, u64)>) {
        self.events.push((waiter.client, Event::Granted(id)));
        let beside = self
            .pending
            .iter()
            .find(|grant| grant.id == id && grant.at == waiter.at);
        let new = NaiveGrant {
            client: waiter.client,
            at: waiter.at,
            token: waiter.token,
            id,
            has_left: false,
            is_known: false,
            before,
        };
        // All requests of a token that get one hold are one delivery: its owner knows what it knew before the first of them.
        let client = waiter.client;
        let grant = beside.map_or(new, |beside| NaiveGrant { client, ..*beside });
        self.pending.push(grant);
    }
}

/// Clients.
impl Oracle {
    pub(super) fn command(&mut self, client: Client, at: Place, what: Request, scene: &Scene) {
        if self.others.contains(&at) {
            self.events.push((client, Event::WrongType));
            return;
        }
        let now = scene.now_ms;
        self.serve(at, now);
        let token = what.token();
        let own = self.own(at, token, now);
        let event = match what {
            Request::Take {
                mode, ttl, limits, ..
            } => {
                let nobody_waits = self.waiters.iter().all(|waiter| waiter.at != at);
                let upgrades = |waiter: &&NaiveWaiter| waiter.at == at && waiter.upgrade;
                let mut upgrades = self.waiters.iter().filter(upgrades);
                if self.admits(at, token, mode, now) && (own.is_some() || nobody_waits) {
                    Event::Granted(self.take(at, token, mode, now + ttl, now))
                } else if own.is_some() && upgrades.any(|waiter| waiter.token != token) {
                    Event::Deadlock
                } else if limits == Limits::NoWait {
                    Event::Null
                } else {
                    self.waiters.push(NaiveWaiter {
                        client,
                        at,
                        token,
                        mode,
                        ttl,
                        upgrade: own.is_some(),
                        times_out_at_us: match limits {
                            Limits::Until(ms) => Some(scene.mono_us + ms * 1_000),
                            _ => None,
                        },
                    });
                    Event::Waits
                }
            }
            Request::Release(_) => {
                if own.is_some() {
                    self.release(at, token);
                }
                Event::Done(own.is_some())
            }
            Request::Renew(_, ttl) => {
                if let Some(own) = own {
                    self.take(at, token, own.mode, now + ttl, now);
                }
                Event::Done(own.is_some())
            }
        };
        self.events.push((client, event));
        if event != Event::Waits {
            self.serve(at, now);
        }
        // The owner is answered, and knows of its hold.
        match (what, event, own) {
            (_, Event::Granted(id), _) => self.learn(id, at, false),
            (Request::Renew(..), _, Some(own)) => self.learn(own.id, at, false),
            _ => {}
        }
    }

    pub(super) fn kill_waiter(&mut self, client: Client) {
        self.waiters.retain(|waiter| waiter.client != client);
    }

    pub(super) fn end_delivery(&mut self, client: Client, delivered: bool) {
        let position = self.pending.iter().position(|grant| grant.client == client);
        let grant = self.pending.remove(position.unwrap());
        if delivered {
            self.learn(grant.id, grant.at, grant.has_left);
        } else if !grant.is_known {
            self.lost.push(grant);
        }
    }

    /// The owner of a hold has learned of it: it matters no more that another client of it has not. A copy is another hold, unless one
    /// of the two may have taken the other's place.
    fn learn(&mut self, id: u64, at: Place, has_left: bool) {
        let is_it =
            |grant: &NaiveGrant| grant.id == id && (grant.at == at || grant.has_left || has_left);
        for grant in self.pending.iter_mut().filter(|grant| is_it(grant)) {
            grant.is_known = true;
        }
        self.lost.retain(|grant| !is_it(grant));
    }
}

/// The server's part.
impl Oracle {
    pub(super) fn clear(&mut self, at: Place) {
        if self.holds.iter().any(|hold| hold.at == at) {
            let grants = self.pending.iter_mut().chain(&mut self.lost);
            grants
                .filter(|g| g.at == at)
                .for_each(|g| g.has_left = true);
        }
        self.holds.retain(|hold| hold.at != at);
        self.ends.retain(|(place, _)| *place != at);
        self.others.retain(|place| *place != at);
    }

    pub(super) fn rename(&mut self, from: Place, to: Place) {
        self.copy(from, to, true);
        self.clear(from);
    }

    pub(super) fn copy(&mut self, from: Place, to: Place, with_ttl: bool) {
        self.clear(to);
        for n in 0..self.holds.len() {
            if self.holds[n].at == from {
                self.holds.push(NaiveHold {
                    at: to,
                    ..self.holds[n]
                });
            }
        }
        if self.others.contains(&from) {
            self.others.push(to);
        }
        if with_ttl && self.end(from) < u64::MAX {
            self.ends.push((to, self.end(from)));
        }
    }

    pub(super) fn set_end(&mut self, at: Place, end: Option<u64>) {
        self.ends.retain(|(place, _)| *place != at);
        self.ends.extend(end.map(|end| (at, end)));
    }

    pub(super) fn swap_dbs(&mut self, one: u8, other: u8) {
        let swap = |at: &mut Place| match at.db {
            db if db == one => at.db = other,
            db if db == other => at.db = one,
            _ => {}
        };
        self.holds.iter_mut().for_each(|hold| swap(&mut hold.at));
        self.ends.iter_mut().for_each(|(at, _)| swap(at));
        self.others.iter_mut().for_each(swap);
        let grants = self.pending.iter_mut().chain(&mut self.lost);
        grants.for_each(|grant| swap(&mut grant.at));
    }

    pub(super) fn flush(&mut self, db: u8) {
        let stays = |at: Place| db != EVERY_DB && at.db != db;
        self.holds.retain(|hold| stays(hold.at));
        self.ends.retain(|(at, _)| stays(*at));
        self.others.retain(|at| stays(*at));
    }
}

/// The timer.
impl Oracle {
    /// Does all that is due, for all that there is.
    pub(super) fn timer(&mut self, scene: &Scene) {
        let is_over = |w: &NaiveWaiter| {
            w.times_out_at_us
                .is_some_and(|at_us| at_us <= scene.mono_us)
        };
        self.dismiss(is_over, Event::Null);
        if !scene.is_primary {
            self.dismiss(|_| true, Event::TryAgain);
            self.lost.clear();
            return;
        }
        self.dismiss(|waiter| !scene.serves(waiter.at), Event::TryAgain);
        if scene.refuses_writes {
            return;
        }
        let mut sought = Vec::new();
        for grant in std::mem::take(&mut self.lost) {
            if !scene.serves(grant.at) {
                continue;
            }
            if !self.revoke(&grant, grant.at, scene) && grant.has_left {
                sought.push(grant);
            }
        }
        self.serve_all(scene);
        for at in scene.places() {
            for grant in sought.iter().filter(|_| scene.serves(at)) {
                self.revoke(grant, at, scene);
            }
        }
        self.serve_all(scene);
    }

    fn serve_all(&mut self, scene: &Scene) {
        let others = self.others.clone();
        self.dismiss(|waiter| others.contains(&waiter.at), Event::WrongType);
        for at in scene.places() {
            self.serve(at, scene.now_ms);
        }
    }

    fn dismiss(&mut self, is_it: impl Fn(&NaiveWaiter) -> bool, event: Event) {
        let gone = self.waiters.iter().filter(|waiter| is_it(waiter));
        self.events
            .extend(gone.map(|waiter| (waiter.client, event)));
        self.waiters.retain(|waiter| !is_it(waiter));
    }

    /// Ends a hold that nobody has heard of, if it is here.
    fn revoke(&mut self, grant: &NaiveGrant, at: Place, scene: &Scene) -> bool {
        let now = scene.now_ms;
        let own = self.own(at, grant.token, now);
        if own.is_none_or(|own| own.id != grant.id) {
            return false;
        }
        match grant.before.filter(|(_, deadline)| *deadline >= now) {
            Some((mode, before)) => {
                // The other holders stay.
                let mut others = self.standing(at, now).filter(|h| h.token != grant.token);
                let mode = others.next().map_or(mode, |_| Mode::Shared);
                drop(others);
                // An end from outside counts where it is before that of the holds.
                let last = self.standing(at, now).map(|hold| hold.deadline).max();
                let deadline = match self.end(at) {
                    end if Some(end) < last => before.min(end),
                    _ => before,
                };
                self.take(at, grant.token, mode, deadline, now);
            }
            None => self.release(at, grant.token),
        }
        self.serve(at, now);
        true
    }
}
