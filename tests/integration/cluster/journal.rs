//! The record of a run: the requests and replies of each client, and the append-only file of each
//! node.

use std::collections::{BTreeMap, BTreeSet};

use redis_lock::lock::codec::{decode, Record};
use redis_lock::lock::Effect;

use super::load_clients::is_for_both;
use crate::harness::{aof, record_of, Server};

/// A hold from the view of its client. Between `delivered_us` and `end_us` the client is certain to
/// hold the lock.
#[derive(Clone, Debug)]
pub struct Hold {
    pub key: String,
    pub token: String,
    pub is_shared: bool,
    pub fence: u64,
    /// Just before the first request.
    pub asked_us: u64,
    /// Just after the reply was read.
    pub delivered_us: u64,
    /// Just before the release was sent, or the end of the ttl counted from the request, whichever
    /// is first.
    pub end_us: u64,
    /// The reply to the release. `None` if there was no reply or it came after the ttl.
    pub released: Option<bool>,
}

impl Hold {
    /// An exclusive hold that was released, with the times of request, delivery and release.
    pub fn exclusive(
        key: &str,
        token: &str,
        fence: u64,
        [asked, delivered, end]: [u64; 3],
    ) -> Self {
        Self {
            key: key.into(),
            token: token.into(),
            is_shared: false,
            fence,
            asked_us: asked,
            delivered_us: delivered,
            end_us: end,
            released: Some(true),
        }
    }
}

/// The effects that a node applied, from its append-only file.
#[derive(Debug, Default)]
pub struct Account {
    /// New holds: key, fence.
    pub grants: BTreeSet<(String, u64)>,
    /// Released holds: key, token.
    pub releases: BTreeSet<(String, String)>,
    /// The keys of each grant of a key and its twin, by fence.
    pub of_both: BTreeMap<u64, BTreeSet<String>>,
}

impl Account {
    pub fn of(node: &Server) -> Self {
        let mut account = Self::default();
        let (commands, is_whole) = aof::read(node.dir());
        assert!(is_whole, "a part is no command");
        for args in commands {
            let Some(record) = record_of(&args) else {
                continue;
            };
            let key = String::from_utf8_lossy(&args[1]).into_owned();
            match decode(&record) {
                Ok(Record::Effect(Effect::Hold { hold, token, .. })) => {
                    if is_for_both(token.as_bytes()) {
                        let keys = account.of_both.entry(hold.fence.get()).or_default();
                        keys.insert(key.clone());
                    }
                    account.grants.insert((key, hold.fence.get()));
                }
                Ok(Record::Effect(Effect::Release { token, .. })) => {
                    let token = String::from_utf8_lossy(token.as_bytes()).into_owned();
                    account.releases.insert((key, token));
                }
                Ok(_) => {}
                Err(error) => panic!("a bad effect for {key}: {error:?}"),
            }
        }
        account
    }

    pub fn knows(&self, hold: &Hold) -> bool {
        self.grants.contains(&(hold.key.clone(), hold.fence))
    }

    pub fn knows_the_release_of(&self, hold: &Hold) -> bool {
        let release = (hold.key.clone(), hold.token.clone());
        self.releases.contains(&release)
    }
}
