//! The complete data of a server, to compare it with another server or with a later state.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::{SystemTime, UNIX_EPOCH};

use super::client::{Client, Reply};

/// The databases that the tests use.
const DATABASES: u8 = 4;

/// Every key with its value and expiry.
#[derive(Debug)]
pub struct State {
    keys: BTreeMap<(u8, Vec<u8>), KeyState>,
    /// DEBUG DIGEST: all names and values, and which keys expire.
    digest: String,
    /// The tolerance for the expiry of a copy's keys.
    lateness_ms: i64,
}

#[derive(Debug)]
struct KeyState {
    dump: Reply,
    /// When it expires, since the epoch, as exactly as the server reports it.
    expires: Option<RangeInclusive<i64>>,
}

impl State {
    /// Leaves the client in database 0.
    #[track_caller]
    pub fn of(c: &mut Client) -> Self {
        let has_pexpiretime = !matches!(c.call("PEXPIRETIME k"), Reply::Error(_));
        let mut keys = BTreeMap::new();
        for db in 0..DATABASES {
            c.call(&format!("SELECT {db}"));
            for name in c.call("KEYS *").items() {
                let name = name.as_bytes();
                let dump = c.send(&[b"DUMP".as_slice(), name]);
                let expires = expires(c, name, has_pexpiretime);
                keys.insert((db, name.to_vec()), KeyState { dump, expires });
            }
        }
        c.call("SELECT 0");
        let digest = c.text("DEBUG DIGEST");
        Self {
            keys,
            digest,
            // 6.2 replicates PEXPIRE unchanged, so its ttl counts from the time of execution.
            lateness_ms: if has_pexpiretime { 0 } else { 5000 },
        }
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Fails the test unless this copy has the same keys as the original, with the same bytes and
    /// the same expiries.
    #[track_caller]
    pub fn assert_same(&self, other: &Self, when: &str) {
        let names = |state: &Self| state.keys.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(self), names(other), "{when}: other keys");
        for ((db, name), one) in &self.keys {
            let other = &other.keys[&(*db, name.clone())];
            let name = format!("{when}: {} in {db}", String::from_utf8_lossy(name));
            assert_eq!(one.dump, other.dump, "{name} differs");
            let (ends, other) = (&one.expires, &other.expires);
            let same = match (ends, other) {
                (Some(a), Some(b)) => {
                    a.start() - self.lateness_ms <= *b.end() && b.start() <= a.end()
                }
                (a, b) => a.is_none() && b.is_none(),
            };
            assert!(same, "{name} ends at {ends:?} and at {other:?}");
        }
        assert_eq!(self.digest, other.digest, "{when}: the digests differ");
    }
}

/// When a key expires: exact from 7.0 on, before that within the round trip.
#[track_caller]
fn expires(c: &mut Client, name: &[u8], has_pexpiretime: bool) -> Option<RangeInclusive<i64>> {
    if has_pexpiretime {
        let at = c.send(&[b"PEXPIRETIME".as_slice(), name]).as_int();
        return (at >= 0).then_some(at..=at);
    }
    let before = now_ms();
    let rest = c.send(&[&b"PTTL"[..], name]).as_int();
    (rest >= 0).then(|| before + rest..=now_ms() + rest)
}

/// The time of the servers on this machine.
pub fn now_ms() -> i64 {
    i64::try_from(now_us() / 1_000).unwrap()
}

/// The same in microseconds.
pub fn now_us() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since_epoch.as_micros()).unwrap()
}
