//! Blocked clients: the server's side of a waiting request.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use redis_module::raw;

use super::super::api::{call, Context};
use super::super::clock;
use super::{delivery, timer, with, Removed};
use crate::command::{Error, Reply};
use crate::wait::{Grant, Granted, Listener};

/// A blocked client as the server knows it. The pointer is only ever compared by whoever waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockedClient(*mut raw::RedisModuleBlockedClient);

/// How a wait has ended, on its way to the client.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// A hold, and whether the reply carries the token that the server made for it.
    Granted(Grant, bool),
    /// The timeout has passed.
    TimedOut,
    /// It can never be granted here.
    Error(Error),
}

impl Outcome {
    fn reply(&self) -> Reply<'_> {
        match self {
            Self::Granted(granted, true) => {
                Reply::Made(granted.token.as_token().as_bytes(), granted.fence)
            }
            Self::Granted(granted, false) => Reply::Fence(granted.fence),
            Self::TimedOut => Reply::Null,
            Self::Error(error) => Reply::Error(*error),
        }
    }
}

/// Whether this server can unblock a client by CLIENT UNBLOCK TIMEOUT while it is being granted. Before Redis 7.4 and Valkey 8 the reply is
/// lost then, or the server ends, so those get no timeout callback, and CLIENT UNBLOCK answers 0.
static TAKES_TIMEOUT_CALLBACK: AtomicBool = AtomicBool::new(false);

pub(crate) fn allow_timeout_callback() {
    TAKES_TIMEOUT_CALLBACK.store(true, Ordering::Relaxed);
}

/// Blocks the client of the running command.
pub(super) fn block(ctx: Context<'_>) -> Option<BlockedClient> {
    let timeout_callback: raw::RedisModuleCmdFunc =
        if TAKES_TIMEOUT_CALLBACK.load(Ordering::Relaxed) {
            Some(on_unblock_timeout)
        } else {
            None
        };
    // SAFETY: the context is that of a running command. No timeout of the server's: those are late, and race with grants.
    let client = unsafe {
        call!(RedisModule_BlockClient(
            ctx.as_ptr(),
            Some(on_reply),
            timeout_callback,
            Some(on_free),
            0
        ))
    };
    if client.is_null() {
        return None;
    }
    // SAFETY: the client was blocked just now.
    unsafe { call!(RedisModule_SetDisconnectCallback(client, Some(on_gone))) };
    Some(BlockedClient(client))
}

/// Ends the wait of a request that has left the registry: rule 3 of the module's.
pub(super) fn unblock(removed: Removed, outcome: impl FnOnce(&Removed) -> Outcome) {
    // No channel is named yet, and no place is kept.
    let Some(Listener::Client(client)) = removed.listener else {
        return;
    };
    let outcome = Box::into_raw(Box::new(outcome(&removed)));
    // SAFETY: the client was blocked by `block` and is unblocked only once, as it left the registry only once. The server hands the
    // outcome to `on_reply` and then to `on_free`, which frees it.
    unsafe { call!(RedisModule_UnblockClient(client.0, outcome.cast())) };
}

/// Ends the wait of a request that was granted.
pub(super) fn unblock_granted(granted: Granted<BlockedClient>) {
    if let Some(grant) = granted.grant() {
        unblock(granted.removed, |removed| {
            Outcome::Granted(grant, removed.is_server_generated)
        });
    }
}

/// The server asks for the reply of a client that was unblocked.
unsafe extern "C" fn on_reply(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    // SAFETY: the server's own context, in its callback.
    let Some(ctx) = (unsafe { Context::new(ctx) }) else {
        return raw::REDISMODULE_ERR as c_int;
    };
    // SAFETY: the context is that of a reply callback; what it gives is what `unblock` passed, alive until `on_free`.
    let outcome = unsafe {
        call!(RedisModule_GetBlockedClientPrivateData(ctx.as_ptr()))
            .cast::<Outcome>()
            .as_ref()
    };
    match outcome {
        Some(outcome) => {
            if let Outcome::Granted(granted, _) = outcome {
                delivery::tell(ctx, granted);
            }
            ctx.reply(outcome.reply());
        }
        None => ctx.reply_null(),
    }
    raw::REDISMODULE_OK as c_int
}

/// The server has done with an outcome: told to the client, or never to be told.
unsafe extern "C" fn on_free(ctx: *mut raw::RedisModuleCtx, outcome: *mut c_void) {
    if outcome.is_null() {
        return;
    }
    // SAFETY: what `unblock` passed, which comes here once.
    let outcome = unsafe { Box::from_raw(outcome.cast::<Outcome>()) };
    // SAFETY: the server's own context, in its callback.
    let gone = unsafe { call!(RedisModule_BlockedClientDisconnected(ctx)) } != 0;
    if let (Outcome::Granted(granted, _), true) = (*outcome, gone) {
        with(|registry| registry.deliveries.lost(granted));
        timer::arm();
    }
}

/// A client is gone: it was killed, its connection broke, CLIENT UNBLOCK ERROR has answered it, or the server became a replica.
unsafe extern "C" fn on_gone(
    _ctx: *mut raw::RedisModuleCtx,
    client: *mut raw::RedisModuleBlockedClient,
) {
    forget(BlockedClient(client));
}

/// CLIENT UNBLOCK TIMEOUT.
unsafe extern "C" fn on_unblock_timeout(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    // SAFETY: the server's own context, in its callback.
    if let Some(ctx) = unsafe { Context::new(ctx) } {
        ctx.reply_null();
        // SAFETY: the context is that of a timeout callback.
        let client = unsafe { call!(RedisModule_GetBlockedClientHandle(ctx.as_ptr())) };
        forget(BlockedClient(client));
    }
    raw::REDISMODULE_OK as c_int
}

/// Takes a client out that needs no answer from us. One that is not in the registry was granted; its outcome will come to `on_free`.
fn forget(client: BlockedClient) {
    let now_us = clock::monotonic_us();
    let Some(removed) = with(|registry| registry.remove_listener(client, now_us)) else {
        return;
    };
    // SAFETY: as in `unblock`; without an outcome the server calls nothing back.
    unsafe { call!(RedisModule_UnblockClient(client.0, ptr::null_mut())) };
    // The waiter behind it may be next.
    with(|registry| registry.mark(removed.key_ref.db, &removed.key_ref.name));
    timer::arm();
}
