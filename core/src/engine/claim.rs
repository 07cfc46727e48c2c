//! A claim: several keys are taken under one fence, or none of them.
//!
//! It was decided on a look at all of them that nothing has disturbed ([`super::look`]), and they
//! are taken as they were seen. To open a key may run callbacks of other modules: if something has
//! changed one of the keys by then, those that were taken are given back.

use super::command::waited_key_ref;
use super::commit::{commit, Cause};
use super::host::{Host, Key, Purpose, Server, WrongType};
use super::linger;
use super::serve::serve_changed;
use crate::command::Error;
use crate::lock::{Grant, Hold, Lock, Mode, Token};
use crate::wait::{KeyRef, Linger};

/// Whose claim it is, and what it takes.
pub(super) struct Claim<'a> {
    pub(super) token: Token<'a>,
    /// What it gets of a key of which it has nothing, in any mode.
    pub(super) grant: Grant,
    /// What its holds are bound to, and whether the owner knows of them already.
    pub(super) linger: (Option<Linger>, bool),
    /// The first of its keys among the words of the running command; `None` of one that has waited.
    pub(super) first_word: Option<usize>,
}

impl Claim<'_> {
    /// Takes all keys, each in its mode. `own` is what the token was seen to have of it. The server
    /// is not asked again whether it serves them: a lock that has ended since the look is as good
    /// as free, and nobody else can have it yet.
    ///
    /// # Errors
    /// If a key has changed since the look. Then none is taken.
    pub(super) fn take<H: Host>(
        &self,
        host: &mut H,
        keys: impl Iterator<Item = (Mode, Option<Hold>)>,
        name: impl Fn(usize) -> Option<KeyRef>,
    ) -> Result<(), Error> {
        for (nth, (mode, own)) in keys.enumerate() {
            let taken = match self.first_word {
                Some(first) => host
                    .open_word(first.saturating_add(nth), Purpose::Write)
                    .and_then(|mut key| self.take_one(&mut key, mode, own)),
                None => name(nth).map_or(Err(Error::Changed), |key_ref| {
                    with_key(host, &key_ref, |key| self.take_one(key, mode, own))?
                }),
            };
            if let Err(error) = taken {
                if own.is_none() {
                    self.give_back(host, (0..nth).filter_map(name));
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn take_one<K: Key>(&self, key: &mut K, mode: Mode, own: Option<Hold>) -> Result<(), Error> {
        if Lock::admits(key.lock(), mode, self.token, self.grant.at) != Ok(own) {
            return Err(Error::Changed);
        }
        let grant = self.grant.at_key(own, mode);
        let had_it = grant.had_it;
        let cause = match self.first_word {
            None => Cause::HandedOver { had_it },
            Some(_) => Cause::Acquired { had_it },
        };
        if !linger::give(key, self.token, grant, self.linger, cause) {
            return Err(Error::Changed);
        }
        if let Some(key_ref) = waited_key_ref(key) {
            key.parts().machine.registry.lock_granted(&key_ref);
            serve_changed(key, &key_ref, self.grant.at);
        }
        Ok(())
    }

    /// Ends the holds that were taken.
    #[cold]
    fn give_back<H: Host>(&self, host: &mut H, taken: impl Iterator<Item = KeyRef>) {
        let (at, fence) = (self.grant.at, self.grant.hold.fence);
        for key_ref in taken {
            // What has another type now is no hold.
            let _ = with_key(host, &key_ref, |key| {
                let own = key.lock().and_then(|lock| lock.release(self.token, at));
                if let Some((effect, _)) = own.filter(|(_, hold)| hold.fence == fence) {
                    commit(key, &effect, Cause::TakenBack, at);
                    serve_changed(key, &key_ref, at);
                }
            });
        }
    }
}

/// Opens a key of any database for a moment.
///
/// # Errors
/// If it has a value of another type.
pub(super) fn with_key<H: Host, R>(
    host: &mut H,
    key_ref: &KeyRef,
    act: impl FnOnce(&mut H::Key<'_>) -> R,
) -> Result<R, Error> {
    host.server().select_db(key_ref.db);
    let name = host.name(&key_ref.name);
    let mut key = host
        .open(&name, Purpose::Write)
        .map_err(|WrongType| Error::WrongType)?;
    Ok(act(&mut key))
}
