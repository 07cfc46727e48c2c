//! The rules of waiting said naively: flat lists, walked from end to end. No marks, no schedule, no
//! tickets, no tables.
//!
//! A key is served by looking at all its holds and waiters; the timer looks at every key there is.
//! Time is not acted on: a hold that is over stays in its list and counts for nothing.

// Long because: the rules of one key belong together.

mod clients;
mod lingering;
mod liveness;
mod once;
mod server;
mod several;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use lingering::Bound;
pub(super) use once::NaiveResult;

use super::{channel_of, heard_by, Client, Event, Limits, Place, Request, Scene, EVERY_DB};
use crate::engine::simulation::naive::{self, Reserved};
use crate::lock::Mode;

#[derive(Clone, Copy, Debug)]
pub(super) struct NaiveHold {
    pub(super) at: Place,
    pub(super) token: u8,
    pub(super) mode: Mode,
    pub(super) deadline: u64,
    /// When its token was first granted.
    pub(super) since: u64,
    /// Grows with each new hold, as fences do. A copy of a hold has the same.
    pub(super) id: u64,
    bound: Bound,
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
    /// The result that it takes in place of a hold.
    result: Option<u8>,
}

impl NaiveRequest {
    /// What its listener gets.
    fn event(&self, at: Place, token: u8, event: Event) -> (Client, Event) {
        let client = match self.is_channel {
            true => heard_by(at, token, event),
            false => self.client,
        };
        (client, event)
    }
}

/// A token's place in the queue of a key.
#[derive(Clone, Debug)]
pub(super) struct NaivePlace {
    pub(super) at: Place,
    /// All keys with their modes, if it is for several. `at` is the first one then.
    pub(super) several: Vec<(Place, Mode)>,
    pub(super) token: u8,
    /// Where it stands: those with smaller ones stand ahead.
    pub(super) position: u64,
    pub(super) since_us: u64,
    pub(super) requests: Vec<NaiveRequest>,
    /// The words of the last request that has left with KEEP.
    pub(super) kept: Option<(Mode, u32)>,
    kept_result: Option<u8>,
    /// When the grace ends, where nobody listens.
    pub(super) until_us: u64,
    pub(super) upgrade: bool,
    /// Whether its token can never become exclusive, because another one waits for that; or nobody
    /// listens, and the token has what the place keeps.
    pub(super) is_refused: bool,
}

impl NaivePlace {
    pub(super) fn is_at(&self, at: Place) -> bool {
        match self.several.is_empty() {
            true => self.at == at,
            false => self.several.iter().any(|(other, _)| *other == at),
        }
    }

    /// The mode in which a key is asked for, by a request that names this mode.
    pub(super) fn mode_at(&self, at: Place, mode: Mode) -> Mode {
        let among = self.several.iter().find(|(other, _)| *other == at);
        among.map_or(mode, |(_, mode)| *mode)
    }

    pub(super) fn is_absent(&self) -> bool {
        self.requests.is_empty()
    }

    /// The modes that it waits for.
    fn modes(&self) -> Vec<Mode> {
        match self.kept {
            Some((mode, _)) if self.is_absent() => vec![mode],
            _ => self.requests.iter().map(|request| request.mode).collect(),
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
        (!self.upgrade, Reverse(width), self.position)
    }

    /// A request has ended without a grant.
    fn leave(&mut self, client: Client, scene: &Scene) {
        let at = self.requests.iter().position(|r| r.client == client);
        let request = self.requests.remove(at.unwrap());
        if request.keep > 0 {
            self.kept = Some((request.mode, request.keep));
            self.kept_result = request.result;
        }
        let keep = self.kept.map_or(0, |(_, keep)| keep);
        self.until_us = scene.mono_us + u64::from(keep) * 1_000;
    }
}

/// A grant that its client has not heard of.
#[derive(Clone, Debug)]
pub(super) struct NaiveGrant {
    pub(super) client: Client,
    /// What was granted. The keys may have other locks by now.
    keys: Vec<Place>,
    token: u8,
    id: u64,
    /// Whether the token had nothing before.
    is_new: bool,
    /// In milliseconds; 0 is without KEEP.
    keep: u32,
    /// Whether another request of the token was answered since.
    is_known: bool,
}

/// A new hold that nobody has heard of, and nobody will.
#[derive(Clone, Debug)]
struct NaiveLoss {
    at: Place,
    token: u8,
    id: u64,
    keep: u32,
}

/// What is to be done next at a key.
enum NaiveNext {
    Grant(NaivePlace, NaiveRequest),
    /// The place can never be granted what it waits for.
    Refuse(NaivePlace),
    /// The turn of a place for several keys has come here.
    Several(NaivePlace),
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
    lost: Vec<NaiveLoss>,
    pub(super) last_id: u64,
    pub(super) events: Vec<(Client, Event)>,
    /// Keys that are to be served before the step ends.
    pub(super) unserved: BTreeSet<Place>,
    /// Whether places for several keys wait for the end of the step with their grants.
    pub(super) puts_off: bool,
    /// Whether the server has become a replica since the timer has run.
    pub(super) was_demoted: bool,
    /// When the server took no writes last, as far as the timer has seen. Graces begin anew then.
    refused_us: u64,
    /// For how long holds stay when their connections are lost, in milliseconds.
    pub(super) linger_ms: u64,
    pub(super) results: BTreeMap<Place, NaiveResult>,
    /// The result that the running command asks for or writes.
    pub(super) asked: Option<u8>,
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

