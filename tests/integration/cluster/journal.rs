//! What is known of a run: what each client asked and was delivered, and what each node wrote into its append-only file.

use std::collections::BTreeSet;

use redis_lock::lock::codec::{decode, Record};
use redis_lock::lock::Effect;

use crate::harness::record_of;
use crate::harness::Server;
use crate::soak::history::commands_in_log;

/// A hold as its client knows it. Between `delivered_us` and `end_us` the client is certain to have it.
#[derive(Clone, Debug)]
pub struct Hold {
    pub key: String,
    pub token: String,
    pub is_shared: bool,
    pub fence: u64,
    /// Just before it was asked for the first time.
    pub asked_us: u64,
    /// Just after the reply was read.
    pub delivered_us: u64,
    /// Just before the release was sent, or when the ttl is over, counted from the request: whichever is first.
    pub end_us: u64,
    /// What the release answered; `None` when it was never answered or came after the ttl.
    pub released: Option<bool>,
}

impl Hold {
    /// An exclusive one that was released: when it was asked for, delivered and given up.
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

/// What a node did or was delivered to do, by its append-only file.
#[derive(Debug, Default)]
pub struct Account {
    /// New holds: key, fence.
    pub grants: BTreeSet<(String, u64)>,
    /// Holds that were given up: key, token.
    pub releases: BTreeSet<(String, String)>,
}

impl Account {
    pub fn of(node: &Server) -> Self {
        let mut account = Self::default();
        for args in commands_in_log(node.dir()) {
            let Some(record) = record_of(&args) else {
                continue;
            };
            let key = String::from_utf8_lossy(&args[1]).into_owned();
            match decode(&record) {
                Ok(Record::Effect(Effect::Hold { hold, .. })) => {
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
