//! Holds that end with connections.

use super::*;

/// What a hold is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    No,
    /// The connection of a client.
    To(Client),
    /// One that is lost: the hold is to end at this time; 0 is at once.
    Lost(u64),
}

impl Oracle {
    fn hold_mut(&mut self, at: Place, token: u8) -> Option<&mut NaiveHold> {
        let mut holds = self.holds.iter_mut();
        holds.find(|hold| hold.at == at && hold.token == token)
    }

    /// Binds a hold that was just given.
    pub(super) fn bind(&mut self, at: Place, token: u8, client: Client) {
        self.hold_mut(at, token).unwrap().bound = Bound::To(client);
    }

    /// A renewal keeps a hold bound. A connection that was lost before it matters no more.
    pub(super) fn renew(&mut self, own: NaiveHold, deadline: u64, now: u64) {
        self.take(own.at, own.token, own.mode, deadline, now);
        if let Bound::To(client) = own.bound {
            self.bind(own.at, own.token, client);
        }
    }

    /// The clients of the holds that are bound and stand.
    pub(in super::super) fn bound_clients(
        &self,
        at: Place,
        now: u64,
    ) -> impl Iterator<Item = Client> + '_ {
        let holds = self.standing(at, now);
        holds.filter_map(|hold| match hold.bound {
            Bound::To(client) => Some(client),
            _ => None,
        })
    }

    /// The connection of a client is lost.
    pub(in super::super) fn disconnect(&mut self, client: Client, now: u64) {
        let ends_at = match self.linger_ms {
            0 => 0,
            ms => now + ms,
        };
        let bound = self.holds.iter_mut();
        bound
            .filter(|hold| hold.bound == Bound::To(client))
            .for_each(|hold| hold.bound = Bound::Lost(ends_at));
    }

    /// A server that becomes a replica forgets which holds are bound.
    pub(in super::super) fn unbind_all(&mut self) {
        let holds = self.holds.iter_mut();
        holds.for_each(|hold| hold.bound = Bound::No);
    }

    /// Whether it is not known yet if the owner of a hold has heard of it.
    fn is_under_way(&self, hold: &NaiveHold) -> bool {
        let is_it =
            |grant: &NaiveGrant| grant.id == hold.id && (grant.has_left || grant.at == hold.at);
        let mut pending = self.pending.iter().filter(|grant| !grant.is_known);
        let mut lost = self.lost.iter().filter(|_| !self.is_seeking);
        pending.any(is_it) || lost.any(is_it)
    }

    /// Whether a hold is of no use any more, because its connection was lost.
    pub(super) fn is_over(&self, hold: &NaiveHold, now: u64) -> bool {
        let is_lost = matches!(hold.bound, Bound::Lost(ends_at) if ends_at < now);
        is_lost && !self.is_under_way(hold)
    }

    /// Carries out what lost connections mean for the holds of a key.
    pub(super) fn bring_forward(&mut self, at: Place, now: u64) {
        let is_lost =
            |hold: &&NaiveHold| matches!(hold.bound, Bound::Lost(_)) && !self.is_under_way(hold);
        let here = self.holds.iter().filter(|hold| hold.at == at);
        let lost: Vec<NaiveHold> = here.filter(is_lost).copied().collect();
        for hold in lost {
            let Bound::Lost(ends_at) = hold.bound else {
                continue;
            };
            let stands = self.own(at, hold.token, now).is_some();
            if stands && ends_at < now {
                self.release(at, hold.token);
            } else if stands && ends_at < hold.deadline {
                self.end_later(at, hold.token, ends_at);
            } else {
                self.hold_mut(at, hold.token).unwrap().bound = Bound::No;
            }
        }
    }
}
