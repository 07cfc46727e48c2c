//! Cycles of waits: whether a wait would close one, and which.
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
//! A [`Search`] goes from the token that asks, breadth first, and so finds a shortest cycle. It
//! asks for one lock after another, because the server opens one key at a time
//! ([`Search::next_key`]). It changes nothing.
//!
//! # What keeps it cheap
//!
//! - Most waits need no search: those that they wait for do not wait themselves ([`may_close`]).
//! - Of those ahead in a queue only the places of tokens with several places are looked at. Each of
//!   the others waits for nobody but those whom the ones behind it wait for, too.
//! - A [budget](BUDGET) bounds it. Beyond it the answer is [`Verdict::OverBudget`].

// Long because: a search is one thing.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::mem;

use super::key_ref::KeyRef;
use super::place::{Place, PlaceId, Ticket};
use super::queue::in_the_way::{self, Budget, Spot};
use super::registry::Registry;
use crate::lock::{CompactToken, Lock, Mode, Now, Token};

mod first_look;
#[cfg(test)]
mod tests;

pub use first_look::may_close;

/// How many holders and places a search looks at. A key counts as [`KEY`] of them.
pub const BUDGET: usize = 4_000;

/// A key has to be opened.
const KEY: usize = 8;

/// A key that a token asks for, and will wait for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The key.
    pub key_ref: KeyRef,
    /// The mode.
    pub mode: Mode,
    /// Whether the token has a share, and its place will be ahead of the line.
    pub upgrades: bool,
    /// Whether a channel listens for it. It then takes the place of its token's request for which a
    /// channel listens already.
    pub by_channel: bool,
}

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
    /// The wait would be one of this cycle. The first wait is that of the token that asks.
    Cycle(Vec<CycleWait>),
    /// There is more to look at than a search may.
    OverBudget,
}

/// A token that was found.
#[derive(Debug)]
struct Node {
    token: CompactToken,
    /// The one that waits for it, and for which key.
    found_by: Option<(usize, KeyRef)>,
}

/// A search for a cycle. The caller shows it the lock of each key that it asks for.
#[derive(Debug)]
pub struct Search {
    asked: Vec<Asked>,
    /// The tokens that were found, in the order in which they are looked at. The first one is the
    /// token that asks.
    nodes: Vec<Node>,
    seen: HashSet<CompactToken>,
    /// Which node is looked at.
    at: usize,
    /// The keys that its token waits for and that are still to be looked at.
    waits: Vec<(KeyRef, Spot)>,
    /// The key that was asked for last.
    current: Option<(KeyRef, Spot)>,
    /// Up to which spot queues were looked at. Earlier ones wait for nobody else.
    looked_at: HashMap<KeyRef, Ticket>,
    budget: Budget,
    /// How many spots of tokens may yet be walked over.
    walked: Budget,
    leg: Leg,
    verdict: Verdict,
}

/// A new wait closes a cycle by the edges from it, or by those to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leg {
    NotBegun,
    /// From the keys asked for.
    FromIt,
    /// From the keys that the token waits for already, to those behind its new spots: it upgrades,
    /// or asks again for more.
    ToIt,
    Done,
}

impl Search {
    /// The search for a token that asks for these keys at once.
    pub fn new(token: Token<'_>, asked: Vec<Asked>) -> Self {
        let token = CompactToken::from(token);
        Self {
            asked,
            seen: HashSet::from([token.clone()]),
            nodes: vec![Node {
                token,
                found_by: None,
            }],
            at: 0,
            waits: Vec::new(),
            current: None,
            looked_at: HashMap::new(),
            budget: Budget::new(BUDGET),
            walked: Budget::new(BUDGET),
            leg: Leg::NotBegun,
            verdict: Verdict::NoCycle,
        }
    }

    /// The answer, once [`Search::next_key`] is `None`.
    pub fn verdict(self) -> Verdict {
        self.verdict
    }

    /// The next key whose lock is to be shown to [`Search::look_at`].
    pub fn next_key<L, S: BuildHasher>(&mut self, registry: &Registry<L, S>) -> Option<KeyRef> {
        loop {
            if self.leg == Leg::Done {
                return None;
            }
            if let Some(wait) = self.waits.pop() {
                if self.budget.spend(KEY).is_none() {
                    self.end(Verdict::OverBudget);
                    return None;
                }
                let key_ref = wait.0.clone();
                self.current = Some(wait);
                return Some(key_ref);
            }
            self.advance(registry);
        }
    }

