//! The many holds of one lock, indexed by token and by deadline, so that no command that changes
//! the lock iterates over all of them.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::size_of;

use super::fence::Fence;
use super::hold::{Hold, Limit, Mode, Occupancy};
use super::segmented::Segmented;
use super::time::Deadline;
use super::token::{Token, TokenBuf};

/// The bytes that an `Arc` keeps before its contents.
const ARC_COUNTER_BYTES: usize = size_of::<[usize; 2]>();

/// The capacity of a leaf of the standard library's B-tree, in entries.
const BTREE_LEAF_CAPACITY: usize = 11;

/// The holds of a lock that has several: shared ones, counted ones, or both.
///
/// A change takes `O(log n)`, a look-up by token `O(1)`, and dropping the `d` holds that are over
/// `O(d log n)`.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedHolds {
    /// A cell can be set where it was found, so that a renewal hashes the token once.
    by_token: Segmented<TokenBuf, Cell<Hold>>,
    /// Exactly one entry for each entry of `by_token`, with the deadline of that hold. Both share
    /// the token.
    by_deadline: BTreeSet<(Deadline, Shared)>,
    /// The limits of the counted holds. The others are shared. Most locks have none.
    limits: Option<Box<Limits>>,
    /// The sum of the lengths of all tokens.
    token_bytes: usize,
}

/// A token with an order that does not look at its bytes, which are far away. Many holds may have
/// the same deadline. It is equal to itself and its clones only.
#[derive(Clone, Debug)]
struct Shared(TokenBuf);

impl Ord for Shared {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.address().cmp(&other.0.address())
    }
}

impl PartialOrd for Shared {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Shared {}

/// The limits of the counted holds of a lock.
#[derive(Clone, Debug, Default)]
struct Limits {
    by_token: Segmented<TokenBuf, Limit>,
    /// How many holds have each limit.
    counts: BTreeMap<Limit, usize>,
}

impl Limits {
    fn put(&mut self, token: TokenBuf, limit: Limit) {
        self.take(token.as_token());
        self.by_token.insert(token, limit);
        let count = self.counts.entry(limit).or_default();
        *count = count.saturating_add(1);
    }

    fn take(&mut self, token: Token<'_>) -> Option<Limit> {
        let (_, limit) = self.by_token.remove_entry(token.as_bytes())?;
        match self.counts.get_mut(&limit) {
            Some(count) if *count > 1 => *count = count.saturating_sub(1),
            _ => drop(self.counts.remove(&limit)),
        }
        Some(limit)
    }

    /// The smallest limit of holds whose tokens are not among `without`.
    fn smallest<'t>(&self, without: impl Iterator<Item = &'t TokenBuf>) -> Option<Limit> {
        let mut over: BTreeMap<Limit, usize> = BTreeMap::new();
        for limit in without.filter_map(|token| self.by_token.get(token)) {
            let count = over.entry(*limit).or_default();
            *count = count.saturating_add(1);
        }
        let mut counts = self.counts.iter();
        counts
            .find(|(limit, count)| over.get(limit).is_none_or(|over| over < *count))
            .map(|(limit, _)| *limit)
    }
}

impl SharedHolds {
    pub(super) fn len(&self) -> usize {
        self.by_deadline.len()
    }

    #[inline]
    pub(super) fn get(&self, token: Token<'_>) -> Option<(Mode, Hold)> {
        let hold = self.by_token.get(token.as_bytes())?;
        Some((self.mode_of(token), hold.get()))
    }

    fn mode_of(&self, token: Token<'_>) -> Mode {
        let limits = self.limits.as_ref();
        let limit = limits.and_then(|limits| limits.by_token.get(token.as_bytes()));
        limit.map_or(Mode::Shared, |limit| Mode::Counted(*limit))
    }

    /// The smallest limit of all holds.
    pub(super) fn smallest_limit(&self) -> Option<Limit> {
        let (limit, _) = self.limits.as_ref()?.counts.first_key_value()?;
        Some(*limit)
    }

    /// How many holds live at `now_ms`, and how many holders they tolerate. Its cost grows with the
    /// number of holds that are over, which the next grant drops.
    pub(super) fn occupancy(&self, now_ms: u64) -> Occupancy {
        let over = || {
            let first = self.by_deadline.iter();
            first.take_while(|(deadline, _)| deadline.is_over(now_ms))
        };
        let limits = self.limits.as_ref();
        let smallest = limits.and_then(|l| l.smallest(over().map(|(_, token)| &token.0)));
        Occupancy {
            holders: self.len().saturating_sub(over().count()),
            tolerated: smallest.map_or(Mode::ANY, Limit::get),
        }
    }

