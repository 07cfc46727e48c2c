//! The module's own keyspace events, of the class `d` of `notify-keyspace-events` (`A` includes it on every supported server), so that they are off
//! unless an operator turns them on:
//!
//! | event | when |
//! | --- | --- |
//! | `lock.acquire` | an acquire was granted at once: a new hold, the same one asked for again, or a conversion |
//! | `lock.handover` | an acquire was granted to a client that waited |
//! | `lock.renew` | a hold was given a new deadline by LOCK.RENEW |
//! | `lock.release` | a hold was released, or was taken back as its client was gone before it heard of the grant |
//! | `lock.expire` | the deadline of a hold, or of several, has passed: when the server deletes the key, right after its own `expired`; or, where other shares live on, at the next change of the lock |
//!
//! A key that PEXPIRE has brought to an earlier end has the server's `expired` alone. Redis 6.2 does not say in which database a key
//! is deleted: there `lock.expire` comes only while the module's events have been seen in one database.
//!
//! A refusal has no event, because it changes nothing, and clients that retry would flood the listeners; `lock_refused` counts
//! refusals. A hold that was ended from outside has none either: the server has `del`, `set`, `rename_from`, `evicted` and the like.
//!
//! A replica sends the events when an effect arrives, as the server does for its own types. An effect does not say what caused
//! it: a hand-over is a `lock.acquire` there, a repeated acquire a `lock.renew`, and an expiry the server's `del`.
//!
//! # Rule
//!
//! An event is noted at once, and sent when the command or the timer has closed its keys ([`Notices`]). A listener may be another
//! module, which must not find a key half changed. The expiry of a key is noticed within a notification, where nothing may be
//! sent.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ffi::{c_int, CStr};

use redis_module::raw;

use super::api::{call, Arg};

/// An event.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Acquire,
    Handover,
    Renew,
    Release,
    Expire,
}

impl Event {
    pub(super) const fn name(self) -> &'static CStr {
        match self {
            Self::Acquire => c"lock.acquire",
            Self::Handover => c"lock.handover",
            Self::Renew => c"lock.renew",
            Self::Release => c"lock.release",
            Self::Expire => c"lock.expire",
        }
    }
}

/// An event that is still to be sent.
pub(super) struct Notice {
    pub(super) event: Event,
    pub(super) db: c_int,
    pub(super) key: Box<[u8]>,
}

/// The events that are still to be sent.
#[derive(Default)]
pub(super) struct Notices {
    is_pending: Cell<bool>,
    notices: RefCell<Vec<Notice>>,
    /// The databases in which an event was noted.
    dbs: RefCell<BTreeSet<c_int>>,
}

/// Whether the operator has turned the events on.
#[inline]
pub(super) fn is_on() -> bool {
    // SAFETY: the function takes nothing and reads a number.
    let classes = unsafe { call!(RedisModule_GetNotifyKeyspaceEvents()) };
    classes & raw::REDISMODULE_NOTIFY_MODULE as c_int != 0
}

impl Notices {
    /// Notes an event.
    #[cold]
    pub(super) fn note(&self, db: c_int, event: Event, key: Arg<'_>) {
        let key = key.bytes().into();
        self.dbs.borrow_mut().insert(db);
        self.notices.borrow_mut().push(Notice { event, db, key });
        self.is_pending.set(true);
    }

    /// The database of all events so far, if there is just one.
    pub(super) fn only_db(&self) -> Option<c_int> {
        let dbs = self.dbs.borrow();
        dbs.first().copied().filter(|_| dbs.len() == 1)
    }

    /// Whether there are events to send.
    #[inline]
    pub(super) fn is_pending(&self) -> bool {
        self.is_pending.get()
    }

    /// Takes the events that are to be sent.
    pub(super) fn take(&self) -> Vec<Notice> {
        self.is_pending.set(false);
        self.notices.take()
    }
}
