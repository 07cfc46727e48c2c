//! Messages between the modules of the nodes of a cluster.

use std::ffi::CStr;

use redis_module::raw;

use super::Context;

impl Context<'_> {
    /// Sends a message to the module on another node. It may get lost.
    pub(crate) fn send_to_node(self, node: &CStr, kind: u8, message: &[u8]) {
        let Ok(len) = u32::try_from(message.len()) else {
            return;
        };
        // SAFETY: the context is alive. The server copies `len` bytes, and a node's id of 40.
        unsafe {
            if let Some(send) = raw::RedisModule_SendClusterMessage {
                send(
                    self.as_ptr(),
                    node.as_ptr(),
                    kind,
                    message.as_ptr().cast(),
                    len,
                );
            }
        }
    }

    /// Has the messages of one kind passed to a function.
    pub(crate) fn receive_from_nodes(
        self,
        kind: u8,
        receiver: raw::RedisModuleClusterMessageReceiver,
    ) {
        // SAFETY: the context is alive, and so is the function.
        unsafe {
            if let Some(register) = raw::RedisModule_RegisterClusterMessageReceiver {
                register(self.as_ptr(), kind, receiver);
            }
        }
    }
}
