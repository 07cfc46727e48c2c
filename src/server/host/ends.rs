//! What is told of a lock that the server has removed from its key: an event, and an entry of
//! LOCK.LOG.
//!
//! It is called in the middle of a deletion. So it changes no key: an event is noted and sent
//! later, and the calls for LOCK.LOG only ask.

use std::ffi::c_int;

use super::module::Module;
use crate::engine::Event;
use crate::lock::Lock;
use crate::server::api::clock;
use crate::server::api::main_thread;
use crate::server::api::{Arg, Context};
use crate::server::observe::forced::End;
use crate::server::observe::notify;
use crate::server::observe::stats::held;
use crate::server::observe::stats::removals::Cause;

/// Tells of the end of a lock, on a primary.
pub(in crate::server) fn lock_ended(
    module: &Module,
    db: Option<c_int>,
    name: Arg<'_>,
    lock: &Lock,
    cause: Cause,
) {
    if cause != Cause::Expired {
        note_forced(module, db, name, lock, cause);
    }
    if !notify::is_on() {
        return;
    }
    let event = match cause {
        Cause::Expired => Event::Expire,
        Cause::Evicted | Cause::Forced => Event::Forced,
    };
    if let Some(db) = db.or_else(|| module.notices.only_db()) {
        module.notices.note(db, event, name);
        module.timer.arm_at_once();
    }
}

#[cold]
fn note_forced(module: &Module, db: Option<c_int>, name: Arg<'_>, lock: &Lock, cause: Cause) {
    let Some(ctx) = Context::detached() else {
        return;
    };
    let now = clock::now();
    let oldest = lock.first_live_holds(1, now).pop();
    let is_evicted = cause == Cause::Evicted;
    let end = End {
        db,
        key: Some(name.bytes()),
        oldest: oldest.map(|(token, _, hold)| (token.as_bytes().into(), hold.fence.get())),
        holders: Some(lock.occupancy(now).holders),
        by: is_evicted.then_some("eviction"),
        has_client: !is_evicted && may_have_client(module),
    };
    module.forced.note(ctx, end);
}

/// Whether a client may have caused what the server reports.
fn may_have_client(module: &Module) -> bool {
    main_thread::is_current() && !module.is_at_work()
}

/// Notes that all holds are about to end.
#[cold]
pub(in crate::server) fn flushed(module: &Module, db: Option<c_int>) {
    let held = held::now();
    let ctx = Context::detached().filter(|ctx| ctx.is_primary() && !ctx.is_loading());
    let Some(ctx) = ctx.filter(|_| held.keys() > 0) else {
        return;
    };
    let end = End {
        db,
        key: None,
        oldest: None,
        holders: match db {
            None => usize::try_from(held.holds()).ok(),
            Some(_) => None,
        },
        by: Some(match db {
            None => "flushall",
            Some(_) => "flushdb",
        }),
        has_client: may_have_client(module),
    };
    module.forced.note(ctx, end);
}
