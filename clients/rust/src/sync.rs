//! Locks over blocking connections.
//!
//! ```no_run
//! use std::time::Duration;
//! use redis_lock_client::{Options, sync::LockClient};
//!
//! # fn main() -> redis_lock_client::Result<()> {
//! let locks = LockClient::open("redis://127.0.0.1:6379", Options::default())?;
//!
//! let lock = locks.lock("stock:7").with_ttl(Duration::from_secs(10));
//! if let Some(guard) = lock.lock_timeout(Duration::from_secs(5))? {
//!     let keep_alive = guard.keep_alive();
//!     while work_is_left() && !guard.is_lost() {
//!         work(guard.fence());
//!     }
//!     drop(keep_alive);
//!     guard.unlock()?;
//! }
//!
//! let page = locks.rwlock("page:7");
//! let reader = page.read()?; // any number at once; a waiting writer goes first
//! drop(reader); // releases, too, but cannot say if the hold was lost
//! # Ok(())
//! # }
//! # fn work_is_left() -> bool { false }
//! # fn work(_: u64) {}
//! ```
//!
//! # Waiting
//!
//! Each thread that waits has a connection of its own, which blocks in the server for one slice at
//! a time. The token, and with it the place in the queue, is the same for all slices and
//! connections. A client that gives up releases its place. Renewals and releases never wait for a
//! connection that waits.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use std::{fmt, iter};

use redis::{Cmd, Connection, FromRedisValue, RedisResult, ToSingleRedisArg, Value};

use crate::acquire::{Attempt, Verdict, Wait};
use crate::driver::{Driver, Engine, locked};
use crate::error::{Error, Result};
use crate::locks::Returns;
use crate::options::Options;
use crate::replies::is_to_leave;
use crate::server::{Batch, Boxed, CONNECT_TIME, Source, answered, rest_for_answer};

/// Makes locks. One client serves all threads of a program, and a clone is the same client.
pub type LockClient = crate::locks::LockClient<Blocking>;
/// An exclusive lock. It holds nothing itself: what is held is the [`Guard`].
pub type Lock = crate::locks::Lock<Blocking>;
/// A reader-writer lock. It holds nothing itself: what is held is the [`Guard`].
pub type RwLock = crate::locks::RwLock<Blocking>;
/// A lock that a number of guards hold at a time.
pub type Semaphore = crate::locks::Semaphore<Blocking>;
/// Several locks as one.
pub type MultiLock = crate::locks::MultiLock<Blocking>;
/// A value that one of all callers makes.
pub type Once = crate::once::Once<Blocking>;
/// A hold on a lock. Dropping it releases the lock.
pub type Guard = crate::guard::Guard<Blocking>;
/// Renews a hold in a thread of its own until it is dropped. Its drop releases nothing.
pub type KeepAlive = crate::keeper::KeepAlive<Blocking>;

impl LockClient {
    /// Runs a job unless somebody runs it now, or ran it less than `at_least` ago. `None` if it did
    /// not run here. It does not wait.
    ///
    /// The lock is held for `at_most`, and not renewed: a job that takes longer may run twice. The
    /// lock is released after the job, also if that panics. But it is held until `at_least` has
    /// passed since the grant, by the server's clock.
    pub fn run_once<T>(
        &self,
        key: impl AsRef<[u8]>,
        at_most: Duration,
        at_least: Duration,
        job: impl FnOnce(&Guard) -> T,
    ) -> Result<Option<T>> {
        let job = async |guard: &Guard| job(guard);
        now(self.run(key.as_ref(), (at_most, at_least), job))
    }
}

impl Once {
    /// Returns the value, made by `make` or by another caller.
    ///
    /// An error of `make` goes to its own caller. The errors of this crate become one of the same type.
    /// [`Error::InProgress`] if there is no value in time,
    /// [`Error::ModuleMissing`] on a server without LOCK.ONCE.
    /// `make` gets the guard of the lock: write with its fence, and stop when it is lost.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use redis_lock_client::{Options, sync::LockClient};
    /// # use std::time::Duration;
    /// # fn render(_: u32) -> Result<String, std::io::Error> { Ok(String::new()) }
    /// # let locks = LockClient::open("redis://127.0.0.1:6379", Options::default())?;
    /// let page = locks.once("page:7").with_keep(Duration::from_secs(60));
    /// let html: String = page.get_or_make(|_| Ok::<_, Box<dyn std::error::Error>>(render(7)?))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_or_make<T, E>(
        &self,
        make: impl FnOnce(&Guard) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E>
    where
        T: ToSingleRedisArg + FromRedisValue,
        E: From<Error> + fmt::Debug,
    {
        now(self.value(async |guard| make(guard)))
    }
}

