//! Short histories enumerated, and long ones at random, against a list.

// Long because: the acts, the list and the histories belong together.

use std::mem::take;

use super::*;
use crate::lock::{Deadline, Effect, FenceClock, Mode, Ttl, Waiting};
use crate::wait::Keys;

const NAMES: [&[u8]; 2] = [b"a", b"b"];

fn fence(n: u64) -> Fence {
    Fence::new(n).unwrap()
}

fn client(n: u64) -> NonZeroU64 {
    NonZeroU64::new(n).unwrap()
}

fn token() -> Token<'static> {
    Token::new(b"me").unwrap()
}

#[derive(Clone, Copy, Debug)]
enum Act {
    /// The hold with this fence, in this database and under this name, is bound to this connection.
    Bind(u64, i32, usize, u64),
    /// The same by a grant of which its owner has not heard yet.
    BindUnsure(u64, i32, usize, u64),
    /// It ends, or leaves.
    Forget(u64, i32, usize),
    Lose(u64),
    /// The key is opened by a command.
    Open(i32, usize),
    /// The timer looks at one key.
    Tick,
    /// The client of a grant with this fence was gone, or told, at this connection.
    Unheard(u64, i32, usize),
    Heard(u64, i32, usize, u64),
    Swap,
    Empty(Option<i32>),
    Demote,
}

const ACTS: [Act; 19] = [
    Act::Bind(1, 0, 0, 1),
    Act::Bind(1, 0, 0, 2),
    Act::Bind(2, 0, 0, 1),
    Act::Bind(1, 1, 0, 1),
    Act::Bind(2, 0, 1, 2),
    Act::Forget(1, 0, 0),
    Act::Forget(1, 1, 0),
    Act::Forget(2, 0, 1),
    Act::Lose(1),
    Act::Lose(2),
    Act::Open(0, 0),
    Act::Tick,
    Act::BindUnsure(1, 0, 0, 2),
    Act::Unheard(1, 0, 0),
    Act::Unheard(2, 1, 1),
    Act::Heard(1, 0, 0, 2),
    Act::Swap,
    Act::Empty(Some(0)),
    Act::Demote,
];

/// The same as a list.
#[derive(Clone, Debug, Default)]
struct Oracle {
    /// The last one says whether the owner knows.
    bound: Vec<(u64, i32, usize, u64, bool)>,
    /// The last one says whether nobody has heard of the hold.
    lost: Vec<(u64, i32, usize, bool)>,
    carried_out: Vec<(u64, i32, usize)>,
}

impl Oracle {
    fn forget(&mut self, is: impl Fn(u64, i32, usize) -> bool) {
        self.bound.retain(|&(f, db, name, ..)| !is(f, db, name));
        self.lost.retain(|&(f, db, name, _)| !is(f, db, name));
    }

    fn open(&mut self, db: i32, name: usize) {
        let here = |lost: &(u64, i32, usize, bool)| (lost.1, lost.2) == (db, name);
        let (found, lost): (Vec<_>, _) = take(&mut self.lost).into_iter().partition(here);
        self.lost = lost;
        let found = found.into_iter().map(|(f, db, name, _)| (f, db, name));
        self.carried_out.extend(found);
    }