    /// Goes on to the next token, or to the next leg.
    fn advance<L, S: BuildHasher>(&mut self, registry: &Registry<L, S>) {
        if self.leg == Leg::NotBegun {
            self.leg = Leg::FromIt;
            let spots = self.asked.iter().filter_map(|asked| {
                let key_ref = &asked.key_ref;
                Some((key_ref.clone(), self.spot_of_asker(registry, key_ref)?))
            });
            self.waits = spots.collect();
            return;
        }
        self.at = self.at.saturating_add(1);
        if let Some(token) = self.nodes.get(self.at).map(|node| node.token.clone()) {
            let looked_at = mem::take(&mut self.looked_at);
            self.wait_for(registry, &token, |key_ref, spot| {
                let until = looked_at.get(key_ref);
                until.is_none_or(|until| *until < spot.at)
            });
            self.looked_at = looked_at;
        } else if self.leg == Leg::FromIt && self.stands_ahead(registry) {
            self.begin_again(registry);
        } else {
            self.leg = Leg::Done;
        }
    }

    /// Whether anybody may wait for the new spots of the token that asks, which waits for another
    /// key, too.
    fn stands_ahead<L, S: BuildHasher>(&self, registry: &Registry<L, S>) -> bool {
        self.asked.iter().any(|asked| {
            let spot = self.spot_of_asker(registry, &asked.key_ref);
            spot.is_some_and(|spot| spot.at < Spot::END)
        })
    }

    fn begin_again<L, S: BuildHasher>(&mut self, registry: &Registry<L, S>) {
        self.leg = Leg::ToIt;
        self.at = 0;
        self.nodes.truncate(1);
        self.looked_at.clear();
        self.seen.clear();
        let Some(token) = self.nodes.first().map(|asker| asker.token.clone()) else {
            return;
        };
        self.seen.insert(token.clone());
        let asked: HashSet<KeyRef> = self.asked.iter().map(|one| one.key_ref.clone()).collect();
        self.wait_for(registry, &token, |key_ref, _| !asked.contains(key_ref));
    }

    /// The keys that a token waits for, of which some are to be looked at.
    fn wait_for<L, S: BuildHasher>(
        &mut self,
        registry: &Registry<L, S>,
        token: &CompactToken,
        is_wanted: impl Fn(&KeyRef, &Spot) -> bool,
    ) {
        self.waits.clear();
        for (key_ref, spot) in waits_of(registry, token) {
            if self.walked.spend(1).is_none() {
                return self.end(Verdict::OverBudget);
            }
            if is_wanted(&key_ref, &spot) {
                self.waits.push((key_ref, spot));
            }
        }
    }

    /// Where the token that asks stands in a queue, or will stand.
    fn spot_of_asker<L, S: BuildHasher>(
        &self,
        registry: &Registry<L, S>,
        key_ref: &KeyRef,
    ) -> Option<Spot> {
        let token = self.nodes.first()?.token.text();
        let own = registry.spot_of(key_ref, token.as_token());
        let Some(asked) = self.asked.iter().find(|asked| asked.key_ref == *key_ref) else {
            return own;
        };
        let place = own.and_then(|spot| registry.place(spot.id?));
        // What waits at its place goes on, but for the request that this one replaces.
        let place = place.filter(|place| !place.is_for_several_keys());
        let before = place.and_then(|place| {
            let replaced = place.channel().filter(|_| asked.by_channel);
            place.narrowest_mode_but(replaced)
        });
        Some(Spot {
            id: own.and_then(|spot| spot.id),
            at: match asked.upgrades {
                true => Spot::HEAD,
                false => own.map_or(Spot::END, |spot| spot.at),
            },
            mode: match asked.mode == Mode::Exclusive {
                true => Mode::Exclusive,
                false => before.unwrap_or(asked.mode),
            },
            is_for_several_keys: self.asked.len() > 1,
        })
    }

    /// Looks at the key that [`Search::next_key`] has named.
    pub fn look_at<L, S: BuildHasher>(
        &mut self,
        registry: &Registry<L, S>,
        lock: Option<&Lock>,
        now: Now,
    ) {
        if let Some((key_ref, spot)) = self.current.take() {
            if self.look(registry, &key_ref, &spot, lock, now).is_none() {
                self.end(Verdict::OverBudget);
            }
        }
    }

