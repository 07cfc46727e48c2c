//! What is told of a lock that the server has removed from its key: an event, and an entry of
//! LOCK.LOG.
//!
//! It is called in the middle of a deletion. So it changes no key: an event is noted and sent
//! later, and the calls for LOCK.LOG only ask.

use std::ffi::c_int;

use super::module::Module;
use crate::server::api::main_thread;
use crate::server::api::Arg;
use crate::server::observe::notify;
use crate::server::observe::stats::removals::RemovalCause;
use redis_lock_core::engine::Event;
use redis_lock_core::lock::Lock;

/// Tells of the end of a lock, on a primary.
pub(in crate::server) fn lock_ended(
    module: &Module,
    db: c_int,
    name: Arg<'_>,
    lock: &Lock,
    cause: RemovalCause,
) {
    let event = match cause {
        RemovalCause::Expired => Event::Expire,
        RemovalCause::Evicted | RemovalCause::Forced => {
            let is_evicted = cause == RemovalCause::Evicted;
            let has_client = may_have_client(module);
            let key = (db, name.bytes());
            module.forced.lock_ended(key, lock, is_evicted, has_client);
            Event::Forced
        }
    };
    if notify::is_on() {
        module.notices.note(db, event, name);
        module.timer.arm_at_once();
    }
}

/// Tells that all holds are about to end.
pub(in crate::server) fn flushed(module: &Module, db: Option<c_int>) {
    module.forced.flushed(db, may_have_client(module));
}

/// Whether a client may have caused what the server reports.
fn may_have_client(module: &Module) -> bool {
    main_thread::is_current() && !module.is_at_work()
}
