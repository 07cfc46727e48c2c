//! Locks in the keyspace: a key as the core wants to see it, and the one place where an effect is carried out.

use std::cell::Cell;

use super::api::{Arg, Argv, Context};
use super::notify::{self, Event};
use super::open_key::{Content, OpenKey, Purpose};
use super::stats::held;
use super::stats::{self, counters};
use super::waiting::callbacks;
use super::{data_type, propagation};
use crate::lock::{Deadline, Effect, Fate, Lock, Now, TokenBuf};

/// A key that is absent or holds a lock.
pub(super) struct Key<'c> {
    ctx: Context<'c>,
    name: Arg<'c>,
    /// Of the command that runs, if one does; `name` is then its key.
    argv: Option<Argv<'c>>,
    open: OpenKey<'c>,
    /// What the key has now.
    lock: Option<&'c mut Lock>,
    /// The value of a lock that has ended while this is open: still there, and deleted with the drop. The lock of who comes next takes its
    /// place in one step, where a key that goes and comes again is looked up time and again. Never beside `lock`.
    vacated: Option<&'c mut Lock>,
    /// When it expires by itself, once that was asked for or set: the server looks it up each time.
    deadline: Cell<Option<Option<Deadline>>>,
}

/// The key holds a value of another type.
#[derive(Debug)]
pub(super) struct WrongType;

impl<'c> Key<'c> {
    pub(super) fn open(
        ctx: Context<'c>,
        name: Arg<'c>,
        purpose: Purpose,
    ) -> Result<Self, WrongType> {
        let open = OpenKey::open(ctx, name, purpose);
        let lock = match open.content(data_type::raw()) {
            Content::Absent => None,
            // SAFETY: a value of our type is a `Lock` that `data_type` boxed; the key owns it, nobody else can reach it while
            // the key is open, and `self.lock` is given up before it is deleted.
            Content::Value(value) => Some(unsafe { &mut *value.cast::<Lock>() }),
            Content::OtherType => return Err(WrongType),
        };
        Ok(Self {
            ctx,
            name,
            argv: None,
            open,
            lock,
            vacated: None,
            deadline: Cell::new(None),
        })
    }

    /// Opens the key of the command that runs.
    pub(super) fn of_command(
        ctx: Context<'c>,
        argv: Argv<'c>,
        name: Arg<'c>,
        purpose: Purpose,
    ) -> Result<Self, WrongType> {
        let mut key = Self::open(ctx, name, purpose)?;
        key.argv = Some(argv);
        Ok(key)
    }