    /// Sets the hold of `token`, which has none. `mode` is shared or counted.
    pub(super) fn put(&mut self, mode: Mode, token: Token<'_>, hold: Hold) {
        let key = TokenBuf::from(token);
        self.token_bytes = self.token_bytes.saturating_add(token.as_bytes().len());
        self.by_deadline
            .insert((hold.deadline, Shared(key.clone())));
        if let Mode::Counted(limit) = mode {
            let limits = self.limits.get_or_insert_default();
            limits.put(key.clone(), limit);
        }
        self.by_token.insert(key, Cell::new(hold));
    }

    /// Sets the hold of `token` anew if it has one in this mode. Returns whether it has.
    pub(super) fn set(&mut self, mode: Mode, token: Token<'_>, hold: Hold) -> bool {
        let bytes = token.as_bytes();
        let Some((key, stored)) = self.by_token.of(bytes).get_key_value(bytes) else {
            return false;
        };
        if self.mode_of(token) != mode {
            return false;
        }
        let before = stored.replace(hold);
        if before.deadline != hold.deadline {
            let mut entry = (before.deadline, Shared(key.clone()));
            self.by_deadline.remove(&entry);
            entry.0 = hold.deadline;
            self.by_deadline.insert(entry);
        }
        true
    }

    /// Removes the hold with the earliest deadline and returns it.
    pub(super) fn take_first(&mut self) -> Option<(TokenBuf, Mode, Hold)> {
        let (_, Shared(token)) = self.by_deadline.first()?.clone();
        let (mode, hold) = self.remove(token.as_token())?;
        Some((token, mode, hold))
    }

    pub(super) fn remove(&mut self, token: Token<'_>) -> Option<(Mode, Hold)> {
        let (key, hold) = self.by_token.remove_entry(token.as_bytes())?;
        let hold = hold.get();
        self.by_deadline.remove(&(hold.deadline, Shared(key)));
        Some((self.forget(token), hold))
    }

    /// Drops what is kept of a token beside its hold. Returns the mode of the hold.
    fn forget(&mut self, token: Token<'_>) -> Mode {
        self.token_bytes = self.token_bytes.saturating_sub(token.as_bytes().len());
        let Some(limits) = &mut self.limits else {
            return Mode::Shared;
        };
        let limit = limits.take(token);
        if limits.counts.is_empty() {
            self.limits = None;
        }
        limit.map_or(Mode::Shared, Mode::Counted)
    }

    /// Drops the holds that are over at `now_ms`.
    pub(super) fn purge(&mut self, now_ms: u64) {
        while let Some((deadline, _)) = self.by_deadline.first() {
            if !deadline.is_over(now_ms) {
                return;
            }
            let Some((_, Shared(token))) = self.by_deadline.pop_first() else {
                return;
            };
            self.by_token.remove_entry(&token);
            self.forget(token.as_token());
        }
    }

