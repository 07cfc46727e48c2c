//! Tests of the codec.

// Long because: it is a list of values and of bytes that are none.

use std::fs;
use std::path::Path;
use std::str;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::manner::{EXCLUSIVE, SHARED};
use super::*;
use crate::lock::{Deadline, Limit, Since};

const V1: u8 = Version::V1.byte();

fn hold(fence: u64) -> Hold {
    Hold {
        fence: Fence::new(fence).unwrap(),
        deadline: Deadline::from_millis(1_000 + fence % 10).unwrap(),
        since: Since::at(1_000),
    }
}

fn token(bytes: &[u8]) -> Token<'_> {
    Token::new(bytes).unwrap()
}

fn three_readers() -> Lock {
    let mut lock = Lock::new(Mode::Shared, token(b"a"), hold(7));
    lock.put(Mode::Shared, token(b"\0\r\n\xff"), hold(5));
    lock.put(Mode::Shared, token(&[b'x'; 512]), hold(9));
    lock
}

fn effect_bytes(effect: &Effect<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    encode_effect(effect, &mut out);
    out
}

#[test]
fn states_come_back() {
    for lock in [
        three_readers(),
        Lock::new(Mode::Exclusive, token(b"me"), hold(1)),
        Lock::new(Mode::Shared, token(b"me"), hold(Fence::MAX)),
    ] {
        let bytes = encode_state(&lock);
        assert_eq!(decode(&bytes), Ok(Record::State(lock)));
    }
}

#[test]
fn effects_come_back() {
    let long = [0xffu8; 512];
    for effect in [
        Effect::Hold {
            now_ms: 17,
            mode: Mode::Shared,
            token: token(&long),
            hold: hold(3),
        },
        Effect::Release {
            now_ms: Deadline::MAX_MS,
            token: token(b"\0"),
        },
        Effect::Cap {
            deadline: Deadline::from_millis(0).unwrap(),
        },
    ] {
        let bytes = effect_bytes(&effect);
        assert!(bytes.len() <= MAX_EFFECT_LEN);
        assert_eq!(decode(&bytes), Ok(Record::Effect(effect)));
    }
    let fence = Fence::new(Fence::MAX).unwrap();
    assert_eq!(decode(&encode_fence(fence)), Ok(Record::Fence(fence)));
}

#[test]
fn a_hold_comes_back_with_the_token_beside_it() {
    let record = encode_held(17, Mode::Shared, &hold(3)).as_bytes().to_vec();
    let effect = Effect::Hold {
        now_ms: 17,
        mode: Mode::Shared,
        token: token(b"me"),
        hold: hold(3),
    };
    assert_eq!(decode_held(b"me", &record), Ok(effect));
    assert_eq!(decode_held(b"", &record), Err(DecodeError));
    assert_eq!(decode_held(&[b'x'; 513], &record), Err(DecodeError));
    // A `held` record needs a token beside it, and a `hold` record takes none.
    assert_eq!(decode(&record), Err(DecodeError));
    assert_eq!(decode_held(b"me", &effect_bytes(&effect)), Err(DecodeError));
    for end in 0..record.len() {
        assert_eq!(decode_held(b"me", &record[..end]), Err(DecodeError));
    }
    for (at, bad) in [(0, 2), (1, 2), (9, 0xff), (10, 3), (18, 0xff), (26, 0xff)] {
        let mut record = record.clone();
        record[at] = bad;
        assert_eq!(decode_held(b"me", &record), Err(DecodeError), "{at}");
    }
    assert_eq!(
        decode_held(b"me", &[&record[..], b"\0"].concat()),
        Err(DecodeError)
    );
}

#[test]
fn the_order_in_which_holds_came_does_not_change_the_bytes() {
    let mut other = Lock::new(Mode::Shared, token(&[b'x'; 512]), hold(9));
    other.put(Mode::Shared, token(b"a"), hold(7));
    other.put(Mode::Shared, token(b"\0\r\n\xff"), hold(5));
    assert_eq!(encode_state(&other), encode_state(&three_readers()));
}

