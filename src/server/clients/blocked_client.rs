//! Blocked clients: the listeners of requests with BLOCK.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::hash::{Hash, Hasher};
use std::mem;
use std::ptr;

use redis_module::raw;

use crate::server::api::scan::Cursor;
use crate::server::api::{call, Context};
use redis_lock_core::engine::{self, Outcome, Types};

/// What the machine remembers for this server.
#[derive(Default)]
pub(crate) struct Redis;

impl Types for Redis {
    type Client = BlockedClient;
    type Hasher = foldhash::fast::RandomState;
    type Cursor = Cursor;
}

/// The machine of this server.
pub(in crate::server) type Machine = engine::Machine<Redis>;

/// What callbacks and the machine use.
pub(in crate::server) type Shared = engine::Shared<Redis>;

/// What a callback has seen.
pub(in crate::server) type Note = engine::Note<BlockedClient>;

/// A blocked client as the server knows it. The handle stays valid until [`unblock`] or
/// [`release`], also when the client is gone. The layers above only compare it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockedClient {
    handle: *mut raw::RedisModuleBlockedClient,
    /// The client's id, as CLIENT LIST shows it; 0 where it does not matter.
    id: u64,
}

impl PartialEq for BlockedClient {
    fn eq(&self, other: &Self) -> bool {
        self.handle == other.handle
    }
}

impl Eq for BlockedClient {}

impl Hash for BlockedClient {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.handle.hash(state);
    }
}

impl BlockedClient {
    /// The handle that the server passes to a callback.
    pub(in crate::server) const fn new(handle: *mut raw::RedisModuleBlockedClient) -> Self {
        Self { handle, id: 0 }
    }

    /// The client's id, as CLIENT LIST shows it.
    pub(in crate::server) const fn id(self) -> u64 {
        self.id
    }

    /// The client of a timeout callback.
    ///
    /// # Safety
    /// The context is that of a timeout callback.
    pub(in crate::server) unsafe fn of_timeout(ctx: Context<'_>) -> Self {
        // SAFETY: the caller's word.
        Self::new(unsafe { call!(RedisModule_GetBlockedClientHandle(ctx.as_ptr())) })
    }
}

/// What the server calls for a blocked client.
#[derive(Clone, Copy)]
pub(in crate::server) struct Callbacks {
    /// It asks for the reply of a client that was unblocked.
    pub(in crate::server) on_reply: raw::RedisModuleCmdFunc,
    /// CLIENT UNBLOCK TIMEOUT. Before Redis 7.4 and Valkey 8 the server loses the reply, or aborts,
    /// when it unblocks a client that is being granted. So these have no such callback, and CLIENT
    /// UNBLOCK answers 0 there.
    pub(in crate::server) on_timeout: raw::RedisModuleCmdFunc,
    /// It has done with an outcome: sent to the client, or never to be sent.
    pub(in crate::server) on_free:
        Option<unsafe extern "C" fn(ctx: *mut raw::RedisModuleCtx, outcome: *mut c_void)>,
    /// A client is gone.
    pub(in crate::server) on_gone: raw::RedisModuleDisconnectFunc,
}

/// Blocks the client of the running command. `None` when the server refuses.
pub(in crate::server) fn block(ctx: Context<'_>, callbacks: &Callbacks) -> Option<BlockedClient> {
    // SAFETY: the context is that of a running command. The server gets no timeout: its own are
    // late, and race with grants.
    let client = unsafe {
        call!(RedisModule_BlockClient(
            ctx.as_ptr(),
            callbacks.on_reply,
            callbacks.on_timeout,
            callbacks.on_free,
            0
        ))
    };
    if client.is_null() {
        return None;
    }
    // SAFETY: the client was blocked just now.
    unsafe { call!(RedisModule_SetDisconnectCallback(client, callbacks.on_gone)) };
    Some(BlockedClient {
        handle: client,
        id: ctx.client_id(),
    })
}

/// The room of the last outcome, kept so that the next one allocates nothing.
pub(in crate::server) type SpareOutcome = Cell<Option<Box<Outcome>>>;

/// Ends the wait of a client whose request has left the registry, and sends its outcome.
pub(in crate::server) fn unblock(client: BlockedClient, outcome: Outcome, spare: &SpareOutcome) {
    let outcome = match spare.take() {
        Some(mut room) => {
            *room = outcome;
            room
        }
        None => Box::new(outcome),
    };
    let outcome = Box::into_raw(outcome);
    // SAFETY: the client was blocked by `block` and is unblocked only once, because it left the
    // registry only once. The server hands the outcome to `on_reply` and then to `on_free`, which
    // frees it.
    unsafe { call!(RedisModule_UnblockClient(client.handle, outcome.cast())) };
}

/// Has the client of the running command not blocked any more. The server calls nothing back.
pub(in crate::server) fn abort(client: BlockedClient) {
    // SAFETY: the client was blocked by `block`, and is neither unblocked nor released: its request
    // has left the registry without an answer.
    unsafe { call!(RedisModule_AbortBlock(client.handle)) };
}

/// Gives back the handle of a client that is gone, or was answered by the server. It has left the
/// registry.
pub(in crate::server) fn release(client: BlockedClient) {
    // SAFETY: as in `unblock`; without an outcome the server calls nothing back.
    unsafe { call!(RedisModule_UnblockClient(client.handle, ptr::null_mut())) };
}

/// The outcome that a reply callback is to tell.
///
/// # Safety
/// The context is that of a reply callback, and `'o` does not outlive it.
pub(in crate::server) unsafe fn outcome_of<'o>(ctx: Context<'_>) -> Option<&'o Outcome> {
    // SAFETY: what the server gives is what `unblock` passed, alive until `on_free`.
    unsafe {
        call!(RedisModule_GetBlockedClientPrivateData(ctx.as_ptr()))
            .cast::<Outcome>()
            .as_ref()
    }
}

/// Takes the outcome that the server has done with, and says whether its client was gone before it
/// was told.
///
/// # Safety
/// `ctx` and `outcome` are what the server passed to `on_free`.
pub(in crate::server) unsafe fn take_outcome(
    ctx: *mut raw::RedisModuleCtx,
    outcome: *mut c_void,
    spare: &SpareOutcome,
) -> Option<(Outcome, bool)> {
    if outcome.is_null() {
        return None;
    }
    // SAFETY: what `unblock` passed, which comes here once. The context is the server's own.
    let (mut room, is_gone) = unsafe {
        let room = Box::from_raw(outcome.cast::<Outcome>());
        let is_gone: c_int = call!(RedisModule_BlockedClientDisconnected(ctx));
        (room, is_gone != 0)
    };
    let outcome = mem::replace(&mut *room, Outcome::Null);
    spare.set(Some(room));
    Some((outcome, is_gone))
}