    fn act(&mut self, act: Act, looked_at: Option<(i32, usize)>) {
        let swapped = |db: i32| 1 - db;
        match act {
            Act::Bind(f, db, name, client) | Act::BindUnsure(f, db, name, client) => {
                self.forget(|g, d, n| (g, d, n) == (f, db, name));
                let is_sure = matches!(act, Act::Bind(..));
                self.bound.push((f, db, name, client, is_sure));
            }
            Act::Forget(f, db, name) => self.forget(|g, d, n| (g, d, n) == (f, db, name)),
            Act::Lose(client) => {
                let bound = take(&mut self.bound).into_iter();
                let (gone, bound): (Vec<_>, _) = bound.partition(|bound| bound.3 == client);
                self.bound = bound;
                let sure = gone.into_iter().filter(|bound| bound.4);
                self.lost
                    .extend(sure.map(|(f, db, name, ..)| (f, db, name, false)));
            }
            Act::Unheard(f, db, name) => self.lost.push((f, db, name, true)),
            Act::Heard(f, db, name, client) => {
                self.lost.retain(|lost| *lost != (f, db, name, true));
                let all = self.bound.iter_mut();
                all.filter(|bound| (bound.0, bound.1, bound.2, bound.3) == (f, db, name, client))
                    .for_each(|bound| bound.4 = true);
            }
            Act::Open(db, name) => self.open(db, name),
            Act::Tick => looked_at
                .into_iter()
                .for_each(|(db, name)| self.open(db, name)),
            Act::Swap => {
                self.bound
                    .iter_mut()
                    .for_each(|bound| bound.1 = swapped(bound.1));
                self.lost
                    .iter_mut()
                    .for_each(|lost| lost.1 = swapped(lost.1));
            }
            Act::Empty(db) => self.forget(|_, d, _| db.is_none_or(|db| db == d)),
            Act::Demote => self.forget(|_, _, _| true),
        }
    }
}

#[derive(Clone, Default)]
struct World {
    bindings: Bindings,
    oracle: Oracle,
    carried_out: Vec<(u64, i32, usize)>,
}

fn delivery(f: u64, key: KeyRef, bound_to: Option<NonZeroU64>) -> Delivery {
    Delivery {
        token: token().into(),
        fence: fence(f),
        keys: Keys::One(key),
        is_new: true,
        keep_ms: 0,
        bound_to,
    }
}

fn place_of(key: &KeyRef) -> (i32, usize) {
    let name = NAMES.iter().position(|name| **name == *key.name);
    (key.db, name.unwrap())
}

impl World {
    fn open(&mut self, key: &KeyRef) {
        let (db, name) = place_of(key);
        let losses = self.bindings.take_lost(key).into_iter();
        self.carried_out
            .extend(losses.map(|lost| (lost.fence.get(), db, name)));
    }

    fn act(&mut self, act: Act) {
        let key = |db, name: usize| KeyRef::new(db, NAMES[name]);
        let mut looked_at = None;
        match act {
            Act::Bind(f, db, name, c) | Act::BindUnsure(f, db, name, c) => {
                let linger = Linger {
                    client: client(c),
                    ms: 0,
                };
                let is_sure = matches!(act, Act::Bind(..));
                self.bindings
                    .bind(key(db, name), token(), fence(f), linger, is_sure);
            }
            Act::Forget(f, db, name) => self.bindings.forget(db, NAMES[name], fence(f)),
            Act::Lose(c) => self.bindings.lose(client(c), Now::from_millis(1)),
            Act::Open(db, name) => self.open(&key(db, name)),
            Act::Tick => {
                for key in self.bindings.next_untold(1) {
                    looked_at = Some(place_of(&key));
                    self.open(&key);
                }
            }
            Act::Unheard(f, db, name) => {
                self.bindings.unheard(&delivery(f, key(db, name), None));
            }
            Act::Heard(f, db, name, c) => {
                let delivery = delivery(f, key(db, name), Some(client(c)));
                self.bindings.heard(&delivery);
            }
            Act::Swap => self.bindings.swap_dbs(0, 1),
            Act::Empty(db) => self.bindings.empty_db(db),
            Act::Demote => self.bindings.clear(),
        }
        self.oracle.act(act, looked_at);
        self.check();
    }

