//! The primary that sentinels name.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Client, ConnectionInfo, IntoConnectionInfo, RedisError, RedisResult, Value};

use crate::driver::{Peer, locked};
use crate::error::Result;
use crate::info::{Address, text, unnamed, with_address};

/// The sentinels that watch a primary, which the locks are on.
///
/// They are asked again after an error of the connection, and when the server is no primary any more.
///
/// ```
/// # fn main() -> redis_lock_client::Result<()> {
/// use redis_lock_client::Sentinel;
///
/// let sentinels = ["redis://10.0.0.1:26379", "redis://10.0.0.2:26379", "redis://10.0.0.3:26379"];
/// // The second address says how to log in to the servers. Its host is not used.
/// let sentinel = Sentinel::new(sentinels, "locks")?.servers("redis://user:password@any")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Sentinel {
    sentinels: Vec<ConnectionInfo>,
    /// The number of the one that has named the primary.
    last: Arc<AtomicUsize>,
    name: String,
    like: ConnectionInfo,
}

impl Sentinel {
    /// `name` is the primary's, as the sentinels' `sentinel monitor` has it.
    pub fn new<A: IntoConnectionInfo>(
        sentinels: impl IntoIterator<Item = A>,
        name: impl Into<String>,
    ) -> Result<Self> {
        let sentinels = sentinels.into_iter().map(unnamed);
        Ok(Self {
            sentinels: sentinels.collect::<RedisResult<_>>()?,
            last: Arc::default(),
            name: name.into(),
            like: unnamed("redis://any")?,
        })
    }

    /// Takes the credentials, the database and TLS of the servers from an address.
    pub fn servers(mut self, like: impl IntoConnectionInfo) -> Result<Self> {
        self.like = unnamed(like)?;
        Ok(self)
    }

    /// All sentinels, each with its number. The one that has named the primary comes first, because
    /// one that is silent takes its time.
    pub(crate) fn in_turn(&self) -> impl Iterator<Item = (usize, &ConnectionInfo)> {
        let first = self.last.load(Relaxed);
        let numbered = self.sentinels.iter().enumerate();
        numbered.cycle().skip(first).take(self.sentinels.len())
    }

    /// How to connect to the primary that one of them names. Most name the same one, and a server
    /// that is silent takes its time: it is asked once, as `asked` remembers.
    pub(crate) async fn named_by<P: Peer>(
        &self,
        (number, sentinel): (usize, &ConnectionInfo),
        asked: &Mutex<HashSet<Address>>,
        time: Duration,
    ) -> RedisResult<Client> {
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        let sentinel = P::of(Client::open(sentinel.clone())?);
        let named = sentinel.send(&[question], time).await?;
        let address = address(&named).ok_or_else(|| self.nobody())?;
        if !locked(asked).insert(address.clone()) {
            return Err(self.nobody());
        }
        let server = Client::open(with_address(&self.like, &address))?;
        let asking = P::of(server.clone());
        let role = asking.send(&[redis::cmd("ROLE")], time).await;
        if !is_primary(&role) {
            return Err(self.nobody());
        }
        self.last.store(number, Relaxed);
        Ok(server)
    }

    /// An error that waiting may cure, as sentinels elect a primary.
    pub(crate) fn nobody(&self) -> RedisError {
        let kind = redis::ErrorKind::MasterNameNotFoundBySentinel;
        let what = "no sentinel names a server that is a primary";
        (kind, what, self.name.clone()).into()
    }
}

/// The address that a sentinel names.
fn address(answer: &Value) -> Option<Address> {
    let [host, port, ..] = answer.as_sequence()? else {
        return None;
    };
    Some((text(host)?.to_owned(), text(port)?.parse().ok()?))
}

/// Whether the answer to ROLE is a primary's. A user without the right to ask is not told.
fn is_primary(role: &RedisResult<Value>) -> bool {
    match role {
        Ok(role) => {
            let name = role.as_sequence().and_then(<[Value]>::first);
            name.and_then(text) == Some("master")
        }
        Err(error) => error.code() == Some("NOPERM"),
    }
}
