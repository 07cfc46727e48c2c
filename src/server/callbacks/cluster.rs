//! Entries from the modules on other nodes of a cluster.

use std::ffi::c_char;

use redis_module::raw;

use super::super::api::Context;
use super::super::blocked_client::Note;
use super::super::cluster_slots;
use super::super::module::Module;
use crate::engine::guard::slots::NodeId;

/// Has their messages passed on.
pub(in super::super) fn subscribe(ctx: Context<'_>) {
    for kind in cluster_slots::KINDS {
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
    if let Some(event) = cluster_slots::event_of(by, kind, message) {
        Module::get().leave(Note::Guard(event));
    }
}
