//! The rules of waiting said naively: flat lists, walked from end to end. No marks, no schedule, no tickets, no tables.
//!
//! A key is served by looking at all its holds and waiters; the timer looks at every key there is. Time is not acted on: a hold that is
//! over stays in its list and counts for nothing.

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
pub(super) struct NaiveRequest {
    pub(super) client: Client,
    pub(super) is_channel: bool,
    pub(super) mode: Mode,
    pub(super) ttl: u64,
    pub(super) times_out_at_us: Option<u64>,
    /// In milliseconds; 0 is without KEEP.
    pub(super) keep: u32,
}

/// A token's place in the queue of a key.
#[derive(Clone, Debug)]
pub(super) struct NaivePlace {
    pub(super) at: Place,
    pub(super) token: u8,
    /// Where it stands: those with smaller ones stand ahead.
    pub(super) position: u64,
    pub(super) since_ms: u64,
    pub(super) requests: Vec<NaiveRequest>,
    /// The words of the last request that has left with KEEP.
    pub(super) kept: Option<(Mode, u32)>,
    /// When the grace ends, where nobody listens.
    pub(super) until_us: u64,
    pub(super) upgrade: bool,
}

impl NaivePlace {
    pub(super) fn is_absent(&self) -> bool {
        self.requests.is_empty()
    }

    fn wants_exclusive(&self) -> bool {
        match self.kept {
            Some((mode, _)) if self.is_absent() => mode == Mode::Exclusive,
            _ => self.requests.iter().any(|r| r.mode == Mode::Exclusive),
        }
    }

    /// A request has ended without a grant.
    fn leave(&mut self, client: Client, scene: &Scene) {
        let at = self.requests.iter().position(|r| r.client == client);
        let request = self.requests.remove(at.unwrap());
        if request.keep > 0 {
            self.kept = Some((request.mode, request.keep));
        }
        self.upgrade &= self.wants_exclusive();
        let keep = self.kept.map_or(0, |(_, keep)| keep);
        self.until_us = scene.mono_us + u64::from(keep) * 1_000;
    }
}

