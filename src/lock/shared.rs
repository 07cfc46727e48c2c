//! The shared holds of one lock, indexed by token and by deadline, so that no command iterates over
//! all of them.

use std::collections::{BTreeSet, HashMap};
use std::mem::size_of;

use super::fence::Fence;
use super::hold::Hold;
use super::time::Deadline;
use super::token::{Token, TokenBuf};

/// The bytes that an `Arc` keeps before its contents.
const ARC_COUNTER_BYTES: usize = size_of::<[usize; 2]>();

/// The capacity of a leaf of the standard library's B-tree, in entries.
const BTREE_LEAF_CAPACITY: usize = 11;

/// The shared holds of a lock.
///
/// A change takes `O(log n)`, a look-up by token `O(1)`, and dropping the `d` holds that are over
/// `O(d log n)`.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedHolds {
    by_token: HashMap<TokenBuf, Hold>,
    /// Exactly one entry for each entry of `by_token`, with the deadline of that hold.
    by_deadline: BTreeSet<(Deadline, TokenBuf)>,
    /// The sum of the lengths of all tokens.
    token_bytes: usize,
}

impl SharedHolds {
    pub(super) fn len(&self) -> usize {
        self.by_token.len()
    }

    pub(super) fn get(&self, token: Token<'_>) -> Option<&Hold> {
        self.by_token.get(token.as_bytes())
    }

    /// Sets the hold of `token`. Replaces a hold that the token already has.
    pub(super) fn put(&mut self, token: Token<'_>, hold: Hold) {
        let key = match self.take(token) {
            Some((key, _)) => key,
            None => TokenBuf::from(token),
        };
        self.token_bytes = self.token_bytes.saturating_add(token.as_bytes().len());
        self.by_deadline.insert((hold.deadline, key.clone()));
        self.by_token.insert(key, hold);
    }

    pub(super) fn remove(&mut self, token: Token<'_>) -> Option<Hold> {
        self.take(token).map(|(_, hold)| hold)
    }

    /// Removes the hold with the earliest deadline and returns it.
    pub(super) fn take_first(&mut self) -> Option<(TokenBuf, Hold)> {
        let (_, token) = self.by_deadline.first()?.clone();
        self.take(token.as_token())
    }

    fn take(&mut self, token: Token<'_>) -> Option<(TokenBuf, Hold)> {
        let (key, hold) = self.by_token.remove_entry(token.as_bytes())?;
        let entry = (hold.deadline, key);
        self.by_deadline.remove(&entry);
        self.token_bytes = self.token_bytes.saturating_sub(token.as_bytes().len());
        Some((entry.1, hold))
    }

    /// Drops the holds that are over at `now_ms`.
    pub(super) fn purge(&mut self, now_ms: u64) {
        while let Some((deadline, _)) = self.by_deadline.first() {
            if !deadline.is_over(now_ms) {
                return;
            }
            let Some((_, token)) = self.by_deadline.pop_first() else {
                return;
            };
            self.by_token.remove(&token);
            self.token_bytes = self
                .token_bytes
                .saturating_sub(token.as_token().as_bytes().len());
        }
    }

    /// The fences of the holds that are over at `now_ms`.
    pub(super) fn ended(&self, now_ms: u64) -> impl Iterator<Item = Fence> + '_ {
        let all = self.by_deadline.iter();
        let ended = all.take_while(move |(deadline, _)| deadline.is_over(now_ms));
        ended.filter_map(|(_, token)| self.by_token.get(token).map(|hold| hold.fence))
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
            if let Some(hold) = self.by_token.get_mut(&token) {
                hold.deadline = cap;
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
            .find(|(_, other)| other.as_token() != token)
            .map(|(deadline, _)| *deadline)
    }

    /// All holds, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Token<'_>, Hold)> {
        self.by_token.iter().map(|(t, hold)| (t.as_token(), *hold))
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
        table.saturating_add(tree).saturating_add(tokens)
    }
}

impl PartialEq for SharedHolds {
    fn eq(&self, other: &Self) -> bool {
        self.by_token == other.by_token
    }
}

impl Eq for SharedHolds {}
