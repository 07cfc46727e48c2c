//! What clients do.

use std::mem::take;

use super::*;

/// Clients.
impl Oracle {
    pub(in super::super) fn command(
        &mut self,
        client: Client,
        at: Place,
        what: Request,
        scene: &Scene,
    ) {
        if !matches!(what, Request::Check(_) | Request::Exec(_)) {
            self.time_out(scene);
        }
        if self.others.contains(&at) {
            self.events.push((client, Event::WrongType));
            return;
        }
        let (now, token) = (scene.now_ms, what.token());
        let own = self.own(at, token, now);
        if let Request::Check(_) | Request::Exec(_) = what {
            // A question serves nobody.
            let own = own.filter(|own| !self.is_over(own, now));
            self.events.push((client, answer(what, own)));
            return self.write_result(at, what, own, scene);
        }
        self.bring_forward(at, now);
        self.serve_first(at, scene);
        let own = self.own(at, token, now);
        if self.is_answered(client, at, what, own, scene) {
            return self.serve(at, scene);
        }
        if let Request::Cancel(of) = what {
            let count = self.cancel(at, of, scene);
            self.events.push((client, Event::Count(count)));
            return self.serve(at, scene);
        }
        let is_partial = self
            .place(at, token)
            .is_some_and(|place| !place.several.is_empty());
        if is_partial && matches!(what, Request::Take { .. }) {
            self.events.push((client, Event::Partial));
            return;
        }
        let event = match what {
            Request::Take { .. } => self.decide(client, at, what, own, scene),
            Request::Release(_) => {
                match own.is_some() {
                    true => self.release(at, token),
                    false => self.give_up(at, token),
                }
                Event::Done(own.is_some())
            }
            Request::ReleaseLater(_, ms) => {
                match own {
                    Some(own) if now < own.since + ms => self.end_later(at, token, own.since + ms),
                    Some(_) => self.release(at, token),
                    None => self.give_up(at, token),
                }
                Event::Done(own.is_some())
            }
            Request::Check(_) | Request::Exec(_) | Request::Cancel(_) => unreachable!(),
            Request::Renew(_, ttl) => {
                if let Some(own) = own {
                    self.renew(own, now + ttl, now);
                }
                Event::Done(own.is_some())
            }
        };
        self.events.push((client, event));
        self.serve(at, scene);
        self.learn_of(what, event, own);
    }

    /// The owner is answered, and knows of its hold.
    fn learn_of(&mut self, what: Request, event: Event, own: Option<NaiveHold>) {
        match (what, event, own) {
            (_, Event::Granted(id), _) => self.learn(id),
            (_, _, Some(own)) if !matches!(what, Request::Take { .. }) => {
                self.learn(own.id);
            }
            _ => {}
        }
    }

    fn decide(
        &mut self,
        client: Client,
        at: Place,
        what: Request,
        own: Option<NaiveHold>,
        scene: &Scene,
    ) -> Event {
        let Request::Take { mode, token, .. } = what else {
            unreachable!()
        };
        let now = scene.now_ms;
        let can_have = self.can_have(at, token, mode, own, now);
        let upgrades = |place: &&NaivePlace| place.at == at && place.upgrade;
        let upgrades = self.places.iter().filter(upgrades);
        let mut upgrades = upgrades.filter(|place| place.wants_exclusive());
        let is_last = mode == Mode::Exclusive && own.is_some();
        if can_have {
            self.end_absent(at, token);
            let id = self.take(at, token, mode, now + what.ttl().ms(), now);
            self.bind(at, token, client, true);
            Event::Granted(id)
        } else if is_last && upgrades.any(|place| place.token != token) {
            self.end_absent(at, token);
            Event::Deadlock
        } else {
            self.join(client, at, what, own.is_some(), scene)
        }
    }

    /// Whether a token gets a hold at once.
    pub(super) fn can_have(
        &self,
        at: Place,
        token: u8,
        mode: Mode,
        own: Option<NaiveHold>,
        now: u64,
    ) -> bool {
        match own {
            Some(_) => self.admits(at, token, mode, now, &Reserved::default()),
            None => self.is_turn_of(at, token, mode, now),
        }
    }

    /// A hold ends at an instant, or earlier. It is not bound to a connection any more.
    pub(super) fn end_later(&mut self, at: Place, token: u8, until: u64) {
        self.settle_end(at);
        let mut own = self.holds.iter_mut();
        let own = own.find(|hold| hold.at == at && hold.token == token);
        if let Some(own) = own {
            own.deadline = own.deadline.min(until);
            own.bound = Bound::No;
        }
    }

    fn serve_first(&mut self, at: Place, scene: &Scene) {
        let has_several = self.places.iter().any(|place| !place.several.is_empty());
        self.serve(at, scene);
        if has_several {
            // The turn of such a place may have come, and it holds the key then.
            self.finish(scene);
        }
    }

