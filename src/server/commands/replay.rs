//! The commands that carry effects: what another server, or this one in an earlier life, has decided. Only the replication link, the
//! link of an atomic slot migration and the append-only file may call them.

use super::super::clock;
use super::super::fences;
use super::super::lock_key::Key;
use super::super::open_key::Purpose;
use super::super::propagation;
use super::super::slot_migration::Arrivals;
use super::Call;
use crate::command::{Error, Reply};
use crate::lock::codec::Record;
use crate::lock::{Effect, Lock, Now};

impl<'c> Call<'c> {
    /// Refuses everybody but those who may.
    fn must_be_replay(self) -> Result<(), Error> {
        match self.ctx.is_replay() {
            true => Ok(()),
            false => Err(Error::Internal),
        }
    }

    /// Opens the key for `change`, and tells of it.
    fn replay(self, change: impl FnOnce(&mut Key<'c>, Now)) -> Result<(), Error> {
        let now = clock::of_command();
        let mut key = self.key(Purpose::Write)?;
        let arrivals = Arrivals::before(&key);
        change(&mut key, now);
        arrivals.after(&key);
        self.ctx.signal_modified(key.name());
        self.pass_on();
        Ok(())
    }

    /// Sends the command on, to the append-only file of a replica.
    fn pass_on(self) {
        self.ctx.replicate_verbatim();
        self.ctx.reply(Reply::Done(true));
    }
}

/// ```text
/// LOCK._APPLY key record
/// LOCK._APPLY key token record
/// ```
/// Does what the primary decided (the forms are [`propagation`]'s).
pub(super) fn apply(call: Call<'_>) -> Result<(), Error> {
    call.must_be_replay()?;
    match propagation::read(call.argv.after_key()).map_err(|_| Error::BadEffect)? {
        Record::Effect(effect) => call.replay(|key, now| apply_effect(key, &effect, now)),
        Record::State(lock) => call.replay(|key, now| apply_state(key, lock, now)),
        Record::Fence(fence) => {
            // Of the key, which only says the slot, nothing is known: it may have a value of any type.
            fences::observe(fence);
            call.pass_on();
            Ok(())
        }
    }
}

fn apply_effect(key: &mut Key<'_>, effect: &Effect<'_>, now: Now) {
    effect.fence().into_iter().for_each(fences::observe);
    key.note_effect(effect, now);
    key.apply(effect, now);
}

fn apply_state(key: &mut Key<'_>, lock: Lock, now: Now) {
    for (_, hold) in lock.holders() {
        fences::observe(hold.fence);
    }
    key.replace(lock, now);
}

/// ```text
/// LOCK._RELEASE key token
/// ```
/// The token's hold, the lock's only one, has ended.
pub(super) fn apply_release(call: Call<'_>) -> Result<(), Error> {
    call.must_be_replay()?;
    let mut args = call.args();
    let token = args.token().map_err(|_| Error::BadEffect)?;
    args.finish()?;
    // There are no others that could be over.
    let effect = Effect::Release { now_ms: 0, token };
    call.replay(|key, now| apply_effect(key, &effect, now))
}