    /// The key's name.
    pub(super) const fn name(&self) -> Arg<'c> {
        self.name
    }

    /// The lock under the key; `None` when it is absent.
    pub(super) fn lock(&self) -> Option<&Lock> {
        self.lock.as_deref()
    }

    /// When the key expires by itself.
    pub(super) fn deadline(&self, now: Now) -> Option<Deadline> {
        if let Some(known) = self.deadline.get() {
            return known;
        }
        let at_ms = self.open.expires_at_ms(now.ms());
        let deadline = at_ms.and_then(|at_ms| Deadline::from_millis(at_ms.min(Deadline::MAX_MS)));
        self.deadline.set(Some(deadline));
        deadline
    }

    /// Carries a decision out: the value, the key's ttl, the replicas and the append-only file, WATCH and CLIENT TRACKING. `had_it` says
    /// whether the effect's token has its hold before.
    pub(super) fn commit(&mut self, effect: &Effect<'_>, had_it: bool, now: Now) {
        let before = self.holds();
        self.carry_out(effect, now);
        let over = stats::dropped(effect, had_it, before, self.holds());
        if over > 0 {
            counters::EXPIRED.add(over);
            self.note(Event::Expire);
        }
    }

    #[inline(always)] // It is on the way of every command that changes something.
    fn carry_out(&mut self, effect: &Effect<'_>, now: Now) {
        let ends_lock = matches!(effect, Effect::Release { .. })
            && self.lock().is_some_and(|lock| lock.len() == 1);
        // A key that goes takes its ttl along.
        if !ends_lock {
            if let Some(cap) = self.cap_from_outside(now) {
                self.apply(&cap, now);
                propagation::send(self.ctx, self.argv, self.name, &cap, false);
            }
        }
        self.apply(effect, now);
        propagation::send(self.ctx, self.argv, self.name, effect, ends_lock);
        self.ctx.signal_modified(self.name);
    }

    /// Has the key end with its last hold again, after a command that took its ttl away or brought in a lock without one.
    pub(super) fn repair_ttl(&mut self, now: Now) {
        let Some((lock, latest)) = self
            .lock()
            .and_then(|lock| lock.latest_deadline().map(|d| (lock, d)))
        else {
            return;
        };
        if lock.is_free(now) {
            let last = lock.holders().pop();
            let last = last.map(|(token, _)| TokenBuf::from(token.as_token()));
            if let Some(token) = last {
                let now_ms = now.ms();
                let token = token.as_token();
                counters::EXPIRED.add(self.holds());
                self.note(Event::Expire);
                self.carry_out(&Effect::Release { now_ms, token }, now);
            }
        } else if self.deadline(now).is_none_or(|deadline| deadline > latest) {
            self.carry_out(&Effect::Cap { deadline: latest }, now);
        }
    }

    /// Changes the key as `effect` says, without telling anybody.
    pub(super) fn apply(&mut self, effect: &Effect<'_>, now: Now) {
        let fate = match self.lock.as_deref_mut() {
            Some(lock) => {
                let before = (lock.mode(), lock.len());
                let fate = effect.apply_to(lock);
                held::changed(before, (lock.mode(), lock.len()));
                fate
            }
            None => match effect.apply_to_absent() {
                Some(lock) => self.create(lock),
                None => return,
            },
        };
        match fate {
            Fate::Free => self.vacate(),
            Fate::Held => self.follow_deadline(now),
        }
    }

    /// Puts a whole lock under the key, in place of what it has.
    pub(super) fn replace(&mut self, lock: Lock, now: Now) {
        if self.lock.is_some() {
            self.vacate();
        }
        let Fate::Held = self.create(lock) else {
            return;
        };
        self.follow_deadline(now);
    }

    /// Notes what has happened to the key, for those who listen to events.
    pub(super) fn note(&self, event: Event) {
        notify::note(self.ctx, event, self.name);
    }

    /// Notes what an effect that another server has decided is about to do.
    pub(super) fn note_effect(&self, effect: &Effect<'_>, now: Now) {
        match effect {
            Effect::Hold { .. } if notify::is_on() && self.has_hold_of(effect, now) => {
                self.note(Event::Renew);
            }
            Effect::Hold { .. } => self.note(Event::Acquire),
            Effect::Release { .. } => self.note(Event::Release),
            Effect::Cap { .. } => {}
        }
    }

    /// How many holds the lock has, those included that are over.
    fn holds(&self) -> usize {
        self.lock().map_or(0, Lock::len)
    }

    fn has_hold_of(&self, effect: &Effect<'_>, now: Now) -> bool {
        let token = match effect {
            Effect::Hold { token, .. } | Effect::Release { token, .. } => *token,
            Effect::Cap { .. } => return false,
        };
        let hold = self.lock().and_then(|lock| lock.hold_of(token, now));
        hold.is_some()
    }

    /// The effect that must come before any other because an `EXPIRE` has brought the key's end before that of its holds.
    fn cap_from_outside(&self, now: Now) -> Option<Effect<'static>> {
        self.lock()?.cap(self.deadline(now)?)
    }

    fn create(&mut self, lock: Lock) -> Fate {
        if let Some(place) = self.vacated.take() {
            held::changed((place.mode(), place.len()), (lock.mode(), lock.len()));
            *place = lock;
            self.lock = Some(place);
            return Fate::Held;
        }
        let value = Box::into_raw(Box::new(lock));
        // SAFETY: the type's methods expect a boxed `Lock`.
        if unsafe { self.open.set_value(data_type::raw(), value.cast()) } {
            // SAFETY: as in `open`.
            let lock = unsafe { &mut *value };
            held::made(lock);
            self.lock = Some(lock);
            return Fate::Held;
        }
        // SAFETY: the key has refused the value, so it is still ours.
        drop(unsafe { Box::from_raw(value) });
        Fate::Free
    }

    fn vacate(&mut self) {
        self.vacated = self.lock.take();
        self.deadline.set(Some(None));
    }

    /// The key ends with its last hold.
    fn follow_deadline(&self, now: Now) {
        if let Some(deadline) = self.lock().and_then(Lock::latest_deadline) {
            self.open.expire_at_ms(deadline.ms(), now.ms());
            self.deadline.set(Some(Some(deadline)));
        }
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        if self.vacated.take().is_some() {
            callbacks::suppress_unlink(|| self.open.delete());
        }
    }
}
