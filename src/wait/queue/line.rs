//! The places of one key: how they are stored, and questions about them.

use std::collections::{BTreeMap, BTreeSet};

use super::upgrades::Upgrades;
use crate::lock::{CompactToken, Token};
use crate::wait::place::{Counts, Outline, Place, PlaceId, Places, Ticket};

/// The places of one key. There is no queue without a place.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(in crate::wait) enum WaitQueue {
    /// Most queues have one place, and there may be many such queues.
    Sole {
        id: PlaceId,
        is_upgrading: bool,
        is_owner: bool,
        is_lock_replaced: bool,
    },
    /// Two places or more.
    Line(Box<Line>),
}

#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(in crate::wait) struct Line {
    pub(super) by_ticket: BTreeMap<Ticket, PlaceId>,
    /// The tickets of those that are not absent shares.
    pub(super) stops: BTreeSet<Ticket>,
    pub(super) by_token: BTreeMap<CompactToken, PlaceId>,
    /// The tickets of those whose tokens have other places, too.
    pub(super) with_others: BTreeSet<Ticket>,
    pub(super) upgrades: Upgrades,
    /// Places whose tokens have got a hold since the last look. They may have ended. The last one comes first.
    pub(super) owners: Vec<Ticket>,
    is_lock_replaced: bool,
    pub(super) counts: Counts,
}

/// Places come and go.
impl WaitQueue {
    pub(in crate::wait) fn of(id: PlaceId) -> Self {
        Self::Sole {
            id,
            is_upgrading: false,
            is_owner: false,
            is_lock_replaced: false,
        }
    }

    pub(in crate::wait) fn insert<L>(&mut self, id: PlaceId, places: &Places<L>) {
        if let Self::Sole {
            id: first,
            is_upgrading,
            is_owner,
            is_lock_replaced,
        } = *self
        {
            let mut line = Box::<Line>::default();
            if let Some(place) = places.get(first) {
                line.insert(first, place);
                line.owners.extend(is_owner.then_some(place.ticket));
                if is_upgrading {
                    line.upgrades.set(place);
                }
            }
            line.is_lock_replaced = is_lock_replaced;
            *self = Self::Line(line);
        }
        if let (Self::Line(line), Some(place)) = (self, places.get(id)) {
            line.insert(id, place);
        }
    }

    /// Takes a place out. Whether the queue is empty now.
    pub(in crate::wait) fn remove<L>(&mut self, place: &Place<L>) -> bool {
        let Self::Line(line) = self else {
            return true;
        };
        line.by_ticket.remove(&place.ticket);
        line.stops.remove(&place.ticket);
        line.by_token.remove(&place.token);
        if place.has_others() {
            line.with_others.remove(&place.ticket);
        }
        line.upgrades.remove(place.ticket);
        let (true, Some((ticket, last))) =
            (line.by_ticket.len() == 1, line.by_ticket.first_key_value())
        else {
            return false;
        };
        *self = Self::Sole {
            id: *last,
            is_upgrading: line.upgrades.contains(*ticket),
            is_owner: line.owners.contains(ticket),
            is_lock_replaced: line.is_lock_replaced,
        };
        false
    }

    /// Gives a place an earlier ticket. The caller changes the place itself.
    pub(in crate::wait) fn move_to<L>(&mut self, id: PlaceId, place: &Place<L>, ticket: Ticket) {
        if let Self::Line(line) = self {
            line.by_ticket.remove(&place.ticket);
            line.by_ticket.insert(ticket, id);
            if line.stops.remove(&place.ticket) {
                line.stops.insert(ticket);
            }
            if line.with_others.remove(&place.ticket) {
                line.with_others.insert(ticket);
            }
            line.upgrades.move_to(place.ticket, ticket);
        }
    }

    /// Follows a place that has changed.
    pub(in crate::wait) fn changed<L>(
        &mut self,
        place: &Place<L>,
        before: Outline,
        after: Outline,
    ) {
        if let Self::Line(line) = self {
            if line.upgrades.contains(place.ticket) {
                line.upgrades.set(place);
            }
            line.counts.change(before.kind, after.kind);
            match after.stops {
                true => line.stops.insert(place.ticket),
                false => line.stops.remove(&place.ticket),
            };
        }
    }

    /// Notes that the token of a place has a hold.
    pub(in crate::wait) fn note_owner(&mut self, ticket: Ticket) {
        match self {
            Self::Sole { is_owner, .. } => *is_owner = true,
            Self::Line(line) => line.owners.push(ticket),
        }
    }

    /// Notes that the lock was replaced by another one, whose holders may be waiting here.
    pub(in crate::wait) fn lock_replaced(&mut self) {
        self.set_lock_replaced(true);
    }

    /// Notes that the lock was just looked at, and has changed by a grant only.
    pub(in crate::wait) fn lock_granted(&mut self) {
        self.set_lock_replaced(false);
    }

    pub(in crate::wait) fn set_lock_replaced(&mut self, to: bool) {
        match self {
            Self::Sole {
                is_lock_replaced, ..
            } => *is_lock_replaced = to,
            Self::Line(line) => line.is_lock_replaced = to,
        }
    }

