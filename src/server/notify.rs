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
//! A key that PEXPIRE has brought to an earlier end has its own `expired` alone. Redis 6.2 does not say in which database a key is
//! deleted: there `lock.expire` is announced while the module's events have been seen in one database only.
//!
//! There is none for a refusal, for that changes nothing, and clients that try again and again would flood the listeners; `lock_refused`
//! counts them. Nor for a hold that was ended from outside: the server has `del`, `set`, `rename_from`, `evicted` and the like for that.
//!
//! On a replica they are announced when an effect arrives, as the server announces its own types' there. An effect does not say what brought it about:
//! a hand-over is a `lock.acquire` there, an acquire asked for again a `lock.renew`, and an expiry the server's `del`.
//!
//! # Rule
//!
//! What has happened is noted at once, and announced when the command or the timer has done with its keys. A listener may be another
//! module, which must not find a key of ours half changed; and the expiry of a key is heard of in a notification, where one
//! announces nothing.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::{c_int, CStr};
use std::sync::atomic::{AtomicBool, Ordering};

use redis_module::raw;

use super::api::{call, Arg, Context, OwnedString};

/// What is announced.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Acquire,
    Handover,
    Renew,
    Release,
    Expire,
}

impl Event {
    const fn name(self) -> &'static CStr {
        match self {
            Self::Acquire => c"lock.acquire",
            Self::Handover => c"lock.handover",
            Self::Renew => c"lock.renew",
            Self::Release => c"lock.release",
            Self::Expire => c"lock.expire",
        }
    }
}

struct Note {
    event: Event,
    db: c_int,
    key: Box<[u8]>,
}

/// Whether there is something in `NOTES`.
static PENDING: AtomicBool = AtomicBool::new(false);

thread_local! {
    static NOTES: RefCell<Vec<Note>> = const { RefCell::new(Vec::new()) };
    /// The databases in which something was noted.
    static DBS: RefCell<BTreeSet<c_int>> = const { RefCell::new(BTreeSet::new()) };
}

/// Whether anybody is to be told.
#[inline]
pub(super) fn is_on() -> bool {
    // SAFETY: the function takes nothing and reads a number.
    let classes = unsafe { call!(RedisModule_GetNotifyKeyspaceEvents()) };
    classes & raw::REDISMODULE_NOTIFY_MODULE as c_int != 0
}

/// Notes an event of a key in the database that the context looks at. Whoever calls it sees to it that [`flush`] follows.
#[inline]
pub(super) fn note(ctx: Context<'_>, event: Event, key: Arg<'_>) {
    if is_on() {
        keep(ctx, event, key);
    }
}

#[cold]
fn keep(ctx: Context<'_>, event: Event, key: Arg<'_>) {
    note_in(ctx.selected_db(), event, key);
}

/// Notes an event of a key in a database.
pub(super) fn note_in(db: c_int, event: Event, key: Arg<'_>) {
    let note = Note {
        event,
        db,
        key: key.bytes().into(),
    };
    DBS.with_borrow_mut(|dbs| dbs.insert(db));
    NOTES.with_borrow_mut(|notes| notes.push(note));
    PENDING.store(true, Ordering::Relaxed);
}

/// The only database in which anything was noted so far, if there is just one.
pub(super) fn only_db() -> Option<c_int> {
    DBS.with_borrow(|dbs| dbs.first().copied().filter(|_| dbs.len() == 1))
}

/// Announces what was noted.
#[inline]
pub(super) fn flush(ctx: Context<'_>) {
    if PENDING.load(Ordering::Relaxed) {
        flush_notes(ctx);
    }
}

#[cold]
fn flush_notes(ctx: Context<'_>) {
    PENDING.store(false, Ordering::Relaxed);
    let db = ctx.selected_db();
    for note in NOTES.take() {
        ctx.select_db(note.db);
        let key = OwnedString::new(ctx, &note.key);
        // SAFETY: the context and the two strings are alive.
        unsafe {
            call!(RedisModule_NotifyKeyspaceEvent(
                ctx.as_ptr(),
                raw::REDISMODULE_NOTIFY_MODULE as c_int,
                note.event.name().as_ptr(),
                key.arg().as_ptr(),
            ))
        };
    }
    // The context may be a client's.
    ctx.select_db(db);
}