#[test]
fn bytes_that_no_release_could_have_written_are_refused() {
    let exclusive = encode_state(&Lock::new(Mode::Exclusive, token(b"me"), hold(1)));
    let body = &exclusive[3..];
    let refused = |bytes: &[u8]| assert_eq!(decode(bytes), Err(DecodeError), "{bytes:?}");
    refused(&[]);
    refused(&[V1]);
    refused(&[V1, STATE, EXCLUSIVE]); // no hold
    refused(&[&[LATEST_VERSION + 1, STATE, EXCLUSIVE], body].concat());
    refused(&[&[V1, 0, EXCLUSIVE], body].concat());
    refused(&[&[V1, STATE, 3], body].concat());
    refused(&[&exclusive[..], body].concat()); // two exclusive holds
    refused(&[&[V1, STATE, SHARED], body, body].concat()); // a token twice
    refused(&[&exclusive[..], b"\0"].concat());
    for end in 0..exclusive.len() {
        refused(&exclusive[..end]);
    }
    let mut zero_fence = exclusive.clone();
    zero_fence[3..11].fill(0);
    refused(&zero_fence);
    let mut huge_deadline = exclusive.clone();
    huge_deadline[11..19].fill(0xff);
    refused(&huge_deadline);
    let mut long_token = exclusive[..27].to_vec();
    long_token.extend(513u16.to_le_bytes());
    long_token.extend([b'x'; 513]);
    refused(&long_token);
}

#[test]
fn any_bytes_are_refused_or_written_back_unchanged() {
    const RUNS: usize = 300_000;
    let mut rng = StdRng::seed_from_u64(0x6c6f_636b);
    let seeds = [
        encode_state(&three_readers()),
        encode_state(&Lock::new(Mode::Exclusive, token(b"me"), hold(1))),
        effect_bytes(&Effect::Release {
            now_ms: 5,
            token: token(b"me"),
        }),
        encode_fence(Fence::new(12).unwrap()).to_vec(),
        golden_rows_of(2)[0].1.clone(),
        golden_rows_of(2)[1].1.clone(),
        golden_rows_of(3)[1].1.clone(),
    ];
    let mut accepted = 0;
    for _ in 0..RUNS {
        let mut bytes = seeds[rng.random_range(0..seeds.len())].clone();
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(0..bytes.len());
            match rng.random_range(0..4) {
                0 => bytes[at] = rng.random(),
                1 => bytes[at] ^= 1 << rng.random_range(0..8),
                2 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, rng.random()),
            }
        }
        // A value has one encoding, so accepted bytes must be written back unchanged.
        let again = match decode(&bytes) {
            Err(DecodeError) => continue,
            Ok(Record::State(lock)) => encode_state(&lock),
            Ok(Record::Effect(effect)) => effect_bytes(&effect),
            Ok(Record::Fence(fence)) => encode_fence(fence).to_vec(),
            Ok(Record::Leases(leases)) => encode_leases(&leases),
        };
        assert_eq!(again, bytes);
        accepted += 1;
    }
    assert!(
        accepted > RUNS / 20,
        "only {accepted} mutants were accepted"
    );
}

/// A value that can be written as a record.
pub(super) enum Value {
    State(Lock),
    Effect(Effect<'static>),
    Fence(Fence),
    Leases(Leases),
    /// A hold whose token is sent beside the record.
    Held(u64, Mode, Hold),
}

impl Value {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::State(lock) => encode_state(lock),
            Self::Effect(effect) => effect_bytes(effect),
            Self::Fence(fence) => encode_fence(*fence).to_vec(),
            Self::Leases(leases) => encode_leases(leases),
            Self::Held(now_ms, mode, hold) => encode_held(*now_ms, *mode, hold).as_bytes().to_vec(),
        }
    }
}

const LONGEST: [u8; 512] = [b'x'; 512];

