//! What the server does, and its timer.

use std::mem::take;

use super::*;

/// The server's part.
impl Oracle {
    pub(in super::super) fn clear(&mut self, at: Place) {
        let holds = &self.holds;
        let leaves = |id| holds.iter().any(|hold| hold.at == at && hold.id == id);
        self.lost.retain(|lost| lost.at != at || !leaves(lost.id));
        self.holds.retain(|hold| hold.at != at);
        self.ends.retain(|(place, _)| *place != at);
        self.others.retain(|place| *place != at);
    }

    /// A lock comes with a hold.
    pub(in super::super) fn comes(
        &mut self,
        at: Place,
        token: u8,
        mode: Mode,
        ttl: u64,
        scene: &Scene,
    ) -> u64 {
        let now = scene.now_ms;
        self.take(at, token, mode, now + ttl, now)
    }

    pub(in super::super) fn rename(&mut self, from: Place, to: Place) {
        self.copy(from, to, true);
        self.clear(from);
    }

    pub(in super::super) fn copy(&mut self, from: Place, to: Place, with_ttl: bool) {
        self.clear(to);
        for n in 0..self.holds.len() {
            if self.holds[n].at == from {
                self.holds.push(NaiveHold {
                    at: to,
                    bound: Bound::No,
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

    pub(in super::super) fn set_end(&mut self, at: Place, end: Option<u64>) {
        self.ends.retain(|(place, _)| *place != at);
        self.ends.extend(end.map(|end| (at, end)));
    }

    pub(in super::super) fn swap_dbs(&mut self, one: u8, other: u8) {
        let swap = |at: &mut Place| match at.db {
            db if db == one => at.db = other,
            db if db == other => at.db = one,
            _ => {}
        };
        self.holds.iter_mut().for_each(|hold| swap(&mut hold.at));
        self.ends.iter_mut().for_each(|(at, _)| swap(at));
        self.others.iter_mut().for_each(swap);
        self.lost.iter_mut().for_each(|lost| swap(&mut lost.at));
    }

    pub(in super::super) fn flush(&mut self, db: u8) {
        let stays = |at: Place| db != EVERY_DB && at.db != db;
        self.holds.retain(|hold| stays(hold.at));
        self.ends.retain(|(at, _)| stays(*at));
        self.lost.retain(|lost| stays(lost.at));
        self.others.retain(|at| stays(*at));
        // Places stand in one database, also those for several keys.
        self.places
            .retain(|place| !place.is_absent() || stays(place.at));
    }
}

/// The timer.
impl Oracle {
    /// Does all that is due, for all that there is.
    pub(in super::super) fn timer(&mut self, scene: &Scene) {
        if scene.is_primary && !scene.may_write() {
            self.refused_us = scene.mono_us;
        }
        self.time_out(scene);
        if !scene.is_primary {
            self.dismiss(|_| true, Event::TryAgain, scene);
            self.lost.clear();
            self.was_demoted = false;
            return;
        }
        self.dismiss(|at| !scene.serves(at), Event::TryAgain, scene);
        if !scene.may_write() {
            return;
        }
        for at in scene.places().filter(|at| scene.serves(*at)) {
            self.bring_forward(at, scene.now_ms);
        }
        // A slot that has gone may come back with its locks.
        let holds = &self.holds;
        self.lost
            .retain(|lost| holds.iter().any(|hold| hold.at == lost.at));
        // Whoever stood behind a place that was dismissed may be next, at a key before.
        self.serve_all(scene);
        self.serve_all(scene);
    }

    /// Ends what is over, before anything else.
    pub(super) fn time_out(&mut self, scene: &Scene) {
        let is_over = |r: &&NaiveRequest| r.times_out_at_us.is_some_and(|at| at <= scene.mono_us);
        // One after the other: a message that nobody receives ends other requests, too.
        while let Some(client) = {
            let requests = self.places.iter().flat_map(|place| &place.requests);
            let first = requests.filter(is_over);
            let first = first.min_by_key(|request| (request.times_out_at_us, request.client));
            first.map(|request| request.client)
        } {
            let has = |place: &&mut NaivePlace| place.requests.iter().any(|r| r.client == client);
            let place = self.places.iter_mut().find(has).unwrap();
            let mut requests = place.requests.iter();
            let request = *requests.find(|r| r.client == client).unwrap();
            let before = place.clone();
            place.leave(client, scene);
            self.drop_unkept();
            self.tell(&before, request, Event::Null, scene);
        }
        let is_due = |place: &NaivePlace| place.is_absent() && place.until_us <= scene.mono_us;
        for place in self.places.iter_mut().filter(|place| is_due(place)) {
            let (_, keep) = place.kept.unwrap();
            place.until_us = self.refused_us + u64::from(keep) * 1_000;
        }
        self.places.retain(|place| !is_due(place));
        // Who has waited since before a demotion does not wait for this primary.
        if scene.is_primary && take(&mut self.was_demoted) {
            self.dismiss(|_| true, Event::TryAgain, scene);
        }
    }

    fn serve_all(&mut self, scene: &Scene) {
        scene
            .places()
            .for_each(|at| self.serve_or_dismiss(at, scene));
    }

    fn serve_or_dismiss(&mut self, at: Place, scene: &Scene) {
        match self.others.contains(&at) {
            true => self.dismiss(|other| other == at, Event::WrongType, scene),
            false => self.serve(at, scene),
        }
    }

    /// All places of these keys end; nobody hears of those at which nobody listens.
    fn dismiss(&mut self, is_it: impl Fn(Place) -> bool, event: Event, scene: &Scene) {
        let is_it = |place: &NaivePlace| match place.several.is_empty() {
            true => is_it(place.at),
            false => place.several.iter().any(|(at, _)| is_it(*at)),
        };
        let (gone, places): (Vec<_>, _) = take(&mut self.places).into_iter().partition(is_it);
        self.places = places;
        for place in gone {
            for request in &place.requests {
                self.tell(&place, *request, event, scene);
            }
        }
    }
}
