//! The places of one key: how they are stored, and questions about them.

use std::collections::{BTreeMap, BTreeSet};

use super::order::{Entry, Order};
use super::upgrades::Upgrades;
use crate::lock::{CompactToken, Effect, Mode, Token};
use crate::wait::place::{Counts, Outline, Part, Place, PlaceId, Places, Ticket};

/// The places of one key. There is no queue without a place.
#[derive(Clone, Debug)]
pub(in crate::wait) enum WaitQueue {
    /// Most queues have one place, and there may be many such queues.
    Sole {
        id: PlaceId,
        is_upgrading: bool,
        is_owner: bool,
        is_lock_replaced: bool,
        /// The last database change that the queue has followed.
        seen_change: u32,
    },
    /// Two places or more.
    Line(Box<Line>),
}

#[derive(Clone, Debug, Default)]
pub(in crate::wait) struct Line {
    /// All places. Those of `upgrades`, and no others, are elsewhere.
    pub(super) order: Order,
    pub(super) by_token: BTreeMap<CompactToken, PlaceId>,
    /// The tickets of those whose tokens have other places, too.
    pub(super) with_others: BTreeSet<Ticket>,
    pub(super) upgrades: Upgrades,
    /// Places whose tokens have got a hold since the last look. They may have ended. The last one
    /// comes first.
    pub(super) owners: Vec<Ticket>,
    is_lock_replaced: bool,
    seen_change: u32,
    /// The sum of what the places have.
    counts: Counts,
}

/// Places come and go.
impl WaitQueue {
    pub(in crate::wait) fn of(id: PlaceId, seen_change: u32) -> Self {
        Self::Sole {
            id,
            is_upgrading: false,
            is_owner: false,
            is_lock_replaced: false,
            seen_change,
        }
    }

    pub(in crate::wait) fn insert<L>(&mut self, id: PlaceId, places: &Places<L>) {
        if let Self::Sole {
            id: first,
            is_upgrading,
            is_owner,
            is_lock_replaced,
            seen_change,
        } = *self
        {
            let mut line = Box::<Line>::default();
            if let Some(place) = places.get(first) {
                line.insert(first, place);
                line.owners.extend(is_owner.then_some(place.ticket));
                if is_upgrading {
                    line.upgrade(place);
                }
            }
            line.is_lock_replaced = is_lock_replaced;
            line.seen_change = seen_change;
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
        line.order.remove(place.ticket);
        line.by_token.remove(&place.token);
        if place.has_others() {
            line.with_others.remove(&place.ticket);
        }
        line.upgrades.remove(place.ticket);
        if line.order.len() > 1 {
            return false;
        }
        let Some(Entry { ticket, id, .. }) = line.order.first() else {
            return true;
        };
        *self = Self::Sole {
            id,
            is_upgrading: line.upgrades.contains(ticket),
            is_owner: line.owners.contains(&ticket),
            is_lock_replaced: line.is_lock_replaced,
            seen_change: line.seen_change,
        };
        false
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
            } else if before.part != after.part {
                line.order.set(place.ticket, after.part);
            }
            line.counts.change(&before, &after);
        }
    }

    /// Notes that the token of a place has a hold.
    pub(in crate::wait) fn note_owner(&mut self, ticket: Ticket) {
        match self {
            Self::Sole { is_owner, .. } => *is_owner = true,
            Self::Line(line) => line.owners.push(ticket),
        }
    }

    /// Notes that the lock was replaced by another one, whose holders may be waiting here; or that
    /// it was just looked at, and has changed by a grant only.
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

    /// Notes that the queue follows all database changes up to this one. Returns the one before.
    pub(in crate::wait) fn follow(&mut self, change: u32) -> u32 {
        let seen_change = match self {
            Self::Sole { seen_change, .. } => seen_change,
            Self::Line(line) => &mut line.seen_change,
        };
        std::mem::replace(seen_change, change)
    }

    #[cfg(test)]
    pub(in crate::wait) fn seen_change(&self) -> u32 {
        match self {
            Self::Sole { seen_change, .. } => *seen_change,
            Self::Line(line) => line.seen_change,
        }
    }

    /// Notes that the token of a place has a hold, and waits for one that tolerates fewer holders
    /// than there are.
    pub(in crate::wait) fn upgrade<L>(&mut self, id: PlaceId, place: &Place<L>) {
        match self {
            Self::Sole {
                id: sole,
                is_upgrading,
                ..
            } => *is_upgrading = *sole == id,
            Self::Line(line) => line.upgrade(place),
        }
    }

    pub(in crate::wait) fn end_upgrade<L>(&mut self, place: &Place<L>) {
        match self {
            Self::Sole { is_upgrading, .. } => *is_upgrading = false,
            Self::Line(line) => {
                line.upgrades.remove(place.ticket);
                line.order.set(place.ticket, place.outline().part);
            }
        }
    }

    /// Follows a change of the lock: the hold of a token that upgrades may be another one now, or
    /// end earlier.
    pub(in crate::wait) fn lock_changed<L>(&mut self, effect: &Effect<'_>, places: &Places<L>) {
        let own = match effect {
            Effect::Hold { token, .. } | Effect::Release { token, .. } => {
                self.of_token(*token, places)
            }
            Effect::Cap { .. } => None,
        };
        let Self::Line(line) = self else {
            return; // One place alone is looked at each time.
        };
        match (effect, own.and_then(|id| places.get(id))) {
            (Effect::Cap { .. }, _) => line.upgrades.look_again(),
            (_, Some(place)) => line.upgrades.look_again_at(place.ticket),
            (_, None) => {}
        }
    }
}

