use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::{Cmd, IntoConnectionInfo, RedisResult, Value};

use super::connect::{Connect, Connection};
use super::guard::Guard;
use crate::attempt::{OwnerAnswer, PACE, Patience, owner_answer};
use crate::common::{Named, settings};
use crate::error::{Result, is_unanswered, may_pass};
use crate::options::Options;
use crate::support::Support;
use crate::{Error, Mode};

/// The number of connections that are kept for the next command.
const MAX_IDLE: usize = 64;

/// Makes locks. One client serves all threads of a program, and a clone is the same client.
#[derive(Clone)]
pub struct LockClient {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    connect: Box<dyn Connect>,
    pub(super) options: Options,
    pub(super) support: Support,
    idle: Mutex<Vec<Box<dyn Connection>>>,
}

impl LockClient {
    /// Makes a client of the server at an address. It connects when the first command is sent.
    pub fn open(address: impl IntoConnectionInfo, options: Options) -> Result<Self> {
        Ok(Self::new(redis::Client::open(address)?, options))
    }

    /// Makes a client of a `redis::Client`, or of anything else that makes connections.
    pub fn new(connect: impl Connect + 'static, options: Options) -> Self {
        Self {
            inner: Arc::new(Inner {
                connect: Box::new(connect),
                options,
                support: Support::default(),
                idle: Mutex::default(),
            }),
        }
    }

    /// An exclusive lock. `key` is its name in the server.
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        Lock(self.named(key.as_ref()))
    }

    /// A reader-writer lock. Readers and writers wait in one queue.
    pub fn rwlock(&self, key: impl AsRef<[u8]>) -> RwLock {
        RwLock(self.named(key.as_ref()))
    }

    fn named(&self, key: &[u8]) -> Named<Self> {
        Named::new(self, key, self.inner.options.ttl)
    }
}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClient")
            .field("options", &self.inner.options)
            .finish_non_exhaustive()
    }
}

impl Named<LockClient> {
    fn acquire(&self, how: (Mode, bool), patience: Patience) -> Result<Option<Guard>> {
        let place = self.place();
        let Some(grant) = self.client.inner.acquire(&place, how, self.ttl, patience)? else {
            return Ok(None);
        };
        Ok(Some(Guard::new(&self.client, place, how, grant, self.ttl)))
    }

    /// Waits as long as it takes.
    fn acquire_forever(&self, how: (Mode, bool)) -> Result<Guard> {
        loop {
            if let Some(guard) = self.acquire(how, Patience::Forever)? {
                return Ok(guard);
            }
        }
    }
}

/// An exclusive lock. It holds nothing itself: what is held is the [`Guard`].
#[derive(Clone, Debug)]
pub struct Lock(Named<LockClient>);

impl Lock {
    settings!("gives up");

    /// Takes the lock. Waits as long as it takes.
    pub fn lock(&self) -> Result<Guard> {
        self.0.acquire_forever((Mode::Exclusive, false))
    }

    /// Takes the lock if nobody holds it and nobody waits for it.
    pub fn try_lock(&self) -> Result<Option<Guard>> {
        self.0.acquire((Mode::Exclusive, false), Patience::None)
    }

    /// Takes the lock. `None` if it is unavailable for all of `timeout`.
    pub fn lock_timeout(&self, timeout: Duration) -> Result<Option<Guard>> {
        self.0
            .acquire((Mode::Exclusive, false), Patience::of(timeout))
    }
}

/// A reader-writer lock. It holds nothing itself: what is held is the [`Guard`].
#[derive(Clone, Debug)]
pub struct RwLock(Named<LockClient>);

impl RwLock {
    settings!("gives up");

    /// Takes a share. Waits as long as it takes. A writer that came first goes first.
    pub fn read(&self) -> Result<Guard> {
        self.0.acquire_forever((Mode::Shared, true))
    }

    /// Takes a share if no writer holds the lock and nobody waits for it.
    pub fn try_read(&self) -> Result<Option<Guard>> {
        self.0.acquire((Mode::Shared, true), Patience::None)
    }

    /// Takes a share. `None` if there is none to be had for all of `timeout`.
    pub fn read_timeout(&self, timeout: Duration) -> Result<Option<Guard>> {
        self.0.acquire((Mode::Shared, true), Patience::of(timeout))
    }

    /// Takes the lock alone. Waits as long as it takes.
    pub fn write(&self) -> Result<Guard> {
        self.0.acquire_forever((Mode::Exclusive, true))
    }

    /// Takes the lock alone if nobody holds it and nobody waits for it.
    pub fn try_write(&self) -> Result<Option<Guard>> {
        self.0.acquire((Mode::Exclusive, true), Patience::None)
    }

    /// Takes the lock alone. `None` if it is unavailable for all of `timeout`.
    pub fn write_timeout(&self, timeout: Duration) -> Result<Option<Guard>> {
        self.0
            .acquire((Mode::Exclusive, true), Patience::of(timeout))
    }
}

impl Inner {
    /// Sends a command once, on an idle connection or a new one.
    pub(super) fn ask(&self, command: &Cmd, timeout: Duration) -> RedisResult<Value> {
        let answer = self.connection(timeout).and_then(|mut connection| {
            let answer = connection
                .ask(command, timeout)
                .and_then(Value::extract_error);
            // A server that is no longer primary is not asked again: a new connection asks who is.
            if answer.as_ref().err().is_none_or(|error| !may_pass(error)) {
                self.put_back(connection);
            }
            answer
        });
        if answer.as_ref().err().is_some_and(is_unanswered) {
            // The others are of the same server, and older.
            self.idle().clear();
        }
        answer
    }

    /// Sends a command of an owner until it is answered, for as long as `patience`. A repetition
    /// does no harm.
    ///
    /// Returns whether it did what it says, and whether an answer was lost before.
    pub(super) fn insist(
        &self,
        command: &Cmd,
        timeout: Duration,
        patience: Duration,
    ) -> Result<(bool, bool)> {
        let start = Instant::now();
        let mut was_lost = false;
        loop {
            match owner_answer(self.ask(command, timeout)) {
                OwnerAnswer::Done => return Ok((true, was_lost)),
                OwnerAnswer::NotHeld => return Ok((false, was_lost)),
                OwnerAnswer::Failed(error) => return Err(error),
                OwnerAnswer::MayPass(error) => {
                    was_lost |= is_unanswered(&error);
                    if start.elapsed() >= patience {
                        return Err(Error::from(error));
                    }
                }
            }
            std::thread::sleep(PACE);
        }
    }

    fn connection(&self, timeout: Duration) -> RedisResult<Box<dyn Connection>> {
        let idle = self.idle().pop();
        match idle {
            Some(connection) => Ok(connection),
            // A server that is there accepts at once, however long the command itself may take.
            None => self.connect.connect(timeout.min(Duration::from_secs(2))),
        }
    }

    fn put_back(&self, connection: Box<dyn Connection>) {
        let mut idle = self.idle();
        if idle.len() < MAX_IDLE {
            idle.push(connection);
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Box<dyn Connection>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
