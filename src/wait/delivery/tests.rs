//! Tests of deliveries.

use super::*;
use crate::lock::{Deadline, Effect, Fate, Now, Since, Token};

fn key_ref(db: i32, name: &str) -> KeyRef {
    KeyRef::new(db, name.as_bytes())
}

fn fence(n: u64) -> Fence {
    Fence::new(n).unwrap()
}

fn granted(deliveries: &mut Deliveries, key: &str, token: &str, n: u64) -> Delivery {
    let delivery = deliveries.granted(&key_ref(0, key), &hold(n, 10), None);
    let token = Token::new(token.as_bytes()).unwrap().into();
    Delivery {
        token,
        fence: fence(n),
        delivery,
        kept: None,
    }
}

#[test]
fn a_lost_grant_is_taken_back_unless_its_owner_knows_of_it() {
    let mut all = Deliveries::default();
    let lost = granted(&mut all, "k", "a", 1);
    all.lost(lost);
    assert_eq!(all.take_revoked().len(), 1);
    // Two requests of one token: one is told.
    let [told, lost] = [1, 1].map(|n| granted(&mut all, "k", "a", n));
    all.lost(lost);
    all.delivered(&told);
    assert!(all.take_revoked().is_empty() && all.pending.is_empty());
    // The owner asks again.
    let lost = granted(&mut all, "k", "a", 2);
    all.acknowledge(0, b"k", fence(2));
    all.lost(lost);
    assert!(all.take_revoked().is_empty() && all.pending.is_empty());
}

#[test]
fn two_keys_with_one_fence_are_two_deliveries() {
    let mut all = Deliveries::default();
    let told = granted(&mut all, "k", "a", 1);
    let lost = granted(&mut all, "copy", "a", 1);
    all.delivered(&told);
    all.lost(lost);
    let revoked = all.take_revoked();
    assert_eq!(revoked.len(), 1);
    assert_eq!(revoked[0].key_ref, key_ref(0, "copy"));
    // Nor does a renewal of the one speak for the other.
    let lost = granted(&mut all, "copy", "a", 1);
    all.acknowledge(0, b"k", fence(1));
    all.lost(lost);
    assert_eq!(all.take_revoked().len(), 1);
}

#[test]
fn a_hold_that_has_moved_is_followed_or_looked_for() {
    let mut all = Deliveries::default();
    let lost = granted(&mut all, "k", "a", 1);
    all.swap_dbs(0, 3);
    all.lost(lost);
    let revoked = all.take_revoked().pop().unwrap();
    assert_eq!(
        (&revoked.key_ref, revoked.has_left),
        (&key_ref(3, "k"), false)
    );
    let lost = granted(&mut all, "k", "a", 1);
    all.left(0, b"other");
    all.left(0, b"k");
    all.lost(lost);
    let revoked = all.take_revoked().pop().unwrap();
    assert!(revoked.has_left);
    all.seek(revoked);
    all.found(fence(2), &key_ref(0, "new"));
    assert!(!all.has_revoked());
    all.found(fence(1), &key_ref(0, "new"));
    assert_eq!(all.take_revoked()[0].key_ref, key_ref(0, "new"));
    assert!(all.sought().is_empty());
}

#[test]
fn an_owner_that_knows_of_its_hold_keeps_it_wherever_it_was_granted() {
    let mut all = Deliveries::default();
    // The lock goes from key to key, and each grants the hold to a waiter of its token.
    let [first, second] = ["k", "l"].map(|key| {
        let grant = granted(&mut all, key, "a", 1);
        all.left(0, key.as_bytes());
        grant
    });
    let third = granted(&mut all, "m", "a", 1);
    all.lost(first);
    all.delivered(&third);
    all.lost(second);
    assert!(all.take_revoked().is_empty());
    // The same by a command.
    let before = granted(&mut all, "k", "a", 2);
    all.left(0, b"k");
    let now = granted(&mut all, "l", "a", 2);
    all.acknowledge(0, b"l", fence(2));
    all.lost(before);
    all.lost(now);
    assert!(all.take_revoked().is_empty() && all.pending.is_empty());
}

/// A lock with holds that end at 1,000 + these.
fn lock_of(mode: Mode, holds: &[(&str, u64)]) -> Lock {
    let mut lock: Option<Lock> = None;
    for (n, (token, ms)) in (1..).zip(holds) {
        let effect = Effect::Hold {
            now_ms: 1_000,
            mode,
            token: Token::new(token.as_bytes()).unwrap(),
            hold: hold(n, *ms),
        };
        match &mut lock {
            Some(lock) => assert_eq!(effect.apply_to(lock), Fate::Held),
            None => lock = effect.apply_to_absent(),
        }
    }
    lock.unwrap()
}

