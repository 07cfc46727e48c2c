//! Holds that end with connections.

use super::*;

/// What a hold is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    No,
    /// The connection of a client, and whether the owner knows of the hold.
    To(Client, bool),
    /// One that is lost: the hold is to end at this time; 0 is at once.
    Lost(u64),
}

impl Oracle {
    fn hold_mut(&mut self, at: Place, token: u8) -> Option<&mut NaiveHold> {
        let mut holds = self.holds.iter_mut();
        holds.find(|hold| hold.at == at && hold.token == token)
    }

    /// Binds a hold that was just given.
    pub(super) fn bind(&mut self, at: Place, token: u8, client: Client, is_sure: bool) {
        self.hold_mut(at, token).unwrap().bound = Bound::To(client, is_sure);
    }

    /// A client has heard of a hold that is bound to its connection.
    pub(super) fn confirm(&mut self, at: Place, id: u64, client: Client) {
        let holds = self.holds.iter_mut();
        holds
            .filter(|hold| hold.at == at && hold.id == id)
            .filter(|hold| hold.bound == Bound::To(client, false))
            .for_each(|hold| hold.bound = Bound::To(client, true));
    }

    /// A renewal keeps a hold bound. A connection that was lost before it matters no more.
    pub(super) fn renew(&mut self, own: NaiveHold, deadline: u64, now: u64) {
        self.take(own.at, own.token, own.mode, deadline, now);
        if let Bound::To(client, is_sure) = own.bound {
            self.bind(own.at, own.token, client, is_sure);
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
            Bound::To(client, _) => Some(client),
            _ => None,
        })
    }

    /// The connection of a client is lost.
    pub(in super::super) fn disconnect(&mut self, client: Client, now: u64) {
        let ends_at = match self.linger_ms {
            0 => 0,
            ms => now + ms,
        };
        for hold in &mut self.holds {
            match hold.bound {
                Bound::To(to, true) if to == client => hold.bound = Bound::Lost(ends_at),
                Bound::To(to, false) if to == client => hold.bound = Bound::No,
                _ => {}
            }
        }
    }

    /// A server that becomes a replica forgets which holds are bound, and of which nobody has
    /// heard.
    pub(in super::super) fn unbind_all(&mut self) {
        let holds = self.holds.iter_mut();
        holds.for_each(|hold| hold.bound = Bound::No);
        self.lost.clear();
    }

    /// Whether a hold is of no use any more: its connection was lost, or nobody has heard of it.
    pub(super) fn is_over(&self, hold: &NaiveHold, now: u64) -> bool {
        let is_it = |lost: &NaiveLoss| lost.at == hold.at && lost.id == hold.id && lost.keep == 0;
        matches!(hold.bound, Bound::Lost(ends_at) if ends_at < now) || self.lost.iter().any(is_it)
    }

    /// Carries out what lost connections and unheard grants mean for the holds of a key.
    pub(super) fn bring_forward(&mut self, at: Place, now: u64) {
        let all = std::mem::take(&mut self.lost).into_iter();
        let (unheard, others): (Vec<_>, _) = all.partition(|lost| lost.at == at);
        self.lost = others;
        for lost in unheard {
            let own = self.own(at, lost.token, now);
            let until = now + u64::from(lost.keep);
            match own.filter(|own| own.id == lost.id) {
                Some(_) if lost.keep == 0 => self.release(at, lost.token),
                Some(own) if until < own.deadline => self.end_later(at, lost.token, until),
                _ => {}
            }
        }
        let is_lost = |hold: &&NaiveHold| matches!(hold.bound, Bound::Lost(_));
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