    fn check(&mut self) {
        let Bindings {
            bound,
            by_client,
            lost,
            untold,
            ..
        } = &self.bindings;
        let is = bound.iter().map(|((fence, _), bound)| {
            let (db, name) = place_of(&bound.key_ref);
            let client = bound.linger.client.get();
            (fence.get(), db, name, client, bound.is_sure)
        });
        assert_eq!(sorted(is), sorted(self.oracle.bound.iter().copied()));
        let is = lost.iter().flat_map(|(key, losses)| {
            let (db, name) = place_of(key);
            losses.iter().map(move |lost| {
                let is_unheard = matches!(lost.end, LostEnd::Unheard(_));
                (lost.fence.get(), db, name, is_unheard)
            })
        });
        assert_eq!(sorted(is), sorted(self.oracle.lost.iter().copied()));
        let is = sorted(self.carried_out.drain(..));
        assert_eq!(is, sorted(self.oracle.carried_out.drain(..)));
        // The tables are tight.
        assert_eq!(by_client.len(), bound.len());
        for ((fence, number), bound) in bound {
            assert!(by_client.contains(&(bound.linger.client, *fence, *number)));
        }
        assert!(lost.values().all(|losses| !losses.is_empty()));
        // No loss is overlooked by the timer: it takes a key that it was told of at once.
        assert!(lost.keys().eq(untold));
        assert_eq!(
            self.bindings.is_empty(),
            self.oracle.bound.is_empty() && self.oracle.lost.is_empty()
        );
        for c in [1, 2] {
            let has = self.oracle.bound.iter().any(|bound| bound.3 == c);
            assert_eq!(self.bindings.has_client(client(c)), has);
        }
    }
}

fn sorted<T: Ord>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut all: Vec<T> = all.collect();
    all.sort_unstable();
    all
}

fn all_histories(world: &World, depth: usize) -> usize {
    if depth == 0 {
        return 1;
    }
    let histories = ACTS.iter().map(|act| {
        let mut world = world.clone();
        world.act(*act);
        all_histories(&world, depth - 1)
    });
    histories.sum()
}

#[test]
fn all_short_histories() {
    assert_eq!(all_histories(&World::default(), 4), ACTS.len().pow(4));
}

#[test]
fn long_histories_at_random() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % u64::try_from(below).unwrap()).unwrap()
    };
    let mut world = World::default();
    for _ in 0..50_000 {
        let act = match random(4) {
            0 => {
                let (f, c) = (random(6), random(2));
                let db = i32::try_from(random(2)).unwrap();
                Act::Bind(f as u64 + 1, db, random(2), c as u64 + 1)
            }
            _ => ACTS[random(ACTS.len())],
        };
        world.act(act);
    }
}

fn lock_at(now: Now, ttl_ms: u64) -> (Lock, Fence) {
    let ask = crate::lock::Ask {
        mode: Mode::Exclusive,
        token: token(),
        ttl: Ttl::from_millis(ttl_ms).unwrap(),
    };
    let mut fences = FenceClock::default();
    let grant = Lock::acquire(None, ask, now, Waiting::default(), &mut fences).unwrap();
    let lock = grant.effect(token()).apply_to_absent().unwrap();
    (lock, grant.hold.fence)
}

