//! LOCK.ONCE: whoever waits for a result is answered by it in place of the lock. The result is a
//! string that the holder writes by LOCK.EXEC, and the module only reads it.
//!
//! # The rules
//!
//! 1. A result that exists and is not early answers a request at once, whoever holds or waits
//!    ([`Look`]). Without one the request is one for the exclusive hold.
//! 2. An early result is always the answer, with a fence if the hold is free for this request. Such
//!    a request never waits, and leaves no place.
//! 3. Whenever a lock is served, a result that exists ends all places for it, wherever they stand
//!    ([`answer`]): those of a place that ask for it get it, the others null. The newest request of
//!    a place says whether, and by which result, it is answered.
//! 4. Nobody is granted a hold in place of a result that exists: right before a grant the server is
//!    asked once more ([`Step::Asks`](crate::wait::Step)), because the answers may take several
//!    turns. What is early does not matter to those who wait.
//! 5. A value changes no hold, and sends no effect.

use std::cell::OnceCell;
use std::rc::Rc;

use super::count::Count;
use super::ending;
use super::host::{Found, Key, Server, TypesOfKey, WrongType};
use super::machine::{Machine, Removed};
use super::message::{Message, Outcome};
use crate::command::acquire::Asked;
use crate::command::Error;
use crate::wait::KeyRef;

/// The look of a request at its result.
pub(super) struct Look<'a> {
    asked: Asked<'a>,
    /// The value, and whether it is early.
    found: OnceCell<(Rc<[u8]>, bool)>,
}

impl<'a> Look<'a> {
    pub(super) const fn new(asked: Asked<'a>) -> Self {
        Self {
            asked,
            found: OnceCell::new(),
        }
    }

    /// Looks, with the lock closed. What was decided on it before must be decided anew.
    ///
    /// # Errors
    /// If either key has a value of another type, or the result may be at another node.
    pub(super) fn look<K: Key>(&self, key: &mut K) -> Result<(), Error> {
        let Asked { name, early_ms } = self.asked;
        let changes = key.shared().inbox.changes();
        let seen = &key.parts().machine.absent_result;
        let is_seen = |(seen, by): &(Rc<[u8]>, u64)| **seen == *name && *by == changes;
        if seen.as_ref().is_some_and(is_seen) {
            // It was looked at for those who wait, and nothing has run since.
            return Ok(());
        }
        let found = key.result(name, early_ms.is_some());
        match found.map_err(|WrongType| Error::WrongType)? {
            Found::Value(value, ttl_ms) => {
                let both = ttl_ms.zip(early_ms);
                let is_early = both.is_some_and(|(ttl, early)| ttl <= early);
                self.found.get_or_init(|| (value, is_early));
                Ok(())
            }
            Found::Nothing => Ok(()),
            Found::OtherType => Err(Error::WrongType),
            Found::Elsewhere => Err(Error::TryAgain),
        }
    }

    /// The value that was found, and whether it is early.
    pub(super) fn found(&self) -> Option<(&[u8], bool)> {
        let (value, is_early) = self.found.get()?;
        Some((value, *is_early))
    }
}

/// How many requests are answered in one go, about, and how many bytes they get. The simulations
/// have every answer in a turn of its own.
const MOST: usize = if cfg!(test) { 1 } else { 128 };
const MOST_BYTES: usize = 512 * 1_024;

/// What has become of those who wait for a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) is_any: bool,
    /// More are to be answered.
    pub(super) is_rest: bool,
}

/// Ends the places of a lock whose results exist, in the order of the queue. What was decided on
/// the lock before must be decided anew.
///
/// # Errors
/// If the lock has a value of another type by then.
#[inline]
pub(super) fn answer<K: Key>(key: &mut K, key_ref: &KeyRef) -> Result<Answered, WrongType> {
    match key.parts().machine.registry.waits_for_result(key_ref) {
        true => answer_all(key, key_ref),
        false => Ok(Answered::default()),
    }
}

#[cold]
fn answer_all<K: Key>(key: &mut K, key_ref: &KeyRef) -> Result<Answered, WrongType> {
    let (mut answered, mut requests, mut bytes) = (Answered::default(), 0_usize, 0_usize);
    for name in key.parts().machine.registry.results_of(key_ref) {
        let value = match key.result(&name, false)? {
            Found::Value(value, _) => Ok(value),
            Found::Elsewhere => Err(Error::TryAgain),
            Found::Nothing => {
                let changes = key.shared().inbox.changes();
                key.parts().machine.absent_result = Some((name, changes));
                continue;
            }
            Found::OtherType => continue,
        };
        let (server, each) = (key.server(), value.as_ref().map_or(0, |value| value.len()));
        loop {
            answered.is_rest = requests >= MOST || bytes >= MOST_BYTES;
            if answered.is_rest {
                return Ok(answered);
            }
            let machine = key.parts().machine;
            let Some(removed) = machine.registry.end_for_result(key_ref, &name) else {
                break;
            };
            answered.is_any = true;
            requests = requests.saturating_add(removed.len());
            bytes = bytes.saturating_add(each.saturating_mul(removed.len()));
            for one in removed {
                tell::<K>(server, machine, one, &name, &value);
            }
        }
    }
    Ok(answered)
}

/// Tells a request of a place that was answered by a result.
fn tell<K: Key>(
    server: K::Server,
    machine: &mut Machine<TypesOfKey<K>>,
    removed: Removed<TypesOfKey<K>>,
    name: &[u8],
    value: &Result<Rc<[u8]>, Error>,
) {
    match value {
        Err(error) => ending::tell(server, machine, removed, Some(*error)),
        Ok(value) if removed.result.as_deref() == Some(name) => {
            server.count(Count::ResultsAnswered);
            machine.wait_ended(&removed, server.monotonic_us());
            let outcome = Outcome::Value(value.clone());
            ending::tell_as(server, machine, removed, outcome, Message::Result);
        }
        Ok(_) => ending::tell(server, machine, removed, None),
    }
}
