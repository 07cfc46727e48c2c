//! The queue's rules said naively: two lists, walked from end to end.

use super::{Block, Event, FIRST_FENCE, GRACE};
use crate::lock::Mode;

#[derive(Clone, Copy, Debug)]
pub(super) struct NaiveHold {
    pub(super) token: u8,
    pub(super) mode: Mode,
    pub(super) deadline: u64,
    pub(super) fence: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct NaiveRequest {
    pub(super) number: u64,
    pub(super) mode: Mode,
    pub(super) ttl: u64,
    pub(super) keeps: bool,
}

#[derive(Clone, Debug)]
pub(super) struct NaivePlace {
    pub(super) ticket: u64,
    pub(super) token: u8,
    pub(super) requests: Vec<NaiveRequest>,
    /// The mode of the last request that has left with KEEP.
    pub(super) keeps: Option<Mode>,
    /// Until when nobody may listen.
    pub(super) until: u64,
    pub(super) upgrade: bool,
}

impl NaivePlace {
    fn wants_exclusive(&self) -> bool {
        let mut modes = self.requests.iter().map(|request| request.mode);
        match self.requests.is_empty() {
            true => self.keeps == Some(Mode::Exclusive),
            false => modes.any(|mode| mode == Mode::Exclusive),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Oracle {
    pub(super) holds: Vec<NaiveHold>,
    pub(super) places: Vec<NaivePlace>,
    pub(super) last_fence: u64,
    pub(super) last_number: u64,
}

fn fit(one: Mode, other: Mode) -> bool {
    one == Mode::Shared && other == Mode::Shared
}

impl Oracle {
    pub(super) fn new() -> Self {
        Self {
            holds: Vec::new(),
            places: Vec::new(),
            last_fence: FIRST_FENCE,
            last_number: 0,
        }
    }

    /// Forgets the holds that are over, and says anew who upgrades and where everybody stands.
    fn look_again(&mut self, now: u64) {
        self.holds.retain(|hold| now <= hold.deadline);
        let owners: Vec<u8> = self.holds.iter().map(|hold| hold.token).collect();
        let places = &mut self.places;
        places.sort_by_key(|place| place.ticket);
        for place in places.iter_mut() {
            place.upgrade &= owners.contains(&place.token);
        }
        let converts = |p: &&NaivePlace| p.wants_exclusive() && owners.contains(&p.token);
        let standing = places.iter().find(|place| place.upgrade);
        let upgrading = standing.or(places.iter().find(converts)).map(|p| p.token);
        for place in places.iter_mut() {
            place.upgrade = converts(&&*place) && Some(place.token) == upgrading;
        }
        places.sort_by_key(|place| (!place.upgrade, place.ticket));
    }

    pub(super) fn owns(&self, token: u8) -> bool {
        self.holds.iter().any(|hold| hold.token == token)
    }

    fn admits(&self, token: u8, mode: Mode) -> bool {
        let mut others = self.holds.iter().filter(|hold| hold.token != token);
        match mode {
            Mode::Exclusive => others.next().is_none(),
            Mode::Shared => others.all(|hold| hold.mode == Mode::Shared),
        }
    }

    pub(super) fn take(&mut self, token: u8, mode: Mode, deadline: u64) -> u64 {
        let own = self.holds.iter().position(|hold| hold.token == token);
        let fence = match own {
            Some(at) => self.holds.remove(at).fence,
            None => {
                self.last_fence += 1;
                self.last_fence
            }
        };
        self.holds.push(NaiveHold {
            token,
            mode,
            deadline,
            fence,
        });
        fence
    }

    pub(super) fn ask(&mut self, mode: Mode, token: u8, ttl: u64, block: Block, now: u64) -> Event {
        let (waits, keeps) = match block {
            Block::No => (false, false),
            Block::Yes => (true, false),
            Block::Keep => (true, true),
            Block::NoKeep => (false, true),
        };
        let owns = self.owns(token);
        let own = self.places.iter().position(|place| place.token == token);
        let is_absent = own.is_none_or(|at| self.places[at].requests.is_empty());
        // An absent place lets its token in when its turn has come: none ahead of it keeps it out. A token without a place stands
        // behind all.
        let ahead = &self.places[..own.unwrap_or(self.places.len())];
        let is_turn = is_absent
            && ahead.iter().all(|ahead| {
                let is_absent = ahead.requests.is_empty();
                is_absent && fit(ahead.keeps.unwrap(), mode)
            });
        if self.admits(token, mode) && (owns || is_turn) {
            self.places
                .retain(|place| place.token != token || !place.requests.is_empty());
            return Event::Answered(Some(self.take(token, mode, now + ttl)));
        }
        let mut upgrades = self.places.iter().filter(|place| place.upgrade);
        if owns && mode == Mode::Exclusive && upgrades.any(|place| place.token != token) {
            self.places
                .retain(|place| place.token != token || !place.requests.is_empty());
            return Event::Deadlock;
        }
        if !waits && !keeps {
            self.places
                .retain(|place| place.token != token || !place.requests.is_empty());
            return Event::Answered(None);
        }
        self.last_number += 1;
        let number = self.last_number;
        let at = own.unwrap_or_else(|| {
            self.places.push(NaivePlace {
                ticket: number,
                token,
                requests: Vec::new(),
                keeps: None,
                until: 0,
                upgrade: false,
            });
            self.places.len() - 1
        });
        let place = &mut self.places[at];
        place.upgrade |= owns;
        if waits {
            place.keeps = place.keeps.filter(|_| !is_absent);
            place.requests.push(NaiveRequest {
                number,
                mode,
                ttl,
                keeps,
            });
            return Event::Waits(number);
        }
        if is_absent {
            (place.keeps, place.until) = (Some(mode), now + GRACE);
        }
        Event::Answered(None)
    }

    /// A request ends without a grant.
    pub(super) fn cancel(&mut self, number: u64, now: u64) {
        for place in &mut self.places {
            let at = place.requests.iter().position(|r| r.number == number);
            if let Some(request) = at.map(|at| place.requests.remove(at)) {
                if request.keeps {
                    place.keeps = Some(request.mode);
                }
                place.until = now + GRACE;
            }
        }
        self.drop_ended(now);
    }

    /// Places of nobody's end that are not kept, or no more.
    pub(super) fn drop_ended(&mut self, now: u64) {
        self.places.retain(|place| {
            !place.requests.is_empty() || (place.keeps.is_some() && now < place.until)
        });
    }

    /// What an owner can have at once comes first, then what it can never have, then the line.
    pub(super) fn serve(&mut self, now: u64, events: &mut Vec<Event>) {
        loop {
            self.look_again(now);
            let owners = self.places.iter().filter(|p| self.owns(p.token));
            let requests = owners
                .clone()
                .flat_map(|p| p.requests.iter().map(move |r| (p.token, *r)));
            let granted = requests.clone().filter(|(t, r)| self.admits(*t, r.mode));
            if let Some((token, request)) = granted.min_by_key(|(_, request)| request.number) {
                self.grant(token, request, now, events);
                continue;
            }
            let refused = owners.clone().find(|p| p.wants_exclusive() && !p.upgrade);
            if let Some(token) = refused.map(|place| place.token) {
                let at = self.places.iter().position(|p| p.token == token).unwrap();
                match self.places[at].requests.is_empty() {
                    true => drop(self.places.remove(at)),
                    false => {
                        let number = self.places[at].requests[0].number;
                        events.push(Event::Refused(number));
                        self.remove(number);
                    }
                }
                continue;
            }
            let Some((token, request)) = self.next_in_line() else {
                return;
            };
            self.grant(token, request, now, events);
        }
    }

    /// Goes along the line until somebody has to wait. Who is absent counts as a holder.
    fn next_in_line(&self) -> Option<(u8, NaiveRequest)> {
        let mut reserved: Vec<Mode> = Vec::new();
        for place in &self.places {
            let mode = place.requests.first().map(|request| request.mode);
            let mode = mode.or(place.keeps)?;
            let fits = reserved.iter().all(|other| fit(*other, mode));
            if !fits || !self.admits(place.token, mode) {
                return None;
            }
            match place.requests.first() {
                Some(request) => return Some((place.token, *request)),
                None => reserved.push(mode),
            }
        }
        None
    }

    fn grant(&mut self, token: u8, request: NaiveRequest, now: u64, events: &mut Vec<Event>) {
        let fence = self.take(token, request.mode, now + request.ttl);
        events.push(Event::Granted(request.number, fence));
        self.remove(request.number);
    }

    /// A request was answered: its place ends with the last one.
    fn remove(&mut self, number: u64) {
        let is_it = |request: &NaiveRequest| request.number == number;
        let at = self
            .places
            .iter()
            .position(|p| p.requests.iter().any(is_it));
        let place = &mut self.places[at.unwrap()];
        place.requests.retain(|request| !is_it(request));
        if place.requests.is_empty() {
            self.places.remove(at.unwrap());
        }
    }

    /// A token gives its place up. The requests that end so.
    pub(super) fn give_up(&mut self, token: u8) -> Vec<u64> {
        let gone = self.places.iter().filter(|place| place.token == token);
        let gone = gone.flat_map(|place| place.requests.iter().map(|request| request.number));
        let gone = gone.collect();
        self.places.retain(|place| place.token != token);
        gone
    }

    pub(super) fn release(&mut self, token: u8) {
        self.holds.retain(|hold| hold.token != token);
    }
}
