//! Subscriptions to the server's events. A module has one callback for each kind of event: a second
//! subscription replaces the first.

use std::ffi::{c_int, c_void};
use std::ptr;

use redis_module::raw;

use super::{call, optional, Context};

/// A function that the server calls once, in the next turn of its event loop.
pub(crate) type OnTurn = unsafe extern "C" fn(*mut c_void);

impl Context<'_> {
    /// Calls `on_turn` once, in the next turn of the event loop. False before 7.0.
    pub(crate) fn call_next_turn(self, on_turn: OnTurn) -> bool {
        let add = optional!(RedisModule_EventLoopAddOneShot);
        // SAFETY: the server passes the null pointer on.
        let status = add.map(|add| unsafe { add(Some(on_turn), ptr::null_mut()) });
        status == Some(raw::REDISMODULE_OK as c_int)
    }

    /// Calls `callback` at each event of this kind. `None` ends the subscription. False if the
    /// server does not know such events.
    pub(crate) fn on_server_event(self, id: u64, callback: raw::RedisModuleEventCallback) -> bool {
        let event = raw::RedisModuleEvent { id, dataver: 1 };
        // SAFETY: the context is alive. The callback has the required signature, and it proves
        // itself what its event's data are.
        let status = unsafe {
            call!(RedisModule_SubscribeToServerEvent(
                self.as_ptr(),
                event,
                callback
            ))
        };
        status == raw::REDISMODULE_OK as c_int
    }
}
