//! The locks of a restarted server, as it reports them.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use redis_lock::lock::codec::{decode, Record};
use redis_lock::lock::{Lock, Mode};

use super::journal::{Held, Holds};
use super::load_clients::{client_of, key, CLIENTS, KEYS};
use crate::harness::{mode_named, now_ms, Client, Info, Owner, Reply};
use crate::hostile::payload::Payload;

/// All locks, read within a few milliseconds.
pub struct Observed {
    pub ms: RangeInclusive<u64>,
    /// By client number.
    pub holds: Vec<Holds>,
    pub locks: BTreeMap<String, Shown>,
}

pub struct Shown {
    pub holders: Vec<Holder>,
    /// The expiry of the key, on a server that reports it.
    pub expires_ms: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct Holder {
    pub token: String,
    /// LOCK.INFO shows only the smallest limit of all holds, so this is from DUMP.
    pub mode: Mode,
    pub fence: u64,
    pub since_ms: u64,
    pub ends_ms: RangeInclusive<u64>,
}

fn clock_ms() -> u64 {
    now_ms().try_into().unwrap()
}

impl Observed {
    #[track_caller]
    pub fn at(c: &mut Client) -> Self {
        let from = clock_ms();
        let mut holds = vec![Holds::new(); CLIENTS];
        let mut locks = BTreeMap::new();
        // Without compression between the bytes of the record.
        c.call("CONFIG SET rdbcompression no");
        for key in (0..KEYS).map(key) {
            let before = clock_ms();
            let info = c.lock_info(&key);
            let after = clock_ms();
            let expires_ms = match c.call(&format!("PEXPIRETIME {key}")) {
                Reply::Int(ms) => ms.try_into().ok(),
                _ => None,
            };
            let dumped = c.call(&format!("DUMP {key}"));
            let (false, Reply::Bulk(dumped)) = (info == Info::default(), dumped) else {
                continue; // Free, or it has just ended.
            };
            let record = Payload::read(&dumped).record;
            let Ok(Record::State(lock)) = decode(&record) else {
                panic!("{key} has {record:?}");
            };
            let mode = mode_named(&info.mode).unwrap_or_else(|| panic!("{key} is {info:?}"));
            assert_eq!(info.waiters, [], "{key}");
            let holders = info.holders.iter();
            let holders = holders.filter_map(|owner| Holder::of(owner, &lock, before..=after));
            let holders: Vec<_> = holders.collect();
            let most = usize::try_from(mode.tolerates()).unwrap();
            assert!(holders.len() <= most, "{key} is {mode:?}: {holders:?}");
            for holder in &holders {
                let number = client_of(&holder.token);
                let number = number.unwrap_or_else(|| panic!("{key}: who is {holder:?}?"));
                let held = Held {
                    mode: holder.mode,
                    fence: Some(holder.fence),
                    ends_ms: holder.ends_ms.clone(),
                };
                holds[number].insert((key.clone(), holder.token.clone()), held);
            }
            let shown = Shown {
                holders,
                expires_ms,
            };
            locks.insert(key, shown);
        }
        c.call("CONFIG SET rdbcompression yes");
        Self {
            ms: from..=clock_ms(),
            holds,
            locks,
        }
    }

    /// The number of holds.
    pub fn len(&self) -> usize {
        self.holds.iter().map(Holds::len).sum()
    }

    /// Fails the test unless the server has exactly these locks, to the millisecond, without those
    /// that have expired since.
    #[track_caller]
    pub fn assert_is(&self, locks: &BTreeMap<String, Lock>, when: &str) {
        for (key, shown) in &self.locks {
            let lock = locks.get(key);
            let lock = lock.unwrap_or_else(|| panic!("{when}: {key} is held, not in the file"));
            if let Some(expires_ms) = shown.expires_ms {
                let latest = lock.latest_deadline().unwrap().ms();
                assert_eq!(expires_ms, latest, "{when}: the end of {key}");
            }
            for holder in &shown.holders {
                let hold = lock
                    .holds()
                    .into_iter()
                    .find(|(token, ..)| token.as_bytes() == holder.token.as_bytes());
                let same = hold.is_some_and(|(_, mode, hold)| {
                    mode == holder.mode
                        && hold.fence.get() == holder.fence
                        && hold.since.ms() == holder.since_ms
                        && holder.ends_ms.contains(&hold.deadline.ms())
                });
                assert!(same, "{when}: {holder:?} of {key} is {hold:?} in the file");
            }
        }
        for (key, lock) in locks {
            for (token, hold) in lock.holders() {
                let shown = self.locks.get(key).is_some_and(|shown| {
                    let mut holders = shown.holders.iter();
                    holders.any(|holder| holder.token.as_bytes() == token.as_bytes())
                });
                let is_over = hold.deadline.ms() <= *self.ms.end();
                assert!(
                    shown || is_over,
                    "{when}: {token:?} {hold:?} of {key} is gone"
                );
            }
        }
    }
}

impl Holder {
    /// `None` if it has just ended.
    #[track_caller]
    fn of(shown: &Owner, lock: &Lock, now_ms: RangeInclusive<u64>) -> Option<Self> {
        let number = |number: i64| u64::try_from(number).unwrap();
        let ttl_ms = number(shown.ttl_ms);
        let (_, mode, _) = lock
            .holds()
            .into_iter()
            .find(|(owner, ..)| owner.as_bytes() == shown.token.as_bytes())?;
        Some(Self {
            token: shown.token.clone(),
            mode,
            fence: number(shown.fence),
            since_ms: number(shown.since_ms),
            ends_ms: now_ms.start() + ttl_ms..=now_ms.end() + ttl_ms,
        })
    }
}
