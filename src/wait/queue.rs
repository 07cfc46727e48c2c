//! The waiters of one lock, in ticket order. The queue lives beside the lock, on the server that serves
//! the waiting clients. It is never persisted or replicated.
//!
//! # The order
//!
//! - Readers and writers share one line, in the order of their tickets. Only its head may be granted. So
//!   a reader never passes a writer, and nobody starves. Consecutive readers at the head enter one after
//!   the other in the same moment.
//! - A token *upgrades* when it holds a share and waits to become exclusive. Its exclusive requests stand
//!   ahead of the line, because nobody in the line could enter before that share ends. When the share
//!   ends first, the token is a writer like any other, and its requests keep their tickets.
//! - A waiting request becomes an upgrade in the step in which its token gets a share. Otherwise it would
//!   wait behind a writer who waits for that share to end.
//! - Only one token upgrades at a time. A second one would wait for the first, and the first for it. So
//!   the second request is refused: [`Refusal::Deadlock`] or [`Next::Deadlock`].
//! - All requests of one token have one owner. When one is granted, the others are granted too, unless
//!   other holders keep them out.
//! - A lock that is replaced from outside ([`WaitQueue::lock_replaced`]) can give shares to several
//!   waiting tokens at once. The token that already upgrades stays; otherwise the one with the earliest
//!   exclusive request upgrades. The exclusive requests of the other tokens are refused.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::lock::{Ask, Deadline, Lock, Mode, Now, Refusal, TokenBuf, Ttl, Waiting};

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

/// What is to be done next with a waiting request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is granted.
    Grant(Ticket, Waiter),
    /// It is refused: its token holds a share, and another token already waits to convert its own.
    Deadlock(Ticket),
}

/// The waiters of one lock.
///
/// Every operation is `O(log n)`, wherever in the queue it happens. Only the first [`Self::next`] after
/// [`Self::lock_replaced`] looks at every request.
#[derive(Clone, Debug, Default)]
pub struct WaitQueue {
    line: BTreeMap<Ticket, Waiter>,
    /// Exactly the requests of `line`.
    by_token: BTreeSet<(TokenBuf, Mode, Ticket)>,
    /// The token that upgrades. It has an exclusive request in `line`.
    upgrading: Option<TokenBuf>,
    /// Tokens that have got a hold since the last look, while requests of theirs may wait. The last one
    /// comes first.
    owners: Vec<TokenBuf>,
    is_lock_replaced: bool,
}

impl WaitQueue {
    /// Adds a request that was refused with `refusal`. Only [`Refusal::BusyUpgrade`] is an upgrade.
    pub fn push(&mut self, ticket: Ticket, waiter: Waiter, refusal: Refusal) {
        if refusal == Refusal::BusyUpgrade {
            self.upgrading = Some(waiter.token.clone());
        }
        self.by_token
            .insert((waiter.token.clone(), waiter.mode, ticket));
        self.line.insert(ticket, waiter);
    }

    /// Takes a request out, granted or given up.
    pub fn remove(&mut self, ticket: Ticket) -> Option<Waiter> {
        let waiter = self.line.remove(&ticket)?;
        let entry = (waiter.token, waiter.mode, ticket);
        self.by_token.remove(&entry);
        let (token, ..) = entry;
        let upgraded = self.upgrading.as_ref() == Some(&token);
        if upgraded && self.first_of(&token, Mode::Exclusive).is_none() {
            self.upgrading = None;
        }
        Some(Waiter { token, ..waiter })
    }

    /// Notes that the lock was replaced by another one, whose holders may be waiting here.
    pub fn lock_replaced(&mut self) {
        self.is_lock_replaced = true;
    }

    /// The request that is to be granted or refused now, if there is one. The caller takes it out.
    pub fn next(&mut self, lock: Option<&Lock>, now: Now) -> Option<Next> {
        self.settle(lock, now);
        if std::mem::take(&mut self.is_lock_replaced) {
            self.owners = self.all_owners(lock, now);
        }
        while let Some(owner) = self.owners.pop() {
            if let Some(next) = self.next_of(&owner, lock, now) {
                self.owners.push(owner);
                return Some(next);
            }
        }
        let head = self.first()?;
        let waiter = self.line.get(&head)?;
        Lock::admits(lock, waiter.mode, waiter.token.as_token(), now).ok()?;
        self.owners.push(waiter.token.clone());
        self.grant(head)
    }

