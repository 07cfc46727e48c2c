//! The queue's rules said naively: two lists, walked from end to end.

use std::cmp::Reverse;

use super::{Block, Event, FIRST_FENCE, GRACE};
use crate::lock::Mode;
use crate::wait::naive::{self, Reserved};

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
    /// Whether its token can never become exclusive, because another one waits for that.
    pub(super) is_refused: bool,
}

impl NaivePlace {
    /// The modes that it waits for.
    fn modes(&self) -> Vec<Mode> {
        match self.requests.is_empty() {
            true => self.keeps.into_iter().collect(),
            false => self.requests.iter().map(|request| request.mode).collect(),
        }
    }

    fn wants_exclusive(&self) -> bool {
        self.modes().contains(&Mode::Exclusive)
    }

    /// Where it stands: upgrades ahead of the line, and of these the one that tolerates the most
    /// holders first.
    fn standing(&self) -> (bool, Reverse<u32>, u64) {
        let widest = self.modes().into_iter().map(Mode::tolerates).max();
        let width = widest.filter(|_| self.upgrade).unwrap_or(0);
        (!self.upgrade, Reverse(width), self.ticket)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Oracle {
    pub(super) holds: Vec<NaiveHold>,
    pub(super) places: Vec<NaivePlace>,
    pub(super) last_fence: u64,
    pub(super) last_number: u64,
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
        let holds = self.holds.clone();
        let own = |token| holds.iter().find(|hold| hold.token == token);
        let places = &mut self.places;
        places.sort_by_key(|place| place.ticket);
        for place in places.iter_mut() {
            place.upgrade &= own(place.token).is_some();
        }
        let narrows = |place: &NaivePlace| {
            own(place.token)
                .is_some_and(|own| naive::any_narrower(own.mode, place.modes().into_iter()))
        };
        let converts = |p: &&NaivePlace| p.wants_exclusive() && narrows(p);
        let standing = places.iter().find(|p| p.upgrade && converts(p));
        let upgrading = standing.or(places.iter().find(converts)).map(|p| p.token);
        for place in places.iter_mut() {
            place.upgrade =
                narrows(place) && (!place.wants_exclusive() || Some(place.token) == upgrading);
            place.is_refused = converts(&&*place) && Some(place.token) != upgrading;
        }
        places.sort_by_key(NaivePlace::standing);
    }

    pub(super) fn owns(&self, token: u8) -> bool {
        self.holds.iter().any(|hold| hold.token == token)
    }

    fn admits(&self, token: u8, mode: Mode, reserved: &Reserved) -> bool {
        let own = self.holds.iter().find(|hold| hold.token == token);
        let others = self.holds.iter().filter(|hold| hold.token != token);
        let others: Vec<Mode> = others.map(|hold| hold.mode).collect();
        naive::admits(own.map(|hold| hold.mode), &others, reserved, mode)
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
        // An absent place lets its token in when its turn has come: none ahead of it keeps it out.
        // A token without a place stands behind all.
        let ahead = &self.places[..own.unwrap_or(self.places.len())];
        let reserved = self.reserve(ahead).filter(|_| is_absent);
        let is_turn = reserved.is_some_and(|reserved| self.admits(token, mode, &reserved));
        let can_have = owns && self.admits(token, mode, &Reserved::default());
        if can_have || (!owns && is_turn) {
            self.places
                .retain(|place| place.token != token || !place.requests.is_empty());
            return Event::Answered(Some(self.take(token, mode, now + ttl)));
        }
        let upgrades = self.places.iter().filter(|place| place.upgrade);
        let mut upgrades = upgrades.filter(|place| place.wants_exclusive());
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
                is_refused: false,
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
            let nobody = Reserved::default();
            let granted = requests
                .clone()
                .filter(|(t, r)| self.admits(*t, r.mode, &nobody));
            if let Some((token, request)) = granted.min_by_key(|(_, request)| request.number) {
                self.grant(token, request, now, events);
                continue;
            }
            let refused = owners.clone().find(|place| place.is_refused);
            if let Some(token) = refused.map(|place| place.token) {
                let at = self.places.iter().position(|p| p.token == token).unwrap();
                match self.places[at].requests.is_empty() {
                    true => drop(self.places.remove(at)),
                    false => {
                        let mut requests = self.places[at].requests.iter();
                        let first = requests.find(|r| r.mode == Mode::Exclusive);
                        let number = first.unwrap().number;
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
        let is_absent = |place: &NaivePlace| place.requests.is_empty();
        let absent = self.places.iter().take_while(|place| is_absent(place));
        let absent = &self.places[..absent.count()];
        let reserved = self.reserve(absent)?;
        let place = self.places.get(absent.len())?;
        let request = place.requests[0];
        let admits = self.admits(place.token, request.mode, &reserved);
        admits.then_some((place.token, request))
    }

    /// How those who stand ahead count as holders. `None` where one of them has to come first.
    fn reserve(&self, ahead: &[NaivePlace]) -> Option<Reserved> {
        let mut reserved = Reserved::default();
        for place in ahead {
            let is_absent = place.requests.is_empty();
            let mode = place.keeps.filter(|_| is_absent)?;
            if !self.admits(place.token, mode, &reserved) {
                return None;
            }
            reserved.add(mode, place.upgrade);
        }
        Some(reserved)
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

    /// A token with a hold that waits for one with a limit.
    pub(super) fn counted_upgrade(&self) -> Option<u8> {
        let is_counted = |place: &&NaivePlace| place.modes().iter().any(|m| m.limit().is_some());
        let mut upgrades = self.places.iter().filter(|place| place.upgrade);
        upgrades.find(is_counted).map(|place| place.token)
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
