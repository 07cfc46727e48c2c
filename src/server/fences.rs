//! The server's one fence clock. The module runs in the server's main thread only (values may be freed on another, which does
//! not come here), so a thread-local is the whole server's.
//!
//! # Where a server begins
//!
//! A server that is promoted does not know the newest fences of the primary before it: they were given and not replicated, or by a
//! clock that is ahead of its own. So it begins [`HEAD_START_US`] above its clock and [`UNHEARD_OF`] above all that it has seen, and
//! goes on from there one by one until its clock has caught up. A server that starts does the same, for it may be such a one, killed
//! before it could save what it gave.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;

use redis_module::raw;

use super::api::Context;
use super::clock;
use super::sweep;
use crate::lock::{Fence, FenceClock};

/// How far above its clock a server begins: more than clocks that are kept by NTP differ, and little enough that a slot which moves
/// to another node, whose clock alone goes on, does not go back for long.
const HEAD_START_US: u64 = 1_000_000;

/// More fences than are given and not replicated before a promotion. It matters only where fences are ahead of every clock and go up
/// one by one, and it is small against [`HEAD_START_US`], so that servers which follow one another soon do not run away.
const UNHEARD_OF: u64 = 100_000;

thread_local! {
    static FENCES: RefCell<FenceClock> = const { RefCell::new(FenceClock::new()) };
    /// Where the next fence begins. It is not in `FENCES` before somebody asks for one: it was not given, and a server that has given
    /// none has none to save.
    static BEGINNING: Cell<Option<Fence>> = const { Cell::new(None) };
}

/// Lends the clock to `decide`, which must not call the module API.
pub(super) fn with<R>(decide: impl FnOnce(&mut FenceClock) -> R) -> R {
    BEGINNING.take().into_iter().for_each(observe);
    FENCES.with_borrow_mut(decide)
}

/// Takes notice of a fence that came by replication, from a file or by RESTORE.
pub(super) fn observe(fence: Fence) {
    FENCES.with_borrow_mut(|fences| fences.observe(fence));
}

/// The largest fence given or seen.
pub(super) fn last() -> Option<Fence> {
    FENCES.with_borrow(FenceClock::last)
}

/// Has the next fence begin ahead, as the server starts or is promoted.
pub(super) fn begin_ahead() {
    let by_clock = clock::now().us().saturating_add(HEAD_START_US);
    let by_seen = last().map_or(0, |seen| seen.get().saturating_add(UNHEARD_OF));
    let ahead = by_clock.max(by_seen);
    // Near the largest fence of all there is no room, and nothing to be gained.
    let Some(ahead) = Fence::new(ahead) else {
        return;
    };
    let before = BEGINNING.get().map_or(0, Fence::get);
    if ahead.get() > before {
        BEGINNING.set(Some(ahead));
    }
}

/// Has a promotion noticed. False when the server refuses.
pub(super) fn subscribe(ctx: Context<'_>) -> bool {
    ctx.on_server_event(
        raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
        Some(on_role_change),
    )
}

unsafe extern "C" fn on_role_change(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    role: u64,
    _data: *mut c_void,
) {
    if role == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER {
        begin_ahead();
        // A replica mends nothing, so what its primary had not mended is left to it.
        sweep::request();
    }
}
