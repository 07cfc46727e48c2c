//! Those who wait for one lock, in ticket order. It lives beside the lock, on the server that serves the waiting clients, and is
//! never persisted or replicated.
//!
//! # Who is next
//!
//! - There is one line for readers and writers, in the order of their tickets. Only its head may be granted: so a reader never
//!   passes a writer, consecutive readers at the head enter one after the other in the same moment, and nobody starves.
//! - A token that holds a share and waits to become exclusive stands ahead of the line, for nobody in it could enter before that
//!   share ends. There is one such token at a time: a second one would wait for the first, and the first for it
//!   ([`Refusal::Deadlock`]). When its share ends while it waits, it is a writer like any other and takes its place in the line.
//! - Requests of one token are one owner's: when one is granted, the others are granted too, as far as what the token then has
//!   lets them be.

use std::collections::{BTreeMap, BTreeSet};

use super::state::{Ask, Lock, Mode, Refusal, Waiting};
use super::time::{Deadline, Now, Ttl};
use super::token::TokenBuf;

/// A place in a queue: smaller is earlier. A server gives each only once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Exclusive or shared.
    pub mode: Mode,
    /// For whom.
    pub token: TokenBuf,
    /// For how long it will hold, counted from the grant.
    pub ttl: Ttl,
    /// Since when it waits, in milliseconds since the Unix epoch.
    pub since_ms: u64,
}

impl Waiter {
    /// The request as it was made.
    pub fn ask(&self) -> Ask<'_> {
        Ask {
            mode: self.mode,
            token: self.token.as_token(),
            ttl: self.ttl,
        }
    }
}

/// Those who wait for one lock.
///
/// Every change is `O(log n)`, wherever in the queue it happens.
#[derive(Clone, Debug, Default)]
pub struct WaitQueue {
    line: BTreeMap<Ticket, Waiter>,
    /// All of one token, which held a share when it came, and all exclusive.
    upgrades: BTreeMap<Ticket, Waiter>,
    /// Exactly the tickets of `line` and `upgrades`.
    by_token: BTreeSet<(TokenBuf, Ticket)>,
    /// The token that was granted last, while others of its requests may wait.
    owner: Option<TokenBuf>,
}

impl WaitQueue {
    /// Adds a request that was refused with `refusal`. Only [`Refusal::BusyUpgrade`] stands ahead of the line.
    pub fn push(&mut self, ticket: Ticket, waiter: Waiter, refusal: Refusal) {
        self.by_token.insert((waiter.token.clone(), ticket));
        let lane = match refusal {
            Refusal::BusyUpgrade => &mut self.upgrades,
            _ => &mut self.line,
        };
        lane.insert(ticket, waiter);
    }

    /// Takes a request out, granted or given up.
    pub fn remove(&mut self, ticket: Ticket) -> Option<Waiter> {
        let waiter = self
            .upgrades
            .remove(&ticket)
            .or_else(|| self.line.remove(&ticket))?;
        let of_token = (waiter.token, ticket);
        self.by_token.remove(&of_token);
        let (token, _) = of_token;
        Some(Waiter { token, ..waiter })
    }

    /// The request that is to be granted now, if there is one. The caller does so, or takes it out.
    pub fn next(&mut self, lock: Option<&Lock>, now: Now) -> Option<(Ticket, Waiter)> {
        self.settle(lock, now);
        let ticket = match self.next_of_owner(lock, now) {
            Some(ticket) => ticket,
            None => self.next_in_order(lock, now)?,
        };
        let waiter = self.get(ticket)?.clone();
        self.owner = Some(waiter.token.clone());
        Some((ticket, waiter))
    }

    fn next_of_owner(&mut self, lock: Option<&Lock>, now: Now) -> Option<Ticket> {
        let owner = self.owner.take()?;
        let requests = (owner.clone(), Ticket(0))..=(owner, Ticket(u64::MAX));
        let mut tickets = self.by_token.range(requests).map(|(_, ticket)| *ticket);
        tickets.find(|ticket| self.is_admitted(*ticket, lock, now))
    }

    fn next_in_order(&self, lock: Option<&Lock>, now: Now) -> Option<Ticket> {
        let (first, _) = self.iter().next()?;
        self.is_admitted(first, lock, now).then_some(first)
    }

    fn is_admitted(&self, ticket: Ticket, lock: Option<&Lock>, now: Now) -> bool {
        self.get(ticket).is_some_and(|waiter| {
            Lock::admits(lock, waiter.mode, waiter.token.as_token(), now).is_ok()
        })
    }

    /// When the passing of time alone may make somebody next. It is never too late, but may be too early.
    pub fn wakes_at(&self, lock: Option<&Lock>, now: Now) -> Option<Deadline> {
        let lock = lock?;
        let (_, waiter) = self.iter().next()?;
        let token = waiter.token.as_token();
        let others = lock.latest_deadline_of_others(token);
        let own = lock.hold_of(token, now).map(|(_, hold)| hold.deadline);
        match (own, others) {
            (Some(own), Some(others)) => Some(own.min(others)),
            (own, others) => own.or(others),
        }
    }

    /// What a new request must know of those who wait already.
    pub fn as_waiting(&self) -> Waiting<'_> {
        Waiting {
            any: !self.is_empty(),
            upgrading: self.upgrades.values().next().map(|w| w.token.as_token()),
        }
    }

    /// A request.
    fn get(&self, ticket: Ticket) -> Option<&Waiter> {
        self.upgrades
            .get(&ticket)
            .or_else(|| self.line.get(&ticket))
    }

    /// All requests in the order in which they stand.
    pub fn iter(&self) -> impl Iterator<Item = (Ticket, &Waiter)> {
        let all = self.upgrades.iter().chain(&self.line);
        all.map(|(ticket, waiter)| (*ticket, waiter))
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.line.len().saturating_add(self.upgrades.len())
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.line.is_empty() && self.upgrades.is_empty()
    }

    /// Sends an upgrade whose share has ended into the line.
    fn settle(&mut self, lock: Option<&Lock>, now: Now) {
        let Some((_, waiter)) = self.upgrades.first_key_value() else {
            return;
        };
        let token = waiter.token.as_token();
        if lock.is_none_or(|lock| lock.hold_of(token, now).is_none()) {
            self.line.append(&mut self.upgrades);
        }
    }
}
