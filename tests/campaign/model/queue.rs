//! The steps of a queue: who may come, in which order all are granted, and who may leave.

use std::collections::BTreeSet;

use super::places::fits;
use super::{Grant, Model};
use crate::record::{Answer, Listener, Look, Place, Request, Shown, What};

/// A look at a key, and what has happened to it since.
#[derive(Clone, Debug, Default)]
pub(super) struct View<'r, 'l> {
    at: usize,
    server_us: u64,
    pub(super) shown: Option<&'r Shown<'l>>,
    /// Requests for the key.
    pub(super) came: Vec<&'r Request<'l>>,
    pub(super) grants: Vec<Grant<'l>>,
    /// Tokens that have a hold already and were given it again, and those of them in another mode.
    pub(super) again: Vec<&'l str>,
    pub(super) converted: Vec<&'l str>,
}

impl<'r, 'l> View<'r, 'l> {
    pub(super) fn of(at: usize, server_us: u64, shown: &'r Shown<'l>) -> Self {
        Self {
            at,
            server_us,
            shown: Some(shown),
            ..Self::default()
        }
    }

    fn places(&self) -> &'r [Place<'l>] {
        self.shown.map_or(&[], |shown| &shown.places)
    }

    fn place_of(&self, token: &str) -> Option<&'r Place<'l>> {
        self.places().iter().find(|place| place.token == token)
    }

    fn asks(&self, token: &str) -> Option<&'r Request<'l>> {
        let mut came = self.came.iter().copied();
        came.find(|one| one.what == What::Acquire && one.token == token)
    }

    /// Whether a request may have ended the place of a token.
    fn gives_up(&self, token: &str) -> bool {
        self.came.iter().any(|one| match one.what {
            What::Release => one.token == token,
            What::Cancel => one.token.is_empty() || one.token == token,
            _ => false,
        })
    }

    fn was_granted(&self, token: &str) -> bool {
        self.grants.iter().any(|one| one.held.token == token) || self.converted.contains(&token)
    }
}

impl<'r, 'l> Model<'r, 'l> {
    /// From one look at a key to the next.
    pub(super) fn step_of_queue(
        &mut self,
        at: usize,
        key: &'l str,
        view: &View<'r, 'l>,
        shown: &'r Shown<'l>,
        look: &Look<'l>,
    ) {
        self.check_grants(key, view, shown, look.server_us);
        self.check_newcomers(key, view, shown);
        self.check_order(at, key, view, shown, look);
        for place in view.places() {
            let has_gone = shown.places.iter().all(|one| one.token != place.token);
            let is_served = view.was_granted(place.token) || view.again.contains(&place.token);
            if has_gone && !is_served {
                self.check_end_of(at, key, view, place, look);
            }
        }
        for one in &view.came {
            if one.what == What::Acquire && one.keep_ms.is_some() {
                self.listened.insert((key, one.token), view.server_us);
            }
        }
    }

    /// Each grant is to somebody who listens, and passes nobody who does.
    fn check_grants(
        &mut self,
        key: &'l str,
        view: &View<'r, 'l>,
        shown: &'r Shown<'l>,
        at_us: u64,
    ) {
        for (n, grant) in view.grants.iter().enumerate() {
            let token = grant.held.token;
            let asks = view.asks(token);
            let by_place = view.places().iter().position(|place| {
                let is_own = place.token == token && place.mode == grant.held.mode;
                is_own && !place.is_absent()
            });
            let of_token = view.places().iter().position(|place| place.token == token);
            let rank = by_place.or(of_token);
            let is_asked = asks.is_some_and(|one| one.mode_of(key) == Some(grant.held.mode));
            if by_place.is_none() && !is_asked {
                let text = format!("{:?} of {key}, with {:?}", grant.held, view.places());
                self.refuse("ghost", text);
                continue;
            }
            let has_waited = by_place.is_some() && !is_asked;
            self.counts.handed_over += usize::from(has_waited);
            let by = rank.map(|rank| view.places()[rank].by);
            self.counts.by_channel += usize::from(has_waited && by == Some(Listener::Channel));
            self.check_heard(key, grant);
            let mut asked = self.record.acquires_of(key, token);
            let lease_ms = grant.held.deadline_ms.checked_sub(grant.held.since_ms);
            if !asked.any(|one| one.ttl_ms == lease_ms) {
                let text = format!("{:?} of {key}, as nobody has asked for", grant.held);
                self.refuse("lease", text);
            }
            let ahead = &view.places()[..rank.unwrap_or(view.places().len())];
            let done = &view.grants[..n];
            let ahead = ahead.iter().filter(|place| {
                let is_served = done.iter().any(|one| one.held.token == place.token);
                place.token != token && !is_served && !view.converted.contains(&place.token)
            });
            self.check_passed(key, view, (shown, at_us), grant, ahead);
        }
    }

