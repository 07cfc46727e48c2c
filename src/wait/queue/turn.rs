//! Whose turn it is: one walk from the head of the queue.

use std::ops::Bound::{Excluded, Unbounded};

use super::line::{Line, WaitQueue};
use crate::lock::{Lock, Mode, Now, Occupancy};
use crate::wait::place::{Place, PlaceId, Places, Ticket};
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
    /// All ahead of the place that was asked about are absent, and their turn has come: they count as these holders.
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
    /// Walks along the queue until somebody is to be granted or has to wait. With `until`, only to that place, or to the end, for a
    /// request of that mode.
    pub(super) fn turn<L>(
        &self,
        places: &Places<L>,
        lock: Option<&Lock>,
        now: Now,
        until: Option<(Option<PlaceId>, Mode)>,
    ) -> Turn {
        let own = until.and_then(|(own, _)| own);
        let mut reserved = Occupancy::NONE;
        for id in self.upgrading() {
            if own == Some(id) {
                return Turn::Come(reserved);
            }
            let Some(place) = places.get(id) else {
                continue;
            };
            let least = Owner::of(place, lock, now).map(|owner| owner.least);
            let Some(least) = least.filter(|least| *least <= place.widest()) else {
                return Turn::Nobody;
            };
            match place.first_tolerating(least) {
                Some(seq) => return Turn::Of(id, seq),
                None => reserved.tolerated = reserved.tolerated.min(place.widest()),
            }
        }
        let own_ticket = own.and_then(|id| places.get(id)).map(|place| place.ticket);
        let mut passed = None;
        for (ticket, id) in self.stops(places) {
            if own_ticket.is_some_and(|own| own <= ticket) {
                break;
            }
            let Some(place) = places.get(id) else {
                continue;
            };
            if place.several.is_some() {
                return match place.is_absent() {
                    true => Turn::Nobody,
                    false => Turn::OfSeveral(id),
                };
            }
            let mode = place.mode();
            self.reserve_shares(&mut reserved, (passed, Some(ticket)), mode, places, lock);
            passed = Some(ticket);
            if !admits(lock, now, reserved, place, mode) {
                return Turn::Nobody;
            }
            match place.first() {
                Some((seq, _)) => return Turn::Of(id, seq),
                None => reserved.add(mode),
            }
        }
        let Some((_, mode)) = until else {
            return Turn::Nobody;
        };
        self.reserve_shares(&mut reserved, (passed, own_ticket), mode, places, lock);
        Turn::Come(reserved)
    }

    /// Whether it may be the turn of a place, as far as can be told without the lock. An upgrade ahead of it may be over.
    pub(in crate::wait) fn may_be_turn_of<L>(&self, id: PlaceId, places: &Places<L>) -> bool {
        let is_passed = |other: PlaceId| {
            let place = places.get(other);
            place.is_none_or(|place| place.is_absent() && place.several.is_none())
        };
        let mut ahead = self.stops(places).take_while(|(_, other)| *other != id);
        self.upgrading().next().is_some() || ahead.all(|(_, other)| is_passed(other))
    }

    /// The places that upgrade, in the order in which they are decided.
    pub(super) fn upgrading(&self) -> impl Iterator<Item = PlaceId> + '_ {
        let (sole, line) = match self {
            Self::Sole {
                id, is_upgrading, ..
            } => (is_upgrading.then_some(*id), None),
            Self::Line(line) => (None, Some(line)),
        };
        sole.into_iter()
            .chain(line.into_iter().flat_map(|line| line.upgrading()))
    }

    /// The places in the line that are not absent shares.
    fn stops<L>(&self, places: &Places<L>) -> impl Iterator<Item = (Ticket, PlaceId)> + '_ {
        let (sole, line) = match self {
            Self::Sole {
                id, is_upgrading, ..
            } => {
                let place = places.get(*id).filter(|_| !is_upgrading);
                let place = place.filter(|place| place.outline().stops);
                (place.map(|place| (place.ticket, *id)), None)
            }
            Self::Line(line) => (None, Some(line)),
        };
        let stops = line.into_iter().flat_map(|line| {
            let stops = line.stops.iter();
            let stops = stops.filter(|ticket| !line.upgrades.contains(**ticket));
            stops.filter_map(|ticket| Some((*ticket, *line.by_ticket.get(ticket)?)))
        });
        sole.into_iter().chain(stops)
    }

    /// Counts the absent shares between two places as holders: as many as matter to one who asks for this mode.
    fn reserve_shares<L>(
        &self,
        reserved: &mut Occupancy,
        (after, before): (Option<Ticket>, Option<Ticket>),
        mode: Mode,
        places: &Places<L>,
        lock: Option<&Lock>,
    ) {
        let by_lock = lock.map_or(Mode::ANY, |lock| lock.mode().tolerates());
        let tolerated = reserved.tolerated.min(mode.tolerates()).min(by_lock);
        if tolerated == Mode::ANY {
            return;
        }
        let most = usize::try_from(tolerated).unwrap_or(usize::MAX);
        let shares = match self {
            Self::Line(line) => line.shares_between(after, before).take(most).count(),
            Self::Sole { id, .. } => {
                let place = places.get(*id).filter(|_| before.is_none());
                place.is_some_and(|place| !place.outline().stops).into()
            }
        };
        reserved.add_many(Mode::Shared, shares);
    }
}

impl Line {
    /// The absent shares in the line between two places.
    fn shares_between(
        &self,
        after: Option<Ticket>,
        before: Option<Ticket>,
    ) -> impl Iterator<Item = Ticket> + '_ {
        let after = after.map_or(Unbounded, Excluded);
        let between = self
            .by_ticket
            .range((after, before.map_or(Unbounded, Excluded)));
        between
            .map(|(ticket, _)| *ticket)
            .filter(|ticket| !self.upgrades.contains(*ticket))
    }
}

/// Whether the lock admits the token of a place in this mode, beside those who are absent.
fn admits<L>(
    lock: Option<&Lock>,
    now: Now,
    reserved: Occupancy,
    place: &Place<L>,
    mode: Mode,
) -> bool {
    // After a release the key is absent most of the time. Then the token's text is not needed, which takes a while to build.
    let Some(held) = lock else {
        return reserved.admits(mode);
    };
    let token = place.token.text();
    match Lock::admits(Some(held), mode, token.as_token(), now) {
        Err(_) => false,
        Ok(Some(_)) => true,
        Ok(None) => reserved == Occupancy::NONE || with(lock, now, reserved).admits(mode),
    }
}
