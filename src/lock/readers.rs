//! The shared holds of one lock: found by token, and in order of their deadlines, so that no command looks at all of them.

use std::collections::{BTreeSet, HashMap};
use std::mem::size_of;

use super::state::Hold;
use super::time::Deadline;
use super::token::{Token, TokenBuf};

/// What an `Arc` keeps before its bytes.
const ARC_COUNTERS: usize = size_of::<[usize; 2]>();

/// How many entries a leaf of the standard library's B-tree has room for.
const BTREE_LEAF: usize = 11;

/// The shared holds of a lock.
///
/// `O(log n)` for every change, `O(1)` for a look-up by token, `O(d log n)` to drop the `d` that are over.
#[derive(Clone, Debug, Default)]
pub(super) struct Readers {
    by_token: HashMap<TokenBuf, Hold>,
    /// Exactly one entry for each of `by_token`, with that hold's deadline.
    by_deadline: BTreeSet<(Deadline, TokenBuf)>,
    /// The sum of the tokens' lengths.
    token_bytes: usize,
}

impl Readers {
    pub(super) fn len(&self) -> usize {
        self.by_token.len()
    }

    pub(super) fn get(&self, token: Token<'_>) -> Option<&Hold> {
        self.by_token.get(token.as_bytes())
    }

    /// Sets the hold of `token`, in place of one that it has.
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

    /// Takes one of them out, of no particular token.
    pub(super) fn take_any(&mut self) -> Option<(TokenBuf, Hold)> {
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

    /// All holds, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Token<'_>, Hold)> {
        self.by_token.iter().map(|(t, hold)| (t.as_token(), *hold))
    }

    /// An estimate of the bytes on the heap, made without walking.
    pub(super) fn heap_bytes(&self) -> usize {
        // Per slot the table keeps the entry and one control byte, with three slots in four in use at the most and never fewer
        // than 4; a B-tree's leaf has 11 places and is about two thirds full, and the first one is there from the first entry on.
        let slots = self.by_token.capacity().saturating_mul(4) / 3;
        let table = slots.saturating_mul(size_of::<(TokenBuf, Hold)>().saturating_add(1));
        let places = (self.len().saturating_mul(3) / 2).max(BTREE_LEAF);
        let tree = places.saturating_mul(size_of::<(Deadline, TokenBuf)>());
        let tokens = self
            .token_bytes
            .saturating_add(self.len().saturating_mul(ARC_COUNTERS));
        table.saturating_add(tree).saturating_add(tokens)
    }
}

impl PartialEq for Readers {
    fn eq(&self, other: &Self) -> bool {
        self.by_token == other.by_token
    }
}

impl Eq for Readers {}
