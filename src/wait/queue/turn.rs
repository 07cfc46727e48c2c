//! Whose turn it is, seen from the head of the queue.

use std::ops::ControlFlow;

use super::in_the_way::Spot;
use super::line::WaitQueue;
use super::order::Sum;
use crate::lock::{Lock, Mode, Now, Occupancy};
use crate::wait::place::{Part, Place, PlaceId, Places, Ticket};
use crate::wait::request::Seq;

/// Whose turn it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Turn {
    /// This request is granted.
    Of(PlaceId, Seq),
    /// This place is for other keys, too.
    OfSeveral(PlaceId),
    /// Somebody has to wait, and so have all behind.
    Nobody,
    /// All ahead of the place that was asked about are absent, and their turn has come: they count
    /// as these holders.
    Come(Occupancy),
}

/// What a lock tolerates with more holders.
pub(super) fn with(lock: Option<&Lock>, now: Now, more: Occupancy) -> Occupancy {
    let held = lock.map_or(Occupancy::NONE, |lock| lock.occupancy(now));
    Occupancy {
        holders: held.holders.saturating_add(more.holders),
        tolerated: held.tolerated.min(more.tolerated),
    }
}

/// What a token that has a hold can have in its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    /// How many holders its hold tolerates.
    pub(super) own: u32,
    /// How many a hold has to tolerate at least, so that it can have it at once.
    pub(super) least: u32,
}

impl Owner {
    /// That of the token of a place; `None` if it has no hold.
    pub(super) fn of<L>(place: &Place<L>, lock: Option<&Lock>, now: Now) -> Option<Self> {
        let (token, lock) = (place.token.text(), lock?);
        let (own, _) = lock.hold_of(token.as_token(), now)?;
        let own = own.tolerates();
        let least = if !lock.is_held_by_others(token.as_token(), now) {
            1
        } else if place.has_counted() {
            // To count is slow where many holds are over, and matters only for limits.
            let holders = u32::try_from(lock.occupancy(now).holders);
            own.min(holders.unwrap_or(Mode::ANY))
        } else {
            own
        };
        Some(Self { own, least })
    }
}

impl WaitQueue {
    /// Finds whose turn it is. With `until`, only ahead of that place, or of the end, and for a
    /// request of that mode.
    pub(super) fn turn<L>(
        &self,
        places: &Places<L>,
        lock: Option<&Lock>,
        now: Now,
        until: Option<(Option<PlaceId>, Mode)>,
    ) -> Turn {
        let own = until.and_then(|(own, _)| places.get(own?));
        let tolerated = match self.turn_of_upgrades(places, lock, now, own) {
            ControlFlow::Break(turn) => return turn,
            ControlFlow::Continue(tolerated) => tolerated,
        };
        let end = own.map_or(Spot::END, |place| place.ticket);
        let (ahead, stop) = self.line_ahead_of(end, places);
        if !self.have_come(end, ahead, tolerated, places, lock, now) {
            return Turn::Nobody;
        }
        let tolerated = tolerated.min(ahead.limit);
        let stop = stop.and_then(|id| Some((id, places.get(id)?)));
        let mode = match (stop, until) {
            (Some((_, place)), _) => place.mode(),
            (None, Some((_, mode))) => mode,
            (None, None) => return Turn::Nobody,
        };
        // Without limits the number of those ahead does not matter. They may be many, and to count
        // holders is slow.
        let by_lock = lock.map_or(Mode::ANY, |lock| lock.mode().tolerates());
        let matters = tolerated.min(mode.tolerates()).min(by_lock) < Mode::ANY;
        let reserved = Occupancy {
            holders: if matters { ahead.absent() } else { 0 },
            tolerated,
        };
        let Some((id, place)) = stop else {
            return Turn::Come(reserved);
        };
        match place.first() {
            // Nobody passes an absent writer.
            None => Turn::Nobody,
            Some(_) if place.is_for_several_keys() => Turn::OfSeveral(id),
            Some((seq, _)) if admits(lock, now, reserved, place, mode) => Turn::Of(id, seq),
            Some(_) => Turn::Nobody,
        }
    }

