//! Cycles of waits: a wait that has closed one is found, and leaves again.
//!
//! The nodes of the graph are tokens. A token that waits for a key has an edge to each token that
//! it waits for there:
//!
//! - to the holders of the key that exclude it, or that exclude a place ahead of it;
//! - to those ahead of it in the queue, also the absent ones, that exclude it or a place between
//!   the two. A place for several keys lets nobody pass, so it stands in the way of each behind it.
//!
//! A hold with a limit above 1 has no edges to it: the end of another one serves as well. Every
//! edge says that the end of one wait is needed before that of another. So a cycle of waits ends
//! only by a deadline, a timeout, or somebody who gives up.
//!
//! A request enters first, and then a [`Search`] goes from its token, breadth first, and so finds a
//! shortest cycle. (PostgreSQL enters, looks and leaves in the same way: `storage/lmgr/README`.) It
//! asks for one lock after another, because the server opens one key at a time. It changes nothing.
//!
//! What keeps it cheap: most waits need no search, because those that they wait for do not wait
//! themselves (`Registry::may_close`). Of those ahead in a queue only the places of tokens with
//! several places are looked at: each of the others waits for nobody but those whom the ones behind
//! it wait for, too. And a [budget](BUDGET) bounds it.

use std::collections::{HashMap, HashSet};

use super::place::{Place, PlaceId, Stands, Ticket};
use super::{turn, Book};
use crate::lock::{CompactToken, Lock, Mode, Now, Token};
use crate::rules::key_ref::{KeyId, KeyRef};

/// How many holders and places a search looks at. A key counts as [`KEY`] of them.
pub const BUDGET: usize = 4_000;

/// A key has to be opened.
const KEY: usize = 8;

/// One wait of a cycle. Its token waits for the token of the next one, the last one for the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CycleWait {
    /// The token.
    pub token: CompactToken,
    /// The key that it waits for.
    pub key_ref: KeyRef,
}

/// What a search has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The wait closes no cycle.
    NoCycle,
    /// The wait is one of this cycle. The first wait is that of the token that asks.
    Cycle(Vec<CycleWait>),
    /// There is more to look at than a search may.
    OverBudget,
}

/// How much a search may still look at.
#[derive(Clone, Copy, Debug)]
struct Budget(usize);

impl Budget {
    /// `None` when it is used up.
    fn spend(&mut self, n: usize) -> Option<()> {
        self.0 = self.0.checked_sub(n)?;
        Some(())
    }
}

/// A token that was found.
#[derive(Debug)]
struct Node {
    token: CompactToken,
    /// The one that waits for it, and for which key.
    found_by: Option<(usize, KeyRef)>,
}

/// A wait of the token that is looked at.
#[derive(Clone, Copy, Debug)]
struct Wait {
    key: KeyId,
    place: PlaceId,
    /// Where the place stands; the first ticket is ahead of the line.
    at: Ticket,
}

/// A place that converts its hold stands there.
const HEAD: Ticket = Ticket(0);

/// A search for a cycle. The caller shows it the lock of each key that it asks for.
#[derive(Debug)]
pub struct Search {
    /// The tokens that were found, in the order in which they are looked at. The first one is the
    /// token that asks.
    nodes: Vec<Node>,
    seen: HashSet<CompactToken>,
    /// How many of them have been taken up.
    begun: usize,
    /// The waits of the last one that are still to be looked at.
    waits: Vec<Wait>,
    /// The wait whose key was asked for last.
    current: Option<Wait>,
    /// Up to where queues were looked at. Those who stand earlier wait for nobody else.
    looked_at: HashMap<KeyId, Ticket>,
    budget: Budget,
    /// How many waits of tokens may yet be walked over.
    walked: Budget,
    verdict: Option<Verdict>,
}

impl Search {
    /// The search for a token that has just begun to wait.
    pub fn new(token: Token<'_>) -> Self {
        let token = CompactToken::from(token);
        Self {
            seen: HashSet::from([token.clone()]),
            nodes: vec![Node {
                token,
                found_by: None,
            }],
            begun: 0,
            waits: Vec::new(),
            current: None,
            looked_at: HashMap::new(),
            budget: Budget(BUDGET),
            walked: Budget(BUDGET),
            verdict: None,
        }
    }

    /// The answer, once `Registry::next_key` is `None`.
    pub fn verdict(self) -> Verdict {
        self.verdict.unwrap_or(Verdict::NoCycle)
    }

    /// The next key whose lock is to be shown to `Registry::look_at`.
    pub(crate) fn next_key(&mut self, book: &impl Book) -> Option<KeyRef> {
        let next = self.next_wait(book);
        if next.is_none() {
            self.verdict.get_or_insert(Verdict::OverBudget);
        }
        self.current = next.flatten();
        book.key(self.current?.key).cloned()
    }

    /// The next wait; `None` when the budget is used up.
    fn next_wait(&mut self, book: &impl Book) -> Option<Option<Wait>> {
        while self.verdict.is_none() {
            if let Some(wait) = self.waits.pop() {
                self.budget.spend(KEY)?;
                return Some(Some(wait));
            }
            let Some(node) = self.nodes.get(self.begun) else {
                self.verdict = Some(Verdict::NoCycle);
                break;
            };
            self.begun = self.begun.saturating_add(1);
            for id in book.places_of(&node.token) {
                let Some(place) = book.place(id) else {
                    continue;
                };
                let at = match place.stands {
                    Stands::InLine => place.ticket,
                    Stands::Owns | Stands::Converts => HEAD,
                };
                for key in &place.ids {
                    self.walked.spend(1)?;
                    let until = self.looked_at.get(key);
                    if until.is_none_or(|until| *until < at) {
                        let (key, place) = (*key, id);
                        self.waits.push(Wait { key, place, at });
                    }
                }
            }
            // One for several keys has come once for each of them.
            self.waits.sort_unstable_by_key(|wait| (wait.key, wait.at));
            self.waits.dedup_by_key(|wait| wait.key);
        }
        Some(None)
    }

