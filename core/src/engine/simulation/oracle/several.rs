//! Requests for several keys.

use super::super::Keys;
use super::*;

impl Oracle {
    pub(in super::super) fn take_all(
        &mut self,
        client: Client,
        keys: Keys,
        what: Request,
        has_lock_left: bool,
        scene: &Scene,
    ) {
        self.time_out(scene);
        let at = |(at, _): (Place, Mode)| at;
        let is_other = keys.iter().map(at).any(|at| self.others.contains(&at));
        if has_lock_left && is_other {
            // Its keys are looked at before they are served: one may have gone to another node.
            self.events.push((client, Event::WrongType));
            return;
        }
        self.puts_off = true;
        for at in keys.iter().map(at) {
            if !self.others.contains(&at) {
                self.bring_forward(at, scene.now_ms);
                self.serve(at, scene);
            }
        }
        self.puts_off = false;
        self.finish(scene);
        let event = match is_other {
            true => Event::WrongType,
            false => self.decide_all(client, keys, what, scene),
        };
        self.events.push((client, event));
        if event != Event::WrongType {
            keys.iter().for_each(|(at, _)| self.serve(at, scene));
        }
        if let Event::Granted(id) = event {
            self.learn(id);
        }
    }

    fn decide_all(&mut self, client: Client, keys: Keys, what: Request, scene: &Scene) -> Event {
        let (token, now) = (what.token(), scene.now_ms);
        let keys: Vec<(Place, Mode)> = keys.iter().collect();
        let own = |(at, _): &(Place, Mode)| self.own(*at, token, now);
        let holds: Vec<NaiveHold> = keys.iter().filter_map(own).collect();
        let mut pairs = holds.iter().zip(&keys);
        let places = self.places.iter().filter(|p| p.token == token);
        let mut places = places.filter(|p| keys.iter().any(|(at, _)| p.is_at(*at)));
        let place = places.next().cloned();
        let is_mine = place.as_ref().is_none_or(|place| {
            let has = |(at, mode): &(Place, Mode)| {
                place.is_at(*at) && (place.is_absent() || place.mode_at(*at, *mode) == *mode)
            };
            !place.several.is_empty() && place.several.len() == keys.len() && keys.iter().all(has)
        });
        let is_absent = place.as_ref().is_some_and(NaivePlace::is_absent);
        let id = if holds.len() == keys.len()
            && pairs.all(|(hold, (_, mode))| hold.mode == *mode && hold.id == holds[0].id)
        {
            holds[0].id
        } else if !holds.is_empty() || !is_mine {
            return Event::Partial;
        } else if keys
            .iter()
            .all(|(at, mode)| self.is_turn_of(*at, token, *mode, now))
        {
            self.last_id + 1
        } else {
            return self.join_all(client, keys, what, place, scene);
        };
        if is_mine && is_absent {
            self.end_absent(keys[0].0, token);
        }
        let bound = Bound::To(client, true);
        self.hold_all(&keys, token, id, (now, now + what.ttl().ms()), bound);
        Event::Granted(id)
    }

    fn hold_all(
        &mut self,
        keys: &[(Place, Mode)],
        token: u8,
        id: u64,
        (now, deadline): (u64, u64),
        bound: Bound,
    ) {
        self.last_id = self.last_id.max(id);
        for (at, mode) in keys {
            // Another lock may have come with a hold of the token.
            let own = self.own(*at, token, now).filter(|own| own.id == id);
            self.settle_end(*at);
            self.release(*at, token);
            self.lost.retain(|lost| lost.at != *at || lost.id != id);
            self.holds.push(NaiveHold {
                at: *at,
                token,
                mode: *mode,
                deadline,
                since: own.map_or(now, |own| own.since),
                id,
                bound,
            });
        }
    }

    fn join_all(
        &mut self,
        client: Client,
        keys: Vec<(Place, Mode)>,
        what: Request,
        place: Option<NaivePlace>,
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
        let at = keys[0].0;
        let is_live = place.as_ref().is_some_and(|place| !place.is_absent());
        if limits == Limits::NoWait && (keep == 0 || is_live) {
            self.end_absent(at, token);
            return Event::Null;
        }
        if place.is_none() {
            self.come(at, keys.clone(), token, scene);
        }
        let place = self.place(at, token).unwrap();
        if !is_live || limits.is_channel() {
            (place.at, place.several) = (at, keys);
        }
        place.ask(client, what, None, scene)
    }

    /// Grants a place for several keys whose turn has come at one of them, if it has come at all.
    /// Whether anything has changed.
    pub(super) fn grant_several(&mut self, place: &NaivePlace, scene: &Scene) -> bool {
        let now = scene.now_ms;
        if !place
            .several
            .iter()
            .all(|(at, _)| self.may_be_first(place, *at))
        {
            return false;
        }
        for (at, _) in &place.several {
            if !scene.serves(*at) || self.others.contains(at) {
                return false;
            }
            match self.next(*at, now) {
                Some(NaiveNext::Several(p)) if p.position == place.position => {}
                Some(NaiveNext::Several(_)) | None => return false,
                Some(_) => {
                    self.serve(*at, scene);
                    return true;
                }
            }
        }
        let keys = &place.several;
        if place.requests.iter().any(|r| r.is_channel) && !scene.has_subscribers {
            self.unheard(place.token, scene);
        }
        let mut all = self.places.iter();
        let place = all.find(|p| p.position == place.position).cloned();
        let granted = place.as_ref().and_then(|p| Some((p, p.requests.last()?)));
        if let Some((place, last)) = granted {
            let id = self.last_id + 1;
            let bound = Bound::To(last.client, last.is_channel);
            self.hold_all(keys, place.token, id, (now, now + last.ttl), bound);
            self.places.retain(|p| p.position != place.position);
            for request in &place.requests {
                self.events
                    .push(request.event(place.at, place.token, Event::Granted(id)));
                if !request.is_channel {
                    self.pending.push(NaiveGrant {
                        client: request.client,
                        keys: keys.iter().map(|(at, _)| *at).collect(),
                        token: place.token,
                        id,
                        is_new: true,
                        keep: request.keep,
                        is_known: false,
                    });
                }
            }
            if place.requests.iter().any(|request| request.is_channel) {
                self.learn(id);
            }
        }
        keys.iter().for_each(|(at, _)| self.serve(*at, scene));
        true
    }

    /// Whether all ahead of it are absent and no writers, or an upgrade is ahead of it that may be
    /// over.
    fn may_be_first(&self, place: &NaivePlace, at: Place) -> bool {
        let queue = self.queue(at);
        let mut ahead = queue.iter().take_while(|p| p.position != place.position);
        queue.iter().any(|p| p.upgrade)
            || ahead.all(|p| p.is_absent() && p.several.is_empty() && !p.wants_exclusive())
    }
}
