//! Listening to the server. A module has one callback for an event of the server; one for another takes its place.

use std::ffi::c_int;

use redis_module::raw;

use super::api::{call, Context};

impl Context<'_> {
    /// Has `callback` called at each event of the server of this kind; `None` ends that. False when the server does not know such events.
    pub(super) fn on_server_event(self, id: u64, callback: raw::RedisModuleEventCallback) -> bool {
        let event = raw::RedisModuleEvent { id, dataver: 1 };
        // SAFETY: the context is alive; the callback has the form of all such callbacks, and proves itself what its event's data are.
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
