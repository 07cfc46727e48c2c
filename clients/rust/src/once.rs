//! A value that one of all callers makes, by LOCK.ONCE.

use std::fmt;
use std::time::Duration;

use redis::{FromRedisValue, ToSingleRedisArg, Value};

use crate::acquire::{Patience, random};
use crate::command::{Claim, hash_tag, millis};
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::locks::{Lock, LockClient};
use crate::replies::{Class, class};
use crate::server::Batch;

/// A value under the key `name`, an ordinary string. One of all callers makes it, and the others
/// wait in the server's queue and get it.
///
/// A value that is there costs one request. One that soon ends is made anew by one caller, while the
/// others use it. If that fails, it gets the old value, too.
///
/// The lock under which a value is made is renewed meanwhile. If a maker fails, the next caller in
/// the queue makes the value. If its process dies, the next one does so after the ttl. A maker that
/// has lost its lock gets its value, which is not stored. "Once" is at least once, because the work
/// of a maker that dies is done again.
///
/// Values are what redis-rs writes and reads: bytes, text, numbers, and types of your own that are
/// `ToSingleRedisArg` and `FromRedisValue`.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked for before `get_or_make`"]
pub struct Once<D: Driver> {
    name: Vec<u8>,
    lock: Lock<D>,
    keep: Duration,
    early: Duration,
    /// Draws how early it is. `early` is the time that the making takes then.
    beta: Option<f64>,
    wait: Duration,
}

impl<D: Driver> LockClient<D> {
    /// A value under the key `name` that one of all callers makes, while the others wait and get it.
    pub fn once(&self, name: impl AsRef<[u8]>) -> Once<D> {
        let name = name.as_ref();
        let lock = match hash_tag(name) {
            Some(_) => [name, b":once"].concat(),
            None => [b"{", name, b"}:once"].concat(),
        };
        Once {
            name: name.to_vec(),
            lock: self.lock(lock),
            keep: Duration::from_secs(60),
            early: Duration::from_secs(10),
            beta: None,
            wait: Duration::from_secs(5),
        }
    }
}

impl<D: Driver> Once<D> {
    /// How long the value lives, 60 s by default.
    pub fn with_keep(mut self, keep: Duration) -> Self {
        self.keep = keep;
        self
    }

    /// How long before its end the value is made anew, 10 s by default, and at most half of its life.
    pub fn with_early(mut self, early: Duration) -> Self {
        (self.early, self.beta) = (early, None);
        self
    }

    /// In place of [`Once::with_early`]: each call draws how early, as -`delta` · `beta` · ln(random).
    ///
    /// `delta` is the time that the making takes. A `beta` above 1 is sooner, and one below 1 later.
    pub fn with_xfetch(mut self, delta: Duration, beta: f64) -> Self {
        (self.early, self.beta) = (delta, Some(beta));
        self
    }

    /// The ttl of the lock: how long the others wait for a maker that has died. By default that of
    /// [`Options::ttl`](crate::Options::ttl).
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.lock = self.lock.with_ttl(ttl);
        self
    }

    /// How long to wait for the value of another caller, 5 s by default. `Duration::MAX` is for ever.
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// The key of the lock: the name and `:once`, with braces around a name without a hash tag.
    ///
    /// One DEL of both keys makes the value invalid, and keeps one that is being made from being stored.
    pub fn lock_key(&self) -> &[u8] {
        self.lock.place.key()
    }

    /// Returns the value, made by `make` or by another caller.
    pub(crate) async fn value<T, E>(
        &self,
        make: impl AsyncFnOnce(&Guard<D>) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E>
    where
        T: ToSingleRedisArg + FromRedisValue,
        E: From<Error> + fmt::Debug,
    {
        let (guard, old) = self.look().await?;
        let Some(guard) = guard else {
            return Ok(read(old.ok_or(Error::InProgress)?)?);
        };
        let keep_alive = guard.keep_alive();
        let made = make(&guard).await;
        drop(keep_alive);
        let error = match made {
            Ok(value) => {
                let mut set = redis::cmd("SET");
                set.arg(&self.name).arg(&value);
                set.arg("PX").arg(millis(self.keep));
                guard.hold.store(&set).await?;
                return Ok(value);
            }
            Err(error) => error,
        };
        let _ = guard.hold.unlock().await;
        let Some(old) = old else {
            return Err(error);
        };
        tracing::warn!(?error, "no new value could be made, so the old one is used");
        Ok(read(old)?)
    }

    /// Finds the value, or the right to make it and what there is to use if that fails.
    async fn look(&self) -> Result<(Option<Guard<D>>, Option<Value>)> {
        let patience = Patience::of(self.wait);
        let early = match self.beta {
            None => self.early,
            // Vattani, Chierichetti, Lowenstein: Optimal Probabilistic Cache Stampede Prevention,
            // 2015.
            Some(beta) => {
                let drawn = -self.early.as_secs_f64() * beta * (1.0 - random()).ln();
                Duration::try_from_secs_f64(drawn.min(1e9)).unwrap_or_default()
            }
        };
        // A value must not be early from its first moment on.
        let early = early.min(self.keep.div_f64(2.0));
        let early = early.as_millis().min(1 << 48) as u64;
        let claim = Claim::Once(self.name.clone(), early);
        match self.peek(early).await? {
            (None, _) => {}
            // Nobody waits because of a value that is there, nor fails.
            (old, true) => match self.lock.take_or_find(&claim, Patience::Never).await {
                Ok((None, None)) => {}
                Err(error) if error.may_pass() => return Ok((None, old)),
                answer => return answer,
            },
            (old, false) => return Ok((None, old)),
        }
        self.lock.take_or_find(&claim, patience).await
    }

    /// The value, if there is one, and whether it is early. The acquire waits for the end of what
    /// passes.
    async fn peek(&self, early: u64) -> Result<(Option<Value>, bool)> {
        D::runtime()?;
        let engine = &self.lock.engine;
        let about = |name| redis::cmd(name).arg(&self.name).take();
        let commands = [about("GET"), about("PTTL")];
        let time = engine.options.answer_time(self.lock.ttl);
        let answer = match engine.send(Batch::of(&self.name, &commands, time)).await {
            Err(error) if class(&error) != Class::Final => return Ok((None, false)),
            answer => answer?,
        };
        let (value, left): (Option<Value>, i64) = read(answer)?;
        Ok((value, u64::try_from(left).is_ok_and(|left| left <= early)))
    }
}

/// Reads what is stored as a value.
fn read<T: FromRedisValue>(value: Value) -> Result<T> {
    T::from_redis_value(value).map_err(|error| Error::Redis(error.into()))
}
