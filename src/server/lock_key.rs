//! Locks in the keyspace: a key as the core sees it. A change goes through `commit`.

use std::cell::Cell;

use super::api::{Arg, Argv, Content, Context, OpenKey, Purpose};
use super::lock_type;
use super::module::{Module, State, Task};
use super::notify::{self, Event};
use super::stats::held;
use crate::lock::{Deadline, Effect, Fate, Lock, Now};

/// A key that is absent or holds a lock, open until it is dropped. It keeps its task borrowed, so that no call can come back
/// into this module while it is open.
pub(super) struct Key<'k, 'c> {
    task: &'k mut Task<'c>,
    name: Arg<'k>,
    /// The words of the running command, if one runs; `name` is then its key.
    argv: Option<Argv<'c>>,
    open: OpenKey<'c>,
    /// What the key has now.
    lock: Option<&'k mut Lock>,
    /// The value of a lock that has ended while the key is open: still there, and deleted with the drop. The next lock takes its place
    /// in one step, because the server would look the key up again for each step. Never beside `lock`.
    vacated: Option<&'k mut Lock>,
    /// When the key expires by itself, once that was asked for or set: the server looks it up each time.
    deadline: Cell<Option<Option<Deadline>>>,
    has_changed: bool,
}

/// What can be used while a key is open.
pub(super) struct Parts<'p> {
    pub(super) lock: Option<&'p Lock>,
    pub(super) state: &'p mut State,
    pub(super) module: &'static Module,
    pub(super) key_end: KeyEnd<'p>,
}

/// When the key expires by itself, once somebody asks: the server looks it up.
#[derive(Clone, Copy)]
pub(super) struct KeyEnd<'p> {
    open: &'p OpenKey<'p>,
    known: &'p Cell<Option<Option<Deadline>>>,
}

impl KeyEnd<'_> {
    pub(super) fn deadline(self, now: Now) -> Option<Deadline> {
        if let Some(known) = self.known.get() {
            return known;
        }
        let at_ms = self.open.expires_at_ms(now.ms());
        let deadline = at_ms.and_then(|at_ms| Deadline::from_millis(at_ms.min(Deadline::MAX_MS)));
        self.known.set(Some(deadline));
        deadline
    }
}

/// The key holds a value of another type.
#[derive(Debug)]
pub(super) struct WrongType;

impl<'k, 'c> Key<'k, 'c> {
    pub(super) fn open(
        task: &'k mut Task<'c>,
        name: Arg<'k>,
        purpose: Purpose,
    ) -> Result<Self, WrongType> {
        let open = OpenKey::open(task.caller(), name, purpose);
        let lock = match open.content(lock_type::handle()) {
            Content::Absent => None,
            // SAFETY: a value of our type is a `Lock` that `data_type` boxed. The key owns it, nothing else can reach it while
            // the key is open, and `self.lock` is given up before it is deleted.
            Content::Value(value) => Some(unsafe { &mut *value.cast::<Lock>() }),
            Content::OtherType => return Err(WrongType),
        };
        Ok(Self {
            task,
            name,
            argv: None,
            open,
            lock,
            vacated: None,
            deadline: Cell::new(None),
            has_changed: false,
        })
    }

    /// Opens the key of the running command.
    pub(super) fn of_command(
        task: &'k mut Task<'c>,
        argv: Argv<'c>,
        name: Arg<'k>,
        purpose: Purpose,
    ) -> Result<Self, WrongType> {
        let mut key = Self::open(task, name, purpose)?;
        key.argv = Some(argv);
        Ok(key)
    }

    /// The context, for calls that do not come back.
    pub(super) const fn ctx(&self) -> Context<'c> {
        self.task.ctx()
    }

    /// The parts of the module that callbacks use, too.
    pub(super) const fn module(&self) -> &'static Module {
        self.task.module()
    }

    /// The key's name.
    pub(super) const fn name(&self) -> Arg<'k> {
        self.name
    }

    /// The words of the running command, if one runs.
    pub(super) const fn argv(&self) -> Option<Argv<'c>> {
        self.argv
    }

    /// The lock under the key; `None` when it is absent.
    pub(super) fn lock(&self) -> Option<&Lock> {
        self.lock.as_deref()
    }

    /// The lock and the module's memory.
    pub(super) fn parts(&mut self) -> Parts<'_> {
        let module = self.task.module();
        Parts {
            lock: self.lock.as_deref(),
            state: self.task.state(),
            module,
            key_end: KeyEnd {
                open: &self.open,
                known: &self.deadline,
            },
        }
    }

    /// Whether the lock has changed since the key was opened.
    pub(super) const fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// When the key expires by itself.
    pub(super) fn deadline(&self, now: Now) -> Option<Deadline> {
        let (open, known) = (&self.open, &self.deadline);
        KeyEnd { open, known }.deadline(now)
    }

    /// Changes the key as `effect` says, without a word to replicas and listeners.
    pub(super) fn apply(&mut self, effect: &Effect<'_>, now: Now) {
        self.has_changed = true;
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

    /// Notes an event of the key, for those who listen to events.
    #[inline]
    pub(super) fn note(&self, event: Event) {
        if notify::is_on() {
            let db = self.ctx().selected_db();
            self.task.module().notices.note(db, event, self.name);
        }
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
        if unsafe { self.open.set_value(lock_type::handle(), value.cast()) } {
            // SAFETY: as in `open`.
            let lock = unsafe { &mut *value };
            held::created(lock);
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

impl Drop for Key<'_, '_> {
    fn drop(&mut self) {
        if self.vacated.take().is_some() {
            let inbox = &self.task.module().inbox;
            inbox.suppress_unlink(|| self.open.delete());
        }
    }
}
