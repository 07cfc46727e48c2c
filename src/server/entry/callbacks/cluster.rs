//! Entries from the modules on other nodes of a cluster.

use std::ffi::c_char;

use redis_module::raw;

use crate::engine::guard::slots::NodeId;
use crate::server::api::Context;
use crate::server::clients::blocked_client::Note;
use crate::server::cluster::slots;
use crate::server::host::module::Module;

/// Has their messages passed on.
pub(in crate::server) fn subscribe(ctx: Context<'_>) {
    for kind in slots::KINDS {
        ctx.receive_from_nodes(kind, Some(on_message));
    }
}

unsafe extern "C" fn on_message(
    _ctx: *mut raw::RedisModuleCtx,
    sender: *const c_char,
    kind: u8,
    payload: *const u8,
    len: u32,
) {
    let len = usize::try_from(len).unwrap_or_default();
    if sender.is_null() || payload.is_null() {
        return;
    }
    // SAFETY: the server passes the 40 bytes of a node's id, and a payload of that length.
    let (by, message) = unsafe {
        (
            *sender.cast::<NodeId>(),
            std::slice::from_raw_parts(payload, len),
        )
    };
    if let Some(event) = slots::event_of(by, kind, message) {
        Module::get().leave(Note::Guard(event));
    }
}