    fn admits(&self, at: Place, token: u8, mode: Mode, now: u64, reserved: &Reserved) -> bool {
        let own = self.own(at, token, now).map(|hold| hold.mode);
        let others = self.standing(at, now).filter(|hold| hold.token != token);
        let others: Vec<Mode> = others.map(|hold| hold.mode).collect();
        naive::admits(own, &others, reserved, mode)
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
        self.lost.retain(|lost| lost.at != at || lost.id != id);
        self.holds.push(NaiveHold {
            at,
            token,
            mode,
            deadline,
            since: own.map_or(now, |own| own.since),
            id,
            bound: Bound::No,
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
        let holds: Vec<NaiveHold> = self.standing(at, now).copied().collect();
        let own = |token| holds.iter().find(|hold| hold.token == token);
        self.places.sort_by_key(|place| place.position);
        let mut here: Vec<&mut NaivePlace> =
            self.places.iter_mut().filter(|p| p.is_at(at)).collect();
        here.retain(|place| place.several.is_empty());
        for place in &mut here {
            place.upgrade &= own(place.token).is_some();
        }
        let narrows = |place: &NaivePlace| {
            own(place.token)
                .is_some_and(|own| naive::any_narrower(own.mode, place.modes().into_iter()))
        };
        let converts = |p: &NaivePlace| p.wants_exclusive() && narrows(p);
        let mut standing = here.iter().filter(|place| place.upgrade);
        let upgrading = standing
            .find(|place| converts(place))
            .or(here.iter().find(|place| converts(place)))
            .map(|place| place.token);
        for place in here {
            place.upgrade =
                narrows(place) && (!place.wants_exclusive() || Some(place.token) == upgrading);
            // Nobody can use an absent place whose token has what it keeps.
            let is_of_no_use = place.is_absent() && own(place.token).is_some() && !narrows(place);
            place.is_refused = is_of_no_use || converts(place) && Some(place.token) != upgrading;
        }
    }

    /// The places of a key in their order.
    pub(super) fn queue(&self, at: Place) -> Vec<NaivePlace> {
        let here = self.places.iter().filter(|place| place.is_at(at));
        let mut queue: Vec<NaivePlace> = here.cloned().collect();
        queue.sort_by_key(NaivePlace::standing);
        queue
    }

    /// A token comes to the end of the queue.
    fn come(&mut self, at: Place, several: Vec<(Place, Mode)>, token: u8, scene: &Scene) {
        self.last_position += 1;
        self.places.push(NaivePlace {
            at,
            several,
            token,
            position: self.last_position,
            since_us: scene.mono_us,
            requests: Vec::new(),
            kept: None,
            kept_result: None,
            until_us: 0,
            upgrade: false,
            is_refused: false,
        });
    }

    fn place(&mut self, at: Place, token: u8) -> Option<&mut NaivePlace> {
        let mut places = self.places.iter_mut();
        places.find(|place| place.is_at(at) && place.token == token)
    }

    /// What an owner can have at once comes first, then what it can never have, then the line.
    pub(super) fn serve(&mut self, at: Place, scene: &Scene) {
        self.answer_all(at, scene);
        while let Some(next) = self.next(at, scene.now_ms) {
            match next {
                NaiveNext::Grant(place, request) => self.grant(&place, request, scene),
                NaiveNext::Refuse(place) => {
                    let mut requests = place.requests.iter();
                    match requests.find(|r| r.mode == Mode::Exclusive) {
                        Some(request) => {
                            self.answered(request.client);
                            self.tell(&place, *request, Event::Deadlock, scene);
                        }
                        None => self
                            .places
                            .retain(|p| !p.is_at(at) || p.token != place.token),
                    }
                }
                NaiveNext::Several(_) if self.puts_off => {
                    self.unserved.insert(at);
                    return;
                }
                NaiveNext::Several(place) => {
                    if !self.grant_several(&place, scene) {
                        return;
                    }
                }
            }
        }
    }

    fn next(&mut self, at: Place, now: u64) -> Option<NaiveNext> {
        self.look_again(at, now);
        let queue = self.queue(at);
        let owners = queue
            .iter()
            .filter(|place| place.several.is_empty() && self.own(at, place.token, now).is_some());
        let requests = owners
            .clone()
            .flat_map(|place| place.requests.iter().map(move |request| (place, *request)));
        let nobody = Reserved::default();
        let granted = requests
            .filter(|(place, r)| self.admits(at, place.token, r.mode, now, &nobody))
            .min_by_key(|(_, request)| request.client);
        let refused = owners.clone().find(|place| place.is_refused);
        if let Some((place, request)) = granted {
            return Some(NaiveNext::Grant(place.clone(), request));
        }
        if let Some(place) = refused {
            return Some(NaiveNext::Refuse(place.clone()));
        }
        let (place, request) = self.next_in_line(&queue, at, now)?;
        Some(match place.several.is_empty() {
            true => NaiveNext::Grant(place.clone(), request),
            false => NaiveNext::Several(place.clone()),
        })
    }

    /// Goes along the line until somebody has to wait. Who is absent counts as a holder.
    fn next_in_line<'q>(
        &self,
        queue: &'q [NaivePlace],
        at: Place,
        now: u64,
    ) -> Option<(&'q NaivePlace, NaiveRequest)> {
        let absent = queue.iter().take_while(|place| place.is_absent()).count();
        let place = queue.get(absent)?;
        // A place for several keys whose token has the key by a lock from elsewhere waits for the
        // end of that hold.
        if !place.several.is_empty() && self.own(at, place.token, now).is_some() {
            return None;
        }
        let reserved = self.reserve(&queue[..absent], at, now)?;
        let request = place.requests[0];
        let mode = place.mode_at(at, request.mode);
        let admits = self.admits(at, place.token, mode, now, &reserved);
        admits.then_some((place, request))
    }

    /// How those who stand ahead count as holders. `None` where one of them has to come first.
    fn reserve(&self, ahead: &[NaivePlace], at: Place, now: u64) -> Option<Reserved> {
        let mut reserved = Reserved::default();
        for place in ahead {
            let is_passed = place.is_absent() && place.several.is_empty();
            let (mode, _) = place.kept.filter(|_| is_passed)?;
            if !self.admits(at, place.token, mode, now, &reserved) {
                return None;
            }
            reserved.add(mode, place.upgrade);
        }
        Some(reserved)
    }

    /// Has a request granted, if it is heard of: to publish is to know.
    fn grant(&mut self, place: &NaivePlace, request: NaiveRequest, scene: &Scene) {
        let (at, token, now) = (place.at, place.token, scene.now_ms);
        if request.is_channel && !scene.has_subscribers {
            return self.unheard(token, scene);
        }
        let is_new = self.own(at, token, now).is_none();
        let id = self.take(at, token, request.mode, now + request.ttl, now);
        self.bind(at, token, request.client, request.is_channel);
        self.events
            .push(request.event(at, token, Event::Granted(id)));
        self.answered(request.client);
        match request.is_channel {
            true => self.learn(id),
            false => self.pending.push(NaiveGrant {
                client: request.client,
                keys: vec![at],
                token,
                id,
                is_new,
                keep: request.keep,
                is_known: false,
            }),
        }
    }

    /// Tells whoever has asked how its wait has ended.
    fn tell(&mut self, place: &NaivePlace, request: NaiveRequest, event: Event, scene: &Scene) {
        match request.is_channel && !scene.has_subscribers {
            true => self.unheard(place.token, scene),
            false => self
                .events
                .push(request.event(place.at, place.token, event)),
        }
    }

    /// Nobody listens to the channel of a token: all requests that name it end.
    fn unheard(&mut self, token: u8, scene: &Scene) {
        let is_it = |place: &&mut NaivePlace| channel_of(place.token) == channel_of(token);
        for place in self.places.iter_mut().filter(is_it) {
            let mut requests = place.requests.iter();
            if let Some(request) = requests.find(|request| request.is_channel).copied() {
                place.leave(request.client, scene);
                let several = place.several.iter().map(|(at, _)| *at);
                self.unserved.extend(several.chain([place.at]));
            }
        }
        self.drop_unkept();
    }

    /// The end of a step: the waiters behind places at which nobody listens any more may be next.
    pub(super) fn finish(&mut self, scene: &Scene) {
        while let Some(at) = self.unserved.pop_first() {
            if scene.serves(at) && !self.others.contains(&at) {
                self.serve(at, scene);
            }
        }
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