/// The kind and the value of each row of the golden file, in the order of its rows.
fn values_of_version_1() -> Vec<(&'static str, Value)> {
    let hold = |fence, deadline_ms, since_ms| Hold {
        fence: Fence::new(fence).unwrap(),
        deadline: Deadline::from_millis(deadline_ms).unwrap(),
        since: Since::at(since_ms),
    };
    let usual = hold(1_700_000_000_000_001, 1_700_000_030_000, 1_700_000_000_000);
    let largest = hold(Fence::MAX, Deadline::MAX_MS, Deadline::MAX_MS);
    let now_ms = 1_700_000_000_000;
    let shared = |holds: &[(&'static [u8], Hold)]| {
        let mut lock = Lock::new(Mode::Shared, token(holds[0].0), holds[0].1);
        for (name, hold) in holds {
            lock.put(Mode::Shared, token(name), *hold);
        }
        Value::State(lock)
    };
    let exclusive =
        |name: &'static [u8], hold| Value::State(Lock::new(Mode::Exclusive, token(name), hold));
    let given = |now_ms, mode, name: &'static [u8], hold| {
        Value::Effect(Effect::Hold {
            now_ms,
            mode,
            token: token(name),
            hold,
        })
    };
    let released = |now_ms, name: &'static [u8]| {
        Value::Effect(Effect::Release {
            now_ms,
            token: token(name),
        })
    };
    let capped = |ms| {
        Value::Effect(Effect::Cap {
            deadline: Deadline::from_millis(ms).unwrap(),
        })
    };
    let fence = |n| Value::Fence(Fence::new(n).unwrap());
    let uuid: &[u8] = b"0f3c1b2a-8a51-4d0e-9f0b-6f2f0f6f3a11";
    vec![
        ("state", exclusive(b"me", usual)),
        ("state", exclusive(uuid, hold(1, 0, 0))),
        ("state", exclusive(&LONGEST, largest)),
        ("state", shared(&[(b"\0\r\n\xff", usual)])),
        (
            "state",
            shared(&[
                (b"b", hold(9, 20, 5)),
                (b"a", hold(9, 10, 5)),
                (b"c", hold(7, 30, 4)),
            ]),
        ),
        ("hold", given(now_ms, Mode::Exclusive, b"me", usual)),
        ("hold", given(0, Mode::Shared, b"r", hold(1, 1, 0))),
        (
            "hold",
            given(Deadline::MAX_MS, Mode::Exclusive, &LONGEST, largest),
        ),
        ("release", released(now_ms, b"me")),
        ("release", released(0, b"\0")),
        ("cap", capped(1_700_000_010_000)),
        ("cap", capped(0)),
        ("fence", fence(1_700_000_000_000_001)),
        ("fence", fence(Fence::MAX)),
        ("held", Value::Held(now_ms, Mode::Exclusive, usual)),
        ("held", Value::Held(0, Mode::Shared, hold(1, 1, 0))),
    ]
}

/// The same of the second version.
fn values_of_version_2() -> Vec<(&'static str, Value)> {
    let hold = |fence, deadline_ms, since_ms| Hold {
        fence: Fence::new(fence).unwrap(),
        deadline: Deadline::from_millis(deadline_ms).unwrap(),
        since: Since::at(since_ms),
    };
    let usual = hold(1_700_000_000_000_001, 1_700_000_030_000, 1_700_000_000_000);
    let largest = hold(Fence::MAX, Deadline::MAX_MS, Deadline::MAX_MS);
    let counted = |n| Mode::of_limit(n).unwrap();
    let mut mixed = Lock::new(Mode::Shared, token(b"reader"), hold(9, 20, 5));
    mixed.put(counted(3), token(b"b"), hold(8, 10, 5));
    mixed.put(counted(Limit::MAX), token(b"a"), hold(8, 30, 4));
    let one = Lock::new(counted(2), token(b"me"), usual);
    let given = |now_ms, mode, name: &'static [u8], hold| {
        Value::Effect(Effect::Hold {
            now_ms,
            mode,
            token: token(name),
            hold,
        })
    };
    vec![
        ("state", Value::State(one)),
        ("state", Value::State(mixed)),
        ("hold", given(1_700_000_000_000, counted(10), b"me", usual)),
        ("hold", given(0, counted(Limit::MAX), &LONGEST, largest)),
        ("held", Value::Held(1_700_000_000_000, counted(10), usual)),
        ("held", Value::Held(0, counted(2), hold(1, 1, 0))),
    ]
}

/// The rows of `tests/golden/records/version-N.tsv`: kind and bytes.
pub(super) fn golden_rows_of(version: u8) -> Vec<(String, Vec<u8>)> {
    let name = format!("tests/golden/records/version-{version}.tsv");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    let text = fs::read_to_string(path).unwrap();
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    rows.map(|row| {
        let columns: Vec<_> = row.split('\t').collect();
        let [kind, bytes, _meaning] = columns[..] else {
            panic!("three columns: {row}")
        };
        (kind.to_string(), from_hex(bytes))
    })
    .collect()
}

fn golden_rows() -> Vec<(String, Vec<u8>)> {
    golden_rows_of(1)
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    let pairs = digits.map(|pair| str::from_utf8(pair).unwrap());
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect()
}

