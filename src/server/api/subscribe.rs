//! Subscriptions to the server's events. A module has one callback for each kind of event: a second
//! subscription replaces the first.

use std::ffi::c_int;

use redis_module::raw;

use super::{call, Context};

impl Context<'_> {
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