    /// The fences of the holds that are over at `now_ms`.
    pub(super) fn ended(&self, now_ms: u64) -> impl Iterator<Item = Fence> + '_ {
        let all = self.by_deadline.iter();
        let ended = all.take_while(move |(deadline, _)| deadline.is_over(now_ms));
        let holds = ended.filter_map(|(_, token)| self.by_token.get(&token.0));
        holds.map(|hold| hold.get().fence)
    }

    /// The token of the hold that is over at `now_ms` and has so many before it.
    pub(super) fn ended_token(&self, before: usize, now_ms: u64) -> Option<Token<'_>> {
        let all = self.by_deadline.iter();
        let mut ended = all.take_while(|(deadline, _)| deadline.is_over(now_ms));
        ended.nth(before).map(|(_, token)| token.0.as_token())
    }

    /// Brings every later deadline down to `cap`.
    pub(super) fn cap(&mut self, cap: Deadline) {
        while let Some((deadline, _)) = self.by_deadline.last() {
            if *deadline <= cap {
                return;
            }
            let Some((_, token)) = self.by_deadline.pop_last() else {
                return;
            };
            if let Some(hold) = self.by_token.get(&token.0) {
                let capped = Hold {
                    deadline: cap,
                    ..hold.get()
                };
                hold.set(capped);
            }
            self.by_deadline.insert((cap, token));
        }
    }

    pub(super) fn latest_deadline(&self) -> Option<Deadline> {
        self.by_deadline.last().map(|(deadline, _)| *deadline)
    }

    /// The latest deadline among the holds of other tokens than `token`.
    pub(super) fn latest_deadline_of_others(&self, token: Token<'_>) -> Option<Deadline> {
        let mut latest_two = self.by_deadline.iter().rev().take(2);
        latest_two
            .find(|(_, other)| other.0.as_token() != token)
            .map(|(deadline, _)| *deadline)
    }

    /// The earliest deadline of the holds that live at `now_ms`.
    pub(super) fn earliest_deadline(&self, now_ms: u64) -> Option<Deadline> {
        let deadlines = self.by_deadline.iter().map(|(deadline, _)| *deadline);
        deadlines
            .into_iter()
            .find(|deadline| !deadline.is_over(now_ms))
    }

    /// All holds, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Token<'_>, Mode, Hold)> {
        let all = self.by_token.iter();
        all.map(|(token, hold)| {
            let token = token.as_token();
            (token, self.mode_of(token), hold.get())
        })
    }

    /// The first `most` of the holds with a deadline that is wanted, in the order of their fences.
    /// Only forged holds have equal fences. `O(n + most log most)`.
    pub(super) fn first(
        &self,
        most: usize,
        is_wanted: impl Fn(Deadline) -> bool,
    ) -> Vec<(Token<'_>, Mode, Hold)> {
        let all = self.by_token.iter();
        let wanted = all.filter(|(_, hold)| is_wanted(hold.get().deadline));
        let wanted = wanted.map(|(token, hold)| (hold.get().fence, token.as_token()));
        let mut first = Vec::new();
        match most {
            1 => first.extend(wanted.min()),
            _ => {
                first.reserve(self.len());
                // The segments of a table are walked faster from within.
                wanted.for_each(|one| first.push(one));
            }
        }
        if most < first.len() {
            first.select_nth_unstable(most);
            first.truncate(most);
        }
        first.sort_unstable();
        let first = first.into_iter().filter_map(|(_, token)| {
            let (mode, hold) = self.get(token)?;
            Some((token, mode, hold))
        });
        first.collect()
    }

    /// An estimate of the memory on the heap in bytes. It does not iterate over the holds.
    pub(super) fn heap_bytes(&self) -> usize {
        // For each slot, the table keeps the entry and one control byte. At most three quarters of
        // the slots are in use, and a table has at least 4 of them.
        let slots = self.by_token.capacity().saturating_mul(4) / 3;
        let table = slots.saturating_mul(size_of::<(TokenBuf, Hold)>().saturating_add(1));
        // A leaf of the B-tree is about two thirds full. The first entry allocates the first leaf.
        let entries = (self.len().saturating_mul(3) / 2).max(BTREE_LEAF_CAPACITY);
        let tree = entries.saturating_mul(size_of::<(Deadline, TokenBuf)>());
        let tokens = self
            .token_bytes
            .saturating_add(self.len().saturating_mul(ARC_COUNTER_BYTES));
        let limits = self.limits.as_ref().map_or(0, |limits| {
            let entry = size_of::<(TokenBuf, Limit)>().saturating_add(1);
            let slots = limits.by_token.capacity().saturating_mul(4) / 3;
            let table = slots.saturating_mul(entry);
            table.saturating_add(size_of::<Limits>())
        });
        let all = [tree, tokens, limits].into_iter();
        all.fold(table, usize::saturating_add)
    }
}

impl PartialEq for SharedHolds {
    fn eq(&self, other: &Self) -> bool {
        let limits = |holds: &Self| holds.limits.as_ref().map(|l| l.by_token.len());
        self.by_token == other.by_token
            && limits(self) == limits(other)
            && self
                .iter()
                .all(|(token, mode, _)| other.mode_of(token) == mode)
    }
}

impl Eq for SharedHolds {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::hold::Since;

    #[test]
    fn the_memory_of_many_holds_comes_back() {
        let tokens: Vec<_> = (0..30_000).map(|n| format!("token {n}")).collect();
        let mut all = SharedHolds::default();
        for mode in [Mode::Shared, Mode::Counted(Limit::new(99).unwrap())] {
            for token in &tokens {
                let hold = Hold {
                    fence: Fence::new(1).unwrap(),
                    deadline: Deadline::from_millis(9).unwrap(),
                    since: Since::at(1),
                };
                all.put(mode, Token::new(token.as_bytes()).unwrap(), hold);
            }
            let most = all.heap_bytes();
            for token in &tokens[2..] {
                all.remove(Token::new(token.as_bytes()).unwrap());
            }
            assert!(
                all.heap_bytes() < most / 8,
                "{} of {most}",
                all.heap_bytes()
            );
            for token in &tokens[..2] {
                all.remove(Token::new(token.as_bytes()).unwrap());
            }
        }
    }
}
