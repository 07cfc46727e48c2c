//! The bounds of a search.

use std::hash::{BuildHasherDefault, DefaultHasher};

use super::*;
use crate::lock::{Ask, FenceClock, Refusal, Ttl, Waiting};
use crate::wait::{Keys, NewRequest};

/// A token may have any number of places. To walk over them takes time, too.
#[test]
fn a_holder_with_very_many_places_is_over_the_budget() {
    let now = Now::from_millis(1_000);
    let ttl = Ttl::from_millis(1_000).unwrap();
    let (holder, asker) = (
        Token::new(b"holder").unwrap(),
        Token::new(b"asker").unwrap(),
    );
    let ask = Ask {
        mode: Mode::Exclusive,
        token: holder,
        ttl,
    };
    let mut fences = FenceClock::default();
    let grant = Lock::acquire(None, ask, now, Waiting::default(), &mut fences).unwrap();
    let lock = grant.effect(holder).apply_to_absent();
    let mut registry: Registry<u64, BuildHasherDefault<DefaultHasher>> = Registry::default();
    let mut verdict_with = |places: usize| {
        while registry.len() < places {
            let key = KeyRef::new(0, &registry.len().to_le_bytes());
            let new = NewRequest {
                token: holder,
                mode: Mode::Exclusive,
                ttl,
                listener: None,
                times_out_at_us: None,
                keep_ms: Some(1_000),
                is_server_generated: false,
                linger: None,
                result: None,
                user: None,
                refusal: Refusal::Busy,
                now_us: 0,
            };
            registry.enter(&Keys::One(key), new);
        }
        let asked = Asked {
            key_ref: KeyRef::new(0, b"held"),
            mode: Mode::Exclusive,
            upgrades: false,
            by_channel: false,
        };
        let mut search = Search::new(asker, vec![asked]);
        let mut opened = 0;
        while search.next_key(&registry).is_some() {
            opened += 1;
            search.look_at(&registry, lock.as_ref().filter(|_| opened == 1), now);
        }
        (search.verdict(), opened)
    };
    assert_eq!(verdict_with(100), (Verdict::NoCycle, 101));
    assert_eq!(verdict_with(BUDGET + 1), (Verdict::OverBudget, 1));
}