#[test]
fn the_bytes_of_version_1_never_change() {
    compare_with_golden(1, values_of_version_1());
}

#[test]
fn the_bytes_of_version_2_never_change() {
    compare_with_golden(2, values_of_version_2());
}

#[test]
fn the_bytes_of_version_3_never_change() {
    let fence = Fence::new(1_700_000_000_000_001);
    let leases = |fence, longest_ms, wait_ms| {
        let leases = Leases {
            fence,
            longest_ms,
            wait_ms,
        };
        ("leases", Value::Leases(leases))
    };
    let most = Deadline::MAX_MS;
    let values = [
        leases(fence, 30_000, 35_000),
        leases(None, 1_000, 1_000),
        leases(Fence::new(Fence::MAX), most, most),
    ];
    compare_with_golden(3, values.into_iter().chain(lingering::values()).collect());
    let (_, longest) = golden_rows_of(3).remove(2);
    for end in 0..longest.len() {
        assert_eq!(decode(&longest[..end]), Err(DecodeError));
    }
    for number in [2, 10, 18] {
        let mut beyond = longest.clone();
        beyond[number] ^= 1;
        assert_eq!(decode(&beyond).is_ok(), number == 2, "{number}");
    }
}

fn compare_with_golden(version: u8, values: Vec<(&str, Value)>) {
    let rows = golden_rows_of(version);
    assert_eq!(rows.len(), values.len());
    for ((kind, bytes), (expected_kind, value)) in rows.iter().zip(values) {
        assert_eq!(kind, expected_kind);
        assert_eq!(value.bytes(), *bytes, "{kind}");
        let decoded = decode(bytes);
        match value {
            Value::State(lock) => assert_eq!(decoded, Ok(Record::State(lock))),
            Value::Effect(effect) => assert_eq!(decoded, Ok(Record::Effect(effect))),
            Value::Fence(fence) => assert_eq!(decoded, Ok(Record::Fence(fence))),
            Value::Leases(leases) => assert_eq!(decoded, Ok(Record::Leases(leases))),
            Value::Held(now_ms, mode, hold) => {
                let token = token(b"me");
                let effect = Effect::Hold {
                    now_ms,
                    mode,
                    token,
                    hold,
                };
                assert_eq!(decode_held(b"me", bytes), Ok(effect));
            }
        }
    }
}

#[test]
fn a_record_is_accepted_in_no_other_version_than_it_needs() {
    for needed in V1..=LATEST_VERSION {
        for (kind, golden) in golden_rows_of(needed) {
            for version in (0..=u8::MAX).filter(|version| *version != needed) {
                let mut bytes = golden.clone();
                bytes[0] = version;
                assert_eq!(decode(&bytes), Err(DecodeError), "{kind} in {version}");
                assert_eq!(decode_held(b"me", &bytes), Err(DecodeError), "{kind}");
            }
        }
    }
}

#[test]
fn a_version_above_the_needed_one_is_refused_though_it_is_known() {
    let finish = |version, needed| {
        let rest = &[];
        let input = Input {
            rest,
            version,
            needed,
        };
        input.finish()
    };
    let (one, two) = (Version::V1, Version::V2);
    assert_eq!(finish(one, one), Ok(()));
    assert_eq!(finish(two, two), Ok(()));
    assert_eq!(finish(two, one), Err(DecodeError));
    assert_eq!(finish(one, two), Err(DecodeError));
}

#[test]
fn every_kind_of_a_later_version_is_recognised() {
    let mut kinds: Vec<String> = Vec::new();
    for (kind, golden) in golden_rows() {
        assert!(!is_of_later_version(&golden), "{kind}");
        for later in LATEST_VERSION + 1..=u8::MAX {
            let mut bytes = golden.clone();
            bytes[0] = later;
            assert!(is_of_later_version(&bytes), "{kind} in {later}");
            // The rest of the record is up to the later release.
            assert!(is_of_later_version(&bytes[..1]), "{kind} in {later}");
        }
        let broken = [&[0], &golden[1..]].concat();
        assert!(!is_of_later_version(&broken), "{kind}");
        kinds.push(kind);
    }
    assert!(!is_of_later_version(b""));
    kinds.dedup();
    assert_eq!(kinds, ["state", "hold", "release", "cap", "fence", "held"]);
}
