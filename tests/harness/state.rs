//! The complete data of a server, to compare it with another server or with a later state.

use std::collections::BTreeMap;
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
}

#[derive(Debug)]
struct KeyState {
    dump: Reply,
    /// When it expires, since the epoch; negative if it does not.
    expires: i64,
}

impl State {
    /// Leaves the client in database 0.
    #[track_caller]
    pub fn of(c: &mut Client) -> Self {
        let mut keys = BTreeMap::new();
        for db in 0..DATABASES {
            c.call(&format!("SELECT {db}"));
            for name in c.call("KEYS *").items() {
                let name = name.as_bytes();
                let dump = c.send(&[b"DUMP".as_slice(), name]);
                let expires = c.send(&[b"PEXPIRETIME".as_slice(), name]).as_int();
                keys.insert((db, name.to_vec()), KeyState { dump, expires });
            }
        }
        c.call("SELECT 0");
        let digest = c.text("DEBUG DIGEST");
        Self { keys, digest }
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
            assert_eq!(one.expires, other.expires, "{name} ends");
        }
        assert_eq!(self.digest, other.digest, "{when}: the digests differ");
    }
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