    pub(in crate::wait) fn is_lock_replaced(&self) -> bool {
        match self {
            Self::Sole {
                is_lock_replaced, ..
            } => *is_lock_replaced,
            Self::Line(line) => line.is_lock_replaced,
        }
    }

    /// Notes that the token of a place has a hold, and waits for one that tolerates fewer holders than there are.
    pub(in crate::wait) fn upgrade<L>(&mut self, id: PlaceId, place: &Place<L>) {
        match self {
            Self::Sole {
                id: sole,
                is_upgrading,
                ..
            } => *is_upgrading = *sole == id,
            Self::Line(line) => line.upgrades.set(place),
        }
    }

    pub(in crate::wait) fn end_upgrade<L>(&mut self, place: &Place<L>) {
        match self {
            Self::Sole { is_upgrading, .. } => *is_upgrading = false,
            Self::Line(line) => line.upgrades.remove(place.ticket),
        }
    }
}

impl Line {
    /// The places that upgrade, in the order in which they are decided.
    pub(in crate::wait) fn upgrading(&self) -> impl Iterator<Item = PlaceId> + '_ {
        let tickets = self.upgrades.iter();
        tickets.filter_map(|ticket| self.by_ticket.get(&ticket).copied())
    }

    fn insert<L>(&mut self, id: PlaceId, place: &Place<L>) {
        let outline = place.outline();
        self.by_ticket.insert(place.ticket, id);
        self.by_token.insert(place.token.clone(), id);
        if outline.stops {
            self.stops.insert(place.ticket);
        }
        if place.has_others() {
            self.with_others.insert(place.ticket);
        }
        self.counts.change(None, outline.kind);
    }
}

/// Questions.
impl WaitQueue {
    pub(in crate::wait) fn len(&self) -> usize {
        match self {
            Self::Sole { .. } => 1,
            Self::Line(line) => line.by_ticket.len(),
        }
    }

    pub(in crate::wait) fn counts<L>(&self, places: &Places<L>) -> Counts {
        match self {
            Self::Sole { id, .. } => {
                let kind = places.get(*id).and_then(|place| place.outline().kind);
                kind.map_or_else(Counts::default, Counts::of)
            }
            Self::Line(line) => line.counts,
        }
    }

    /// The place of the token that has a hold and waits to make it exclusive.
    pub(in crate::wait) fn exclusive_upgrade<L>(&self, places: &Places<L>) -> Option<PlaceId> {
        match self {
            Self::Sole {
                id, is_upgrading, ..
            } => {
                let place = places.get(*id).filter(|_| *is_upgrading)?;
                place.wants_exclusive().then_some(*id)
            }
            Self::Line(line) => line.by_ticket.get(&line.upgrades.exclusive()?).copied(),
        }
    }

    pub(in crate::wait) fn of_token<L>(
        &self,
        token: Token<'_>,
        places: &Places<L>,
    ) -> Option<PlaceId> {
        match self {
            Self::Sole { id, .. } => {
                let place = places.get(*id)?;
                place.token.is(token).then_some(*id)
            }
            Self::Line(line) => line.by_token.get(&CompactToken::from(token)).copied(),
        }
    }

    /// All places in the order in which they stand.
    pub(in crate::wait) fn iter(&self) -> impl Iterator<Item = PlaceId> + '_ {
        let (sole, line) = match self {
            Self::Sole { id, .. } => (Some(*id), None),
            Self::Line(line) => (None, Some(line)),
        };
        let upgrades = line.into_iter().flat_map(|line| line.upgrading());
        let rest = line.into_iter().flat_map(|line| {
            let all = line.by_ticket.iter();
            all.filter(|(ticket, _)| !line.upgrades.contains(**ticket))
        });
        let rest = rest.map(|(_, id)| *id);
        sole.into_iter().chain(upgrades).chain(rest)
    }

    /// The first place that is not an absent share: all ahead of it are no matter to a reader.
    pub(in crate::wait) fn candidate<L>(&self, places: &Places<L>) -> Option<PlaceId> {
        match self {
            Self::Sole { id, .. } => {
                let stops = places.get(*id)?.outline().stops;
                stops.then_some(*id)
            }
            Self::Line(line) => line.upgrading().next().or_else(|| {
                let ticket = line.stops.first()?;
                line.by_ticket.get(ticket).copied()
            }),
        }
    }

    /// Whether the indexes agree with the places.
    #[cfg(test)]
    pub(in crate::wait) fn is_tight<L>(&self, places: &Places<L>) -> bool {
        let Self::Line(line) = self else {
            return true;
        };
        let mut counts = Counts::default();
        for (ticket, id) in &line.by_ticket {
            let place = places.get(*id).unwrap();
            let outline = place.outline();
            counts.change(None, outline.kind);
            assert_eq!(place.ticket, *ticket);
            assert_eq!(line.stops.contains(ticket), outline.stops);
            assert_eq!(line.with_others.contains(ticket), place.has_others());
            assert_eq!(line.by_token.get(&place.token), Some(id));
        }
        let len = line.by_ticket.len();
        let mut upgrades = line.upgrades.iter();
        assert!(upgrades.all(|ticket| line.by_ticket.contains_key(&ticket)));
        len > 1 && line.by_token.len() == len && line.counts == counts
    }
}