    fn check_passed<'p>(
        &mut self,
        key: &'l str,
        view: &View<'r, 'l>,
        (shown, at_us): (&'r Shown<'l>, u64),
        grant: &Grant<'l>,
        ahead: impl Iterator<Item = &'p Place<'l>>,
    ) where
        'l: 'p,
    {
        let mut absent: Vec<&Place<'_>> = Vec::new();
        for place in ahead {
            let (was, came) = (place.token, grant.held.token);
            let later = shown.places.iter().find(|one| one.token == was);
            let is_granted_later = view.was_granted(was);
            let waits = |one: &Place<'_>| !one.is_absent();
            // An upgrade is back at its own place when its hold has ended.
            let is_new = view.asks(was).is_some() && self.ends_by(key, view.at, place) <= at_us;
            let holds = grant.beside.iter().any(|(token, _)| *token == was);
            if is_new || (self.upgraded.contains(&(key, was)) && !holds) {
                continue;
            }
            if waits(place) && (is_granted_later || later.is_some_and(waits)) {
                let text = format!("{came} was granted {key} before {was}: {:?}", view.places());
                self.refuse("order", text);
            } else if later.is_some() && view.asks(was).is_none() {
                absent.push(place);
            }
        }
        let stops = |place: &&&Place<'_>| self.is_of_several(key, place.token);
        if absent.is_empty() {
            return;
        }
        let several = absent.iter().find(stops).map(|place| place.token);
        let beside = grant.beside.iter().copied();
        let absent = absent.iter().map(|place| (place.token, place.mode));
        if several.is_some() || !fits(beside.chain(absent.clone()), grant.held) {
            let kept: Vec<_> = absent.collect();
            let text = format!("{:?} of {key} past {kept:?}", grant.held);
            self.refuse("past kept", text);
        }
    }

    pub(super) fn is_of_several(&self, key: &str, token: &str) -> bool {
        let mut all = self.record.acquires_of(key, token);
        all.any(Request::is_for_several)
    }

    /// A place is that of the request that came, or was there before.
    fn check_newcomers(&mut self, key: &str, view: &View<'r, 'l>, shown: &Shown<'l>) {
        for (n, place) in shown.places.iter().enumerate() {
            let is_same = |one: &&Place<'_>| (one.token, one.mode) == (place.token, place.mode);
            let before = view.places().iter().filter(is_same).count();
            let came = view.came.iter().filter(|one| {
                let is_asked = one.what == What::Acquire && one.token == place.token;
                is_asked && one.mode_of(key) == Some(place.mode)
            });
            let came = came.count();
            let many = shown.places[..=n].iter().filter(is_same).count();
            if many > before + came {
                let text = format!("{place:?} does not wait for {key}: {:?}", view.came);
                self.refuse("shown queue", text);
            }
        }
    }

    /// Those that stay keep their order. Upgrades are ahead of it, and whoever comes is at its end.
    /// Another lock under the key makes others to upgrades.
    fn check_order(
        &mut self,
        at: usize,
        key: &'l str,
        view: &View<'r, 'l>,
        shown: &Shown<'l>,
        look: &Look<'l>,
    ) {
        if self.moved >= view.at {
            return;
        }
        let lock = self.keys[0].get(key).cloned().unwrap_or_default();
        let before_ms = view.server_us / 1_000;
        let holds = |token: &str| {
            let live = lock.live(0).filter(|held| lock.end_ms(held) >= before_ms);
            live.into_iter().any(|held| held.token == token)
                || view
                    .shown
                    .is_some_and(|shown| shown.holders.iter().any(|one| one.0 == token))
        };
        let upgrades = |place: &Place<'_>| {
            let own = lock.own(place.token, self.next_ms[at + 1]);
            let is_one = own.is_some_and(|own| place.mode < own.mode);
            // One that became an upgrade by another lock under the key gets ahead a moment later.
            let asked = self.record.acquires_of(key, place.token);
            let arrived = asked.filter_map(|one| one.arrived.filter(|arrived| *arrived < at));
            let is_since = arrived.max().is_some_and(|arrived| self.moved < arrived);
            is_one && is_since && !self.is_of_several(key, place.token)
        };
        let (mut last, mut wrong) = (0, None);
        let mut has_line = false;
        for place in &shown.places {
            if upgrades(place) {
                wrong = wrong.or(has_line.then_some(place));
                continue;
            }
            if holds(place.token) || self.upgraded.contains(&(key, place.token)) {
                continue;
            }
            has_line = true;
            let rank = view
                .places()
                .iter()
                .position(|one| one.token == place.token);
            let was = view.place_of(place.token);
            let may_be_new = view.asks(place.token).is_some()
                && (view.was_granted(place.token)
                    || was.is_some_and(|was| self.ends_by(key, view.at, was) <= look.server_us));
            let rank = match rank {
                Some(_) if may_be_new => continue,
                Some(rank) => rank,
                None => usize::MAX,
            };
            if rank < last {
                wrong = wrong.or(Some(place));
            }
            last = last.max(rank);
        }
        if let Some(place) = wrong {
            let (was, is) = (view.places(), &shown.places);
            let text = format!(
                "{} is out of order at {key}: {was:?}, then {is:?}",
                place.token
            );
            self.refuse("shown queue", text);
        }
    }

    /// The server's time from which a place may have ended: its grace or its time was over, or nobody
    /// listened at its channel.
    fn ends_by(&self, key: &str, at: usize, place: &Place<'_>) -> u64 {
        match place.by {
            Listener::Channel => 0,
            Listener::Nobody => {
                let asked = self.record.acquires_of(key, place.token);
                let asked = asked.filter(|one| one.arrived.is_some_and(|at| at < usize::MAX));
                let keeps_ms = asked.filter_map(|one| one.keep_ms).min().unwrap_or(0);
                let since_us = self.listened.get(&(key, place.token)).copied();
                (since_us.unwrap_or(0) / 1_000 + keeps_ms) * 1_000
            }
            // It ends within the millisecond that the sum leaves out.
            _ => self
                .waits_until_us(at, key, place.token)
                .saturating_sub(1_000),
        }
    }

    /// A place that is there no more, without a grant.
    fn check_end_of(
        &mut self,
        at: usize,
        key: &'l str,
        view: &View<'r, 'l>,
        place: &Place<'l>,
        look: &Look<'l>,
    ) {
        let token = place.token;
        // FLUSHDB ends the places that nobody listens at.
        if view.gives_up(token) || self.flushed >= view.at {
            return;
        }
        let came = view.asks(token).is_some();
        if !place.is_absent() {
            let asked = self.record.acquires_of(key, token);
            // Its client may hear of a grant much later.
            let waits = |one: &&Request<'_>| !matches!(one.answer, Answer::Number(fence) if fence <= self.last_fence);
            let mut waiting = asked.filter(|one| one.may_stand_at(at)).filter(waits);
            let is_told = |one: &Request<'_>| !matches!(one.answer, Answer::Number(_));
            let first = waiting.next();
            if first.is_some_and(|one| !is_told(one)) && !waiting.any(is_told) {
                let text = format!("{token} waits for {key}, and is not shown");
                self.refuse("shown queue", text);
            }
        } else if !came && !self.is_of_several(key, token) {
            let asked = self.record.acquires_of(key, token);
            let last = asked.filter(|one| one.arrived < Some(view.at)).last();
            let keep_ms = last.filter(|one| one.answer != Answer::Lost);
            let keep_us = keep_ms.and_then(|one| one.keep_ms).unwrap_or(0) * 1_000;
            let since_us = self.listened.get(&(key, token)).copied().unwrap_or(0);
            if since_us > 0 && look.server_us < since_us + keep_us {
                let text = format!("the place of {token} at {key} ended before its grace");
                self.refuse("kept too short", text);
            }
        }
    }

    /// Whether a request may wait for a token that waits, over any number of others, for its own.
    pub(super) fn may_close_a_cycle(&self, request: &Request<'l>) -> bool {
        let mut unseen: Vec<&str> = request
            .keys
            .iter()
            .flat_map(|(key, _)| self.in_the_way(key))
            .collect();
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        while let Some(token) = unseen.pop() {
            if token == request.token || !seen.insert(token) {
                continue;
            }
            let waits =
                |view: &View<'_, '_>| view.place_of(token).is_some() || view.asks(token).is_some();
            let waited_for = self.views.iter().filter(|(_, view)| waits(view));
            for next in waited_for.flat_map(|(key, _)| self.in_the_way(key)) {
                if next == request.token {
                    return true;
                }
                unseen.push(next);
            }
        }
        false
    }

    /// The tokens that hold a key, and those that may wait for it.
    fn in_the_way(&self, key: &str) -> Vec<&'l str> {
        let view = self.views.get(key);
        let places = view
            .iter()
            .flat_map(|view| view.places())
            .map(|place| place.token);
        let came = view.iter().flat_map(|view| &view.came).map(|one| one.token);
        let lock = self.keys[0].get(key);
        let holders = lock.into_iter().flat_map(|lock| lock.live(self.now_ms));
        places
            .chain(came)
            .chain(holders.map(|held| held.token))
            .collect()
    }
}