fn fit(one: Mode, other: Mode) -> bool {
    one == Mode::Shared && other == Mode::Shared
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
    /// The place that it had, where it said KEEP: the key, the position, since when, and the words.
    kept: Option<(Place, u64, u64, (Mode, u32))>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Oracle {
    pub(super) holds: Vec<NaiveHold>,
    /// Keys that were given an end from outside since they were written to.
    pub(super) ends: Vec<(Place, u64)>,
    /// Keys of another type.
    pub(super) others: Vec<Place>,
    pub(super) places: Vec<NaivePlace>,
    last_position: u64,
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
        self.places.sort_by_key(|place| place.position);
        let mut here: Vec<&mut NaivePlace> =
            self.places.iter_mut().filter(|p| p.at == at).collect();
        for place in &mut here {
            place.upgrade &= owners.contains(&place.token);
        }
        let converts = |p: &NaivePlace| p.wants_exclusive() && owners.contains(&p.token);
        let standing = here.iter().find(|place| place.upgrade);
        let upgrading = standing
            .or(here.iter().find(|place| converts(place)))
            .map(|place| place.token);
        for place in here {
            place.upgrade = converts(place) && Some(place.token) == upgrading;
        }
    }

    /// The places of a key in their order.
    pub(super) fn queue(&self, at: Place) -> Vec<NaivePlace> {
        let here = self.places.iter().filter(|place| place.at == at);
        let mut queue: Vec<NaivePlace> = here.cloned().collect();
        queue.sort_by_key(|place| (!place.upgrade, place.position));
        queue
    }

    fn place(&mut self, at: Place, token: u8) -> Option<&mut NaivePlace> {
        let mut places = self.places.iter_mut();
        places.find(|place| place.at == at && place.token == token)
    }

    /// What an owner can have at once comes first, then what it can never have, then the line.
    pub(super) fn serve(&mut self, at: Place, scene: &Scene) {
        let now = scene.now_ms;
        while self.places.iter().any(|place| place.at == at) {
            self.look_again(at, now);
            let queue = self.queue(at);
            let owners = queue
                .iter()
                .filter(|place| self.own(at, place.token, now).is_some());
            let requests = owners
                .clone()
                .flat_map(|place| place.requests.iter().map(move |request| (place, *request)));
            let granted = requests
                .filter(|(place, request)| self.admits(at, place.token, request.mode, now))
                .min_by_key(|(_, request)| request.client);
            let refused = owners
                .clone()
                .find(|place| place.wants_exclusive() && !place.upgrade);
            if let Some((place, request)) = granted {
                self.grant(place, request, scene);
            } else if let Some(place) = refused {
                match place.requests.first() {
                    Some(request) => {
                        self.events.push((request.client, Event::Deadlock));
                        self.answered(request.client);
                    }
                    None => self.places.retain(|p| p.at != at || p.token != place.token),
                }
            } else if let Some((place, request)) = self.next_in_line(&queue, at, now) {
                self.grant(place, request, scene);
            } else {
                return;
            }
        }
    }

    /// Goes along the line until somebody has to wait. Who is absent counts as a holder.
    fn next_in_line<'q>(
        &self,
        queue: &'q [NaivePlace],
        at: Place,
        now: u64,
    ) -> Option<(&'q NaivePlace, NaiveRequest)> {
        let mut reserved: Vec<Mode> = Vec::new();
        for place in queue {
            let first = place.requests.first();
            let mode = first.map_or_else(|| place.kept.unwrap().0, |request| request.mode);
            let fits = reserved.iter().all(|other| fit(*other, mode));
            if !fits || !self.admits(at, place.token, mode, now) {
                return None;
            }
            match first {
                Some(request) => return Some((place, *request)),
                None => reserved.push(mode),
            }
        }
        None
    }

    /// Has a request granted, if it is heard of: to publish is to know.
    fn grant(&mut self, place: &NaivePlace, request: NaiveRequest, scene: &Scene) {
        let (at, token, now) = (place.at, place.token, scene.now_ms);
        if request.is_channel && !scene.has_subscribers {
            let place = self.place(at, token).unwrap();
            place.leave(request.client, scene);
            return self.drop_unkept();
        }
        let before = self.own(at, token, now);
        let id = self.take(at, token, request.mode, now + request.ttl, now);
        self.events.push((request.client, Event::Granted(id)));
        self.answered(request.client);
        if request.is_channel {
            return self.learn(id, at, false);
        }
        let beside = self
            .pending
            .iter()
            .find(|grant| grant.id == id && grant.at == at);
        let new = NaiveGrant {
            client: request.client,
            at,
            token,
            id,
            has_left: false,
            is_known: false,
            before: before.map(|hold| (hold.mode, hold.deadline)),
            kept: None,
        };
        // All requests of a token that get one hold are one delivery: its owner knows what it knew before the first of them.
        let (client, words) = (request.client, (request.mode, request.keep));
        let kept = (at, place.position, place.since_ms, words);
        let kept = (request.keep > 0).then_some(kept);
        let grant = *beside.unwrap_or(&new);
        self.pending.push(NaiveGrant {
            client,
            kept,
            ..grant
        });
    }

    /// A request has its answer. The place ends with the last one.
    fn answered(&mut self, client: Client) {
        let has = |place: &NaivePlace| place.requests.iter().any(|r| r.client == client);
        let n = self.places.iter().position(has).unwrap();
        self.places[n].requests.retain(|r| r.client != client);
        if self.places[n].is_absent() {
            self.places.remove(n);
        }
    }

    fn drop_unkept(&mut self) {
        let stays = |place: &NaivePlace| !place.is_absent() || place.kept.is_some();
        self.places.retain(stays);
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
        self.serve(at, scene);
        let token = what.token();
        let own = self.own(at, token, now);
        let event = match what {
            Request::Take { mode, .. } => {
                let can_have = self.admits(at, token, mode, now);
                let upgrades = |place: &&NaivePlace| place.at == at && place.upgrade;
                let mut upgrades = self.places.iter().filter(upgrades);
                if can_have && (own.is_some() || self.is_turn_of(at, token, mode)) {
                    self.end_absent(at, token);
                    Event::Granted(self.take(at, token, mode, now + what.ttl().ms(), now))
                } else if own.is_some() && upgrades.any(|place| place.token != token) {
                    self.end_absent(at, token);
                    Event::Deadlock
                } else {
                    self.join(client, at, what, own.is_some(), scene)
                }
            }
            Request::Release(_) => {
                match own.is_some() {
                    true => self.release(at, token),
                    false => self.give_up(at, token),
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
        self.serve(at, scene);
        // The owner is answered, and knows of its hold.
        match (what, event, own) {
            (_, Event::Granted(id), _) => self.learn(id, at, false),
            (Request::Renew(..), _, Some(own)) => self.learn(own.id, at, false),
            _ => {}
        }
    }

    /// Whether a token that is not here may come in: nobody waits, or all ahead of its place are absent and leave room.
    fn is_turn_of(&self, at: Place, token: u8, mode: Mode) -> bool {
        let queue = self.queue(at);
        let own = queue.iter().position(|place| place.token == token);
        match own.filter(|n| queue[*n].is_absent()) {
            None => queue.is_empty(),
            Some(n) => queue[..n]
                .iter()
                .all(|ahead| ahead.is_absent() && fit(ahead.kept.unwrap().0, mode)),
        }
    }

    fn end_absent(&mut self, at: Place, token: u8) {
        let is_it = |p: &NaivePlace| p.at == at && p.token == token && p.is_absent();
        self.places.retain(|place| !is_it(place));
    }

    /// A request waits at its token's place, or leaves one, or neither.
    fn join(
        &mut self,
        client: Client,
        at: Place,
        what: Request,
        owns: bool,
        scene: &Scene,
    ) -> Event {
        let Request::Take {
            mode,
            token,
            ttl,
            limits,
            keep,
        } = what
        else {
            unreachable!()
        };
        if limits == Limits::NoWait && keep == 0 {
            self.end_absent(at, token);
            return Event::Null;
        }
        if self.place(at, token).is_none() {
            self.last_position += 1;
            self.places.push(NaivePlace {
                at,
                token,
                position: self.last_position,
                since_ms: scene.now_ms,
                requests: Vec::new(),
                kept: None,
                until_us: 0,
                upgrade: false,
            });
        }
        let place = self.place(at, token).unwrap();
        place.upgrade |= owns;
        if limits == Limits::NoWait {
            if place.is_absent() {
                place.kept = Some((mode, keep));
                place.until_us = scene.mono_us + u64::from(keep) * 1_000;
            }
            return Event::Null;
        }
        if place.is_absent() {
            place.kept = None;
        }
        let is_channel = limits.is_channel();
        // The channel that was named last is the one that hears.
        place
            .requests
            .retain(|other| !(is_channel && other.is_channel));
        place.requests.push(NaiveRequest {
            client,
            is_channel,
            mode,
            ttl,
            times_out_at_us: limits.times_out_at_us(scene),
            keep,
        });
        Event::Waits
    }

    /// Those who block at the place of a token that gives it up get null.
    fn give_up(&mut self, at: Place, token: u8) {
        let Some(place) = self.place(at, token).cloned() else {
            return;
        };
        let blocked = place.requests.iter().filter(|r| !r.is_channel);
        let blocked = blocked.map(|request| (request.client, Event::Null));
        self.events.extend(blocked);
        self.places.retain(|p| p.at != at || p.token != token);
    }

    pub(super) fn kill_waiter(&mut self, client: Client, scene: &Scene) {
        let has = |place: &&mut NaivePlace| place.requests.iter().any(|r| r.client == client);
        let place = self.places.iter_mut().find(has);
        place.unwrap().leave(client, scene);
        self.drop_unkept();
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
        self.time_out(scene);
        if !scene.is_primary {
            self.dismiss(|_| true, Event::TryAgain);
            self.lost.clear();
            return;
        }
        self.dismiss(|at| !scene.serves(at), Event::TryAgain);
        if scene.refuses_writes {
            return;
        }
        let lost = std::mem::take(&mut self.lost);
        lost.iter().for_each(|grant| self.give_back(grant, scene));
        self.dismiss(|at| !scene.serves(at), Event::TryAgain);
        for grant in lost {
            if !scene.serves(grant.at) {
                continue;
            }
            if !self.revoke(&grant, grant.at, scene) && grant.has_left {
                self.lost.push(grant);
            }
        }
        // An owner may hear of its hold now.
        self.serve_all(scene);
        let sought = std::mem::take(&mut self.lost);
        for at in scene.places() {
            for grant in sought.iter().filter(|_| scene.serves(at)) {
                self.revoke(grant, at, scene);
            }
        }
        self.serve_all(scene);
    }

    fn time_out(&mut self, scene: &Scene) {
        let is_over = |r: &NaiveRequest| r.times_out_at_us.is_some_and(|at| at <= scene.mono_us);
        for place in &mut self.places {
            let mut over = place.requests.clone();
            over.retain(is_over);
            over.sort_by_key(|request| (request.times_out_at_us, request.client));
            for request in over {
                place.leave(request.client, scene);
                self.events.push((request.client, Event::Null));
            }
        }
        self.drop_unkept();
        let stays = |place: &NaivePlace| !place.is_absent() || place.until_us > scene.mono_us;
        self.places.retain(stays);
    }

    /// The token of a grant that was lost has its place again, if it said KEEP.
    fn give_back(&mut self, grant: &NaiveGrant, scene: &Scene) {
        let Some((at, position, since_ms, words)) = grant.kept else {
            return;
        };
        if let Some(place) = self.place(at, grant.token) {
            place.position = place.position.min(position);
            place.since_ms = place.since_ms.min(since_ms);
            place.kept = place.kept.or(Some(words));
            return;
        }
        self.places.push(NaivePlace {
            at,
            token: grant.token,
            position,
            since_ms,
            requests: Vec::new(),
            kept: Some(words),
            until_us: scene.mono_us + u64::from(words.1) * 1_000,
            upgrade: false,
        });
    }

    fn serve_all(&mut self, scene: &Scene) {
        let others = self.others.clone();
        self.dismiss(|at| others.contains(&at), Event::WrongType);
        for at in scene.places() {
            self.serve(at, scene);
        }
    }

    /// All places of these keys end; nobody hears of those at which nobody listens.
    fn dismiss(&mut self, is_it: impl Fn(Place) -> bool, event: Event) {
        let gone = self.places.iter().filter(|place| is_it(place.at));
        let gone = gone.flat_map(|place| &place.requests);
        self.events
            .extend(gone.map(|request| (request.client, event)));
        self.places.retain(|place| !is_it(place.at));
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
        true
    }
}
