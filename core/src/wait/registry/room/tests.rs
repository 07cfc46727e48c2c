//! What waits is bounded.

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::rc::Rc;

use super::*;
use crate::lock::{Mode, Refusal, Ttl};
use crate::rules::keys::{Several, Wanted};
use crate::wait::Leaving;
use crate::wait::{Entered, Listener, NewRequest, PlaceBefore};

type World = Registry<u64, BuildHasherDefault<DefaultHasher>>;

const LIMITS: Limits = Limits {
    per_key: 4,
    per_server: 6,
    absent_per_key: 2,
    per_user: 3,
    bytes: 1 << 20,
};

const USER: &[u8] = b"user";

fn keys(names: &[&str]) -> Keys {
    let wanted = names.iter().map(|name| Wanted {
        key_ref: KeyRef::new(0, name.as_bytes()),
        mode: Mode::Exclusive,
    });
    let wanted: Vec<_> = wanted.collect();
    match &wanted[..] {
        [one] => Keys::One(one.key_ref.clone()),
        _ => Keys::Several(Rc::new(Several::new(wanted.into_iter()).unwrap())),
    }
}

fn listener(by: ListensBy<'_>, client: u64) -> Option<Listener<u64>> {
    match by {
        ListensBy::Client => Some(Listener::Client(client)),
        ListensBy::Channel(name) => Some(Listener::channel(name)),
        ListensBy::Nobody => None,
    }
}

/// Has a request of a user come, which says KEEP, if there is room for it.
fn come(
    world: &mut World,
    names: &[&str],
    token: &str,
    by: ListensBy<'_>,
    user: Option<&[u8]>,
    limits: &Limits,
) -> Result<Entered, LimitMet> {
    let keys = keys(names);
    let token = Token::new(token.as_bytes()).unwrap();
    let comer = Newcomer {
        token,
        keys: &keys,
        by,
        result: None,
        user,
        refusal: Refusal::Busy,
    };
    let bytes = world.bytes();
    world.admit(&comer, limits)?;
    let new = NewRequest {
        token,
        mode: Mode::Exclusive,
        ttl: Ttl::from_millis(1_000).unwrap(),
        listener: listener(by, world.book.listeners.last_seq + 1),
        times_out_at_us: None,
        keep_ms: Some(1_000),
        is_server_generated: false,
        linger: None,
        result: None,
        user,
        refusal: Refusal::Busy,
        now_us: 0,
    };
    let (entered, _) = world.enter(&keys, new);
    assert!(world.is_tight());
    assert!(world.bytes() <= bytes.max(limits.bytes));
    Ok(entered)
}

#[test]
fn every_request_counts_and_so_does_every_absent_place() {
    let mut world = World::default();
    let mut come = |key, token, by| come(&mut world, &[key], token, by, None, &LIMITS);
    assert!(come("k", "a", ListensBy::Client).is_ok());
    assert!(come("k", "a", ListensBy::Client).is_ok());
    assert!(come("k", "a", ListensBy::Channel(b"c")).is_ok());
    assert!(come("k", "b", ListensBy::Nobody).is_ok());
    for (token, by) in [
        ("a", ListensBy::Client),
        ("d", ListensBy::Client),
        ("d", ListensBy::Nobody),
    ] {
        assert_eq!(come("k", token, by), Err(LimitMet::Key));
    }
    // One that replaces another, and one that goes on.
    assert_eq!(
        come("k", "a", ListensBy::Channel(b"d")),
        Ok(Entered::Waits(PlaceBefore::Joined))
    );
    assert_eq!(come("k", "a", ListensBy::Nobody), Ok(Entered::No));
    assert_eq!(
        come("k", "b", ListensBy::Nobody),
        Ok(Entered::Kept(PlaceBefore::Absent))
    );
    assert_eq!(
        come("k", "b", ListensBy::Client),
        Ok(Entered::Waits(PlaceBefore::Absent))
    );
    assert_eq!(come("k", "b", ListensBy::Client), Err(LimitMet::Key));
    assert!(come("l", "a", ListensBy::Client).is_ok());
    assert!(come("l", "b", ListensBy::Client).is_ok());
    assert_eq!(come("m", "a", ListensBy::Client), Err(LimitMet::Server));
}

