//! What waits is bounded.

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::rc::Rc;

use super::*;
use crate::lock::{Mode, Refusal, Ttl};
use crate::rules::keys::{Several, Wanted};
use crate::wait::{At, Entered, Listener, NewRequest, Rest};

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

fn listener(by: By<'_>, client: u64) -> Option<Listener<u64>> {
    match by {
        By::Client => Some(Listener::Client(client)),
        By::Channel(name) => Some(Listener::channel(name)),
        By::Nobody => None,
    }
}

/// Has a request of a user come, which says KEEP, if there is room for it.
fn come(
    world: &mut World,
    names: &[&str],
    token: &str,
    by: By<'_>,
    user: Option<&[u8]>,
    limits: &Limits,
) -> Result<Entered, Full> {
    let keys = keys(names);
    let token = Token::new(token.as_bytes()).unwrap();
    let comer = Comer {
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
    assert!(come("k", "a", By::Client).is_ok());
    assert!(come("k", "a", By::Client).is_ok());
    assert!(come("k", "a", By::Channel(b"c")).is_ok());
    assert!(come("k", "b", By::Nobody).is_ok());
    for (token, by) in [("a", By::Client), ("d", By::Client), ("d", By::Nobody)] {
        assert_eq!(come("k", token, by), Err(Full::Key));
    }
    // One that replaces another, and one that goes on.
    assert_eq!(
        come("k", "a", By::Channel(b"d")),
        Ok(Entered::Waits(At::Joined))
    );
    assert_eq!(come("k", "a", By::Nobody), Ok(Entered::No));
    assert_eq!(come("k", "b", By::Nobody), Ok(Entered::Kept(At::Absent)));
    assert_eq!(come("k", "b", By::Client), Ok(Entered::Waits(At::Absent)));
    assert_eq!(come("k", "b", By::Client), Err(Full::Key));
    assert!(come("l", "a", By::Client).is_ok());
    assert!(come("l", "b", By::Client).is_ok());
    assert_eq!(come("m", "a", By::Client), Err(Full::Server));
}

#[test]
fn a_place_for_several_keys_counts_in_each_queue_and_once_in_all() {
    let mut world = World::default();
    let mut come = |keys: &[&str], token, by| come(&mut world, keys, token, by, None, &LIMITS);
    assert!(come(&["k", "l"], "a", By::Client).is_ok());
    assert!(come(&["k", "l"], "a", By::Client).is_ok());
    assert!(come(&["k", "m"], "b", By::Nobody).is_ok());
    assert!(come(&["k", "n"], "d", By::Nobody).is_ok());
    assert_eq!(come(&["m", "k"], "e", By::Client), Err(Full::Key));
    assert_eq!(come(&["l", "k"], "a", By::Client), Err(Full::Key));
    assert!(come(&["l", "m"], "e", By::Client).is_ok());
    assert!(come(&["o"], "f", By::Client).is_ok());
    assert_eq!(come(&["o"], "g", By::Client), Err(Full::Server));
}

#[test]
fn places_beyond_the_bound_of_absent_ones_end() {
    let mut world = World::default();
    for token in ["a", "b"] {
        assert!(come(&mut world, &["k"], token, By::Client, None, &LIMITS).is_ok());
        assert!(come(&mut world, &["k", "l"], "m", By::Nobody, None, &LIMITS).is_ok());
    }
    let leaving = Leaving {
        now_us: 5,
        absent_per_key: 2,
    };
    // The second absent place stays, the third ends.
    let rests = [1, 2].map(|client| {
        let removed = world.remove_listener(client, leaving).unwrap();
        assert!(world.is_tight());
        removed.rest
    });
    assert_eq!(rests, [Rest::Absent, Rest::Ended]);
    let absent = come(&mut world, &["k"], "d", By::Nobody, None, &LIMITS);
    assert_eq!(absent, Err(Full::Absent));
    let absent = come(&mut world, &["l", "k"], "d", By::Nobody, None, &LIMITS);
    assert_eq!(absent, Err(Full::Absent));
    // A client has room there, and elsewhere is room for a place.
    assert!(come(&mut world, &["k"], "d", By::Client, None, &LIMITS).is_ok());
    assert!(come(&mut world, &["l"], "d", By::Nobody, None, &LIMITS).is_ok());
}

#[test]
fn a_user_has_its_share_and_no_more() {
    let mut world = World::default();
    let leaving = Leaving::at(5);
    let user = Some(USER);
    assert!(come(&mut world, &["k"], "a", By::Client, user, &LIMITS).is_ok());
    assert!(come(&mut world, &["l"], "a", By::Nobody, user, &LIMITS).is_ok());
    assert!(come(&mut world, &["m"], "a", By::Channel(b"c"), user, &LIMITS).is_ok());
    let more = |world: &mut World, user| come(world, &["n"], "a", By::Client, user, &LIMITS);
    assert_eq!(more(&mut world, user), Err(Full::User));
    // Its absent place counts as before.
    assert!(world.remove_listener(1, leaving).is_some());
    assert_eq!(more(&mut world, user), Err(Full::User));
    // Another user takes that place over.
    let other = come(&mut world, &["k"], "a", By::Client, Some(b"other"), &LIMITS);
    assert_eq!(other, Ok(Entered::Waits(At::Absent)));
    assert!(more(&mut world, user).is_ok());
    assert_eq!(world.book.load.users.waiting(USER), 3);
    assert!(come(&mut world, &["o"], "a", By::Client, None, &LIMITS).is_ok());
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
    assert_eq!(come(&keys, By::Nobody), Err(Full::Bytes));
    assert!(come(&keys[..1], By::Nobody).is_ok());
    // The place goes on, but not with a long name.
    assert_eq!(
        come(&keys[..1], By::Channel(long.as_bytes())),
        Err(Full::Bytes)
    );
    assert!(come(&keys[..1], By::Channel(b"short")).is_ok());
    assert_eq!(come(&keys[1..], By::Client), Err(Full::Bytes));
}
