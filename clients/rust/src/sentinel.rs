//! The primary that sentinels name.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use redis::{Client, Cmd, ConnectionInfo, IntoConnectionInfo, RedisError, RedisResult, Value};

use crate::driver::Driver;
use crate::error::Result;
use crate::replies::is_refused;
use crate::server::{Batch, Source, item, unnamed, with_address};

/// The time in which a sentinel that works answers, and the primary as well.
const MOMENT: Duration = Duration::from_millis(200);

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
    /// The number of the one to be asked first.
    first: Arc<AtomicUsize>,
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
            first: Arc::default(),
            name: name.into(),
            like: unnamed("redis://any")?,
        })
    }

    /// Takes the credentials, the database and TLS of the servers from an address.
    pub fn servers(mut self, like: impl IntoConnectionInfo) -> Result<Self> {
        self.like = unnamed(like)?;
        Ok(self)
    }

    /// How to connect to the primary that one of them names.
    ///
    /// One that is silent, or that names a server which is, must not take the time of all. So all are
    /// asked for a moment first, and then each for its part of the time. The one that has named the
    /// primary before comes first.
    pub(crate) async fn primary<D: Driver>(&self, time: Duration) -> RedisResult<Client> {
        let all = self.sentinels.len();
        let part = time.div_f64(all.max(1) as f64);
        let numbered = self.sentinels.iter().enumerate().cycle();
        let from_first = numbered.skip(self.first.load(Relaxed));
        let mut last = self.nobody();
        for (before, (number, sentinel)) in from_first.take(all.saturating_mul(2)).enumerate() {
            let part = if before < all { part.min(MOMENT) } else { part };
            // This call may have no time for the next one.
            self.first.store(number.wrapping_add(1), Relaxed);
            match D::in_time(part, self.named_by::<D>(sentinel, part)).await {
                Ok(server) => {
                    self.first.store(number, Relaxed);
                    return Ok(server);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn named_by<D: Driver>(
        &self,
        sentinel: &ConnectionInfo,
        time: Duration,
    ) -> RedisResult<Client> {
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        let sentinel = Client::open(sentinel.clone())?;
        let named = ask::<D>(sentinel, question, time).await?;
        let address = redis::from_redis_value(named).map_err(|_| self.nobody())?;
        let server = Client::open(with_address(&self.like, &address))?;
        match ask::<D>(server.clone(), redis::cmd("ROLE"), time).await {
            Ok(role) if item::<String>(&role, 0).as_deref() == Some("master") => Ok(server),
            // A user without the right to ask is not told.
            Err(error) if is_refused(&error) => Ok(server),
            _ => Err(self.nobody()),
        }
    }

    /// An error that waiting may cure, as sentinels elect a primary.
    fn nobody(&self) -> RedisError {
        let kind = redis::ErrorKind::MasterNameNotFoundBySentinel;
        let what = "no sentinel names a server that is a primary";
        (kind, what, self.name.clone()).into()
    }
}

async fn ask<D: Driver>(client: Client, question: Cmd, time: Duration) -> RedisResult<Value> {
    let question = [question];
    let batch = Batch::of(&[], &question, time);
    let peer = D::peer(Source::Server(client), None);
    D::send(&peer, batch).await
}
