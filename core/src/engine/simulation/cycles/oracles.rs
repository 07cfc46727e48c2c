//! The two oracles.

use super::*;
use crate::lock::Token;
use crate::wait::{KeyRef, Waiter};

/// A wait of the naive graph.
#[derive(Clone, Copy, Debug)]
struct NaiveWait {
    token: u8,
    key: u8,
    mode: Mode,
    /// Whether its place is for another key, too.
    is_for_both: bool,
}

type Edge = (u8, u8, u8);

impl World {
    /// Whether the answer is right. `waited` is the world in which the wait has begun.
    pub(super) fn compare(self, waited: Self, token: u8, cycle: Option<&[(u8, u8)]>, say: &str) {
        let all = || (0..self.keys).map(|key| (key, self.holders(key), self.line(key)));
        let say = || format!("{say}\n{:?}", all().collect::<Vec<_>>());
        let edges = waited.edges();
        let shortest = shortest(&edges, token);
        assert_eq!(cycle.map(<[_]>::len), shortest, "{}", say());
        if let Some(waits) = cycle {
            assert_eq!(waits[0].0, token);
            for (n, (from, over)) in waits.iter().enumerate() {
                let to = waits[(n + 1) % waits.len()].0;
                assert!(edges.contains(&(*from, *over, to)), "{}", say());
            }
        }
        let is_mixed = (0..self.keys).any(|key| waited.is_mixed(key));
        let waits_for_more = waited.waits_for_both_and_more();
        let has_permits = waited.has_permits();
        let is_stuck = waited.gets_stuck();
        if is_stuck && cycle.is_none() && !has_permits {
            let say = say();
            assert!(self.gets_stuck(), "{say}");
        } else if cycle.is_some() && !is_mixed && !waits_for_more {
            // A token that asks for a key in both modes has the second one in the end, and counts
            // here by the narrower one. One that waits for two keys and also elsewhere may be
            // granted the two first, and so let in those behind its place.
            assert!(is_stuck, "{}", say());
        }
    }

    fn edges(&self) -> BTreeSet<Edge> {
        let mut edges = BTreeSet::new();
        for key in 0..self.keys {
            let line = self.line(key);
            for (n, wait) in line.iter().enumerate() {
                let holders = self.holders(key);
                let is_holder = holders.iter().any(|(holder, _)| *holder == wait.token);
                if is_holder && !wait.is_for_both {
                    // It has its share already. To become exclusive it waits for the other holders
                    // only.
                    let others = holders.iter().filter(|(holder, _)| *holder != wait.token);
                    let others = others.filter(|_| wait.mode == Mode::Exclusive);
                    let others = others.filter(|(_, held)| excludes(*held, wait.mode));
                    edges.extend(others.map(|(holder, _)| (wait.token, key, *holder)));
                    continue;
                }
                // Nobody passes a place for two keys.
                let both = line[..n].iter().filter(|ahead| ahead.is_for_both);
                edges.extend(both.map(|ahead| (wait.token, key, ahead.token)));
                // Each of those whose turn comes before, and the wait itself, has to be granted.
                for (m, other) in line[..=n].iter().enumerate() {
                    let excluding = line[..m].iter().map(|ahead| (ahead.token, ahead.mode));
                    let holders = holders.iter().copied();
                    for (to, held) in excluding.chain(holders) {
                        if excludes(held, other.mode) && to != wait.token && to != other.token {
                            edges.insert((wait.token, key, to));
                        }
                    }
                }
            }
        }
        edges
    }

    /// One wait for each place, in its order.
    fn line(&self, key: u8) -> Vec<NaiveWait> {
        let mut line: Vec<NaiveWait> = Vec::new();
        for waiter in self.waiters(key) {
            let (token, mode) = (number(waiter.token), waiter.mode);
            match line.iter_mut().find(|wait| wait.token == token) {
                Some(wait) if mode == Mode::Exclusive => wait.mode = mode,
                Some(_) => {}
                None => line.push(NaiveWait {
                    token,
                    key,
                    mode,
                    is_for_both: self.both_of(token, key).is_some(),
                }),
            }
        }
        line
    }

