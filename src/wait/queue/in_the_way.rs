//! What stands in the way of a place: the queue's part in the search for cycles of waits (`graph`).
//!
//! A place waits for those ahead of it that exclude it, or that exclude another one between the
//! two. So a reader behind readers waits for none of them. Behind a writer it waits for the writer,
//! and for all that the writer waits for.

use std::ops::Range;

use super::WaitQueue;
use crate::lock::Mode;
use crate::wait::place::{Place, PlaceId, Places, Ticket};

/// How much a search may still look at.
#[derive(Clone, Copy, Debug)]
pub(in crate::wait) struct Budget(usize);

impl Budget {
    pub(in crate::wait) const fn new(most: usize) -> Self {
        Self(most)
    }

    /// `None` when it is used up.
    pub(in crate::wait) fn spend(&mut self, n: usize) -> Option<()> {
        self.0 = self.0.checked_sub(n)?;
        Some(())
    }
}

/// Where a place stands in the queue of a key, or would stand.
#[derive(Clone, Copy, Debug)]
pub(in crate::wait) struct Spot {
    /// `None` of a place that is not there yet.
    pub(in crate::wait) id: Option<PlaceId>,
    pub(in crate::wait) at: Ticket,
    pub(in crate::wait) mode: Mode,
    pub(in crate::wait) is_for_several_keys: bool,
}

impl Spot {
    /// Ahead of the line.
    pub(in crate::wait) const HEAD: Ticket = Ticket(0);
    /// At its end.
    pub(in crate::wait) const END: Ticket = Ticket(u64::MAX);

    fn is_exclusive_ahead_of(&self, other: &Self) -> bool {
        self.mode == Mode::Exclusive && self.at < other.at
    }
}

/// What stands in the way of a spot.
#[derive(Debug)]
pub(in crate::wait) struct InTheWay {
    /// The mode of the spot, or a narrower one of those ahead: holders that exclude it stand in the
    /// way.
    pub(in crate::wait) mode: Mode,
    /// The places of tokens that have other places, too. The other ones lead nowhere else.
    pub(in crate::wait) places: Vec<PlaceId>,
    /// Whether the spot of the token that asks is one of those.
    pub(in crate::wait) asker: bool,
}

/// Whether a hold, or a place whose turn comes before, must end before a request of the other mode
/// is granted.
pub(in crate::wait) fn stands_in_the_way(mode: Mode, asked: Mode) -> bool {
    mode == Mode::Exclusive || mode == Mode::Shared && asked == Mode::Exclusive
}

impl WaitQueue {
    /// Where a place stands. One that upgrades is ahead of the line.
    pub(in crate::wait) fn spot_of<L>(&self, id: PlaceId, place: &Place<L>, name: &[u8]) -> Spot {
        Spot {
            id: Some(id),
            at: match self.is_upgrading(place) {
                true => Spot::HEAD,
                false => place.ticket,
            },
            mode: narrowest_mode(place, name),
            is_for_several_keys: place.is_for_several_keys(),
        }
    }

    /// Notes whether the token of a place has other places, too.
    pub(in crate::wait) fn set_has_others(&mut self, ticket: Ticket, has_others: bool) {
        if let Self::Line(line) = self {
            match has_others {
                true => line.with_others.insert(ticket),
                false => line.with_others.remove(&ticket),
            };
        }
    }

    fn is_upgrading<L>(&self, place: &Place<L>) -> bool {
        match self {
            Self::Sole { is_upgrading, .. } => *is_upgrading,
            Self::Line(line) => line.upgrades.contains(place.ticket),
        }
    }

    /// Whether there are places of tokens that have other places, too.
    pub(in crate::wait) fn has_tokens_with_others<L>(&self, places: &Places<L>) -> bool {
        match self {
            Self::Sole { id, .. } => places.get(*id).is_some_and(|place| place.has_others()),
            Self::Line(line) => !line.with_others.is_empty(),
        }
    }

