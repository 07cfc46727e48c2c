//! Locks in the keyspace: a key as the core sees it. A change goes through `commit`.

use std::cell::Cell;
use std::{mem, ptr};

use super::module::Task;
use crate::server::api::lock_type;
use crate::server::api::{Arg, Argv, Content, Context, OpenKey};
use crate::server::clients::blocked_client::Shared;
use crate::server::clients::channel;
use crate::server::observe::notify;
use crate::server::observe::stats::held;
use crate::server::replication::propagation;
use redis_lock_core::engine::host::{self, Found, Key as _, Name, Purpose, WrongType};
use redis_lock_core::engine::Event;
use redis_lock_core::lock::{Deadline, Effect, Fate, Lock};

/// A key that is absent or holds a lock, open until it is dropped. It keeps its task borrowed, so
/// that no call can come back into this module while it is open.
pub(in crate::server) struct Key<'k, 'c> {
    task: &'k mut Task<'c>,
    name: Arg<'k>,
    /// The words of the running command, if one runs; `name` is then its key.
    argv: Option<Argv<'c>>,
    open: OpenKey<'c>,
    /// What the key has now.
    lock: Option<&'k mut Lock>,
    /// The value of a lock that has ended while the key is open: still there, and deleted with the
    /// drop. The next lock takes its place in one step, because the server would look the key up
    /// again for each step. Never beside `lock`.
    vacated: Option<&'k mut Lock>,
    /// When the key expires by itself, once that was asked for or set: the server looks it up each
    /// time.
    deadline: Cell<Option<Option<Deadline>>>,
    /// Whether the server was told that it has changed.
    is_signalled: bool,
}

impl Name for Arg<'_> {
    fn bytes(&self) -> &[u8] {
        Arg::bytes(*self)
    }
}

impl<'k, 'c> Key<'k, 'c> {
    pub(in crate::server) fn open(
        task: &'k mut Task<'c>,
        name: Arg<'k>,
        purpose: Purpose,
    ) -> Result<Self, WrongType> {
        let open = OpenKey::open(task.caller(), name, purpose);
        let lock = lock_of(&open)?;
        Ok(Self {
            task,
            name,
            argv: None,
            open,
            lock,
            vacated: None,
            deadline: Cell::new(None),
            is_signalled: false,
        })
    }

    /// Opens the key of the running command.
    pub(in crate::server) fn of_command(
        task: &'k mut Task<'c>,
        argv: Argv<'c>,
        name: Arg<'k>,
        purpose: Purpose,
    ) -> Result<Self, WrongType> {
        let mut key = Self::open(task, name, purpose)?;
        key.argv = Some(argv);
        Ok(key)
    }

    /// Puts a whole lock under the key, in place of what it has.
    pub(in crate::server) fn replace(&mut self, lock: Lock) {
        if self.lock.is_some() {
            self.vacate();
        }
        if self.create(lock) {
            self.follow_deadline();
        }
    }

    /// Puts a lock under a key without one. The server may call other modules for a new key. False
    /// if one of them has removed the lock, or if the key takes none.
    fn create(&mut self, lock: Lock) -> bool {
        if let Some(place) = self.vacated.take() {
            held::changed((place.mode(), place.len()), (lock.mode(), lock.len()));
            *place = lock;
            self.lock = Some(place);
            return true;
        }
        held::created(&lock);
        let inbox = &self.task.module().shared.inbox;
        let (before, value) = (inbox.changes(), Box::into_raw(Box::new(lock)));
        // SAFETY: the type's methods expect a boxed `Lock`.
        if !unsafe { self.open.set_value(lock_type::handle(), value.cast()) } {
            // SAFETY: the key has refused the value, so it is still ours.
            held::freed(&*unsafe { Box::from_raw(value) });
            return false;
        }
        if inbox.changes() != before {
            // The value may be gone.
            let is_there = |lock: &&mut Lock| ptr::eq::<Lock>(&**lock, value);
            return self.reopen().is_ok() && self.lock.as_ref().is_some_and(is_there);
        }
        // SAFETY: as in `lock_of`.
        self.lock = Some(unsafe { &mut *value });
        true
    }

    /// Opens the key again, because something may have changed it.
    fn reopen(&mut self) -> Result<(), WrongType> {
        self.lock = None;
        self.deadline.set(None);
        self.open.close();
        self.open = OpenKey::open(self.task.caller(), self.name, Purpose::Write);
        self.lock = lock_of(&self.open).inspect_err(|WrongType| {
            // It takes no change any more.
            self.open = OpenKey::open(self.task.caller(), self.name, Purpose::Read);
        })?;
        Ok(())
    }