    fn waiters(&self, key: u8) -> Vec<Waiter<'_, Client>> {
        let registry = &self.node.machine.registry;
        registry.waiters(0, &[place(key).name]).collect()
    }

    /// Whether somebody waits for ever, although everybody else does what they can.
    fn gets_stuck(mut self) -> bool {
        self.detect(false);
        loop {
            self.settle();
            let lines: Vec<NaiveWait> = (0..self.keys).flat_map(|key| self.line(key)).collect();
            let waiting: BTreeSet<u8> = lines.iter().map(|wait| wait.token).collect();
            let before = self.standing();
            // Those who are absent first: an upgrade passes an absent reader.
            for wait in lines {
                if self.is_absent(wait) {
                    let own = vec![(wait.key, wait.mode)];
                    let keys = self.both_of(wait.token, wait.key).unwrap_or(own);
                    self.request(wait.token, &keys, How::Block);
                }
            }
            for key in 0..self.keys {
                for (token, _) in self.holders(key) {
                    if !waiting.contains(&token) {
                        self.release(token, key);
                    }
                }
            }
            self.settle();
            if before == self.standing() {
                return !self.node.machine.registry.is_empty();
            }
        }
    }

    /// How many wait, and who holds what.
    fn standing(&self) -> (usize, Vec<Vec<(u8, Mode)>>) {
        let holders = (0..self.keys).map(|key| self.holders(key));
        (self.node.machine.registry.len(), holders.collect())
    }
}

impl World {
    fn is_mixed(&self, key: u8) -> bool {
        let waiters = self.waiters(key);
        let differ = |one: &Waiter<'_, Client>, other: &Waiter<'_, Client>| {
            number(one.token) == number(other.token) && one.mode != other.mode
        };
        let mut one = waiters.iter();
        one.any(|one| waiters.iter().any(|other| differ(one, other)))
    }

    fn waits_for_both_and_more(&self) -> bool {
        let lines = (0..self.keys).flat_map(|key| self.line(key));
        let waits: Vec<_> = lines.collect();
        waits.iter().any(|both| {
            let several = self.both_of(both.token, both.key);
            let is_another = |wait: &NaiveWait| {
                wait.token == both.token && self.both_of(wait.token, wait.key) != several
            };
            several.is_some() && waits.iter().any(is_another)
        })
    }

    fn has_permits(&self) -> bool {
        let is_permit = |mode: Mode| mode.limit().is_some();
        (0..self.keys).any(|key| {
            let mut held = self.holders(key).into_iter().map(|(_, mode)| mode);
            held.any(is_permit) || self.waiters(key).iter().any(|w| is_permit(w.mode))
        })
    }

    /// The keys of a token's place for two keys that stands in the queue of this one.
    fn both_of(&self, token: u8, key: u8) -> Option<Vec<(u8, Mode)>> {
        let (token, key) = ([name(token)], KeyRef::new(0, &[place(key).name]));
        let registry = &self.node.machine.registry;
        let several = registry.several_at(&key, Token::new(&token).unwrap())?;
        let keys = several.iter();
        let keys = keys.map(|one| (one.key_ref.name[0] - b'0', one.mode));
        Some(keys.collect())
    }

    fn is_absent(&self, wait: NaiveWait) -> bool {
        let waiters = self.waiters(wait.key);
        let mut own = waiters.iter().filter(|w| number(w.token) == wait.token);
        own.any(|waiter| waiter.listener.is_none())
    }
}

/// A permit excludes nobody by itself: the end of another hold serves as well.
fn excludes(held: Mode, asked: Mode) -> bool {
    match held {
        Mode::Exclusive => true,
        Mode::Shared => asked == Mode::Exclusive,
        Mode::Counted(_) => false,
    }
}

/// The length of a shortest cycle that a token's waits are part of.
fn shortest(edges: &BTreeSet<Edge>, token: u8) -> Option<usize> {
    let from = |start: &[Edge]| {
        let mut distances: BTreeMap<u8, usize> = start.iter().map(|edge| (edge.2, 1)).collect();
        loop {
            let next = edges.iter().filter_map(|(from, _, to)| {
                let distance = distances.get(from).filter(|_| *from != token)? + 1;
                let is_shorter = distances.get(to).is_none_or(|known| *known > distance);
                is_shorter.then_some((*to, distance))
            });
            let Some((to, distance)) = next.min_by_key(|(_, distance)| *distance) else {
                return distances;
            };
            distances.insert(to, distance);
        }
    };
    let of_token = |edge: &&Edge| edge.0 == token;
    let own: Vec<Edge> = edges.iter().filter(of_token).copied().collect();
    from(&own).get(&token).copied()
}
