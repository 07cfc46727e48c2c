//! Holds that linger: the third version.

use super::tests::{golden_rows_of, Value};
use super::*;
use crate::lock::{Ask, Deadline, FenceClock, Limit, Now, Since, Ttl, Waiting};

fn token(name: &'static [u8]) -> Token<'static> {
    Token::new(name).unwrap()
}

/// The values of the golden file behind the others, in the order of its rows.
pub(super) fn values() -> Vec<(&'static str, Value)> {
    let hold = |fence, deadline_ms, since_ms| Hold {
        fence: Fence::new(fence).unwrap(),
        deadline: Deadline::from_millis(deadline_ms).unwrap(),
        since: Since::at(since_ms),
    };
    let lingers = |hold: Hold| Hold {
        since: hold.since.marked(true),
        ..hold
    };
    let usual = lingers(hold(
        1_700_000_000_000_001,
        1_700_000_030_000,
        1_700_000_000_000,
    ));
    let now_ms = 1_700_000_000_000;
    let counted = |n| Mode::Counted(Limit::new(n).unwrap());
    let reader = lingers(hold(9, 20, 5));
    let mut mixed = Lock::new(Mode::Shared, token(b"reader"), reader);
    mixed.put(counted(3), token(b"b"), hold(8, 10, 5));
    let one = Lock::new(Mode::Exclusive, token(b"me"), usual);
    let given = Effect::Hold {
        now_ms,
        mode: counted(10),
        token: token(b"me"),
        hold: usual,
    };
    let smallest = lingers(hold(1, 1, 0));
    vec![
        ("state", Value::State(one)),
        ("state", Value::State(mixed)),
        ("hold", Value::Effect(given)),
        ("held", Value::Held(now_ms, Mode::Exclusive, usual)),
        ("held", Value::Held(0, Mode::Shared, smallest)),
    ]
}

#[test]
fn a_mark_takes_no_byte_and_a_lock_without_it_is_as_before() {
    for (kind, golden) in golden_rows_of(3).iter().filter(|(kind, _)| kind == "hold") {
        let Ok(Record::Effect(effect)) = decode(golden) else {
            panic!("{kind}");
        };
        let Effect::Hold { hold, .. } = effect else {
            panic!("{kind}");
        };
        let mut without = effect;
        if let Effect::Hold { hold, .. } = &mut without {
            hold.since = hold.since.marked(false);
        }
        let mut bytes = Vec::new();
        encode_effect(&without, &mut bytes);
        assert_eq!((bytes.len(), bytes[0]), (golden.len(), 2));
        assert!(hold.since.lingers());
        assert_eq!(size_of::<Hold>(), 24);
    }
}

/// A renewal keeps the mark, and the next grant decides anew.
#[test]
fn a_grant_removes_the_mark_and_a_renewal_keeps_it() {
    let (now, me) = (Now::from_millis(1_000), token(b"me"));
    let ttl = Ttl::from_millis(10).unwrap();
    let hold = Hold {
        fence: Fence::new(1).unwrap(),
        deadline: Deadline::after(now, ttl),
        since: Since::at(1_000).marked(true),
    };
    let lock = Lock::new(Mode::Exclusive, me, hold);
    let lingers = |effect| match effect {
        Effect::Hold { hold, .. } => hold.since.lingers(),
        _ => panic!("no hold"),
    };
    assert!(lingers(lock.renew(me, ttl, now).unwrap()));
    let ask = Ask {
        mode: Mode::Shared,
        token: me,
        ttl,
    };
    let fences = &mut FenceClock::default();
    let grant = Lock::acquire(Some(&lock), ask, now, Waiting::default(), fences).unwrap();
    assert!(grant.had_it && !lingers(grant.effect(me)));
    assert_eq!(grant.hold.since.ms(), 1_000);
}