    /// `None` when the budget is used up.
    fn look<L, S: BuildHasher>(
        &mut self,
        registry: &Registry<L, S>,
        key_ref: &KeyRef,
        spot: &Spot,
        lock: Option<&Lock>,
        now: Now,
    ) -> Option<()> {
        let asker = self.spot_of_asker(registry, key_ref);
        let queue = registry.queue(key_ref.db, &key_ref.name);
        let is_asked = self.asked.iter().any(|asked| asked.key_ref == *key_ref);
        let mut spot = *spot;
        if !spot.is_for_several_keys && lock.is_some_and(|lock| self.holds(lock, now)) {
            // It is granted as soon as it asks, or goes ahead of the line. A place for several keys
            // does neither.
            if spot.mode != Mode::Exclusive {
                return Some(());
            }
            spot.at = Spot::HEAD;
        }
        let (mut mode, mut ahead) = (spot.mode, Vec::new());
        if let Some(queue) = queue {
            let queue = (queue, &*key_ref.name);
            let found = registry.in_the_way_of(queue, &spot, asker.as_ref(), &mut self.budget)?;
            (mode, ahead) = (found.mode, found.places);
            if found.asker && (self.leg == Leg::FromIt || is_asked) {
                self.close(key_ref);
                return Some(());
            }
        }
        for (holder, held) in lock.into_iter().flat_map(|lock| lock.live_holders(now)) {
            self.budget.spend(1)?;
            if in_the_way::stands_in_the_way(held, mode) && self.reach(registry, &holder, key_ref) {
                return Some(());
            }
        }
        for id in ahead {
            let token = registry.place(id).map(|place| &place.token);
            if token.is_some_and(|token| self.reach(registry, token, key_ref)) {
                return Some(());
            }
        }
        // What the token that asks waits for says nothing of those behind it: they may wait for it.
        if self.at > 0 {
            self.looked_at.insert(key_ref.clone(), spot.at);
        }
        Some(())
    }

    /// Whether the current token is a holder.
    fn holds(&self, lock: &Lock, now: Now) -> bool {
        self.nodes.get(self.at).is_some_and(|node| {
            let token = node.token.text();
            lock.hold_of(token.as_token(), now).is_some()
        })
    }

    /// Goes to a token that the current one waits for. Whether that closes a cycle.
    fn reach<L, S: BuildHasher>(
        &mut self,
        registry: &Registry<L, S>,
        token: &CompactToken,
        key_ref: &KeyRef,
    ) -> bool {
        let is_asker = self.nodes.first().is_some_and(|node| node.token == *token);
        if is_asker {
            // Nobody waits for itself. The way to the new spots does not lead over what the token
            // has already.
            let closes = self.at > 0 && self.leg == Leg::FromIt;
            if closes {
                self.close(key_ref);
            }
            return closes;
        }
        let waits = registry.places_of(token).next().is_some();
        if waits && self.seen.insert(token.clone()) {
            self.nodes.push(Node {
                token: token.clone(),
                found_by: Some((self.at, key_ref.clone())),
            });
        }
        false
    }

    /// The current token waits for the one that asks.
    fn close(&mut self, key_ref: &KeyRef) {
        let mut cycle = Vec::new();
        let mut at = Some((self.at, key_ref.clone()));
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
        self.end(Verdict::Cycle(cycle));
    }

    fn end(&mut self, verdict: Verdict) {
        self.verdict = verdict;
        self.leg = Leg::Done;
        self.waits.clear();
    }
}

/// The keys that a token waits for, and where it stands in their queues.
fn waits_of<'a, L, S: BuildHasher>(
    registry: &'a Registry<L, S>,
    token: &'a CompactToken,
) -> impl Iterator<Item = (KeyRef, Spot)> + 'a {
    let spots = move |(id, place): (PlaceId, &'a Place<L>)| {
        place.keys().filter_map(move |key_ref| {
            let queue = registry.queue(key_ref.db, &key_ref.name)?;
            Some((key_ref.clone(), queue.spot_of(id, place, &key_ref.name)))
        })
    };
    registry.places_of(token).flat_map(spots)
}