impl Line {
    /// The places that upgrade, in the order in which they are decided.
    pub(in crate::wait) fn upgrading(&self) -> impl Iterator<Item = PlaceId> + '_ {
        let tickets = self.upgrades.iter();
        tickets.filter_map(|ticket| self.id_of(ticket))
    }

    pub(super) fn id_of(&self, ticket: Ticket) -> Option<PlaceId> {
        self.order.get(ticket).map(|entry| entry.id)
    }

    fn upgrade<L>(&mut self, place: &Place<L>) {
        self.upgrades.set(place);
        self.order.set(place.ticket, Part::ELSEWHERE);
    }

    fn insert<L>(&mut self, id: PlaceId, place: &Place<L>) {
        let outline = place.outline();
        self.order.insert(Entry {
            ticket: place.ticket,
            id,
            part: outline.part,
        });
        self.by_token.insert(place.token.clone(), id);
        if place.has_others() {
            self.with_others.insert(place.ticket);
        }
        self.counts.add(&outline);
    }
}

/// Questions.
impl WaitQueue {
    pub(in crate::wait) fn len(&self) -> usize {
        match self {
            Self::Sole { .. } => 1,
            Self::Line(line) => line.order.len(),
        }
    }

    pub(in crate::wait) fn counts<L>(&self, places: &Places<L>) -> Counts {
        match self {
            Self::Sole { id, .. } => {
                let mut counts = Counts::default();
                if let Some(place) = places.get(*id) {
                    counts.add(&place.outline());
                }
                counts
            }
            Self::Line(line) => line.counts,
        }
    }

    pub(in crate::wait) fn has_upgrades(&self) -> bool {
        match self {
            Self::Sole { is_upgrading, .. } => *is_upgrading,
            Self::Line(line) => !line.upgrades.is_empty(),
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
            Self::Line(line) => line.id_of(line.upgrades.exclusive()?),
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

    /// Whether no other place has an earlier ticket.
    pub(in crate::wait) fn is_first(&self, place: PlaceId) -> bool {
        self.first() == Some(place)
    }

    /// The place with the earliest ticket.
    pub(in crate::wait) fn first(&self) -> Option<PlaceId> {
        match self {
            Self::Sole { id, .. } => Some(*id),
            Self::Line(line) => line.order.first().map(|entry| entry.id),
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
            let all = line.order.iter();
            all.filter(|entry| entry.part != Part::ELSEWHERE)
        });
        let rest = rest.map(|entry| entry.id);
        sole.into_iter().chain(upgrades).chain(rest)
    }

    /// The first place that is not an absent share: all ahead of it are no matter to a reader.
    pub(in crate::wait) fn candidate<L>(&self, places: &Places<L>) -> Option<PlaceId> {
        match self {
            Self::Sole { id, .. } => {
                let part = places.get(*id)?.outline().part;
                (part.tolerates() != Some(Mode::ANY)).then_some(*id)
            }
            Self::Line(line) => {
                let mut upgrading = line.upgrading();
                upgrading.next().or_else(|| line.order.first_but_shares())
            }
        }
    }

    /// Whether the indexes agree with the places.
    #[cfg(test)]
    pub(in crate::wait) fn is_tight<L>(&self, places: &Places<L>) -> bool {
        let Self::Line(line) = self else {
            return true;
        };
        let mut counts = Counts::default();
        line.order.assert_tight();
        for Entry { ticket, id, part } in line.order.iter() {
            let place = places.get(id).unwrap();
            let outline = place.outline();
            counts.add(&outline);
            assert_eq!(place.ticket, ticket);
            let upgrades = line.upgrades.contains(ticket);
            assert_eq!(
                part,
                if upgrades {
                    Part::ELSEWHERE
                } else {
                    outline.part
                }
            );
            assert_eq!(line.with_others.contains(&ticket), place.has_others());
            assert_eq!(line.by_token.get(&place.token), Some(&id));
        }
        let len = line.order.len();
        line.upgrades
            .assert_tight(|ticket| places.get(line.id_of(ticket).unwrap()).unwrap());
        assert_eq!(line.counts, counts);
        len > 1 && line.by_token.len() == len
    }
}