    /// Whose turn it is among those that upgrade, ahead of one of them if it is given. If it is
    /// nobody's there, because all of them are absent, and their turn has come: how many holders
    /// they tolerate.
    fn turn_of_upgrades<L>(
        &self,
        places: &Places<L>,
        lock: Option<&Lock>,
        now: Now,
        own: Option<&Place<L>>,
    ) -> ControlFlow<Turn, u32> {
        let (listening, absent, is_own) = match self {
            Self::Sole {
                id, is_upgrading, ..
            } => {
                let place = places.get(*id).filter(|_| *is_upgrading);
                let is_own = place.is_some() && own.is_some();
                let ahead = place.map(|place| (*id, place)).filter(|_| !is_own);
                let (absent, listening) = match ahead {
                    Some((_, place)) if place.is_absent() => (ahead, None),
                    ahead => (None, ahead),
                };
                (listening, absent, is_own)
            }
            Self::Line(line) if line.upgrades.is_empty() => {
                return ControlFlow::Continue(Mode::ANY)
            }
            Self::Line(line) => {
                let own = own.map(|place| place.ticket);
                let own = own.filter(|own| line.upgrades.contains(*own));
                let (listening, absent) = line.upgrades.ahead_of(own);
                let place = |ticket: Option<Ticket>| {
                    let id = line.id_of(ticket?)?;
                    Some((id, places.get(id)?))
                };
                (place(listening), place(absent), own.is_some())
            }
        };
        // How many holders it has to tolerate at least, if it tolerates as many.
        let least_of = |place: &Place<L>| {
            let owner = Owner::of(place, lock, now)?;
            (owner.least <= place.widest()).then_some(owner.least)
        };
        let mut reserved = Occupancy::NONE;
        // It tolerates the fewest of the absent ones, so the turn of the others has come, too.
        if let Some((_, place)) = absent {
            if least_of(place).is_none() {
                return ControlFlow::Break(Turn::Nobody);
            }
            reserved.tolerated = place.widest();
        }
        if let Some((id, place)) = listening {
            let seq = least_of(place).and_then(|least| place.first_tolerating(least));
            return ControlFlow::Break(seq.map_or(Turn::Nobody, |seq| Turn::Of(id, seq)));
        }
        match is_own {
            true => ControlFlow::Break(Turn::Come(reserved)),
            false => ControlFlow::Continue(reserved.tolerated),
        }
    }

    /// Whether the turn of the absent permits ahead of a ticket has come, where the upgrades
    /// tolerate so many holders.
    fn have_come<L>(
        &self,
        mut end: Ticket,
        mut ahead: Sum,
        tolerated: u32,
        places: &Places<L>,
        lock: Option<&Lock>,
        now: Now,
    ) -> bool {
        while ahead.has_permit() {
            let of_last = Occupancy {
                holders: ahead.ahead_of_last(),
                tolerated: tolerated.min(ahead.limit),
            };
            let all = with(lock, now, of_last);
            if all.admits(Mode::Shared) {
                return true; // As do those ahead of it: there are fewer ahead of each, and they tolerate no fewer.
            }
            let last = match self {
                Self::Sole { id, .. } => Some(*id),
                Self::Line(line) => line.order.last_permit_ahead_of(end).map(|last| last.id),
            };
            let Some(last) = last.and_then(|id| places.get(id)) else {
                return true;
            };
            // It passes all the same if its token has a hold, by a lock from elsewhere.
            if !admits(lock, now, of_last, last, last.mode()) {
                return false;
            }
            end = last.ticket;
            (ahead, _) = self.line_ahead_of(end, places);
        }
        true
    }

    /// The places in the line ahead of a ticket, but only to the first one that lets nobody pass,
    /// and that one.
    fn line_ahead_of<L>(&self, end: Ticket, places: &Places<L>) -> (Sum, Option<PlaceId>) {
        match self {
            Self::Line(line) => line.order.ahead_of(end),
            Self::Sole {
                id, is_upgrading, ..
            } => {
                let place = places.get(*id).filter(|place| place.ticket < end);
                let part = place
                    .filter(|_| !is_upgrading)
                    .map(|place| place.outline().part);
                let part = part.unwrap_or(Part::ELSEWHERE);
                (Sum::of(part), (part == Part::STOPS).then_some(*id))
            }
        }
    }

    /// Whether it may be the turn of a place, as far as can be told without the lock. An upgrade
    /// ahead of it may be over.
    pub(in crate::wait) fn may_be_turn_of<L>(&self, place: &Place<L>, places: &Places<L>) -> bool {
        self.has_upgrades() || self.line_ahead_of(place.ticket, places).1.is_none()
    }
}

/// Whether the lock admits the token of a place in this mode, beside those who are absent.
pub(super) fn admits<L>(
    lock: Option<&Lock>,
    now: Now,
    reserved: Occupancy,
    place: &Place<L>,
    mode: Mode,
) -> bool {
    // After a release the key is absent most of the time. Then the token's text is not needed,
    // which takes a while to build.
    let Some(held) = lock else {
        return reserved.admits(mode);
    };
    let token = place.token.text();
    match Lock::admits(Some(held), mode, token.as_token(), now) {
        Err(_) => false,
        // It has a hold, and is one of those that the others ahead count.
        Ok(Some(_)) => true,
        Ok(None) => reserved == Occupancy::NONE || with(lock, now, reserved).admits(mode),
    }
}