    /// Makes a call that may come back, and opens the key again.
    fn while_closed<R>(&mut self, call: impl FnOnce(&mut Task<'c>) -> R) -> Result<R, WrongType> {
        self.delete_vacated();
        self.lock = None;
        self.open.close();
        let result = call(self.task);
        self.reopen()?;
        Ok(result)
    }

    fn vacate(&mut self) {
        self.vacated = self.lock.take();
        self.deadline.set(Some(None));
    }

    fn delete_vacated(&mut self) {
        if self.vacated.take().is_some() {
            let inbox = &self.task.module().shared.inbox;
            inbox.suppress_unlink(|| self.open.delete());
        }
    }

    fn ctx(&self) -> Context<'c> {
        self.task.ctx()
    }

    /// The key ends with its last hold.
    fn follow_deadline(&self) {
        if let Some(deadline) = self.lock().and_then(Lock::latest_deadline) {
            self.open.expire_at_ms(deadline.ms());
            self.deadline.set(Some(Some(deadline)));
        }
    }
}

impl<'k, 'c> host::Key for Key<'k, 'c> {
    type Server = Context<'c>;
    type Name = Arg<'k>;

    #[inline]
    fn server(&self) -> Context<'c> {
        self.ctx()
    }

    #[inline]
    fn name(&self) -> Arg<'k> {
        self.name
    }

    #[inline]
    fn lock(&self) -> Option<&Lock> {
        self.lock.as_deref()
    }

    #[inline]
    fn parts(&mut self) -> host::Parts<'_, Self> {
        let shared = &self.task.module().shared;
        host::Parts {
            lock: self.lock.as_deref(),
            machine: self.task.machine(),
            shared,
        }
    }

    #[inline]
    fn shared(&self) -> &Shared {
        &self.task.module().shared
    }

    #[inline]
    fn deadline(&self) -> Option<Deadline> {
        // Redis 8.2 would follow a null pointer for a key that is open for writing and absent.
        self.lock.as_ref()?;
        if let Some(known) = self.deadline.get() {
            return known;
        }
        let at_ms = self.open.expires_at_ms();
        let deadline = at_ms.and_then(|at_ms| Deadline::from_millis(at_ms.min(Deadline::MAX_MS)));
        self.deadline.set(Some(deadline));
        deadline
    }

    fn apply(&mut self, effect: &Effect<'_>) -> bool {
        let fate = match self.lock.as_deref_mut() {
            Some(lock) => {
                let before = (lock.mode(), lock.len());
                let fate = effect.apply_to(lock);
                held::changed(before, (lock.mode(), lock.len()));
                fate
            }
            None => match effect.apply_to_absent() {
                None => return true,
                Some(lock) => match self.create(lock) {
                    true => Fate::Held,
                    false => return false,
                },
            },
        };
        match fate {
            Fate::Free => self.vacate(),
            Fate::Held => self.follow_deadline(),
        }
        true
    }

    #[inline]
    fn replicate(&mut self, effect: &Effect<'_>, ends_lock: bool) {
        let (ctx, record) = (self.ctx(), &self.task.module().record);
        let mut buffer = record.take();
        propagation::send(ctx, self.argv, self.name, effect, ends_lock, &mut buffer);
        record.set(buffer);
        // Nobody can look between two changes of one key.
        if !mem::replace(&mut self.is_signalled, true) {
            ctx.signal_modified(self.name);
        }
    }

    #[inline]
    fn note(&self, event: Event) {
        if notify::is_on() {
            let db = self.ctx().selected_db();
            self.task.module().notices.note(db, event, self.name);
        }
    }

    fn result(&mut self, name: &[u8], with_ttl: bool) -> Result<Found, WrongType> {
        self.while_closed(|task| task.caller().string(name, with_ttl))
    }

    fn may_be_heard(&mut self, name: &[u8]) -> Result<bool, WrongType> {
        self.while_closed(|task| channel::may_be_heard(task.caller(), name))
    }
}

/// The lock under an open key.
fn lock_of<'k>(open: &OpenKey<'_>) -> Result<Option<&'k mut Lock>, WrongType> {
    match open.content(lock_type::handle()) {
        Content::Absent => Ok(None),
        // SAFETY: a value of our type is a `Lock` that `data_type` boxed. The key owns it, nothing
        // else can reach it while the key is open, and `Key::lock` is given up before the key is
        // closed or the value deleted.
        Content::Value(value) => Ok(Some(unsafe { &mut *value.cast::<Lock>() })),
        Content::OtherType => Err(WrongType),
    }
}

impl Drop for Key<'_, '_> {
    fn drop(&mut self) {
        self.delete_vacated();
    }
}
