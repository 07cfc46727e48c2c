//! Locks that leave their key by the server's hand, and why. The server unlinks the value first and says why after that, in the same
//! command: by `expired`, `evicted`, or the name of what the key went elsewhere by. What it says nothing of, or `del`, has ended the holds by force.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, CStr};

use redis_module::raw;

use super::super::announce::{self, Event};
use super::super::api::{Arg, Context};
use super::super::waiting::alarm;
use super::counters::{EVICTED, EXPIRED, FORCED};
use crate::lock::Lock;

thread_local! {
    /// The lock that was last seen to leave.
    static LAST: RefCell<Departure> = const { RefCell::new(Departure::new()) };
}

struct Departure {
    name: Vec<u8>,
    /// Its holds, where they count: not on a replica, whose primary counts them, and not in a file that is loaded.
    holds: usize,
    /// Whether nothing has been heard since of why it left.
    is_open: bool,
}

impl Departure {
    const fn new() -> Self {
        Self {
            name: Vec::new(),
            holds: 0,
            is_open: false,
        }
    }

    /// Takes it as ended by force unless the server has said otherwise.
    fn settle(&mut self) {
        if self.is_open {
            self.is_open = false;
            FORCED.add(self.holds);
        }
    }

    /// Hears why a key has left. Answers whether it was this lock.
    fn is_explained(&mut self, name: &[u8]) -> bool {
        let is_this = self.is_open && self.name == name;
        if is_this {
            self.is_open = false;
        }
        is_this
    }
}

/// Notes that a lock has left its key, before the server says why.
pub(in super::super) fn begin(name: &[u8], lock: Option<&Lock>) {
    let counts = Context::detached().is_some_and(|ctx| ctx.is_primary() && !ctx.is_loading());
    let holds = lock.filter(|_| counts).map_or(0, Lock::len);
    LAST.with_borrow_mut(|last| {
        last.settle();
        last.name.clear();
        last.name.extend_from_slice(name);
        last.holds = holds;
        last.is_open = true;
    });
}

/// Takes notice of a generic event of a key.
pub(in super::super) fn hear(event: &CStr, name: Arg<'_>) {
    LAST.with_borrow_mut(|last| {
        if !last.is_open {
            return;
        }
        let goes_elsewhere = event == c"rename_from" || event == c"move_from";
        if !(goes_elsewhere && last.is_explained(name.bytes())) {
            last.settle();
        }
    });
}

/// Counts the lock that has left last, if nothing more can be heard of it: before the counters are looked at, and between commands.
pub(in super::super) fn settle() {
    LAST.with_borrow_mut(Departure::settle);
}

/// Subscribes to the events that say why. False when the server refuses.
pub(in super::super) fn subscribe(ctx: Context<'_>) -> bool {
    let why = raw::REDISMODULE_NOTIFY_EXPIRED | raw::REDISMODULE_NOTIFY_EVICTED;
    ctx.on_keyspace_event(why, Some(on_reason))
}

unsafe extern "C" fn on_reason(
    ctx: *mut raw::RedisModuleCtx,
    kind: c_int,
    _event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the server's own context and string, in its callback.
    let (ctx, key) = unsafe { (Context::new(ctx), Arg::new(key)) };
    let has_expired = LAST.with_borrow_mut(|last| {
        if !last.is_open || !last.is_explained(key.bytes()) {
            last.settle();
            return false;
        }
        if kind == raw::REDISMODULE_NOTIFY_EVICTED {
            EVICTED.add_one();
            return false;
        }
        EXPIRED.add(last.holds);
        true
    });
    if let (true, Some(ctx)) = (has_expired && announce::is_on(), ctx) {
        announce::note(ctx, Event::Expire, key);
        alarm::arm_at_once();
    }
    raw::REDISMODULE_OK as c_int
}
