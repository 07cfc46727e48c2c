//! Whether the module hears of lost connections, for LINGER: `engine/bindings.rs` says when.

use std::cell::Cell;

use redis_module::raw;

use crate::server::api::Context;

/// Whether the server tells of lost connections.
#[derive(Default)]
pub(in crate::server) struct Connections {
    on_client: Cell<raw::RedisModuleEventCallback>,
    listens: Cell<bool>,
}

impl Connections {
    /// Names the function that the server is to call when a connection is lost, once at load.
    pub(in crate::server) fn set_callback(&self, on_client: raw::RedisModuleEventCallback) {
        self.on_client.set(on_client);
    }

    /// Has the server tell of lost connections from now on.
    pub(in crate::server) fn listen(&self, ctx: Context<'_>) {
        if !self.listens.get() {
            let event = raw::REDISMODULE_EVENT_CLIENT_CHANGE;
            let heard = ctx.on_server_event(event, self.on_client.get());
            self.listens.set(heard);
        }
    }
}
