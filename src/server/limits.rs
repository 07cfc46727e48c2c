//! How many clients may wait. A blocked client costs the server about 18 KB on 6.2 and 36 KB on 7.0
//! and later.

use std::ffi::CStr;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::command::Error;

/// A limit. It is set at load, and from 7.0 on also by CONFIG SET.
#[derive(Debug)]
pub(super) struct Limit {
    /// Its name as a load argument. As a setting of CONFIG it has the module's name as a prefix.
    pub(super) name: &'static CStr,
    value: AtomicI64,
}

/// The smallest value of a limit: no client may wait.
pub(super) const MIN: i64 = 0;
/// The largest value of a limit.
pub(super) const MAX: i64 = 1_000_000;

pub(super) static PER_KEY: Limit = Limit::new(c"max-waiters-per-key", 10_000);
pub(super) static PER_SERVER: Limit = Limit::new(c"max-waiters", 10_000);

/// All limits.
pub(super) static ALL: [&Limit; 2] = [&PER_KEY, &PER_SERVER];

impl Limit {
    const fn new(name: &'static CStr, default: i64) -> Self {
        Self {
            name,
            value: AtomicI64::new(default),
        }
    }

    pub(super) fn get(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }

    /// Sets it. False if `value` is out of bounds.
    pub(super) fn set(&self, value: i64) -> bool {
        let fits = (MIN..=MAX).contains(&value);
        if fits {
            self.value.store(value, Ordering::Relaxed);
        }
        fits
    }

    fn is_reached(&self, waiters: usize) -> bool {
        i64::try_from(waiters).is_ok_and(|waiters| waiters >= self.get())
    }
}

/// Checks whether one more client may wait, given how many wait for the key and on the server.
pub(super) fn admit((on_key, on_server): (usize, usize)) -> Result<(), Error> {
    if PER_KEY.is_reached(on_key) {
        return Err(Error::KeyQueueFull);
    }
    if PER_SERVER.is_reached(on_server) {
        return Err(Error::ServerQueueFull);
    }
    Ok(())
}
