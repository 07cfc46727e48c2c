//! The search against two oracles: all short histories, and long random ones.
//!
//! One oracle is a naive graph: all edges of all waits, made from flat lists, and a walk from the
//! token that asks. It says whether the wait would close a cycle, and how long a shortest one is.
//!
//! The other one knows no edges. It lets the wait happen and plays on: each token that waits for
//! nothing ends its holds, each absent one asks again, until nothing changes. Those who wait then
//! wait for ever. So a wait may be let in only if nobody does, and may be refused only if somebody
//! does.

mod both;
mod histories;
mod oracles;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasherDefault, DefaultHasher};

use super::*;
use crate::lock::{Ask, Effect, Fate, Fence, FenceClock, Refusal, Ttl};
use crate::wait::{Granted, Keys, Leaving, Listener, NewRequest, Step};
use both::Both;

#[derive(Clone, Copy, Debug)]
enum Op {
    /// A token asks for a key.
    Ask(u8, u8, Mode, How),
    /// A token asks for two keys at once.
    AskBoth(u8, Both, How),
    Release(u8, u8),
    /// The listeners of a token at a key go away.
    Leave(u8, u8),
    Delete(u8),
    /// The lock under the first key comes to the second one.
    Rename(u8, u8),
    /// The graces of all absent places end.
    EndGraces,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    NoWait,
    Block,
    /// With KEEP, without BLOCK.
    Keep,
    BlockKeep,
    /// By the token's channel, which always hears.
    Notify,
}

impl How {
    /// The same, but it waits.
    fn waiting(self) -> Self {
        match self {
            Self::Notify => Self::Notify,
            _ => Self::Block,
        }
    }
}

#[derive(Clone)]
struct World {
    locks: BTreeMap<u8, Lock>,
    registry: Registry<u64, BuildHasherDefault<DefaultHasher>>,
    last_fence: u64,
    last_client: u64,
    now_us: u64,
    /// How many waits were refused, by the length of the cycle.
    refused: BTreeMap<usize, u64>,
}

fn key_ref(key: u8) -> KeyRef {
    KeyRef::new(0, &[key])
}

fn bytes(token: u8) -> [u8; 1] {
    [token]
}

fn number(token: TokenText<'_>) -> u8 {
    token.as_bytes()[0]
}

fn asked(key: u8, mode: Mode, upgrades: bool, how: How) -> Asked {
    Asked {
        key_ref: key_ref(key),
        mode,
        upgrades,
        by_channel: how == How::Notify,
    }
}

const NOW: Now = Now::from_millis(1_000);

impl World {
    fn new() -> Self {
        Self {
            locks: BTreeMap::new(),
            registry: Registry::default(),
            last_fence: 1 << 50,
            last_client: 0,
            now_us: 0,
            refused: BTreeMap::new(),
        }
    }

