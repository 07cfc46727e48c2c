//! The primary that sentinels name.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Cmd, ConnectionInfo, IntoConnectionInfo, RedisError, RedisResult, Value};

use crate::driver::locked;
use crate::error::Result;
use crate::info::{Address, text, unnamed, with_address};

/// Asks a server one question, by a connection of its own.
pub(crate) trait Ask {
    fn ask(
        server: ConnectionInfo,
        command: Cmd,
        time: Duration,
    ) -> impl Future<Output = RedisResult<Value>> + Send;
}

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
    like: Option<ConnectionInfo>,
}

impl Sentinel {
    /// `name` is the primary's, as the sentinels' `sentinel monitor` has it.
    pub fn new<A: IntoConnectionInfo>(
        sentinels: impl IntoIterator<Item = A>,
        name: impl Into<String>,
    ) -> Result<Self> {
        let sentinels = sentinels
            .into_iter()
            .map(unnamed)
            .collect::<RedisResult<Vec<_>>>()?;
        Ok(Self {
            sentinels,
            last: Arc::default(),
            name: name.into(),
            like: None,
        })
    }

    /// Takes the credentials, the database and TLS of the servers from an address.
    pub fn servers(mut self, like: impl IntoConnectionInfo) -> Result<Self> {
        self.like = Some(unnamed(like)?);
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
    pub(crate) async fn named_by<A: Ask>(
        &self,
        (number, sentinel): (usize, &ConnectionInfo),
        asked: &Mutex<HashSet<Address>>,
        time: Duration,
    ) -> RedisResult<ConnectionInfo> {
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        let named = A::ask(sentinel.clone(), question, time).await?;
        let address = self.read(&named)?;
        if !locked(asked).insert(address.clone()) {
            return Err(self.nobody());
        }
        let server = self.server(&address)?;
        let role = A::ask(server.clone(), redis::cmd("ROLE"), time).await;
        if !is_primary(&role) {
            return Err(self.nobody());
        }
        self.last.store(number, Relaxed);
        Ok(server)
    }

    /// The address that a sentinel names.
    fn read(&self, answer: &Value) -> RedisResult<Address> {
        let port = |value: &Value| text(value)?.parse().ok();
        if let Some([host, port_value, ..]) = answer.as_sequence()
            && let (Some(host), Some(port)) = (text(host), port(port_value))
        {
            return Ok((host.to_owned(), port));
        }
        Err(self.nobody())
    }

    fn server(&self, (host, port): &Address) -> RedisResult<ConnectionInfo> {
        let like = match &self.like {
            Some(like) => like.clone(),
            None => unnamed("redis://any")?,
        };
        Ok(with_address(&like, host, *port))
    }

    /// An error that waiting may cure, as sentinels elect a primary.
    pub(crate) fn nobody(&self) -> RedisError {
        let kind = redis::ErrorKind::MasterNameNotFoundBySentinel;
        let what = "no sentinel names a server that is a primary";
        (kind, what, self.name.clone()).into()
    }
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

#[cfg(test)]
mod tests;