#[test]
fn a_deadline_comes_forward_and_never_moves_back() {
    let at = Now::from_millis;
    let (lock, fence) = lock_at(at(1_000), 300);
    let deadline = |ms| Deadline::from_millis(ms);
    let lost = |ends_at_ms| Lost {
        token: TokenBuf::from(token()),
        fence,
        end: LostEnd::At(ends_at_ms),
    };
    let ends_at = |lost: &Lost, key, now| {
        let (effect, ended) = lost.end(&lock, key, at(now))?;
        match effect {
            Effect::Hold { hold, .. } => {
                assert_eq!(ended, None);
                Some(Ok(hold.deadline))
            }
            Effect::Release { .. } => Some(Err(ended.unwrap().fence)),
            Effect::Cap { .. } => unreachable!(),
        }
    };
    assert_eq!(
        ends_at(&lost(1_200), None, 1_100),
        Some(Ok(deadline(1_200).unwrap()))
    );
    assert_eq!(
        ends_at(&lost(1_200), deadline(1_150), 1_100),
        Some(Ok(deadline(1_150).unwrap()))
    );
    // The last millisecond still counts.
    assert_eq!(
        ends_at(&lost(1_100), None, 1_100),
        Some(Ok(deadline(1_100).unwrap()))
    );
    assert_eq!(ends_at(&lost(1_099), None, 1_100), Some(Err(fence)));
    assert_eq!(ends_at(&lost(0), None, 1_100), Some(Err(fence)));
    // Not later than it was.
    assert_eq!(ends_at(&lost(1_300), None, 1_100), None);
    assert_eq!(ends_at(&lost(u64::MAX), None, 1_100), None);
    // Nobody has heard of it: at once, or after the grace, which begins now.
    let unheard = |keep_ms| Lost {
        end: LostEnd::Unheard(keep_ms),
        ..lost(0)
    };
    assert_eq!(ends_at(&unheard(0), None, 1_100), Some(Err(fence)));
    let until = deadline(1_170).unwrap();
    assert_eq!(ends_at(&unheard(70), None, 1_100), Some(Ok(until)));
    assert_eq!(ends_at(&unheard(200), None, 1_100), None);
    // It is over already, or another hold.
    assert_eq!(ends_at(&lost(0), None, 1_301), None);
    let other = Lost {
        fence: Fence::new(fence.get() + 1).unwrap(),
        ..lost(0)
    };
    assert_eq!(ends_at(&other, None, 1_100), None);
}

#[test]
fn a_million_acquires_of_one_hold_keep_one_entry() {
    let mut bindings = Bindings::default();
    for n in 0..1_000_000 {
        let linger = Linger {
            client: client(n % 7 + 1),
            ms: 5,
        };
        bindings.bind(KeyRef::new(0, b"k"), token(), fence(9), linger, true);
    }
    assert_eq!((bindings.len(), bindings.by_client.len()), (1, 1));
    let last = 999_999 % 7;
    bindings.lose(client(last + 1), Now::from_millis(10));
    let losses = bindings.take_lost(&KeyRef::new(0, b"k"));
    assert_eq!(losses.len(), 1);
    assert_eq!(losses[0].end, LostEnd::At(15));
    assert!(bindings.is_empty());
}

/// The table is walked, not the holds of a lock that has more.
#[test]
fn a_large_lock_that_leaves_its_key_takes_its_bindings_and_losses() {
    let (mut fences, mut lock, mut all) = (FenceClock::default(), None, Vec::new());
    for name in ["a", "b", "c", "d", "e"] {
        let (mode, token) = (Mode::Shared, Token::new(name.as_bytes()).unwrap());
        let ttl = Ttl::from_millis(1_000).unwrap();
        let ask = crate::lock::Ask { mode, token, ttl };
        let now = Now::from_millis(1);
        let grant = Lock::acquire(lock.as_ref(), ask, now, Waiting::default(), &mut fences);
        let grant = grant.unwrap();
        match &mut lock {
            None => lock = grant.effect(token).apply_to_absent(),
            Some(lock) => drop(grant.effect(token).apply_to(lock)),
        }
        all.push((token, grant.hold.fence));
    }
    let mut bindings = Bindings::default();
    let key = |name: &[u8]| KeyRef::new(0, name);
    for ((token, fence), connection) in all.into_iter().zip([1, 2]) {
        let linger = Linger {
            client: client(connection),
            ms: 5,
        };
        bindings.bind(key(b"k"), token, fence, linger, true);
        bindings.bind(key(b"other"), token, fence, linger, true);
    }
    bindings.lose(client(2), Now::from_millis(10));
    let lock = lock.unwrap();
    bindings.lock_left(0, b"k", &lock);
    assert!(bindings.take_lost(&key(b"k")).is_empty());
    assert_eq!(bindings.take_lost(&key(b"other")).len(), 1);
    assert_eq!(bindings.len(), 1);
    bindings.lock_left(0, b"other", &lock);
    assert!(bindings.is_empty());
}