    fn keys(&self) -> BTreeSet<u8> {
        let waited = self.registry.waited_keys();
        let waited = waited.iter().map(|key_ref| key_ref.name[0]);
        self.locks.keys().copied().chain(waited).collect()
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Ask(token, key, mode, how) => self.ask(token, key, mode, how),
            Op::AskBoth(token, both, how) => self.ask_both(token, both, how),
            Op::Release(token, key) => self.release(token, key),
            Op::Leave(token, key) => self.leave(token, key),
            Op::Delete(key) => {
                self.locks.remove(&key);
                self.registry.mark_replaced(0, &[key]);
            }
            Op::Rename(from, to) => {
                if let Some(lock) = self.locks.remove(&from).filter(|_| from != to) {
                    self.locks.insert(to, lock);
                    self.registry.mark_replaced(0, &[from]);
                    self.registry.mark_replaced(0, &[to]);
                }
            }
            Op::EndGraces => {
                self.now_us += 10_000_000;
                while self
                    .registry
                    .take_timed_out(Leaving::at(self.now_us))
                    .is_some()
                {}
            }
        }
        self.serve();
        assert!(self.registry.is_tight());
    }

    fn apply(&mut self, key: u8, effect: &Effect<'_>) {
        self.registry.lock_changed(0, &[key], effect);
        match self.locks.get_mut(&key) {
            None => drop(self.locks.insert(key, effect.apply_to_absent().unwrap())),
            Some(lock) => {
                if effect.apply_to(lock) == Fate::Free {
                    self.locks.remove(&key);
                }
            }
        }
    }

    fn fences(&self) -> FenceClock {
        let mut fences = FenceClock::new();
        fences.observe(Fence::new(self.last_fence).unwrap());
        fences
    }

    fn serve(&mut self) {
        loop {
            for key in self.keys() {
                self.serve_key(key);
            }
            if !self.grant_both() {
                return;
            }
        }
    }

    fn serve_key(&mut self, key: u8) {
        let at = key_ref(key);
        loop {
            let mut fences = self.fences();
            let lock = self.locks.get(&key);
            let step = self
                .registry
                .grant_next(&at, lock, NOW, |now| now, &mut fences);
            match step {
                None => return,
                Some(Step::Granted(granted)) => self.hand_over(key, granted),
                Some(Step::Refused(..) | Step::Unheard(_)) => {}
                Some(Step::Offered(offer)) => {
                    let granted = self.registry.heard(offer).unwrap();
                    self.hand_over(key, granted);
                }
            }
        }
    }

    fn hand_over(&mut self, key: u8, granted: Granted<u64>) {
        let grant = granted.grant;
        self.last_fence = self.last_fence.max(grant.hold.fence.get());
        self.apply(key, &grant.effect(granted.removed.token.text().as_token()));
        if let Some((_, grant)) = granted.into_delivery() {
            self.registry.deliveries.delivered(&grant);
        }
    }

    /// What the decision says. A request that is granted takes its hold.
    fn decide(&mut self, token: u8, key: u8, mode: Mode) -> Result<(), Refusal> {
        let (at, name) = (key_ref(key), bytes(token));
        let ask = Ask {
            mode,
            token: Token::new(&name).unwrap(),
            ttl: Ttl::from_millis(1 << 40).unwrap(),
        };
        let mut fences = self.fences();
        let lock = self.locks.get(&key);
        let asked = (ask.token, mode);
        let waiting = self.registry.ahead_of(&at, asked, lock, NOW);
        let grant = Lock::acquire(self.locks.get(&key), ask, NOW, waiting, &mut fences)?;
        self.last_fence = self.last_fence.max(grant.hold.fence.get());
        self.apply(key, &grant.effect(ask.token));
        self.registry.lock_granted(&at);
        self.registry.resume(&Keys::One(at), ask.token);
        Ok(())
    }

    fn enter(&mut self, token: u8, key: u8, mode: Mode, how: How, refusal: Refusal) {
        let name = bytes(token);
        let new = self.new_request(Token::new(&name).unwrap(), mode, how, refusal);
        self.registry.enter(&Keys::One(key_ref(key)), new);
    }

    fn new_request<'a>(
        &mut self,
        token: Token<'a>,
        mode: Mode,
        how: How,
        refusal: Refusal,
    ) -> NewRequest<'a, u64> {
        self.last_client += 1;
        NewRequest {
            token,
            mode,
            ttl: Ttl::from_millis(1 << 40).unwrap(),
            listener: match how {
                How::Block | How::BlockKeep => Some(Listener::Client(self.last_client)),
                How::Notify => Some(Listener::channel(token.as_bytes())),
                How::NoWait | How::Keep => None,
            },
            times_out_at_us: None,
            keep_ms: matches!(how, How::Keep | How::BlockKeep).then_some(5_000),
            is_server_generated: false,
            linger: None,
            user: None,
            refusal,
            now_us: self.now_us,
        }
    }

    fn ask(&mut self, token: u8, key: u8, mode: Mode, how: How) {
        let (at, name) = (key_ref(key), bytes(token));
        let name = Token::new(&name).unwrap();
        let keys = Keys::One(at.clone());
        if self.registry.waits_otherwise(&keys, name) {
            return; // The reply is PARTIAL.
        }
        let refusal = match self.decide(token, key, mode) {
            Ok(()) => return,
            Err(Refusal::Deadlock) => {
                self.registry.resume(&keys, name);
                return;
            }
            Err(refusal) => refusal,
        };
        if how != How::NoWait {
            let upgrades = refusal == Refusal::BusyUpgrade;
            let asked = asked(key, mode, upgrades, how);
            let cycle = self.search(name, vec![asked]);
            let mut waited = self.clone();
            waited.enter(token, key, mode, how.waiting(), refusal);
            let say = format!("{token} asks {key} {mode:?} {how:?} {refusal:?}");
            self.compare(waited, (token, &[key]), cycle.as_deref(), &say);
            if let Some(cycle) = cycle {
                let lock = self.locks.get(&key);
                let is_needed = may_close(&self.registry, (0, &at.name), name, upgrades, lock, NOW);
                assert_eq!(is_needed, Some(true));
                *self.refused.entry(cycle.len()).or_default() += 1;
                self.registry.resume(&keys, name);
                return;
            }
        }
        self.enter(token, key, mode, how, refusal);
    }

    /// As the shell searches.
    fn search(&self, token: Token<'_>, asked: Vec<Asked>) -> Option<Vec<CycleWait>> {
        let mut search = Search::new(token, asked);
        while let Some(key_ref) = search.next_key(&self.registry) {
            let lock = self.locks.get(&key_ref.name[0]);
            search.look_at(&self.registry, lock, NOW);
        }
        match search.verdict() {
            Verdict::NoCycle => None,
            Verdict::Cycle(cycle) => Some(cycle),
            Verdict::OverBudget => panic!("the budget is used up"),
        }
    }

    fn release(&mut self, token: u8, key: u8) {
        let name = bytes(token);
        let name = Token::new(&name).unwrap();
        let held = self
            .locks
            .get(&key)
            .and_then(|lock| lock.release(name, NOW));
        match held {
            Some((effect, _)) => self.apply(key, &effect),
            None => drop(self.registry.give_up(&key_ref(key), name)),
        }
    }

    fn leave(&mut self, token: u8, key: u8) {
        let waiters = self.registry.waiters(0, &[key]);
        let own = waiters.filter(|waiter| number(waiter.token) == token);
        let clients = own.filter_map(|waiter| match waiter.listener {
            Some(Listener::Client(client)) => Some(*client),
            _ => None,
        });
        let clients: Vec<u64> = clients.collect();
        for client in clients {
            self.registry
                .remove_listener(client, Leaving::at(self.now_us));
        }
    }
}
