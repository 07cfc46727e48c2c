//! Holds with a limit: the second version.

use super::manner::{COUNTED, EXCLUSIVE, SHARED};
use super::tests::golden_rows_of;
use super::*;
use crate::lock::{Deadline, Fate, Limit, Since};

fn token(name: &'static [u8]) -> Token<'static> {
    Token::new(name).unwrap()
}

fn hold(fence: u64) -> Hold {
    Hold {
        fence: Fence::new(fence).unwrap(),
        deadline: Deadline::from_millis(1_000).unwrap(),
        since: Since::at(1_000),
    }
}

fn counted(limit: u32) -> Mode {
    Mode::Counted(Limit::new(limit).unwrap())
}

/// Releases that know no limits read it, too.
#[test]
fn a_lock_that_has_lost_its_last_limit_is_written_in_the_first_version() {
    let v1 = |lock: &Lock, same: &Lock| {
        assert_eq!(encode_state(lock)[0], Version::V1.byte());
        assert_eq!(encode_state(lock), encode_state(same));
    };
    let permit = || Lock::new(counted(5), token(b"a"), hold(1));
    let mut converted = permit();
    assert_eq!(encode_state(&converted)[0], Version::V2.byte());
    converted.put(Mode::Exclusive, token(b"a"), hold(1));
    v1(
        &converted,
        &Lock::new(Mode::Exclusive, token(b"a"), hold(1)),
    );
    let mut readers = Lock::new(Mode::Shared, token(b"b"), hold(2));
    readers.put(Mode::Shared, token(b"c"), hold(3));
    let mut mixed = permit();
    mixed.put(Mode::Shared, token(b"b"), hold(2));
    mixed.put(Mode::Shared, token(b"c"), hold(3));
    assert_eq!(encode_state(&mixed)[0], Version::V2.byte());
    assert_eq!(mixed.remove(token(b"a")), Fate::Held);
    v1(&mixed, &readers);
    let mut widened = Lock::new(Mode::Shared, token(b"b"), hold(2));
    widened.put(counted(5), token(b"c"), hold(3));
    widened.put(Mode::Shared, token(b"c"), hold(3));
    v1(&widened, &readers);
}

#[test]
fn limits_that_no_release_could_have_written_are_refused() {
    let golden = golden_rows_of(2);
    let (_, one) = &golden[0];
    let refused = |bytes: &[u8]| assert_eq!(decode(bytes), Err(DecodeError), "{bytes:?}");
    for limit in [0, 1, 1 << 31, u32::MAX] {
        let mut bytes = one.clone();
        bytes[3..7].copy_from_slice(&limit.to_le_bytes());
        refused(&bytes);
    }
    // More holders than one of them tolerates.
    let (_, mixed) = &golden[1];
    assert!(decode(mixed).is_ok());
    let at = mixed
        .windows(4)
        .position(|limit| limit == 3u32.to_le_bytes());
    let mut crowded = mixed.clone();
    crowded[at.unwrap()] = 2;
    refused(&crowded);
    // An exclusive hold beside others, and a state without a limit.
    refused(&[&[2, STATE, EXCLUSIVE], &one[7..]].concat());
    refused(&[&one[..], &[EXCLUSIVE], &one[7..]].concat());
    // Only the state of several holds has a beginning that is a state.
    for (_, golden) in golden.iter().filter(|(_, bytes)| bytes != mixed) {
        for end in 0..golden.len() {
            refused(&golden[..end]);
            assert_eq!(decode_held(b"me", &golden[..end]), Err(DecodeError));
        }
    }
}

/// A hold in a record: its mode with the limit, its fence and its token.
type Written<'a> = (&'a [u8], u64, &'a [u8]);

fn record(holds: &[Written<'_>]) -> Vec<u8> {
    let mut bytes = vec![Version::V2.byte(), STATE];
    for (mode, fence, token) in holds {
        bytes.extend(*mode);
        bytes.extend(fence.to_le_bytes());
        bytes.extend([1_000_u64, 1_000].map(u64::to_le_bytes).concat());
        bytes.extend(u16::try_from(token.len()).unwrap().to_le_bytes());
        bytes.extend(*token);
    }
    bytes
}

#[test]
fn holds_that_no_release_could_have_written_together_are_refused() {
    let limit = |n: u32| [&[COUNTED][..], &n.to_le_bytes()].concat();
    let (two, three, most) = (limit(2), limit(3), limit(Limit::MAX));
    let (two, three) = (&two[..], &three[..]);
    // Those that are right, so that it is the fault of each that is refused.
    for holds in [
        &[(two, 1, &b"a"[..])][..],
        &[(two, 1, b"a"), (two, 1, b"b")],
        &[(three, 1, b"a"), (&[SHARED], 2, b"b"), (&[SHARED], 3, b"c")],
        &[(&most, 9, b"a")],
    ] {
        assert!(decode(&record(holds)).is_ok(), "{holds:?}");
    }
    for holds in [
        // The version needs a limit.
        &[(&[SHARED][..], 1, &b"a"[..])][..],
        &[(&[EXCLUSIVE], 1, b"a")],
        &[(&[SHARED], 1, b"a"), (&[SHARED], 2, b"b")],
        // More holders than one of them tolerates.
        &[(two, 1, b"a"), (two, 2, b"b"), (two, 3, b"c")],
        &[(three, 1, b"a"), (&[SHARED], 2, b"b"), (two, 3, b"c")],
        &[(&[EXCLUSIVE], 1, b"a"), (two, 2, b"b")],
        &[(two, 1, b"a"), (&[EXCLUSIVE], 2, b"b")],
        // A token twice, and holds out of their order.
        &[(three, 1, b"a"), (three, 2, b"a")],
        &[(three, 2, b"a"), (three, 1, b"b")],
        &[(three, 1, b"b"), (three, 1, b"a")],
        &[(two, 0, b"a")],
        &[(two, 1 << 53, b"a")],
        &[(two, 1, b"")],
        &[(two, 1, &[b'x'; 513])],
    ] {
        assert_eq!(decode(&record(holds)), Err(DecodeError), "{holds:?}");
    }
    let one = record(&[(two, 1, b"a")]);
    assert_eq!(decode(&[&one[..], b"x"].concat()), Err(DecodeError));
}