    /// Whether a token that is not here may come in: all ahead of it are absent and leave room.
    /// Without a place it stands behind all.
    pub(super) fn is_turn_of(&self, at: Place, token: u8, mode: Mode, now: u64) -> bool {
        let queue = self.queue(at);
        let own = queue.iter().position(|place| place.token == token);
        if own.is_some_and(|n| !queue[n].is_absent()) {
            return false;
        }
        let reserved = self.reserve(&queue[..own.unwrap_or(queue.len())], at, now);
        reserved.is_some_and(|reserved| self.admits(at, token, mode, now, &reserved))
    }

    pub(super) fn end_absent(&mut self, at: Place, token: u8) {
        let is_it = |p: &NaivePlace| p.is_at(at) && p.token == token && p.is_absent();
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
            token,
            limits,
            keep,
            ..
        } = what
        else {
            unreachable!()
        };
        if limits == Limits::NoWait && keep == 0 {
            self.end_absent(at, token);
            return Event::Null;
        }
        if self.place(at, token).is_none() {
            self.come(at, Vec::new(), token, scene);
        }
        let asked = self.asked;
        let place = self.place(at, token).unwrap();
        place.upgrade |= owns;
        place.ask(client, what, asked, scene)
    }
}

/// What a question gets.
fn answer(what: Request, own: Option<NaiveHold>) -> Event {
    match (what, own) {
        (Request::Check(_), Some(own)) => Event::Granted(own.id),
        (Request::Check(_), None) => Event::Null,
        (_, Some(_)) => Event::Done(true),
        (_, None) => Event::Refused,
    }
}

impl NaivePlace {
    /// A request comes to a place.
    pub(super) fn ask(
        &mut self,
        client: Client,
        what: Request,
        result: Option<u8>,
        scene: &Scene,
    ) -> Event {
        let Request::Take {
            mode,
            ttl,
            limits,
            keep,
            ..
        } = what
        else {
            unreachable!()
        };
        let place = self;
        if limits == Limits::NoWait {
            if place.is_absent() {
                place.kept = Some((mode, keep));
                place.kept_result = result;
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
            result,
        });
        Event::Waits
    }
}

impl Oracle {
    /// Those who block at the place of a token that gives it up get null.
    fn give_up(&mut self, at: Place, token: u8) {
        let Some(place) = self.place(at, token).cloned() else {
            return;
        };
        let blocked = place.requests.iter().filter(|r| !r.is_channel);
        let blocked = blocked.map(|request| (request.client, Event::Null));
        self.events.extend(blocked);
        self.places.retain(|p| !p.is_at(at) || p.token != token);
        // The command serves its key, and the end of the step the others.
        let others = place.several.iter().map(|(other, _)| *other);
        self.unserved.extend(others.filter(|other| *other != at));
    }

    /// The places of a token, or of all, end. Answers how many wait there, and how many places are
    /// absent.
    fn cancel(&mut self, at: Place, token: Option<u8>, scene: &Scene) -> u64 {
        let is_it =
            |place: &NaivePlace| place.is_at(at) && token.is_none_or(|token| token == place.token);
        let (gone, places): (Vec<_>, _) = take(&mut self.places).into_iter().partition(is_it);
        self.places = places;
        for place in &gone {
            self.unserved
                .extend(place.several.iter().map(|(at, _)| *at));
            for request in &place.requests {
                self.tell(place, *request, Event::Cancelled, scene);
            }
        }
        gone.iter()
            .map(|place| place.requests.len().max(1) as u64)
            .sum()
    }

    pub(in super::super) fn kill_waiter(&mut self, client: Client, scene: &Scene) {
        let has = |place: &&mut NaivePlace| place.requests.iter().any(|r| r.client == client);
        let place = self.places.iter_mut().find(has);
        place.unwrap().leave(client, scene);
        self.drop_unkept();
    }

    pub(in super::super) fn end_delivery(&mut self, client: Client, delivered: bool) {
        let at = self.pending.iter().position(|grant| grant.client == client);
        let grant = self.pending.remove(at.unwrap());
        let (token, id, keep) = (grant.token, grant.id, grant.keep);
        if delivered {
            self.learn(id);
            self.lost
                .retain(|lost| lost.id != id || !grant.keys.contains(&lost.at));
            grant
                .keys
                .iter()
                .for_each(|at| self.confirm(*at, id, client));
        } else if grant.is_new && !grant.is_known {
            let keys = grant.keys.into_iter();
            let lost = keys.map(|at| NaiveLoss {
                at,
                token,
                id,
                keep,
            });
            self.lost.extend(lost);
        }
    }

    /// The owner of a hold has learned of it: it matters no more that another client of it has not.
    pub(super) fn learn(&mut self, id: u64) {
        let grants = self.pending.iter_mut().filter(|grant| grant.id == id);
        grants.for_each(|grant| grant.is_known = true);
    }
}
