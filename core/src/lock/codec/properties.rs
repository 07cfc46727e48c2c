//! Values that come back, and bytes that may be anything.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::lock::{Deadline, Limit, Since};

fn token() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 1..=Token::MAX_LEN)
}

fn hold() -> impl Strategy<Value = Hold> {
    let times = 0..=Deadline::MAX_MS;
    let values = (1..=Fence::MAX, times.clone(), times, any::<bool>());
    values.prop_map(|(fence, deadline, since_ms, lingers)| Hold {
        fence: Fence::new(fence).unwrap(),
        deadline: Deadline::from_millis(deadline).unwrap(),
        since: Since::at(since_ms).marked(lingers),
    })
}

fn mode() -> impl Strategy<Value = Mode> {
    let limit = (2..=Limit::MAX).prop_map(|n| Mode::of_limit(n).unwrap());
    prop_oneof![Just(Mode::Exclusive), Just(Mode::Shared), limit]
}

/// A lock as it can stand: one holder of any mode, or several that tolerate each other.
fn lock() -> impl Strategy<Value = Lock> {
    let alone = (mode(), token(), hold());
    let alone =
        alone.prop_map(|(mode, name, hold)| Lock::new(mode, Token::new(&name).unwrap(), hold));
    let limit = prop_oneof![
        Just(Mode::Shared),
        (9..20_u32).prop_map(|n| Mode::of_limit(n).unwrap())
    ];
    let several =
        btree_map(token(), (limit, hold()), 2..9).prop_filter_map("one fence for each", |holds| {
            let mut fences: Vec<_> = holds.values().map(|(_, hold)| hold.fence).collect();
            fences.sort_unstable();
            let is_distinct = fences.windows(2).all(|two| two[0] != two[1]);
            let mut lock: Option<Lock> = None;
            for (name, (mode, hold)) in &holds {
                let token = Token::new(name).unwrap();
                match &mut lock {
                    None => lock = Some(Lock::new(*mode, token, *hold)),
                    Some(lock) => lock.put(*mode, token, *hold),
                }
            }
            lock.filter(|_| is_distinct)
        });
    prop_oneof![alone, several]
}

proptest! {
    #[test]
    fn a_lock_comes_back(lock in lock()) {
        let bytes = encode_state(&lock);
        prop_assert_eq!(decode(&bytes), Ok(Record::State(lock)));
    }

    #[test]
    fn an_effect_comes_back(
        now_ms in 0..=Deadline::MAX_MS,
        (mode, name, hold) in (mode(), token(), hold()),
        deadline in 0..=Deadline::MAX_MS,
    ) {
        let token = Token::new(&name).unwrap();
        let held = Effect::Hold { now_ms, mode, token, hold };
        let cap = Effect::Cap { deadline: Deadline::from_millis(deadline).unwrap() };
        for effect in [held, Effect::Release { now_ms, token }, cap] {
            let mut bytes = Vec::new();
            encode_effect(&effect, &mut bytes);
            prop_assert!(bytes.len() <= MAX_EFFECT_LEN);
            prop_assert_eq!(decode(&bytes), Ok(Record::Effect(effect)));
        }
        let record = encode_held(now_ms, mode, &hold);
        prop_assert_eq!(decode_held(&name, record.as_bytes()), Ok(held));
        let record = encode_fence(hold.fence);
        prop_assert_eq!(decode(&record), Ok(Record::Fence(hold.fence)));
    }

    /// One value has one encoding, so bytes that are a record are those that it is written as.
    #[test]
    fn changed_bytes_are_refused_or_another_value(
        lock in lock(),
        at in any::<Index>(),
        byte in any::<u8>(),
        len in any::<Index>(),
    ) {
        let whole = encode_state(&lock);
        let mut bytes = whole.clone();
        bytes[at.index(whole.len())] = byte;
        for bytes in [&bytes[..], &whole[..len.index(whole.len())]] {
            match decode(bytes) {
                Ok(Record::State(other)) => prop_assert_eq!(encode_state(&other), bytes),
                Ok(_) => prop_assert!(bytes[1] != STATE),
                Err(DecodeError) => {}
            }
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in vec(any::<u8>(), 0..80), kind in 0..7_u8, version in 0..5_u8) {
        let _ = decode(&bytes);
        // Most bytes end at the version or the kind.
        let bytes = [&[version, kind][..], &bytes].concat();
        let _ = (decode(&bytes), decode_held(&bytes, &bytes), is_of_later_version(&bytes));
    }
}