    /// What stands in the way of a spot in this queue, that of the key of this name. `asker` is the
    /// spot of the token that asks, whose place, if it has one, counts as it will be. `None` when
    /// the budget is used up.
    pub(in crate::wait) fn in_the_way_of<L>(
        &self,
        spot: &Spot,
        asker: Option<&Spot>,
        name: &[u8],
        places: &Places<L>,
        budget: &mut Budget,
    ) -> Option<InTheWay> {
        let is_asker = |id: PlaceId| asker.is_some_and(|asker| asker.id == Some(id));
        // The other upgrades count holders, and make no edges.
        let upgrade = self.exclusive_upgrade(places).filter(|id| !is_asker(*id));
        let upgrade = upgrade.filter(|_| spot.at > Spot::HEAD);
        let is_in_line = |id: PlaceId| !is_asker(id) && Some(id) != upgrade;
        let exclusive_until = match spot.mode == Mode::Exclusive {
            true => Some(spot.at),
            false => {
                let own = asker.filter(|asker| asker.is_exclusive_ahead_of(spot));
                let own = own.map(|own| own.at);
                let between = own.unwrap_or(Spot::HEAD)..spot.at;
                let last = self.last_exclusive(between, is_in_line, name, places, budget)?;
                last.or(own).or(upgrade.map(|_| Spot::HEAD))
            }
        };
        let blocks = |at: Ticket, mode: Mode, is_for_several_keys: bool| {
            let is_excluded = exclusive_until.is_some_and(|until| at <= until);
            is_for_several_keys || is_excluded && stands_in_the_way(mode, Mode::Exclusive)
        };
        let mut found = Vec::new();
        for id in self.with_others_before(spot.at, places) {
            budget.spend(1)?;
            let Some(place) = places.get(id).filter(|_| is_in_line(id)) else {
                continue;
            };
            let mode = narrowest_mode(place, name);
            if blocks(place.ticket, mode, place.is_for_several_keys()) {
                found.push(id);
            }
        }
        let has_others = |id: &PlaceId| places.get(*id).is_some_and(|place| place.has_others());
        found.extend(upgrade.filter(has_others));
        Some(InTheWay {
            mode: exclusive_until.map_or(spot.mode, |_| Mode::Exclusive),
            places: found,
            asker: asker.is_some_and(|asker| {
                asker.at < spot.at && blocks(asker.at, asker.mode, asker.is_for_several_keys)
            }),
        })
    }

    /// The ticket of the last one of some places in the line that waits for the exclusive hold.
    /// `None` when the budget is used up.
    fn last_exclusive<L>(
        &self,
        between: Range<Ticket>,
        is_in_line: impl Fn(PlaceId) -> bool,
        name: &[u8],
        places: &Places<L>,
        budget: &mut Budget,
    ) -> Option<Option<Ticket>> {
        let (sole, line) = match self {
            Self::Sole { id, .. } => (places.get(*id).map(|place| (place.ticket, *id)), None),
            Self::Line(line) => (None, Some(line.order.ahead_of_in_turn(between.end))),
        };
        let line = line.into_iter().flatten();
        let line = line.map(|entry| (entry.ticket, entry.id));
        let all = sole.into_iter().chain(line);
        let all = all.skip_while(|(ticket, _)| between.end <= *ticket);
        for (ticket, id) in all.take_while(|(ticket, _)| between.start <= *ticket) {
            budget.spend(1)?;
            let place = places.get(id).filter(|_| is_in_line(id));
            if place.map(|place| narrowest_mode(place, name)) == Some(Mode::Exclusive) {
                return Some(Some(ticket));
            }
        }
        Some(None)
    }

    fn with_others_before<'a, L>(
        &'a self,
        at: Ticket,
        places: &Places<L>,
    ) -> impl Iterator<Item = PlaceId> + 'a {
        let (sole, line) = match self {
            Self::Sole { id, .. } => (places.get(*id).map(|place| (place, *id)), None),
            Self::Line(line) => (None, Some(line)),
        };
        let sole = sole.filter(|(place, _)| place.has_others() && place.ticket < at);
        let line = line.into_iter().flat_map(move |line| {
            let tickets = line.with_others.range(..at);
            tickets.filter_map(|ticket| line.id_of(*ticket))
        });
        sole.map(|(_, id)| id).into_iter().chain(line)
    }
}

/// The mode of a place in the queue of this key that excludes the most.
fn narrowest_mode<L>(place: &Place<L>, name: &[u8]) -> Mode {
    let among = place.mode_among(name);
    let mode = among.or_else(|| place.narrowest_mode_but(None));
    mode.unwrap_or_else(|| place.keep_mode())
}