#[test]
fn a_place_for_several_keys_counts_in_each_queue_and_once_in_all() {
    let mut world = World::default();
    let mut come = |keys: &[&str], token, by| come(&mut world, keys, token, by, None, &LIMITS);
    assert!(come(&["k", "l"], "a", ListensBy::Client).is_ok());
    assert!(come(&["k", "l"], "a", ListensBy::Client).is_ok());
    assert!(come(&["k", "m"], "b", ListensBy::Nobody).is_ok());
    assert!(come(&["k", "n"], "d", ListensBy::Nobody).is_ok());
    assert_eq!(
        come(&["m", "k"], "e", ListensBy::Client),
        Err(LimitMet::Key)
    );
    assert_eq!(
        come(&["l", "k"], "a", ListensBy::Client),
        Err(LimitMet::Key)
    );
    assert!(come(&["l", "m"], "e", ListensBy::Client).is_ok());
    assert!(come(&["o"], "f", ListensBy::Client).is_ok());
    assert_eq!(come(&["o"], "g", ListensBy::Client), Err(LimitMet::Server));
}

#[test]
fn places_beyond_the_bound_of_absent_ones_end() {
    let mut world = World::default();
    for token in ["a", "b"] {
        assert!(come(&mut world, &["k"], token, ListensBy::Client, None, &LIMITS).is_ok());
        assert!(come(
            &mut world,
            &["k", "l"],
            "m",
            ListensBy::Nobody,
            None,
            &LIMITS
        )
        .is_ok());
    }
    let leaving = Leaving {
        now_us: 5,
        absent_per_key: 2,
    };
    // The second absent place stays, the third ends.
    let rests = [1, 2].map(|client| {
        let removed = world.remove_listener(client, leaving).unwrap();
        assert!(world.is_tight());
        removed.is_last
    });
    assert_eq!(rests, [false, true]);
    let absent = come(&mut world, &["k"], "d", ListensBy::Nobody, None, &LIMITS);
    assert_eq!(absent, Err(LimitMet::Absent));
    let absent = come(
        &mut world,
        &["l", "k"],
        "d",
        ListensBy::Nobody,
        None,
        &LIMITS,
    );
    assert_eq!(absent, Err(LimitMet::Absent));
    // A client has room there, and elsewhere is room for a place.
    assert!(come(&mut world, &["k"], "d", ListensBy::Client, None, &LIMITS).is_ok());
    assert!(come(&mut world, &["l"], "d", ListensBy::Nobody, None, &LIMITS).is_ok());
}

#[test]
fn a_user_has_its_share_and_no_more() {
    let mut world = World::default();
    let leaving = Leaving::at(5);
    let user = Some(USER);
    assert!(come(&mut world, &["k"], "a", ListensBy::Client, user, &LIMITS).is_ok());
    assert!(come(&mut world, &["l"], "a", ListensBy::Nobody, user, &LIMITS).is_ok());
    assert!(come(
        &mut world,
        &["m"],
        "a",
        ListensBy::Channel(b"c"),
        user,
        &LIMITS
    )
    .is_ok());
    let more = |world: &mut World, user| come(world, &["n"], "a", ListensBy::Client, user, &LIMITS);
    assert_eq!(more(&mut world, user), Err(LimitMet::User));
    // Its absent place counts as before.
    assert!(world.remove_listener(1, leaving).is_some());
    assert_eq!(more(&mut world, user), Err(LimitMet::User));
    // Another user takes that place over.
    let other = come(
        &mut world,
        &["k"],
        "a",
        ListensBy::Client,
        Some(b"other"),
        &LIMITS,
    );
    assert_eq!(other, Ok(Entered::Waits(PlaceBefore::Absent)));
    assert!(more(&mut world, user).is_ok());
    assert_eq!(world.book.load.users.waiting(USER), 3);
    assert!(come(&mut world, &["o"], "a", ListensBy::Client, None, &LIMITS).is_ok());
    for key in ["k", "l", "m", "n", "o"] {
        world.dismiss(&KeyRef::new(0, key.as_bytes()), 9);
        assert!(world.is_tight());
    }
    assert!(world.book.load.users.all().is_empty());
    assert_eq!(world.bytes(), 0);
}

#[test]
fn bytes_are_bounded_whatever_is_long() {
    let long = "x".repeat(2_000);
    let keys = ["a", "b"].map(|key| key.to_string() + &long);
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let limits = Limits {
        bytes: 3_000,
        ..LIMITS
    };
    let mut world = World::default();
    let mut come = |keys: &[&str], by| come(&mut world, keys, "t", by, None, &limits);
    assert_eq!(come(&keys, ListensBy::Nobody), Err(LimitMet::Bytes));
    assert!(come(&keys[..1], ListensBy::Nobody).is_ok());
    // The place goes on, but not with a long name.
    assert_eq!(
        come(&keys[..1], ListensBy::Channel(long.as_bytes())),
        Err(LimitMet::Bytes)
    );
    assert!(come(&keys[..1], ListensBy::Channel(b"short")).is_ok());
    assert_eq!(come(&keys[1..], ListensBy::Client), Err(LimitMet::Bytes));
}