impl KeepAlive {
    /// Waits until the hold is over or released, `timeout` at most. True if it is over or released.
    pub fn wait_lost(&self, timeout: Duration) -> bool {
        now(self.lease.lost::<Blocking>(timeout))
    }
}

/// The number of connections that are kept for the next command.
const MAX_IDLE: usize = 64;

/// Marks what blocks, as in [`Guard`].
#[derive(Clone, Copy, Debug)]
pub enum Blocking {}

/// The thread that waits for a future.
struct Waits(Thread);

impl Wake for Waits {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    /// A change of a lease wakes a thread once, however often it has waited for that.
    static WAKER: Waker = Arc::new(Waits(thread::current())).into();
}

/// The result of a future over `Blocking`, which is never pending.
fn now<T>(future: impl Future<Output = T>) -> T {
    let (mut future, mut context) = (pin!(future), Context::from_waker(Waker::noop()));
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
    }
}

impl Returns for Blocking {
    type Done<'a, T: 'a> = T;
}

impl Driver for Blocking {
    type Peer = Pool;
    type Hub = ();
    type Runtime = ();

    const BLOCKS: bool = true;

    fn done<'a, T: 'a>(work: impl Future<Output = T> + Send + 'a) -> T {
        now(work)
    }

    fn runtime() -> Result<()> {
        Ok(())
    }

    fn hub(_: &Options) {}

    fn peer(source: Source, _: Option<()>) -> Pool {
        let idle = Mutex::default();
        Pool { source, idle }
    }

    fn send<'a>(pool: &'a Pool, batch: Batch<'a>) -> Boxed<'a, RedisResult<Value>> {
        Box::pin(async move {
            let start = Instant::now();
            let idle = locked(&pool.idle).pop();
            let mut connection = match idle {
                Some(connection) => connection,
                None => {
                    // However long the command itself may take.
                    let time = batch.time.min(CONNECT_TIME);
                    let client = pool.source.client::<Self>(time).await?;
                    client.get_connection_with_timeout(time)?
                }
            };
            let time = rest_for_answer(start, batch.time);
            let answer = ask(&mut connection, batch.commands, time);
            let mut idle = locked(&pool.idle);
            match &answer {
                // The others are of the same server, and older. A new one asks who is primary.
                Err(error) if is_to_leave(error) => idle.clear(),
                _ if idle.len() < MAX_IDLE => idle.push(connection),
                _ => {}
            }
            answer
        })
    }

    async fn ask_next(engine: &Engine<Self>, attempt: &mut Attempt<'_>) -> Verdict {
        engine.ask(attempt, Wait::Block).await
    }

    async fn within<T: Send>(time: Duration, future: impl Future<Output = T> + Send) -> Option<T> {
        // A guard may be dropped with its thread.
        let waker = WAKER.try_with(Waker::clone);
        let waker = waker.unwrap_or_else(|_| Waker::noop().clone());
        let (mut future, start) = (pin!(future), Instant::now());
        loop {
            if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Some(done);
            }
            let left = time.saturating_sub(start.elapsed());
            if left.is_zero() {
                return None;
            }
            thread::park_timeout(left);
        }
    }

    fn keep((): &(), keeper: Boxed<'static, ()>) {
        let started = thread::Builder::new()
            .name("redis-lock keep-alive".to_owned())
            .spawn(move || now(keeper));
        if let Err(error) = started {
            // The lease ends by itself then, and `is_lost` says so.
            tracing::error!(%error, "nothing renews or releases a lock");
        }
    }

    fn settle(_: &Engine<Self>, (): &(), work: Boxed<'static, ()>) {
        now(work);
    }
}

/// As many connections as threads use at a time.
pub(crate) struct Pool {
    source: Source,
    idle: Mutex<Vec<Connection>>,
}

/// Sends commands together, and waits for each answer, `timeout` at most. A late one would be taken
/// for the next one's.
fn ask(connection: &mut Connection, commands: &[Cmd], timeout: Duration) -> RedisResult<Value> {
    connection.set_write_timeout(Some(timeout))?;
    connection.set_read_timeout(Some(timeout))?;
    let packed: Vec<_> = commands.iter().flat_map(Cmd::get_packed_command).collect();
    connection.send_packed_command(&packed)?;
    let answers = iter::repeat_with(|| connection.recv_response())
        .filter(|answer| !matches!(answer, Ok(Value::Push { .. })))
        .take(commands.len());
    answered(answers.collect::<RedisResult<_>>()?)
}