fn hold(n: u64, ms: u64) -> Hold {
    Hold {
        fence: fence(n),
        deadline: Deadline::from_millis(1_000 + ms).unwrap(),
        since: Since::at(1_000),
    }
}

#[test]
fn what_is_given_back_excludes_nobody_and_lasts_as_long_as_before() {
    let revoked = |mode, ms| Revoked {
        key_ref: key_ref(0, "k"),
        token: Token::new(b"a").unwrap().into(),
        fence: fence(1),
        before: Some((mode, hold(1, ms))),
        ends: hold(1, ms).deadline,
        has_left: false,
        delivery: DeliveryId(0),
        kept: None,
    };
    let undone = |revoked: &Revoked, mut lock: Lock, key_end: Option<Deadline>| {
        let (text, now) = (revoked.token.text(), Now::from_millis(1_000));
        let token = text.as_token();
        let effect = lock.give_back(token, revoked.before, key_end, now);
        assert_eq!(effect.apply_to(&mut lock), Fate::Held);
        lock
    };
    // The exclusive hold that became a share, beside which others have come in.
    let readers = lock_of(Mode::Shared, &[("a", 10), ("b", 10)]);
    let end = readers.latest_deadline();
    assert_eq!(
        undone(&revoked(Mode::Exclusive, 10), readers.clone(), end),
        readers
    );
    // The share that became exclusive for a shorter time.
    let writer = || lock_of(Mode::Exclusive, &[("a", 10)]);
    let reader = |ms| lock_of(Mode::Shared, &[("a", ms)]);
    let share = revoked(Mode::Shared, 50);
    let end = writer().latest_deadline();
    assert_eq!(undone(&share, writer(), end), reader(50));
    assert_eq!(undone(&share, writer(), None), reader(50));
    // The key was given an earlier end from outside.
    let end = Deadline::from_millis(1_005);
    assert_eq!(undone(&share, writer(), end), reader(5));
}

#[test]
fn all_holds_that_are_looked_for_are_found_in_one_lock() {
    let sought = [("a", 1), ("b", 2), ("b", 3)].map(|(token, n)| Revoked {
        key_ref: key_ref(0, "k"),
        token: Token::new(token.as_bytes()).unwrap().into(),
        fence: fence(n),
        before: None,
        ends: hold(n, 10).deadline,
        has_left: true,
        delivery: DeliveryId(0),
        kept: None,
    });
    let lock = lock_of(Mode::Shared, &[("a", 10), ("b", 10)]);
    let found: Vec<u64> = find_in(&lock, &sought).map(Fence::get).collect();
    assert_eq!(found, [1, 2]);
    // A lost conversion is not undone at another key that was granted together with its own.
    let before = Some((Mode::Shared, hold(1, 5)));
    let undone = |ends_ms| {
        let mut lost = sought[0].clone();
        (lost.before, lost.ends) = (before, hold(1, ends_ms).deadline);
        find_in(&lock, &[lost]).count()
    };
    assert_eq!([10, 11].map(undone), [1, 0]);
}

#[test]
fn holds_that_were_granted_together_are_lost_or_known_together() {
    let mut all = Deliveries::default();
    let keys = ["a", "b", "c"].map(|name| key_ref(0, name));
    let grant = |all: &mut Deliveries, n| Delivery {
        token: Token::new(b"me").unwrap().into(),
        fence: fence(n),
        delivery: all.granted_together(keys.iter(), &hold(n, 10), 1).unwrap(),
        kept: None,
    };
    assert!(all.granted_together(keys.iter(), &hold(9, 10), 0).is_none());
    let lost = grant(&mut all, 1);
    all.left(0, b"b");
    all.lost(lost);
    let revoked = all.take_revoked();
    let spots: Vec<_> = revoked.iter().map(|r| (&r.key_ref, r.has_left)).collect();
    assert_eq!(
        spots,
        [(&keys[0], false), (&keys[1], true), (&keys[2], false)]
    );
    // The owner renews one of them before the loss, or after it.
    let lost = grant(&mut all, 2);
    all.acknowledge(0, b"c", fence(2));
    all.lost(lost);
    assert!(!all.has_revoked());
    let lost = grant(&mut all, 3);
    all.lost(lost);
    all.acknowledge(0, b"b", fence(3));
    assert!(!all.has_revoked() && !all.is_waiting());
    // Another grant of one of the keys is another delivery, but its owner knows of all.
    let lost = grant(&mut all, 4);
    let told = granted(&mut all, "b", "me", 4);
    assert_ne!(told.delivery, lost.delivery);
    all.delivered(&told);
    all.lost(lost);
    assert!(!all.has_revoked() && all.pending.is_empty());
}
