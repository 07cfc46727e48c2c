//! The module's own keyspace events; `docs/COMMANDS.md` lists them. They belong to the class `d`
//! of `notify-keyspace-events`, which `A` includes on every supported server. So they are off
//! unless an operator turns them on.
//!
//! If PEXPIRE has brought the end of a key forward, `lock.forced` follows `expired`.
//!
//! A refusal has no event, because it changes nothing, and clients that retry would flood the
//! listeners. `lock_refused` counts refusals. FLUSHALL and FLUSHDB send no event, because the
//! server does not say which keys they delete.
//!
//! A replica sends the events when an effect arrives, as the server does for its own types. An
//! effect does not contain its cause. So on a replica a hand-over is a `lock.acquire`, a repeated
//! acquire is a `lock.renew`, and an expiry is the server's `del`. It sends no `lock.forced`.
//!
//! # Rule
//!
//! An event is noted at once, and sent when the command or the timer has closed its keys
//! ([`Notices`]). A listener may be another module, and it must not find a key half changed. The
//! module learns of an expiry or of a forced end within a notification, where it may not send
//! anything.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::{c_int, CStr};

use redis_module::raw;

use crate::server::api::{call, Arg};
use redis_lock_core::engine::Event;

/// The name of an event.
pub(in crate::server) const fn name(event: Event) -> &'static CStr {
    match event {
        Event::Acquire => c"lock.acquire",
        Event::Handover => c"lock.handover",
        Event::Renew => c"lock.renew",
        Event::Release => c"lock.release",
        Event::Expire => c"lock.expire",
        Event::Forced => c"lock.forced",
    }
}

/// An event that has not been sent yet.
pub(in crate::server) struct Notice {
    pub(in crate::server) event: Event,
    pub(in crate::server) db: c_int,
    pub(in crate::server) key: Box<[u8]>,
}

/// The events that have not been sent yet.
#[derive(Default)]
pub(in crate::server) struct Notices {
    is_pending: Cell<bool>,
    notices: RefCell<VecDeque<Notice>>,
}

/// Whether the operator has turned the events on.
#[inline]
pub(in crate::server) fn is_on() -> bool {
    // SAFETY: the function takes nothing and reads a number.
    let classes = unsafe { call!(RedisModule_GetNotifyKeyspaceEvents()) };
    classes & raw::REDISMODULE_NOTIFY_MODULE as c_int != 0
}

impl Notices {
    /// Notes an event.
    #[cold]
    pub(in crate::server) fn note(&self, db: c_int, event: Event, key: Arg<'_>) {
        let key = key.bytes().into();
        self.notices
            .borrow_mut()
            .push_back(Notice { event, db, key });
        self.is_pending.set(true);
    }

    /// Whether there are events to send.
    #[inline]
    pub(in crate::server) fn is_pending(&self) -> bool {
        self.is_pending.get()
    }

    /// Takes the next event to send.
    pub(in crate::server) fn next(&self) -> Option<Notice> {
        let mut notices = self.notices.borrow_mut();
        let next = notices.pop_front();
        if notices.is_empty() {
            // There may have been a million.
            *notices = VecDeque::new();
            self.is_pending.set(false);
        }
        next
    }
}