    /// Looks at the key that `Registry::next_key` has named.
    pub(crate) fn look_at(&mut self, book: &impl Book, lock: Option<&Lock>, now: Now) {
        if let Some(wait) = self.current.take() {
            if self.look(book, wait, lock, now).is_none() {
                self.verdict.get_or_insert(Verdict::OverBudget);
            }
        }
    }

    /// `None` when the budget is used up, or a cycle is found.
    fn look<B: Book>(&mut self, book: &B, wait: Wait, lock: Option<&Lock>, now: Now) -> Option<()> {
        let (Some(place), Some(key_ref)) = (book.place(wait.place), book.key(wait.key)) else {
            return Some(()); // It has ended meanwhile.
        };
        let (key_ref, token) = (key_ref.clone(), place.token.text());
        let mode = place.narrowest_mode_at(wait.key);
        let own = lock.and_then(|lock| lock.hold_of(token.as_token(), now));
        let mut at = wait.at;
        if own.is_some() && !place.is_for_several_keys() {
            // It is granted as soon as the key is served, or goes ahead of the line. A place for
            // several keys does neither.
            if mode != Mode::Exclusive {
                return Some(());
            }
            at = HEAD;
        }
        let until = self.exclusive_until(book, wait.key, (at, mode))?;
        let is_excluded = |place: &Place<B::Client>| {
            let mode = place.narrowest_mode_at(wait.key);
            let excludes = until.is_some_and(|until| place.ticket <= until)
                && stands_in_the_way(mode, Mode::Exclusive);
            excludes || place.is_for_several_keys()
        };
        let mode = until.map_or(mode, |_| Mode::Exclusive);
        for (holder, held) in lock.into_iter().flat_map(|lock| lock.live_holders(now)) {
            self.budget.spend(1)?;
            if stands_in_the_way(held, mode) {
                self.reach(book, &holder, &key_ref)?;
            }
        }
        // The token that asks counts also where it has one place.
        let asker = self.nodes.first().map(|node| node.token.text());
        let asker = asker.and_then(|token| book.of_token(wait.key, token.as_token()));
        let ahead = turn::exclusive_convert(book, wait.key)
            .into_iter()
            .chain(asker);
        for id in ahead.chain(book.elsewhere_too(wait.key, at)) {
            self.budget.spend(1)?;
            let ahead = book.place(id).filter(|ahead| match ahead.stands {
                Stands::InLine => ahead.ticket < at && is_excluded(ahead),
                Stands::Converts => at > HEAD && ahead.wants_exclusive(),
                Stands::Owns => false, // It is a holder.
            });
            if let Some(ahead) = ahead {
                self.reach(book, &ahead.token, &key_ref)?;
            }
        }
        // What the token that asks waits for says nothing of those behind it: they may wait for it.
        if self.begun > 1 {
            self.looked_at.insert(wait.key, at);
        }
        Some(())
    }

    /// Up to where those ahead are excluded by a place that waits for the exclusive hold: it, or
    /// the last one of those ahead.
    fn exclusive_until(
        &mut self,
        book: &impl Book,
        key: KeyId,
        (at, mode): (Ticket, Mode),
    ) -> Option<Option<Ticket>> {
        if mode == Mode::Exclusive {
            return Some(Some(at));
        }
        for id in book.stops_ahead(key, at) {
            self.budget.spend(1)?;
            let exclusive = book.place(id).filter(|place| {
                let mode = place.narrowest_mode_at(key);
                mode == Mode::Exclusive
            });
            if let Some(place) = exclusive {
                return Some(Some(place.ticket));
            }
        }
        Some(turn::exclusive_convert(book, key).map(|_| HEAD))
    }

    /// Goes to a token that the current one waits for. `None` if that closes a cycle.
    fn reach(&mut self, book: &impl Book, token: &CompactToken, key_ref: &KeyRef) -> Option<()> {
        let at = self.begun.saturating_sub(1);
        let is_asker = self.nodes.first().is_some_and(|node| node.token == *token);
        if is_asker && at > 0 {
            self.close(at, key_ref);
            return None;
        }
        // Nobody waits for itself.
        let waits = !is_asker && book.places_of(token).next().is_some();
        if waits && self.seen.insert(token.clone()) {
            self.nodes.push(Node {
                token: token.clone(),
                found_by: Some((at, key_ref.clone())),
            });
        }
        Some(())
    }

    /// The current token waits for the one that asks.
    fn close(&mut self, at: usize, key_ref: &KeyRef) {
        let mut cycle = Vec::new();
        let mut at = Some((at, key_ref.clone()));
        while let Some((node, key_ref)) = at {
            let Some(node) = self.nodes.get(node) else {
                break;
            };
            cycle.push(CycleWait {
                token: node.token.clone(),
                key_ref,
            });
            at = node.found_by.clone();
        }
        cycle.reverse();
        self.verdict = Some(Verdict::Cycle(cycle));
    }
}

/// Whether a hold, or a place whose turn comes before, must end before a request of the other mode
/// is granted.
fn stands_in_the_way(mode: Mode, asked: Mode) -> bool {
    mode == Mode::Exclusive || mode == Mode::Shared && asked == Mode::Exclusive
}
