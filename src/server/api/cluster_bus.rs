//! Messages between the modules of the nodes of a cluster.

use std::ffi::CStr;

use redis_module::raw;

use super::{optional, Context};

impl Context<'_> {
    /// Sends a message to the module on another node. It may get lost.
    pub(crate) fn send_to_node(self, node: &CStr, kind: u8, message: &[u8]) {
        let Ok(len) = u32::try_from(message.len()) else {
            return;
        };
        let bytes = message.as_ptr().cast();
        if let Some(send) = optional!(RedisModule_SendClusterMessage) {
            // SAFETY: the context is alive. The server copies `len` bytes, and a node's id of 40.
            unsafe { send(self.as_ptr(), node.as_ptr(), kind, bytes, len) };
        }
    }

    /// Has the messages of one kind passed to a function.
    pub(crate) fn receive_from_nodes(
        self,
        kind: u8,
        receiver: raw::RedisModuleClusterMessageReceiver,
    ) {
        if let Some(register) = optional!(RedisModule_RegisterClusterMessageReceiver) {
            // SAFETY: the context is alive, and so is the function.
            unsafe { register(self.as_ptr(), kind, receiver) };
        }
    }
}