    /// What is to be done with the requests of a token that has got a hold.
    fn next_of(&mut self, owner: &TokenBuf, lock: Option<&Lock>, now: Now) -> Option<Next> {
        lock?.hold_of(owner.as_token(), now)?;
        let shared = self.first_of(owner, Mode::Shared);
        let exclusive = self.first_of(owner, Mode::Exclusive);
        if Lock::admits(lock, Mode::Exclusive, owner.as_token(), now).is_ok() {
            return self.grant(shared.into_iter().chain(exclusive).min()?);
        }
        if let Some(ticket) = shared {
            return self.grant(ticket);
        }
        let ticket = exclusive?;
        let upgrading = self.upgrading.get_or_insert_with(|| owner.clone());
        (upgrading != owner).then_some(Next::Deadlock(ticket))
    }

    fn grant(&self, ticket: Ticket) -> Option<Next> {
        let waiter = self.line.get(&ticket)?.clone();
        Some(Next::Grant(ticket, waiter))
    }

    /// All waiting tokens that have a hold. The one that is to upgrade is the last. `O(n log n)`.
    fn all_owners(&self, lock: Option<&Lock>, now: Now) -> Vec<TokenBuf> {
        let Some(lock) = lock else {
            return Vec::new();
        };
        let mut owners: Vec<&(TokenBuf, Mode, Ticket)> = Vec::new();
        for request in &self.by_token {
            let (token, ..) = request;
            let is_other = owners.last().is_none_or(|(last, ..)| last != token);
            if is_other && lock.hold_of(token.as_token(), now).is_some() {
                owners.push(request);
            }
        }
        // The first request of each token is an exclusive one if it has any.
        owners.sort_unstable_by_key(|(_, mode, ticket)| Reverse((*mode, *ticket)));
        let owners = owners.into_iter();
        owners.map(|(token, ..)| token.clone()).collect()
    }

    /// When the passing of time alone may make somebody next. It is never too late, but may be too early.
    pub fn wakes_at(&self, lock: Option<&Lock>, now: Now) -> Option<Deadline> {
        let lock = lock?;
        let token = self.line.get(&self.first()?)?.token.as_token();
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
            upgrading: self.upgrading.as_ref().map(TokenBuf::as_token),
        }
    }

    /// All requests in the order in which they stand.
    pub fn iter(&self) -> impl Iterator<Item = (Ticket, &Waiter)> {
        let is_upgrade = |waiter: &Waiter| {
            waiter.mode == Mode::Exclusive && self.upgrading.as_ref() == Some(&waiter.token)
        };
        let upgrades = self.upgrading.iter().flat_map(|token| {
            let tickets = self.of(token, Mode::Exclusive);
            tickets.filter_map(|ticket| self.line.get_key_value(&ticket))
        });
        let line = self.line.iter();
        let all = upgrades.chain(line.filter(move |(_, waiter)| !is_upgrade(waiter)));
        all.map(|(ticket, waiter)| (*ticket, waiter))
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.line.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// The head of the queue.
    fn first(&self) -> Option<Ticket> {
        let upgrading = self.upgrading.as_ref();
        let upgrade = upgrading.and_then(|token| self.first_of(token, Mode::Exclusive));
        upgrade.or_else(|| self.line.keys().next().copied())
    }

    fn first_of(&self, token: &TokenBuf, mode: Mode) -> Option<Ticket> {
        self.of(token, mode).next()
    }

    /// The requests of a token in one mode.
    fn of(&self, token: &TokenBuf, mode: Mode) -> impl Iterator<Item = Ticket> + '_ {
        let from = (token.clone(), mode, Ticket(0));
        let to = (token.clone(), mode, Ticket(u64::MAX));
        self.by_token.range(from..=to).map(|(.., ticket)| *ticket)
    }

    /// Makes an upgrade whose share has ended a writer like any other.
    fn settle(&mut self, lock: Option<&Lock>, now: Now) {
        let upgrading = self.upgrading.as_ref().map(TokenBuf::as_token);
        let holds = |token| lock.is_some_and(|lock| lock.hold_of(token, now).is_some());
        if upgrading.is_some_and(|token| !holds(token)) {
            self.upgrading = None;
        }
    }
}
