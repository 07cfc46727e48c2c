//! The commands that carry effects: what another server, or this one in an earlier life, has
//! decided. Only the replication link, the link of an atomic slot migration and the append-only
//! file may call them.

use crate::server::api::clock;
use crate::server::clients::blocked_client::Note;
use crate::server::host::lock_key::Key;
use crate::server::host::module::Task;
use crate::server::observe::notify;
use redis_lock_core::command::{apply, guard, Args, Error, Reply};
use redis_lock_core::engine::guard::GuardEvent;
use redis_lock_core::engine::host::{Host, Key as _, Purpose};
use redis_lock_core::engine::Event;
use redis_lock_core::lock::codec::Record;
use redis_lock_core::lock::{Effect, Now};

impl<'c> Task<'c> {
    /// Refuses everybody but those who may.
    fn must_be_replay(&self) -> Result<(), Error> {
        match self.ctx().is_replay() {
            true => Ok(()),
            false => Err(Error::Internal),
        }
    }

    /// Opens the key for `change`, and sends the command on.
    fn replay(&mut self, change: impl FnOnce(&mut Key<'_, 'c>, Now)) -> Result<(), Error> {
        let now = clock::of_command();
        let (ctx, migrations) = (self.ctx(), &self.module().migrations);
        let mut key = self.open_key(Purpose::Write)?;
        let name = key.name();
        let before = migrations.before(name.bytes(), key.lock());
        change(&mut key, now);
        migrations.after(before, name.bytes(), key.lock());
        ctx.signal_modified(name);
        drop(key);
        self.pass_on();
        Ok(())
    }

    /// Sends the command on, to the append-only file of a replica.
    fn pass_on(&self) {
        let ctx = self.ctx();
        ctx.replicate_verbatim();
        ctx.reply(Reply::Done(true));
    }
}

pub(in crate::server) fn apply(task: &mut Task<'_>) -> Result<(), Error> {
    task.must_be_replay()?;
    let fences = &task.module().shared.fences;
    match apply::parse(task.argv().after_key())? {
        Record::Effect(effect) => {
            effect.fence().into_iter().for_each(|f| fences.observe(f));
            if let Effect::Hold { hold, .. } = &effect {
                task.module().lease_came(hold.deadline);
            }
            task.replay(|key, now| apply_effect(key, &effect, now))
        }
        Record::State(lock) => {
            for (_, hold) in lock.holders() {
                fences.observe(hold.fence);
                task.module().lease_came(hold.deadline);
            }
            task.replay(|key, _| key.replace(lock))
        }
        Record::Fence(fence) => {
            // Nothing is known of the key, which only says the slot: it may have a value of any
            // type.
            fences.observe(fence);
            task.pass_on();
            Ok(())
        }
        Record::Leases(_) => Err(Error::BadEffect),
    }
}

/// What the primary tells of its guard. It goes to no file.
pub(in crate::server) fn guard(task: &mut Task<'_>) -> Result<(), Error> {
    task.must_be_replay()?;
    let beat = guard::parse(Args::new(task.argv().after_name()))?;
    let heard = GuardEvent::Heard(beat, clock::boot_us(), clock::now());
    task.module().leave(Note::Guard(heard));
    task.ctx().reply(Reply::Done(true));
    Ok(())
}

fn apply_effect(key: &mut Key<'_, '_>, effect: &Effect<'_>, now: Now) {
    if notify::is_on() {
        note_effect(key, effect, now);
    }
    key.apply(effect);
}

/// Notes what an effect that another server has decided is about to do.
fn note_effect(key: &Key<'_, '_>, effect: &Effect<'_>, now: Now) {
    let event = match effect {
        Effect::Hold { token, .. } => {
            let hold = key.lock().and_then(|lock| lock.hold_of(*token, now));
            hold.map_or(Event::Acquire, |_| Event::Renew)
        }
        Effect::Release { .. } => Event::Release,
        Effect::Cap { .. } => return,
    };
    key.note(event);
}

pub(in crate::server) fn apply_release(task: &mut Task<'_>) -> Result<(), Error> {
    task.must_be_replay()?;
    let mut args = task.args();
    let token = args.token().map_err(|_| Error::BadEffect)?;
    args.finish()?;
    // There are no others that could be over.
    let effect = Effect::Release { now_ms: 0, token };
    task.replay(|key, now| apply_effect(key, &effect, now))
}
